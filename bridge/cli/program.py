"""Entry point of `span`: finds the command, runs it, and turns every failure into a message and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import NamedTuple

from overspan.bridge.cli.invocation import SLURM_VERBS, Invocation
from overspan.bridge.model.errors import ExitCode, InvalidRequest, OverspanError


class CommandEntry(NamedTuple):
    """A command's module, by its room, and its line in --help; without a summary it is not listed."""

    module: str
    summary: str = ""
    group: str = ""


_JOBS, _SLURM, _SITE = "jobs", "as in Slurm", "daemon and clusters"

COMMANDS: dict[str, CommandEntry] = {
    "top": CommandEntry("jobs.top", "the queue of all clusters, live", _JOBS),
    "submit": CommandEntry("jobs.submit", "submit a job file", _JOBS),
    "plan": CommandEntry("jobs.plan", "print what would run, change nothing", _JOBS),
    "show": CommandEntry("jobs.show", "tasks, attempts and history of a job", _JOBS),
    "logs": CommandEntry("jobs.logs", "output of a job, task or node; -f follows", _JOBS),
    "shell": CommandEntry("jobs.shell", "a shell beside a running job, or one command", _JOBS),
    "wait": CommandEntry("jobs.wait", "wait for jobs, exit with their code", _JOBS),
    "timeline": CommandEntry("jobs.timeline", "every change of state of a job", _JOBS),
    "hold": CommandEntry("jobs.orders", "keep pending jobs from starting", _JOBS),
    "release": CommandEntry("jobs.orders", "end a hold", _JOBS),
    "requeue": CommandEntry("jobs.orders", "end jobs and queue them again", _JOBS),
    "restart": CommandEntry("jobs.orders", "start a task, or a job, again in place", _JOBS),
    "scale": CommandEntry("jobs.scale", "change how many members an elastic task has", _JOBS),
    "resubmit": CommandEntry("jobs.resubmit", "submit a job, or what failed of an array, again", _JOBS),
    "evals": CommandEntry("jobs.evals", "evaluations of a job's checkpoints: scores, runs, watches", _JOBS),
    "pool": CommandEntry("jobs.pool", "pools of warm workers; `span map` has lines worked through", _JOBS),
    "map": CommandEntry("jobs.map"),
    "cron": CommandEntry("jobs.cron", "recurring jobs: crontab, schedules", _JOBS),
    "data": CommandEntry("data.transfers", "files to object stores and back; `span storage`, `cache`, `volume`", _JOBS),
    "cache": CommandEntry("data.cache"),
    "storage": CommandEntry("data.storage"),
    "volume": CommandEntry("data.volume"),
    "sbatch": CommandEntry("slurm.sbatch", "submit a batch script", _SLURM),
    "srun": CommandEntry("slurm.srun", "run a program on the nodes of a job", _SLURM),
    "salloc": CommandEntry("slurm.salloc", "hold nodes while a command runs here", _SLURM),
    "squeue": CommandEntry("slurm.squeue", "jobs that wait or run", _SLURM),
    "scancel": CommandEntry("slurm.scancel", "cancel or signal jobs or one task", _SLURM),
    "sacct": CommandEntry("slurm.sacct", "all jobs, finished ones too", _SLURM),
    "sinfo": CommandEntry("slurm.sinfo", "partitions and nodes", _SLURM),
    "scontrol": CommandEntry("slurm.scontrol", "show and change jobs", _SLURM),
    "sattach": CommandEntry("slurm.sattach"),
    "sacctmgr": CommandEntry("slurm.compatibility"),
    "sdiag": CommandEntry("slurm.compatibility"),
    "sprio": CommandEntry("slurm.compatibility"),
    "sshare": CommandEntry("slurm.compatibility"),
    "sstat": CommandEntry("slurm.compatibility"),
    "clusters": CommandEntry("clusters.clusters", "configured clusters", _SITE),
    "check": CommandEntry("clusters.check", "what works on a cluster, and what to do about the rest", _SITE),
    "login": CommandEntry("clusters.login", "open the connection to a cluster, here on the terminal", _SITE),
    "import": CommandEntry("clusters.import_", "watch jobs that a cluster has already", _SITE),
    "fsck": CommandEntry("clusters.fsck", "what launches left on a cluster; --release removes it", _SITE),
    "ping": CommandEntry("service.ping", "is the daemon well", _SITE),
    "daemon": CommandEntry("service.daemon", "run the daemon in the foreground", _SITE),
    "shutdown": CommandEntry("service.shutdown", "end the daemon; jobs go on", _SITE),
    "config": CommandEntry("service.config", "where configuration, state and socket are", _SITE),
    "schema": CommandEntry("service.schema"),
    "alias": CommandEntry("service.alias", "Slurm's names for these commands, for shells and PATH", _SITE),
    "completion": CommandEntry("service.completion", "completion for bash, zsh, fish", _SITE),
    "version": CommandEntry("service.version"),
}

