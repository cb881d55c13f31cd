"""A group whose members tell what they find: their variables, and whether all names resolve. For every cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import yaml

MEMBERS = ("head-0.vars", "worker-0.vars", "worker-1.vars")
COUNTS = {"head": 1, "worker": 2}
SCRIPT = """\
import json, os, socket
members = os.environ["OVERSPAN_MEMBERS"].split(",")
found = {name: socket.gethostbyname(name) for name in members + [name.partition(".")[0] for name in members]}
print(json.dumps({"env": dict(os.environ), "found": found}))
"""


def write_group(**resources: Any) -> str:
    """The job file: `head` of one node and `worker` of two."""
    tasks = [
        {"name": name, "num_nodes": count, "resources": resources, "run": f"python3 -c '{SCRIPT}'"}
        for name, count in COUNTS.items()
    ]
    return str(yaml.safe_dump_all([{"name": "vars", "execution": "parallel"}, *tasks], sort_keys=False))


def check_members(job: int, read: Callable[[str, int], str]) -> dict[str, dict[str, Any]]:
    """Compare what each member has told; `read` gives the log of a task's node. What they told, by name."""
    told = {}
    for task, count in COUNTS.items():
        for index in range(count):
            member = f"{task}-{index}.vars"
            told[member] = json.loads(read(task, index))
            _check_variables(told[member]["env"], job, (task, index, count))
            found = told[member]["found"]
            assert all(found[name] == found[name.partition(".")[0]] for name in MEMBERS), found
            assert len({found[name] for name in MEMBERS}) >= 2, found
    return told


def _check_variables(env: dict[str, str], job: int, who: tuple[str, int, int]) -> None:
    task, index, count = who
    wanted = {
        "OVERSPAN_JOB_ID": str(job),
        "OVERSPAN_GROUP": "vars",
        "OVERSPAN_TASK": task,
        "OVERSPAN_NODE_INDEX": str(index),
        "OVERSPAN_NUM_NODES": str(count),
        "OVERSPAN_ATTEMPT": "0",
        "OVERSPAN_HOST": f"{task}-{index}.vars",
        "OVERSPAN_MEMBERS": ",".join(MEMBERS),
        "OVERSPAN_HEAD_HOSTS": MEMBERS[0],
        "OVERSPAN_WORKER_HOSTS": ",".join(MEMBERS[1:]),
        "SKYPILOT_NODE_RANK": str(index),
        "SKYPILOT_NUM_NODES": str(count),
        "SKYPILOT_JOBGROUP_NAME": "vars",
        "SKYPILOT_NUM_GPUS_PER_NODE": "0",
        "SKYPILOT_TASK_ID": f"overspan-{job}-{task}",
        "SKYPILOT_MANAGED_JOB_ID": str(job),
        "SLURM_JOB_NAME": "vars",
        "SLURM_NNODES": str(count),
        "SLURM_NTASKS": str(count),
        "SLURM_PROCID": str(index),
        "SLURM_NODEID": str(index),
        "SLURM_LOCALID": "0",
        "SLURM_HET_SIZE": "2",
    }
    wrong = {name: (env.get(name), value) for name, value in wanted.items() if env.get(name) != value}
    assert not wrong, f"{task}-{index}: {wrong}"
    assert len(env["SKYPILOT_NODE_IPS"].split()) == count
    assert env["OVERSPAN_RUN_DIR"] and env["SLURM_JOB_ID"].isdigit()
