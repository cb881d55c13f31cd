"""The fake Slurm behind the transport's seam: commands and files of one login node, and what goes wrong on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tests.fakes.slurm_commands import AWAY, COMMANDS, Answer, Asked, refuse_step
from tests.fakes.slurm_controller import FakeSlurm
from tests.fakes.slurm_formats import output_paths
from tests.fakes.slurm_jobs import Behaviour, NativeJob
from tests.fakes.slurm_set_supervisor import FakeSetSupervisor, is_set_supervisor
from tests.fakes.slurm_shell import RealShell
from tests.fakes.slurm_supervisor import FakeSupervisor, Key, Programs, is_supervisor

from overspan.adapters.slurm.transports.transport import NO_VARIABLES, Call, Done, FileChunk, FolderEntry, Interrupted
from overspan.bridge.model.errors import NotFound, OverspanError, Unreachable

COST = 0.01
"""Seconds that a command takes; its effect comes in the middle of them."""
OWN = (*COMMANDS, "date", "id", "true")
FOR_EVER = 1e9
SUPERVISOR = Behaviour(None)


class Trouble(Enum):
    """What goes wrong with a command."""

    LOST = "it has its effect, and hangs: the answer never comes"
    HANGS = "it hangs and has no effect"
    REFUSED = "the controller does not answer: no effect, and said so"
    TIMED_OUT = "Socket timed out: it has its effect, and says that it does not know"
    DROPPED = "Socket timed out: it has no effect, and says that it does not know"
    LATE = "Socket timed out: it has its effect when the next command of that name comes"
    UNREACHABLE = "there is no link"
    GARBAGE = "what it prints is torn"


@dataclass
class Fault:
    """Goes wrong `times` times with commands of that name, with all where it is empty; `after` come through before.

    Where the trouble is an answer, that is given in place of the command's effect.
    """

    command: str
    trouble: Trouble | Done
    times: int = 1 << 30
    after: int = 0


class FakeTransport:
    """A transport to the fake Slurm; `home` is a real folder. `asked` has each command's words, as it was sent.

    `commands` has those that reached the login node, without env(1) and timeout(1); those in programs for sh too.
    `behave` says what batch scripts do, `programs` what the tasks of groups do; `on_program` hears of their starts.
    """

    def __init__(self, slurm: FakeSlurm, folder: Path, now: Callable[[], float]) -> None:
        self.slurm, self._now = slurm, now
        self.home = folder / "home"
        self.home.mkdir(parents=True, exist_ok=True)
        self.faults: list[Fault] = []
        self.asked: list[tuple[str, ...]] = []
        self.commands: list[tuple[str, ...]] = []
        self._shell = RealShell(folder / "shell", OWN, self._answer_shell)
        self._took = 0.0
        self._late: list[Call] = []
        slurm.on_start = self._start
        slurm.behave = lambda job: SUPERVISOR if is_supervisor(job) or is_set_supervisor(job) else self.behave(job)
        self.behave: Callable[[NativeJob], Behaviour] = lambda job: Behaviour()
        self.programs: Programs = lambda task: Behaviour()
        self.on_program: Callable[[FakeSupervisor, Key], None] = lambda supervisor, key: None

    def fail(self, command: str, trouble: Trouble | Done, times: int = 1 << 30, after: int = 0) -> Fault:
        """Have something go wrong from now on; the fault can be taken out of `faults` again."""
        self.faults.append(Fault(command, trouble, times, after))
        return self.faults[-1]

    # --- commands ----------------------------------------------------------------------------------------------------

    async def run(
        self,
        argv: Sequence[str],
        stdin: bytes = b"",
        environment: Mapping[str, str] = NO_VARIABLES,
        timeout: float = 60.0,
    ) -> Done:
        """Run one command."""
        (answer,) = await self.run_all([Call(argv, stdin, environment)], timeout)
        if answer is None:
            raise Interrupted(f"{argv[0]} has not ended within {timeout:g} s")
        return answer

    async def run_all(self, calls: Sequence[Call], timeout: float = 60.0) -> list[Done | None]:
        """Run commands one after the other; behind one that hangs, or a link that ends, none is reached."""
        answers: list[Done | None] = []
        try:
            async with asyncio.timeout(timeout):
                for call in calls:
                    answers.append(await self._run(call))
        except TimeoutError:
            pass
        except Unreachable:
            # The others may have had their effect: it is all one round trip.
            if not answers:
                raise
        return [*answers, *[None] * (len(calls) - len(answers))]

    async def _run(self, call: Call) -> Done:
        self.asked.append(tuple(call.argv))
        words, environment, limit = strip_words(call.argv)
        trouble = self._find_trouble(words)
        if trouble is Trouble.UNREACHABLE:
            raise Unreachable("no route to the login node")
        await asyncio.sleep(COST / 2)
        if isinstance(trouble, Done):
            return trouble
        if trouble is Trouble.HANGS:
            await asyncio.sleep(FOR_EVER)
        if trouble is Trouble.REFUSED:
            return Done(1, b"", f"{words[0]}: error: {AWAY}\n".encode())
        self._took = 0.0
        silence = Done(1, b"", f"{words[0]}: error: Socket timed out on send/recv operation\n".encode())
        if trouble is Trouble.LATE:
            self._late.append(call)
        if trouble in (Trouble.DROPPED, Trouble.LATE):
            return silence
        self._land(words[0])
        done = self._carry_out(call, words, environment)
        if trouble is Trouble.LOST:
            await asyncio.sleep(FOR_EVER)
        if limit is not None and self._took >= limit:
            await asyncio.sleep(limit)
            return Done(124, b"", b"")
        await asyncio.sleep(self._took - COST / 2)
        if trouble is Trouble.TIMED_OUT:
            return silence
        return done if trouble is None else Done(done.rc, done.out[: len(done.out) * 2 // 3], b"")

    def _land(self, name: str) -> None:
        """Carry out the commands of that name that were late."""
        late, self._late = self._late, []
        for call in late:
            words, environment, _ = strip_words(call.argv)
            if words[0] == name:
                self._carry_out(call, words, environment)
            else:
                self._late.append(call)

    def _carry_out(self, call: Call, words: Sequence[str], environment: Mapping[str, str]) -> Done:
        """Run a command of the fake's at once, and any other in the real sh."""
        self.slurm.catch_up(self._now())
        if call.folder:
            Path(call.folder).mkdir(parents=True, exist_ok=True)
        if words[0] not in OWN:
            self.commands.append(tuple(words))
            variables = {**call.environment, "HOME": str(self.home)}
            refusal, program = refuse_step(self.slurm, words[1:]) if words[0] == "srun" else ("", call.argv)
            if refusal:
                return Done(1, b"", _bytes(refusal))
            return Done(*self._shell.run(program, call.stdin, variables))
        script = Path(words[-1]) if words[0] == "sbatch" and not call.stdin else None
        text = script.read_text() if script is not None and script.is_file() else call.stdin.decode("utf-8", "replace")
        answer = self._answer(words[0], Asked(words[1:], text, {**call.environment, **environment}, str(self.home)))
        return Done(answer.rc, _bytes(answer.out), _bytes(answer.err))

    def _find_trouble(self, words: Sequence[str]) -> Trouble | Done | None:
        for fault in self.faults:
            if fault.command in (words[0], "") and fault.after:
                fault.after -= 1
            elif fault.command in (words[0], "") and fault.times:
                fault.times -= 1
                return fault.trouble
        return None

    def _answer_shell(self, name: str, asked: Asked) -> Answer:
        """A command within a program for sh: what a controller that is away says is all that goes wrong there."""
        away = [fault for fault in self.faults if fault.trouble is Trouble.REFUSED and fault.command == name]
        if away and self._find_trouble((name,)) is Trouble.REFUSED:
            self.commands.append((name, *asked.words))
            return Answer(1, "", f"{name}: error: {AWAY}\n")
        return self._answer(name, asked)

    def _answer(self, name: str, asked: Asked) -> Answer:
        """One command, also within a program for sh, where time passes from one to the next."""
        self.slurm.catch_up(self._now() + self._took)
        self.commands.append((name, *asked.words))
        if name in COMMANDS:
            answer = COMMANDS[name](self.slurm, asked)
        elif name == "date":
            exact = any("%N" in word for word in asked.words)
            answer = Answer(0, f"{self.slurm.now:.9f}\n" if exact else f"{int(self.slurm.now)}\n")
        else:
            answer = Answer(0, f"{self.slurm.site.user}\n") if name == "id" else Answer()
        self._took += COST + answer.seconds
        return answer

    def _start(self, job: NativeJob) -> None:
        if is_supervisor(job):
            FakeSupervisor(self.slurm, job, self.programs, self.on_program)
            return
        if is_set_supervisor(job):
            FakeSetSupervisor(self.slurm, job, self.programs)
            return
        output, _ = output_paths(job)
        if output.startswith(str(self.home)):
            Path(output).parent.mkdir(parents=True, exist_ok=True)
            Path(output).write_text(job.behaviour.output if job.behaviour is not None else "")

    # --- files -------------------------------------------------------------------------------------------------------

    async def read(self, path: str, offset: int, limit: int) -> FileChunk:
        """Bytes of a file."""
        await self._reach()
        if not Path(path).is_file():
            raise NotFound(f"there is no file {path}")
        data = Path(path).read_bytes()
        return FileChunk(data[offset : offset + limit], len(data))

    async def write(self, path: str, data: bytes, mode: int = 0o600) -> None:
        """Write a file."""
        await self._reach()
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_bytes(data)
            Path(path).chmod(mode)
        except OSError as error:
            raise OverspanError(f"{path} cannot be written: {error.strerror}") from error

    async def list(self, path: str) -> list[FolderEntry]:
        """What is in a folder."""
        await self._reach()
        if not Path(path).is_dir():
            raise NotFound(f"there is no folder {path}")
        found = [(one, one.stat()) for one in sorted(Path(path).iterdir())]
        return [FolderEntry(one.name, stat.st_size, stat.st_mtime, one.is_dir()) for one, stat in found]

    async def _reach(self) -> None:
        await asyncio.sleep(COST)
        if any(fault.trouble is Trouble.UNREACHABLE and fault.command == "" for fault in self.faults):
            raise Unreachable("no route to the login node")
        self.slurm.catch_up(self._now())

    async def close(self) -> None:
        """The cluster stays."""


def strip_words(argv: Sequence[str]) -> tuple[list[str], dict[str, str], float | None]:
    """A command without env(1) and timeout(1) before it, the variables it was given, and its time-out."""
    words, variables, limit = list(argv), {}, None
    while words[0] in ("env", "timeout"):
        if words.pop(0) == "timeout":
            limit = float(words.pop(0))
            continue
        while words[0] == "-u" or "=" in words[0]:
            name, equals, value = words.pop(0).partition("=")
            if equals:
                variables[name] = value
            else:
                words.pop(0)
    return words, variables, limit


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
