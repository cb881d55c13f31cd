"""Checks values of sbatch options; errors have sbatch's words and exit codes.

Every source is checked, also where a later one replaces the value: sbatch ends for a wrong #SBATCH line whatever the
command line says. The decisions were measured on sbatch 22.05.8; tests/unit/readers/data has them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from overspan.bridge.model.durations import parse_time_limit, parse_when
from overspan.bridge.model.resources import parse_gpu_counts, parse_gres
from overspan.bridge.model.sizes import parse_memory
from overspan.bridge.model.slurm.hostlists import count
from overspan.bridge.model.slurm.words import BAD_GRES, BAD_NODE
from overspan.bridge.readers.sbatch.arguments import Given, GivenOptions
from overspan.bridge.readers.sbatch.errors import (
    SbatchUsage,
    fatal,
    invalid_number,
    invalid_value,
    refused_script,
    refused_submission,
)
from overspan.bridge.readers.signals import parse_signal_before

Check = Callable[[Given], None]

MAX_PRIORITY = 2**32 - 3
MAX_NICE = 2147483645
"""Slurm keeps the highest values for itself."""
_MAX_NUMBER = 2**31 - 3

_LIMITS = ["ALL", "NONE", "AS", "CORE", "CPU", "DATA", "FSIZE", "MEMLOCK", "NOFILE", "NPROC", "RSS", "STACK"]
_MAILS = [
    "NONE",
    "BEGIN",
    "END",
    "FAIL",
    "REQUEUE",
    "ALL",
    "TIME_LIMIT",
    "TIME_LIMIT_50",
    "TIME_LIMIT_80",
    "TIME_LIMIT_90",
    "ARRAY_TASKS",
    "INVALID_DEPEND",
    "STAGE_OUT",
]
_SPREAD = r"(?:block|cyclic|fcyclic|\*)"
_CPU_SPEED = r"(?:[0-9]+|low|medium|high|highm1)"
_GOVERNOR = "conservative|ondemand|performance|powersave|userspace|schedutil"
_GPU_SPEED = r"(?:[0-9]+|low|medium|high|highm1)"

_FORMS = {
    "acctg-freq": r"[0-9]+|(?:(?:task|energy|network|filesystem)=[0-9]+(?:,|$))+|",
    "cpu-freq": rf"{_CPU_SPEED}(?:-{_CPU_SPEED})?(?::(?:{_GOVERNOR}))?|{_GOVERNOR}",
    "exclusive": r"user|mcs|topo",
    "get-user-env": r"[0-9]*[SL]?",
    "gpu-bind": r"(?:verbose,|v,)?(?:closest|none|per_task:[0-9]+|single:[0-9]+|(?:map|mask)(?:_gpu)?:[0-9a-fx,*]+)",
    "gpu-freq": rf"(?:(?:memory=)?{_GPU_SPEED}|verbose)(?:,(?:(?:memory=)?{_GPU_SPEED}|verbose))*",
    "gres-flags": r"(?:(?:disable-binding|enforce-binding|multiple-tasks-per-sharing|one-task-per-sharing"
    r"|allow-task-sharing)(?:,|$))+",
    "hint": r"compute_bound|memory_bound|multithread|nomultithread",
    "kill-on-invalid-dep": r"yes|no",
    "mem-bind": r"(?:(?:verbose|quiet|v|q|none|no|rank|local|prefer|nosort|sort|help|(?:map|mask)_mem:[0-9a-fx,*]+)"
    r"(?:,|$))+",
    "no-kill": r"off",
    "open-mode": r"[at].*",
    "profile": r"(?:(?:all|none|energy|task|lustre|network|filesystem)(?:,|$))+",
    "wait-all-nodes": r"[01]",
}
_WORDS = {
    "acctg-freq": "Invalid --acctg-freq specification: {}",
    "cpu-freq": "Invalid --cpu-freq argument",
    "gpu-bind": "Invalid --gpu-bind argument: gpu:{}",
    "gpu-freq": "Invalid --gpu-freq argument: gpu:{}",
    "mem-bind": 'unrecognized --mem-bind argument "{}"',
    "profile": "invalid --profile={} option",
}
"""Messages of sbatch that differ from `Invalid --NAME specification`."""

_COUNTS = [
    "cores-per-socket",
    "cpus-per-gpu",
    "cpus-per-task",
    "mincpus",
    "ntasks",
    "ntasks-per-core",
    "ntasks-per-gpu",
    "ntasks-per-node",
    "ntasks-per-socket",
    "ntasks-per-tres",
    "sockets-per-node",
    "thread-spec",
    "threads-per-core",
]


def check_values(options: GivenOptions) -> None:
    """Refuse the first value that sbatch would refuse. Raises SbatchUsage and SbatchRefused."""
    for name, given in options.items():
        check = _CHECKS.get(name)
        if check is not None and given.value is not None:
            check(given)


def _parsed(name: str, parse: Callable[[str], object]) -> Check:
    def check(given: Given) -> None:
        try:
            parse(given.value or "")
        except ValueError as error:
            raise invalid_value(name, given.place, str(error)) from None

    return check


def _formed(name: str) -> Check:
    def check(given: Given) -> None:
        written = given.value or ""
        if re.fullmatch(_FORMS[name], written, re.IGNORECASE):
            return
        if name == "hint":
            raise refused_script(f'unrecognized --hint argument "{written}", see --hint=help', place=given.place)
        if name == "wait-all-nodes" and not written.isdigit():
            raise invalid_number("--wait-all-nodes", written, given.place)
        if name == "cpu-freq":
            raise _bad(f"{_find_speed_fault(written)}\nsbatch: error: {_WORDS[name]}", given)
        if name in _WORDS:
            raise _bad(_WORDS[name].format(written), given)
        raise invalid_value(name, given.place)

    return check


def _find_speed_fault(written: str) -> str:
    speed, colon, governor = written.partition(":")
    if colon and re.fullmatch(rf"{_CPU_SPEED}(?:-{_CPU_SPEED})?", speed, re.IGNORECASE):
        return f"illegal governor: {governor} on --cpu-freq"
    return f'unrecognized --cpu-freq argument "{written}"'


def _bad(line: str, given: Given, remedy: str = "") -> SbatchUsage:
    return SbatchUsage(f"sbatch: error: {line}", place=given.place, remedy=remedy)


def _check_count(given: Given) -> None:
    _check_number(given, 1)


def _check_number(given: Given, least: int) -> None:
    written = given.value or ""
    if not re.fullmatch("[0-9]{1,10}", written) or not least <= int(written) <= _MAX_NUMBER:
        raise invalid_number(f"--{given.option.name}", written, given.place)


def _check_geometry(given: Given) -> None:
    """-B: sockets[:cores[:threads]], each a number or `*`."""
    for place, part in zip(("first", "second", "third"), (given.value or "").split(":"), strict=False):
        if not re.fullmatch(r"\*|[0-9]{1,9}(?:-[0-9]{1,9})?|", part):
            raise invalid_number(f"{place} arg of -B", part, given.place)


def _check_nice(given: Given) -> None:
    written = given.value or ""
    if not re.fullmatch("[-+]?[0-9]{1,18}", written):
        # strtoll(3) reads such a word as 0, and the job would not have the nice that was meant.
        raise _bad("Invalid --nice value", given, "write a whole number")
    if abs(int(written)) > MAX_NICE:
        raise _bad(f"Invalid --nice value, out of range (+/- {MAX_NICE})", given)


def _check_priority(given: Given) -> None:
    written = given.value or ""
    if written.upper() == "TOP":
        return
    if not re.fullmatch("[-+]?[0-9]{1,18}", written):
        # sbatch reads such a word as 0, which would hold the job.
        raise invalid_value("priority", given.place, "write a whole number, or TOP")
    if int(written) < 0:
        raise _bad("Priority must be >= 0", given)
    if int(written) > MAX_PRIORITY:
        raise _bad(f"Priority must be < {MAX_PRIORITY + 1}", given)


def _check_mails(given: Given) -> None:
    if not any(word.upper() in _MAILS for word in (given.value or "").split(",")):
        raise invalid_value("mail-type", given.place, f"the types are {', '.join(_MAILS)}")


def _check_distribution(given: Given) -> None:
    written = (given.value or "").lower()
    if re.match("plane(?:$|[^=]|=(?![1-9]))", written):
        raise SbatchUsage(
            "sbatch: error: Invalid plane size or size not specified\n"
            "sbatch: error: Invalid --distribution specification",
            place=given.place,
        )
    form = rf"(?:(?:{_SPREAD}|plane=[0-9]+|arbitrary)(?::{_SPREAD}){{0,2}})(?:,(?:no)?pack)?"
    if not re.fullmatch(form, written):
        raise invalid_value("distribution", given.place)


def _check_switches(given: Given) -> None:
    written = (given.value or "").partition("@")[0]
    if not re.fullmatch("[0-9]{1,9}", written) or int(written) == 0:
        raise invalid_number("--switches", given.value or "", given.place)


def _check_propagate(given: Given) -> None:
    for word in (given.value or "").split(","):
        if word.upper().removeprefix("RLIMIT_") not in _LIMITS:
            lines = (f"Bad rlimit name: {word}", f"--propagate={given.value} is not valid.")
            raise refused_script(*lines, place=given.place, remedy=f"the names are {', '.join(_LIMITS)}")


def _check_time(given: Given) -> None:
    written = given.value or ""
    try:
        parse_when(written, 0.0)
    except ValueError as error:
        told = f"sbatch: error: Invalid --{given.option.name} specification"
        if written:
            told = f"Invalid time specification (pos={_find_time_fault(written)}): {written}\n{told}"
        raise SbatchUsage(told, place=given.place, remedy=str(error)) from None


def _find_time_fault(text: str) -> int:
    """Where Slurm says that a point in time is wrong, for the usual mistakes."""
    if text.lower().startswith("now"):
        return 4 if text[4:5].isdigit() else 3
    if re.match("[0-9]{4}-[0-9]{2}-", text):
        return 5
    if re.match("[0-9]{2}:[0-9]{2}:", text):
        return 6
    number = re.match("([0-9]{1,2})(?![0-9:])", text)
    return number.end() if number else 0


def _check_gpus(given: Given) -> None:
    try:
        parse_gpu_counts(given.value or "")
    except ValueError as error:
        raise refused_script(BAD_GRES, place=given.place, remedy=str(error)) from None


def _check_gres(given: Given) -> None:
    if not given.value:
        raise refused_submission("Invalid Trackable RESource (TRES) specification", given.place)
    try:
        parse_gres(given.value or "")
    except ValueError as error:
        raise refused_script(BAD_GRES, place=given.place, remedy=str(error)) from None


def _check_hosts(given: Given) -> None:
    try:
        count(given.value or "")
    except ValueError as error:
        raise refused_submission(BAD_NODE, given.place, str(error)) from None


def _check_licenses(given: Given) -> None:
    written = given.value or ""
    if written and not re.fullmatch(r"(?:[A-Za-z][\w.-]*(?:@[\w.-]+)?(?::[0-9]{1,9})?(?:[,;|]|$))+", written):
        raise refused_submission("Invalid license specification", given.place, "write NAME[:COUNT][,NAME[:COUNT]...]")


def _check_features(given: Given) -> None:
    depth = ""
    for letter in given.value or "":
        if letter in "[(":
            depth += letter
        elif letter in "])":
            if not depth or depth[-1] + letter not in ("[]", "()"):
                depth = "?"
                break
            depth = depth[:-1]
    if depth or re.search(r"[&|]\s*(?:$|[&|\])])", given.value or ""):
        raise refused_submission("Invalid feature specification", given.place, "write NAME, A&B, A|B or [A|B]")


def check_together(options: GivenOptions) -> None:
    """Refuse options that exclude each other, or that need another. Raises SbatchRefused."""
    rivals = [name for name in ("mem", "mem-per-cpu", "mem-per-gpu") if name in options]
    if len(rivals) > 1:
        line = "--mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive."
        raise fatal(line, options[rivals[-1]].place)
    if "gpus-per-task" in options and "ntasks-per-gpu" in options:
        line = "--gpus-per-task is mutually exclusive with --ntasks-per-gpu and SLURM_NTASKS_PER_GPU"
        raise fatal(line, options["ntasks-per-gpu"].place)
    if "cpus-per-gpu" in options and "cpus-per-task" in options:
        line = "--cpus-per-gpu is mutually exclusive with --cpus-per-task"
        raise refused_script(line, BAD_GRES, place=options["cpus-per-gpu"].place)
    sized = ("ntasks", "nodes", "ntasks-per-node")
    gpus = ("gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket", "gres")
    _need(options, "gpus-per-task", ("gpus", *sized), _NO_TASKS)
    _need(options, "gpus-per-socket", ("sockets-per-node",), _NO_SOCKETS)
    _need(options, "ntasks-per-gpu", (*gpus, *sized), _NO_GPUS)
    _need(options, "mem-per-gpu", gpus, "--mem-per-gpu was given, but no GPU was requested.")
    distribution = options.get("distribution")
    if distribution and (distribution.value or "").lower() == "arbitrary" and "nodelist" not in options:
        line = "With Arbitrary distribution you need to specify a nodelist or hostfile with the -w option"
        raise refused_script(line, place=distribution.place)


_NO_TASKS = "Failed to validate job spec. --gpus-per-task used without either --gpus or -n/--ntasks is not allowed."
_NO_SOCKETS = "--gpus-per-socket option requires --sockets-per-node specification"
_NO_GPUS = (
    "gres_job_state_validate: --ntasks-per-tres needs either a GRES GPU specification or a node/ntask specification"
)


def _need(options: GivenOptions, name: str, others: Sequence[str], line: str) -> None:
    given = options.get(name)
    if given is not None and given.value != "0" and not any(other in options for other in others):
        raise refused_script(line, BAD_GRES, place=given.place)


_CHECKS: dict[str, Check] = {
    **dict.fromkeys(_COUNTS, _check_count),
    **{name: _formed(name) for name in _FORMS},
    **{name: _parsed(name, parse_memory) for name in ("mem", "mem-per-cpu", "mem-per-gpu", "tmp")},
    **{name: _parsed(name, parse_time_limit) for name in ("time", "time-min", "delay-boot")},
    **dict.fromkeys(("begin", "deadline"), _check_time),
    **dict.fromkeys(("gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task"), _check_gpus),
    **dict.fromkeys(("nodelist", "exclude"), _check_hosts),
    **dict.fromkeys(("constraint", "prefer"), _check_features),
    "core-spec": lambda given: _check_number(given, 0),
    "distribution": _check_distribution,
    "extra-node-info": _check_geometry,
    "gres": _check_gres,
    "licenses": _check_licenses,
    "mail-type": _check_mails,
    "nice": _check_nice,
    "priority": _check_priority,
    "propagate": _check_propagate,
    "signal": _parsed("signal", parse_signal_before),
    "switches": _check_switches,
}
