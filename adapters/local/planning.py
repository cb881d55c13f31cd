"""What `span plan` prints for this machine, the processes that would be started; and of a launch, those that it is.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from overspan.adapters.local.queue.admission import GPUS_UNKNOWN, find_refusal
from overspan.adapters.local.queue.booking import BookedMember, list_variants
from overspan.adapters.local.queue.capacity import Capacity
from overspan.adapters.local.queue.partition_limits import list_limits
from overspan.adapters.local.settings import Settings
from overspan.bridge.model.durations import format_limit
from overspan.bridge.model.job import Job
from overspan.bridge.model.names import member_host, member_name
from overspan.bridge.model.records import replace
from overspan.bridge.model.resources import MILLI
from overspan.bridge.model.sizes import format_memory
from overspan.bridge.model.spec import Form, TaskSpec
from overspan.bridge.model.storage import MountMode, StorageMount
from overspan.bridge.runtime.core.environment import domain_of

GivenMembers = Mapping[tuple[str, int], Sequence[Any]]
"""What a grant gives each member, by task and node: task, node, host, address, GPUs."""
NOTHING: GivenMembers = {}


def render_plan(job: Job, settings: Settings, capacity: Capacity) -> str:
    """A job's local plan: its processes, their resources, and how they start."""
    members = list_variants(job, capacity)[0]
    lines = [f"# {job.spec.name}: {len(members)} node{'s' * (len(members) != 1)} on this machine, booked together"]
    refusal = find_refusal(job, settings, capacity)
    if refusal == GPUS_UNKNOWN:
        lines += [f"# It would wait: {GPUS_UNKNOWN}"]
    elif refusal:
        lines += [f"# It would be refused: {line}" for line in refusal.splitlines()]
    limits = {event.task: event.time for _, event in list_limits(job, settings.partition(job.spec.partition), 0.0)}
    for spec in job.spec.tasks:
        task = replace(spec, time=limits.get(spec.name, spec.time))
        lines += ["", *render_task(job, task, [member for member in members if member.task == task.name])]
    return "\n".join(lines) + "\n"


def render_launch(job: Job, capacity: Capacity, grant: Mapping[str, Any] | None) -> str:
    """The plan of a launch as its supervisor has it, with the nodes, addresses and GPUs of its grant."""
    variants = list_variants(job, capacity)
    members = variants[min(int((grant or {}).get("variant", 0)), len(variants) - 1)]
    given = {(row[0], row[1]): row for row in (grant or {}).get("members", ())}
    head = f"# {job.spec.name}: {len(members)} node{'s' * (len(members) != 1)} on this machine"
    lines = [head if given else f"{head}, which waits for its resources"]
    for task in job.spec.tasks:
        own = [member for member in members if member.task == task.name]
        lines += ["", *render_task(job, task, own, given)]
    return "\n".join(lines) + "\n"


def render_task(job: Job, task: TaskSpec, members: list[BookedMember], given: GivenMembers = NOTHING) -> list[str]:
    """A task's nodes, where and what they run; `given` is what a grant gave them."""
    role = "primary" if task.primary else "auxiliary"
    lines = [f"[{task.name}] {role}, time limit {format_limit(task.time)}, grace {task.grace_period} s"]
    if task.needs:
        lines.append("  after: " + ", ".join(f"{need.task} ({need.kind.value})" for need in task.needs))
    for member in members:
        lines.append(f"  {_name_member(job, member)}: {_render_need(member)}{_render_given(member, given)}")
    where = task.workdir or job.spec.origin.directory
    if where:
        lines.append(f"  in: {where}")
    lines += [f"  {line}" for line in _render_storage(task)]
    if task.setup.strip():
        lines += ["  setup:", *_indent(task.setup)]
    started = "on the first node, as it is" if task.form is Form.BATCH else "on every node"
    return [*lines, f"  run {started}:", *_indent(task.run)]


def _render_storage(task: TaskSpec) -> list[str]:
    """What is mounted of object stores, and what the end means for data that is written there."""
    lines = [
        f"storage: {mount.target} is {_name_mode(mount)} of {mount.url}, by the store {mount.store}"
        + ("; each file for itself, except checkpoints with a marker" if mount.written else "")
        + (
            "; read through the store if this machine can mount it (FUSE), else brought before the start"
            * mount.read_through
        )
        for mount in task.storage
    ]
    if task.flushes:
        limit, verdict = format_limit(task.flush.timeout), task.flush.on_failure.value
        lines.append(f"at the end: up to {limit} for data on its way, else {verdict}; it stays on this machine")
    return lines


def _name_mode(mount: StorageMount) -> str:
    return (MountMode.MOUNT if mount.read_through else mount.mode).value


def _name_member(job: Job, member: BookedMember) -> str:
    try:
        if job.spec.group:
            return member_host(member.task, member.node, domain_of(job))
        return member_name(member.task, member.node)
    except ValueError:
        return f"{member.task}-{member.node}"


def _render_need(member: BookedMember) -> str:
    need = member.need
    parts = [f"{need.cpu_milli / MILLI:g} CPU"]
    if need.memory_mib is not None:
        parts.append("all memory" if need.memory_mib == 0 else f"{format_memory(need.memory_mib)} memory")
    if need.gpu_milli:
        parts.append(f"{need.gpu_milli / MILLI:g} GPU" + (f" ({need.gpu_kind})" if need.gpu_kind else ""))
    parts += [str(entry) for entry in need.gres]
    return ", ".join(parts)


def _render_given(member: BookedMember, given: GivenMembers) -> str:
    row = given.get((member.task, member.node))
    if row is None:
        return ""
    _, _, node, address, gpus = row
    return f" on {node} ({address})" + (f", GPU {','.join(map(str, gpus))}" if gpus else "")


def _indent(text: str) -> list[str]:
    return [f"    {line}".rstrip() for line in text.rstrip("\n").splitlines()]
