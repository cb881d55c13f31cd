"""`srun` inside an allocation: reads the command line, plans the step, runs it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Callable, Optional

from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.options.srun import Part, parse_words
from overspan.bridge.model.patterns import FilenameFields
from overspan.bridge.model.records import NamedTuple
from overspan.bridge.model.slurm.words import ALREADY_ENDED, word_lost_allocation
from overspan.bridge.runtime.core import kernel
from overspan.bridge.runtime.core.allocation import (
    AllocatedComponent,
    AllocatedNode,
    Allocation,
    draw_step,
    is_over,
    read_allocation,
)
from overspan.bridge.runtime.srun.accounting import StepRecord, describe_step, finish_step, note_end, note_start
from overspan.bridge.runtime.srun.batch_process import BatchProcess, find_batch_process, is_inside
from overspan.bridge.runtime.srun.client import TAKEN_SIGNALS, RunningStep, StepClient
from overspan.bridge.runtime.srun.connections import ConnectionFailure, open_connections
from overspan.bridge.runtime.srun.messages import error_code, fail, say
from overspan.bridge.runtime.srun.multi_prog import ProgramError, read_programs
from overspan.bridge.runtime.srun.node_requests import (
    Prepared,
    choose_readers,
    choose_streams,
    make_requests,
    open_sinks,
)
from overspan.bridge.runtime.srun.step_options import (
    UNREADABLE,
    ComponentOptions,
    OptionError,
    StepOptions,
    read_component_options,
    read_step_options,
)
from overspan.bridge.runtime.srun.step_plan import PlanError, StepPlan, check_gpus, plan_step
from overspan.bridge.runtime.srun.terminal import RawTerminal
from overspan.bridge.runtime.srun.viewers import Viewers

_MPI = ("none", "pmi2", "pmix", "openmpi", "cray_shasta", "list")


class CommandLine(NamedTuple):
    """A parsed command line: (hetjob component, options) for each component, and the options of the step."""

    components: tuple[tuple[int, ComponentOptions], ...]
    step_options: StepOptions
    grouped: bool = False
    """Whether components were named (--het-group)."""


def main(words: Sequence[str]) -> int:
    """Run one command line inside the allocation of OVERSPAN_RUN_DIR; gives srun's exit code."""
    run_dir = os.environ.get("OVERSPAN_RUN_DIR", "")
    try:
        allocation = read_allocation(run_dir)
    except FileNotFoundError:
        # The job is over, and its run directory was packed.
        job = os.environ.get("SLURM_JOB_ID") or os.path.basename(run_dir)
        return fail(word_lost_allocation(job))
    except (OSError, ValueError) as error:
        return fail(f"Unable to confirm allocation for job: {error}")
    return run_words(words, allocation)


def run_words(words: Sequence[str], allocation: Allocation) -> int:
    """Run one command line inside an allocation."""
    try:
        command_line = read_command_line(words, os.environ)
    except InvalidRequest as error:
        say(error.message)
        say_usage()
        return UNREADABLE
    except OptionError as error:
        code = fail(str(error))
        return error.code or code
    except PlanError as error:
        say(f"fatal: {error}")
        return error_code()
    if is_over(allocation.folder):
        say(f"Check SLURM_JOB_ID environment variable. Expired or invalid job {allocation.job}")
        return fail(word_lost_allocation(allocation.job))
    own = find_own(allocation, os.environ)
    if not allocation.batch:
        allocation, command_line = _confine(allocation, command_line, own)
    try:
        allocation = share_nodes(allocation, command_line)
    except PlanError as error:
        return fail(str(error))
    try:
        plan = plan_step(allocation, command_line.components, [*own, *_served(allocation)])
        check_gpus(plan)
        programs = _read_programs(plan)
    except PlanError as error:
        return fail(f"Unable to create step for job {allocation.job}: {error}")
    except ProgramError as error:
        return fail(str(error))
    except OSError as error:
        return fail(f"{error.filename}: {error.strerror}")
    for warning in plan.warnings:
        if not command_line.step_options.quiet:
            say(f"warning: {warning}")
    return _run(Prepared(allocation, command_line.step_options, plan, programs), own, ("srun", *words))


def say_usage() -> None:
    """Where help is, as getopt's callers say it."""
    os.write(2, b'Try "srun --help" for more information\n')


