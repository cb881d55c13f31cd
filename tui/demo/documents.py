"""The lab's jobs as the daemon tells of them: rows of listings, the document of `show`, timelines. Pure."""

from __future__ import annotations

from typing import Any

from overspan.bridge.client.messages import Transition
from overspan.bridge.listings.rows import JobRow
from overspan.bridge.model.ids import collapse, format_array_indices
from overspan.bridge.model.slurm.hostlists import compress
from overspan.tui.demo.lab import sum_wishes
from overspan.tui.demo.people import UIDS
from overspan.tui.demo.records import DemoJob, DemoTask, RunOfTask, TaskWish

HOST = "login1"
GPU_KINDS = {"gpu": "h100", "normal": "gh200", "debug": "gh200", "orbit": "a100", "local": "rtx4090"}


def make_rows(job: DemoJob) -> list[JobRow]:
    """The rows of a job: one for each task; of an array one for the elements that wait, if any do."""
    if job.is_array:
        return [_make_waiting_row(job)] if job.waiting else []
    return [_make_row(job, offset) for offset in range(len(job.tasks))]


def make_history_rows(job: DemoJob) -> list[JobRow]:
    """The row of a job as a whole; of an array those for the elements that wait, and never came to be."""
    if not job.is_array:
        return [_make_whole_row(job)]
    rows = [_make_waiting_row(job)] if job.waiting else []
    if job.cancelled:
        indices = format_array_indices(collapse(job.cancelled))
        base = _make_base(job, job.tasks[0].wish)
        rows.append(base._replace(state="CANCELLED", array_waiting=indices, ended_at=job.ended_at))
    return rows


def _make_waiting_row(job: DemoJob) -> JobRow:
    waiting = format_array_indices(collapse(job.waiting), job.throttle)
    return _make_base(job, job.tasks[0].wish)._replace(
        state="PENDING", reason=job.reason, array_waiting=waiting, expected_start=job.expected_start
    )


def _make_row(job: DemoJob, offset: int) -> JobRow:
    task = job.tasks[offset]
    run = task.current
    whole = len(job.tasks) == 1
    started = job.started_at if whole else run.started_at if run else None
    row = _make_base(job, task.wish)._replace(
        task_offset=None if whole else offset,
        raw_id=job.id + offset,
        name=task.wish.name if job.wish.group else job.name,
        state=job.state if whole else task.state,
        reason=_choose_reason(job, task),
        node_list=_list_nodes(job, task),
        started_at=started,
        ended_at=job.ended_at if whole else task.ended_at,
        time_limit=task.limit,
        paused=run.suspended if run else 0,
        exit_code=run.exit_code if run else 0,
        signal=run.signal if run else 0,
        attempt=run.number if run else 0,
        members=_count_members(task),
    )
    return _add_times(row, job)


def _count_members(task: DemoTask) -> str:
    if not task.wish.most or task.ended_at is not None:
        return ""
    own = 0 if task.state == "PENDING" else task.wish.nodes
    return f"{own + sum(member.holds for member in task.members)} of {task.wish.nodes}-{task.wish.most}"


def _make_whole_row(job: DemoJob) -> JobRow:
    if len(job.tasks) == 1:
        return _make_row(job, 0)
    nodes, cpus, memory, gpus = sum_wishes([task.wish for task in job.tasks])
    row = _make_base(job, job.tasks[0].wish)._replace(
        state=job.state,
        reason=job.reason,
        nodes=nodes,
        cpus=cpus,
        memory=memory,
        gpus=gpus,
        node_list=compress(dict.fromkeys(run.node for task in job.tasks if task.current for run in task.current.nodes)),
        started_at=job.started_at,
        ended_at=job.ended_at,
        exit_code=job.exit_code,
        signal=job.signal,
    )
    return _add_times(row, job)


def _add_times(row: JobRow, job: DemoJob) -> JobRow:
    ends = None
    if row.started_at is not None and row.ended_at is None and row.time_limit is not None:
        ends = row.started_at + row.time_limit + row.paused
    return row._replace(
        paused_at=job.suspended_at if row.state == "SUSPENDED" else None,
        expected_start=job.expected_start if row.state == "PENDING" else None,
        end_limit=ends,
    )