_EXAMPLES = """\
Examples: span submit rlhf.yaml   span sbatch --wrap 'hostname'   span logs -f 42   span help COMMAND
"""


_MEANT = {
    **dict.fromkeys(("cancel", "delete", "kill", "rm", "stop"), "scancel"),
    **dict.fromkeys(("jobs", "list", "ls", "ps", "queue", "status"), "squeue"),
    **dict.fromkeys(("describe", "get", "info"), "show"),
    **dict.fromkeys(("create", "exec", "launch", "run"), "submit"),
    **dict.fromkeys(("history", "acct"), "sacct"),
    "nodes": "sinfo",
    "log": "logs",
}
"""Commands of other schedulers, with the command that does the same here; spelling alone would suggest another."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and give its exit code; never raises unless SPAN_DEBUG is set."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help") or words == ["help"]:
        return _guarded(Invocation("help", (), os.environ), lambda call: _print(help_page()))
    if words[0] in ("-V", "--version"):
        words = ["version"]
    if words[0] == "help":
        words = [words[1], "--help"]
    return run_command(Invocation(words[0], tuple(words[1:]), os.environ))


def run_command(call: Invocation) -> int:
    """Run a command whose module is found by its name."""
    return _guarded(call, _dispatch)


def help_page() -> str:
    """The text of `span --help`, about 40 lines."""
    lines = ["usage: span COMMAND [OPTION...] [ARGUMENT...]"]
    for group in (_JOBS, _SLURM, _SITE):
        lines.append(f"{group}:")
        lines += [f"  {name:<11}{command.summary}" for name, command in COMMANDS.items() if command.group == group]
    return "\n".join((*lines, _EXAMPLES))


def _dispatch(call: Invocation) -> int:
    command = COMMANDS.get(call.verb)
    if command is None:
        import difflib

        meant = _MEANT.get(call.verb)
        found = [meant] if meant else difflib.get_close_matches(call.verb, COMMANDS, n=1)
        raise InvalidRequest(
            f"there is no command {call.verb!r}",
            remedy=f"did you mean `span {found[0]}`?" if found else "`span --help` lists the commands",
        )
    name = f"overspan.bridge.cli.{command.module}"
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        # The application that commands inside jobs are made of leaves some out.
        raise InvalidRequest(
            f"`span {call.verb}` is not there inside jobs", remedy="run it on the machine of the daemon"
        ) from None
    code: int = module.run(call)
    return code


def _print(text: str) -> int:
    sys.stdout.write(text)
    return ExitCode.OK


def _guarded(call: Invocation, run: Callable[[Invocation], int]) -> int:
    """Run a command; every failure becomes a message on stderr and an exit code."""
    from overspan.bridge.cli.output import report

    _open_streams()
    try:
        if hasattr(sys.stdout, "reconfigure"):
            # Names may contain characters that the terminal's encoding lacks.
            sys.stdout.reconfigure(errors="backslashreplace")
        code = run(call)
        sys.stdout.flush()
        return code
    except OverspanError as error:
        report(call, error)
        return _exit_code(call, error)
    except BrokenPipeError:
        # The reader has gone (`| head`): the rest in the buffer must not fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 128 + 13
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except SystemExit as end:
        sys.stdout.flush()
        return end.code if isinstance(end.code, int) else ExitCode.OK
    except OSError as error:
        report(call, OverspanError(f"{error.filename or 'the system'}: {error.strerror or error}"))
        return ExitCode.FAILED
    except Exception as error:
        if call.environment.get("SPAN_DEBUG"):
            raise
        text = f"internal error, {type(error).__name__}: {error}"
        report(call, OverspanError(text, remedy="SPAN_DEBUG=1 shows where; please report it"))
        return ExitCode.FAILED


def _open_streams() -> None:
    """Where a process was started without stdout or stderr (`>&-`), what goes there is lost."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for the rest of the process
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def _exit_code(call: Invocation, error: OverspanError) -> int:
    if call.verb not in SLURM_VERBS:
        return int(error.exit_code)
    # Slurm's commands have a single failure code, except sbatch, whose codes come from the daemon.
    if isinstance(error.exit_code, ExitCode):
        return _slurm_error_code(call.environment) if call.verb == "sbatch" else 1
    return int(error.exit_code)


def _slurm_error_code(environment: Mapping[str, str]) -> int:
    code = environment.get("SLURM_EXIT_ERROR", "")
    return int(code) if code.isdigit() and int(code) < 256 else 1