# --- reading ---------------------------------------------------------------------------------------------------------


def read_command_line(words: Sequence[str], environment: Mapping[str, str]) -> CommandLine:
    """Read srun's words. Raises InvalidRequest, OptionError and PlanError."""
    parts = _inherit_options(parse_words("srun", words))
    first = parts[0]
    _check_values(parts)
    step_options = read_step_options(first, environment)
    components: list[tuple[int, ComponentOptions]] = []
    for place, part in enumerate(parts):
        options = read_component_options(part, environment)
        if not options.command and place == len(parts) - 1 and step_options.pty:
            options = options._replace(command=(environment.get("SHELL", "/bin/sh"),))
        if not options.command:
            raise PlanError("No command given to execute.")
        groups = _read_groups(part.last("het-group")) if part.has("het-group") else [place]
        if len(parts) > 1 or groups != [0]:
            # The variables without suffix tell of the first component.
            options = _without_variables(options)
        components += [(group, options) for group in groups]
    return CommandLine(tuple(components), step_options, any(part.has("het-group") for part in parts))


# Slurm keeps these from one component to the next (slurm_opt.c: options without reset_each_pass).
_KEPT = frozenset({"output", "error", "input", "open-mode", "label", "unbuffered"})


def _inherit_options(parts: Sequence[Part]) -> list[Part]:
    """Apply inheritance between components: streams from the previous one, the command from the next that has one."""
    made: list[Part] = []
    for part in parts:
        kept = tuple(option for option in made[-1].options if option[0] in _KEPT) if made else ()
        made.append(part._replace(options=(*kept, *part.options)))
    command: tuple[str, ...] = ()
    for place in reversed(range(len(made))):
        command = made[place].command or command
        made[place] = made[place]._replace(command=command)
    return made


def _without_variables(options: ComponentOptions) -> ComponentOptions:
    """The options without counts that came from variables."""
    ntasks, nodes = options.ntasks if options.ntasks_named else None, options.nodes if options.nodes_named else None
    return options._replace(ntasks=ntasks, nodes=nodes)


def _check_values(parts: Sequence[Part]) -> None:
    for part in parts:
        mpi = part.last("mpi", "none")
        if mpi not in _MPI and not mpi.startswith("pmix"):
            raise OptionError(f"Invalid MPI type '{mpi}', --mpi=list for acceptable types")


def _read_groups(text: str) -> list[int]:
    groups: list[int] = []
    for piece in text.split(","):
        first, dash, last = piece.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise OptionError(f"Invalid --het-group specification: {text}")
        groups += range(int(first), int(last if dash else first) + 1)
    return sorted(set(groups))


def _read_programs(plan: StepPlan) -> list[tuple[str, ...]]:
    """The command of each rank. Raises ProgramError and OSError."""
    programs: list[tuple[str, ...]] = []
    for step_component in plan.components:
        count = sum(step_component.counts)
        if step_component.options.multi_prog:
            with open(step_component.options.command[0], encoding="utf-8", errors="surrogateescape") as file:
                name, *more = step_component.options.command
                programs += read_programs(file.read(), count, name, more)
        else:
            programs += [step_component.options.command] * count
    return programs


# --- where this is ---------------------------------------------------------------------------------------------------


def _served(allocation: Allocation) -> list[AllocatedNode]:
    return [node for component in allocation.components for node in component.nodes if node.served]


def find_own(allocation: Allocation, environment: Mapping[str, str]) -> list[AllocatedNode]:
    """The nodes whose ranks srun starts itself: the one that it is on, or the first where the variables are gone."""
    nodes = [node for component in allocation.components for node in component.nodes]
    if environment.get("OVERSPAN_JOB_ID") == str(allocation.job):
        place = (environment.get("OVERSPAN_TASK", ""), environment.get("OVERSPAN_NODE_INDEX", ""))
        found = [node for node in nodes if (node.task, str(node.number)) == place]
        if found:
            return found
    return [node for node in nodes if not node.served][:1]


def _confine(
    allocation: Allocation, command_line: CommandLine, own: Sequence[AllocatedNode]
) -> tuple[Allocation, CommandLine]:
    """In a job file's task every node runs the user's program: a step stays on the node that it is started on."""
    here = AllocatedComponent(tuple(own), 0, 0, 0)
    components = tuple((group, _without_variables(options)) for group, options in command_line.components)
    return allocation._replace(components=(here,)), command_line._replace(components=components)