def _make_base(job: DemoJob, task: TaskWish) -> JobRow:
    """What does not depend on how it goes."""
    wish = job.wish
    output, error = find_paths(job, task.name)
    return JobRow(
        id=job.id,
        raw_id=job.id,
        name=job.name,
        group=wish.name if wish.group else job.group.name if job.group is not None else "",
        member_of=f"{job.group.id}+{job.task}" if job.group is not None else "",
        user=wish.user,
        partition=job.partition,
        cluster=wish.cluster,
        nodes=task.nodes,
        cpus=task.nodes * task.cpus,
        memory=task.memory,
        gpus=task.nodes * task.gpus,
        submitted_at=job.submitted_at,
        time_limit=wish.limit,
        priority=job.priority,
        begin=job.begin,
        array_id=job.array_id,
        array_index=job.array_index,
        array_throttle=job.throttle,
        account=wish.account,
        qos=wish.qos,
        comment=job.comment,
        work_dir=find_folder(job),
        command=f"{find_folder(job)}/{wish.file}",
        dependency=f"afterok:{job.after}(unfulfilled)" if job.after else "",
        restarts=job.restarts,
        tasks=len(job.tasks),
        uid=UIDS.get(wish.user, 1000),
        gid=100,
        nice=job.nice,
        stdout=output,
        stderr=error,
        submit_line=write_submit_line(job),
        cpus_per_task=task.cpus,
        gpu_kind=GPU_KINDS.get(job.partition, "") if task.gpus else "",
        host=HOST,
        batch=not wish.group,
    )


def find_folder(job: DemoJob) -> str:
    """The working directory."""
    return f"/home/{job.wish.user}/{job.wish.name.partition('-')[0]}"


def find_paths(job: DemoJob, task: str) -> tuple[str, str]:
    """Where output and errors go; a group's are kept in its run directory."""
    if job.wish.group or job.wish.cluster == "orbit":
        return "", ""
    number = str(job.id) if job.array_index is None else f"{job.array_id}_{job.array_index}"
    return (f"{find_folder(job)}/{job.wish.name}-{number}.out",) * 2


def write_submit_line(job: DemoJob) -> str:
    """The command that it was submitted with."""
    wish = job.wish
    if wish.group or wish.cluster == "orbit":
        return f"span submit {wish.file}"
    return f"span sbatch -M {wish.cluster} -p {wish.partition} {wish.file}"


def _choose_reason(job: DemoJob, task: DemoTask) -> str:
    return job.reason if job.state == "PENDING" or len(job.tasks) == 1 else task.reason


def _list_nodes(job: DemoJob, task: DemoTask) -> str:
    run = task.current
    return (
        compress(dict.fromkeys(node.node for node in run.nodes)) if run is not None and job.state != "PENDING" else ""
    )


# --- in full ----------------------------------------------------------------------------------------------------------


def describe_demo_job(job: DemoJob, now: float) -> dict[str, Any]:
    """One job in full: the document of `show`."""
    wish = job.wish
    return {
        **_describe_place(job),
        **_describe_wait(job),
        "partition": job.partition,
        "account": wish.account,
        "qos": wish.qos,
        "comment": job.comment,
        "command": wish.file,
        "host": HOST,
        "state": job.state,
        "suspended": job.suspended,
        "suspended_at": job.suspended_at,
        "parent": None,
        "joined": [member.id for task in job.tasks for member in task.members],
        "array": _describe_array(job),
        "element": None if job.array_index is None else f"{job.array_id}_{job.array_index}",
        "submitted_at": job.submitted_at,
        "started_at": job.started_at,
        "ended_at": job.ended_at,
        "exit_code": job.exit_code,
        "signal": job.signal,
        "restarts": job.restarts,
        "requeue": True,
        "notes": [],
        "tasks": [_describe_task(job, offset) for offset in range(len(job.tasks))],
        "now": now,
    }


