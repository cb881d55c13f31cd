"""The client of a held allocation: `salloc`, and `srun` outside of a job.

    salloc [--quiet] -- COMMAND...          run a command on this host, then give the allocation back
    salloc --step [--quiet] -- SRUN WORDS   run a step in it, then give it back

The allocation lasts as long as the connection to the daemon on its first node: nothing has to be tidied up when this
process is killed.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence

from overspan.bridge.runtime.core.allocation import Allocation, read_allocation
from overspan.bridge.runtime.core.environment import SHIMS
from overspan.bridge.runtime.srun import channel as wire
from overspan.bridge.runtime.srun.channel import AuthenticationError, Channel
from overspan.bridge.runtime.srun.connections import ConnectionFailure, connect_node
from overspan.bridge.runtime.srun.messages import complain, fail, say
from overspan.bridge.runtime.srun.srun import run_words

# What belongs to the first node's body, not to a command on this host.
_NOT_HERE = ("OVERSPAN_TASK", "OVERSPAN_NODE_INDEX", "OVERSPAN_HOST", "OVERSPAN_ADDR", "OVERSPAN_NODE_KEY")
_RELEASE_SECONDS = 5.0


def main(words: Sequence[str]) -> int:
    """Hold the allocation of OVERSPAN_RUN_DIR; gives the exit code of the command or step."""
    end = list(words).index("--")
    options, command = words[:end], list(words[end + 1 :])
    step = "--step" in options
    verb = "srun" if step else "salloc"
    try:
        allocation = read_allocation(os.environ["OVERSPAN_RUN_DIR"])
        channel = connect_node(allocation, allocation.components[0].nodes[0])
    except (OSError, ValueError, ConnectionFailure) as error:
        return fail(f"Job allocation cannot be held: {error}", verb)
    channel.send(wire.HOLD)
    environment = make_environment(allocation, os.environ)
    if step:
        os.environ.clear()
        os.environ.update(environment)
        code = run_words(command, allocation)
        _release(channel, code)
        return code
    code = _run_command(allocation, channel, command, environment)
    if "--quiet" not in options:
        say(f"Relinquishing job allocation {allocation.job}", "salloc")
    _release(channel, 0)
    return code


def make_environment(allocation: Allocation, environment: Mapping[str, str]) -> dict[str, str]:
    """This host's environment with the allocation's variables."""
    result = {name: value for name, value in environment.items() if name not in _NOT_HERE}
    result.update(allocation.environment)
    result.pop("ENVIRONMENT", None)
    if result.get(SHIMS):
        # The command is of this host, with this host's PATH.
        result["PATH"] = f"{result[SHIMS]}:{environment.get('PATH', os.defpath)}"
    result["SLURM_SUBMIT_DIR"] = os.getcwd()
    first = allocation.components[0]
    if not (first.ntasks or first.ntasks_per_node):
        # salloc tells a number of tasks only where one was asked for.
        for name in ("SLURM_NTASKS", "SLURM_NPROCS"):
            result.pop(name, None)
    return result


def _run_command(
    allocation: Allocation, channel: Channel, command: Sequence[str], environment: Mapping[str, str]
) -> int:
    try:
        process = subprocess.Popen(command, env=dict(environment))
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        text = f'Unable to find command "{command[0]}"' if missing else f"{command[0]}: {error.strerror}"
        complain(f"_fork_command: {text}", "salloc")
        return 1
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP):
        # They are for the command, which has the same terminal.
        signal.signal(number, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, frame: process.send_signal(received))
    ended, ending = os.pipe()
    watcher = os.fork()
    if watcher == 0:
        _tell_revocation(allocation, channel, ended, ending)
    os.close(ended)
    status = process.wait()
    os.close(ending)
    os.waitpid(watcher, 0)
    return 128 - status if status < 0 else status


def _tell_revocation(allocation: Allocation, channel: Channel, ended: int, ending: int) -> None:
    """In a child: say so when the allocation ends before the command does."""
    try:
        os.close(ending)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        while not channel.closed:
            ready, _, _ = select.select([channel.fileno(), ended], [], [])
            if ended in ready:
                os._exit(0)
            channel.receive()
        say(f"Job allocation {allocation.job} has been revoked.", "salloc")
    except (OSError, AuthenticationError) as error:
        print(f"salloc: error: {error}", file=sys.stderr)
    finally:
        os._exit(0)


def _release(channel: Channel, code: int) -> None:
    """Let go, and wait for the daemon to have heard it."""
    channel.send(wire.RELEASE, b"%d" % min(code, 255))
    while not channel.closed:
        ready, _, _ = select.select([channel], [], [], _RELEASE_SECONDS)
        if not ready:
            break
        try:
            channel.receive()
        except AuthenticationError:
            break
    channel.close()