def share_nodes(allocation: Allocation, command_line: CommandLine) -> Allocation:
    """A heterogeneous step in an ordinary job: each component has nodes of its own. Raises PlanError."""
    groups = [group for group, _ in command_line.components]
    highest = len(allocation.components) - 1
    if command_line.grouped and max(groups) > highest:
        raise PlanError(f"Requested het-group offset exceeds highest hetjob index ({max(groups)} > {highest})")
    if highest > 0:
        return allocation
    if command_line.grouped:
        raise PlanError("No directives to start application on any available hetjob components")
    if len(groups) == 1:
        return allocation
    (whole,) = allocation.components
    parts: list[AllocatedComponent] = []
    used = 0
    for _, options in command_line.components:
        count = options.nodes or len(options.nodelist) or 1
        if used + count > len(whole.nodes):
            raise PlanError(
                f"Allocation failure of {count} nodes: job size of {len(whole.nodes)},"
                f" already allocated {used} nodes to previous components."
            )
        parts.append(AllocatedComponent(whole.nodes[used : used + count], 0, 0, whole.cpus))
        used += count
    return allocation._replace(components=tuple(parts))


# --- running ---------------------------------------------------------------------------------------------------------


def _run(prepared: Prepared, own: Sequence[AllocatedNode], line: Sequence[str]) -> int:
    allocation, step_options, plan, _ = prepared
    try:
        number = draw_step(allocation.folder, allocation.launch)
        streams = [choose_streams(step_component.options.streams) for step_component in plan.components]
        fields = _make_fields(allocation, str(number))
        sinks = open_sinks(step_options, plan, streams, fields)
    except OSError as error:
        return fail(f"Could not open stdout file: {error.strerror}")
    _take_signals()
    older = frozenset(kernel.read_children(os.getpid()))
    try:
        joined = _find_joined(prepared, own)
        channels = open_connections(allocation, plan.nodes, own, joined)
    except ConnectionFailure as error:
        return fail(f"Unable to create step for job {allocation.job}: {error}")
    requests = make_requests(prepared, streams, fields)
    hosts = tuple(node.name for node in plan.nodes)
    ranks = tuple(tuple(place.rank for place in plan.on_node(node)) for node in range(len(hosts)))
    readers = choose_readers(step_options, plan, streams)
    viewers = Viewers(allocation.folder, number, len(plan.places))
    step = RunningStep(f"{allocation.job}.{number}", hosts, ranks, readers, joined, older, viewers, allocation.pods)
    client = StepClient(step, step_options, channels, sinks)
    record = describe_step(allocation, plan, number, line, time.time())
    _keep(note_start, allocation, record)
    with RawTerminal(0) if step_options.pty else nullcontext():
        code = client.run(requests)
    _keep(note_end, allocation, finish_step(record, plan, client.statuses, time.time(), client.cancelled))
    return code


def _find_joined(prepared: Prepared, own: Sequence[AllocatedNode]) -> Optional[BatchProcess]:
    """What runs on the own node, where the step has ranks there and srun is outside of it. Raises ConnectionFailure."""
    if prepared.allocation.pods or not any(node in own for node in prepared.plan.nodes):
        return None
    process = find_batch_process(prepared.allocation, own[0])
    if process is None:
        raise ConnectionFailure(ALREADY_ENDED)
    return None if is_inside(process, os.environ) else process


def _keep(note: Callable[[str, int, StepRecord], None], allocation: Allocation, record: StepRecord) -> None:
    """Keep a fact about the step. A full disk does not keep the step from running."""
    try:
        note(allocation.folder, allocation.launch, record)
    except OSError:
        pass


def _take_signals() -> None:
    """Keep for the poll loop what it reads from its signal descriptor; what a shell ignores for us stays ignored."""
    taken = set(TAKEN_SIGNALS)
    for number in (signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            taken.discard(int(number))
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, taken)


def _make_fields(allocation: Allocation, step: str) -> FilenameFields:
    array, element = allocation.array or (None, None)
    return FilenameFields(
        job=allocation.job,
        name=allocation.name,
        user=allocation.user,
        host=os.uname().nodename,
        array_job=array,
        element=element,
        step=step,
    )
