"""What a resubmission may change: options of sbatch, and whether each is a job's or a task's.

The command line, the API and `span top` follow this table. A change is named OPTION or TASK.OPTION.
"""

from __future__ import annotations

from enum import Enum

from overspan.bridge.model.records import NamedTuple


class OptionOwner(Enum):
    """Whose an option is in a job of several tasks."""

    JOB = "job"
    TASK = "task"
    """One task's: a change has to name it."""
    EACH = "each task"
    """A task's, and every task's where a change names none."""


class ResubmitOption(NamedTuple):
    """An option that may be changed, by its long name in `sbatch_options`."""

    name: str
    owner: OptionOwner
    help: str
    value: str = "VALUE"
    """What --help calls its value; empty for a flag."""
    alias: str = ""
    """The name that `span submit` has for it."""


_JOB, _TASK, _EACH = OptionOwner

RESUBMIT_OPTIONS: tuple[ResubmitOption, ...] = (
    ResubmitOption("time", _EACH, "wall time: 90, 2h, 1-12:00:00, UNLIMITED", "TIME"),
    ResubmitOption("mem", _TASK, "memory of each node: 32G", "SIZE"),
    ResubmitOption("mem-per-cpu", _TASK, "memory for each CPU: 4G", "SIZE"),
    ResubmitOption("cpus-per-task", _TASK, "CPUs; of a job file's task, of each node", "N"),
    ResubmitOption("nodes", _TASK, "number of nodes", "N"),
    ResubmitOption("ntasks", _TASK, "number of processes that srun starts", "N"),
    ResubmitOption("ntasks-per-node", _TASK, "processes on each node", "N"),
    ResubmitOption("gpus-per-node", _TASK, "GPUs of each node: 4, H100:4", "GPUS"),
    ResubmitOption("gpus", _TASK, "GPUs of all nodes together", "GPUS"),
    ResubmitOption("gpus-per-task", _TASK, "GPUs for each process that srun starts", "GPUS"),
    ResubmitOption("gres", _TASK, "generic resources of each node: gpu:2,shard:1", "LIST"),
    ResubmitOption("partition", _JOB, "partition; of several the first that takes it", "NAMES"),
    ResubmitOption("account", _JOB, "account", "NAME"),
    ResubmitOption("qos", _JOB, "quality of service", "NAME"),
    ResubmitOption("clusters", _JOB, "cluster; of several the first that takes it", "NAMES", alias="cluster"),
    ResubmitOption("job-name", _JOB, "name", "NAME", alias="name"),
    ResubmitOption("comment", _JOB, "comment", "TEXT"),
    ResubmitOption("begin", _JOB, "not before: 18:00, now+2hours, 2030-01-31T08:00", "WHEN"),
    ResubmitOption("dependency", _JOB, "not before other jobs: afterok:42", "LIST"),
    ResubmitOption("hold", _JOB, "not before `span release`", ""),
    ResubmitOption("priority", _JOB, "priority", "N"),
    ResubmitOption("nice", _JOB, "how far behind others", "N"),
    ResubmitOption("nodelist", _EACH, "only these nodes", "NODES"),
    ResubmitOption("exclude", _EACH, "none of these nodes", "NODES"),
    ResubmitOption("constraint", _EACH, "features of the nodes", "LIST"),
    ResubmitOption("reservation", _EACH, "reservation", "NAME"),
)

_BY_NAME = {name: option for option in RESUBMIT_OPTIONS for name in (option.name, option.alias) if name}


def list_option_names() -> list[str]:
    """Every name that `find_resubmit_option` knows."""
    return list(_BY_NAME)


def find_resubmit_option(name: str) -> ResubmitOption | None:
    """The option of that name, of sbatch's or `span submit`'s."""
    return _BY_NAME.get(name)


def split_change(key: str) -> tuple[str, str]:
    """The task (empty for none) and the option that OPTION or TASK.OPTION names."""
    task, _, option = key.rpartition(".")
    return task, option