def _describe_place(job: DemoJob) -> dict[str, Any]:
    wish = job.wish
    return {
        "id": job.id,
        "name": job.name,
        "group": wish.group,
        "user": wish.user,
        "uid": UIDS.get(wish.user, 1000),
        "cluster": wish.cluster,
        "clusters": [wish.cluster],
        "configured": True,
        "stale_since": None,
        "stale_why": "",
        "passed": [],
        "bids": [],
        "native_id": job.native_id,
        "work_dir": find_folder(job),
    }


def _describe_wait(job: DemoJob) -> dict[str, Any]:
    return {
        "reason": job.reason,
        "refusal": "",
        "obstacle": "",
        "held": job.held,
        "expected_start": job.expected_start,
        "priority": job.priority,
        "nice": job.nice,
        "dependency": f"afterok:{job.after}(unfulfilled)" if job.after else "",
        "begin": job.begin,
        "next_start": None,
    }


def _describe_array(job: DemoJob) -> dict[str, Any] | None:
    if not job.is_array:
        return None
    output, error = find_paths(job, "")
    return {
        "stdout": output,
        "stderr": error,
        "waiting": format_array_indices(collapse(job.waiting)),
        "throttle": job.throttle,
        "cancelled": format_array_indices(collapse(job.cancelled)),
    }


def _describe_task(job: DemoJob, offset: int) -> dict[str, Any]:
    task = job.tasks[offset]
    wish, run = task.wish, task.current
    output, error = find_paths(job, wish.name)
    waits = f"{wish.name} waits for {wish.waits_for}: not ready yet" if task.reason == "Dependency" and run else ""
    return {
        "name": wish.name,
        "offset": offset if len(job.tasks) > 1 else None,
        "raw_id": job.id + offset,
        "state": task.state,
        "reason": _choose_reason(job, task),
        "waits": waits,
        "primary": wish.primary,
        "elastic": _describe_elastic(task),
        "nodes": wish.nodes,
        "cpus": wish.nodes * wish.cpus,
        "memory": wish.memory,
        "gpus": wish.nodes * wish.gpus,
        "node_list": _list_nodes(job, task),
        "time_limit": task.limit,
        "started_at": run.started_at if run else None,
        "ended_at": task.ended_at,
        "suspended": run.suspended if run else 0.0,
        "exit_code": run.exit_code if run else 0,
        "signal": run.signal if run else 0,
        "restarts": task.restarts,
        "attempt": run.number if run else 0,
        "next_start": None,
        "ready_at": task.ready_at,
        "stdout": output,
        "stderr": error,
        "termination_delay": 0,
        "grace_period": 30,
        "storage": [],
        "attempts": [_describe_run(job, each, wish, each is run) for each in task.attempts],
    }


def _describe_elastic(task: DemoTask) -> dict[str, Any] | None:
    if not task.wish.most:
        return None
    wanted = task.wish.nodes + len(task.staying)
    return {"min": task.wish.nodes, "max": task.wish.most, "wanted": wanted, "grows": False}


def _describe_run(job: DemoJob, run: RunOfTask, wish: TaskWish, newest: bool) -> dict[str, Any]:
    shown = newest and run.live
    return {
        "number": run.number,
        "state": run.state,
        "cause": run.cause,
        "detail": run.detail,
        "launched_at": run.launched_at,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
        "exit_code": run.exit_code,
        "signal": run.signal,
        "nodes": [
            {
                "index": node.index,
                "node": node.node,
                "address": f"10.4.{job.id % 250}.{node.index + 1}" if shown else "",
                "gpus": list(range(wish.gpus)) if shown else [],
                "started_at": node.started_at,
                "ended_at": node.ended_at,
                "exit_code": node.exit_code,
                "signal": node.signal,
                "detail": node.detail,
            }
            for node in run.nodes
        ],
    }


def make_transitions(job: DemoJob, task: str = "") -> list[Transition]:
    """The timeline; of a task with what is told of the whole job."""
    return [
        Transition(each.seq, job.id, each.task, each.at, each.start, each.end, each.reason, each.cause, each.text)
        for each in job.timeline
        if not task or each.task in ("", task)
    ]
