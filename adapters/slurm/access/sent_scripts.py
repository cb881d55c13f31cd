"""The batch scripts of a launch, as Slurm keeps them while it knows the jobs (scontrol(1), write batch_script)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from overspan.adapters.abilities import KeptForm
from overspan.adapters.slurm.commands.queries import Queries
from overspan.adapters.slurm.groups.handles import GroupHandle
from overspan.adapters.slurm.handles import parse_any
from overspan.bridge.model.errors import OverspanError, Unreachable
from overspan.bridge.model.slurm.words import INVALID_JOB


class KeptScript(NamedTuple):
    """A job's script; without one, what scontrol says about that."""

    text: str
    words: str = ""


async def read_sent(queries: Queries, handle: str) -> KeptForm | None:
    """The scripts of a launch's native jobs, each below its sbatch command where the accounting has that.

    None where Slurm has forgotten all of them. Raises Unreachable, and NotFound for a handle of another version.
    """
    natives = list_natives(handle)
    scripts = [await read_script(queries, native) for _, native in natives]
    if not any(script.text for script in scripts):
        words = next((script.words for script in scripts if INVALID_JOB not in script.words), "")
        if words:
            raise Unreachable(f"scontrol does not tell the script: {words}")
        return None
    lines = await _read_submit_lines(queries, [native for _, native in natives])
    texts = []
    for (task, native), script, line in zip(natives, scripts, lines, strict=True):
        head = [f"# job {native}" + (f", task {task}" if task else ""), *(f"# {part}" for part in line.splitlines())]
        texts.append("\n".join([*head, script.text or "# Slurm has forgotten its script\n"]))
    return KeptForm("\n".join(texts), "as Slurm keeps it")


def list_natives(handle: str) -> list[tuple[str, int]]:
    """The first native jobs of a launch; those that run one task of a group with that task."""
    found = parse_any(handle)
    if isinstance(found, GroupHandle):
        return [(part.task, part.native) for part in found.parts if not part.deferred]
    return [("", found.native)]


async def read_script(queries: Queries, native: int) -> KeptScript:
    """A job's script while Slurm has it. scontrol ends with 0 for a job that it does not know (22.05)."""
    words = ["scontrol", "write", "batch_script", str(native), "-"]
    done = await queries.transport.run(words, timeout=queries.timeout)
    if done.rc == 0 and done.text.startswith("#!"):
        return KeptScript(done.text)
    return KeptScript("", done.words.strip() or INVALID_JOB)


async def _read_submit_lines(queries: Queries, natives: Sequence[int]) -> list[str]:
    """The sbatch command of each job; empty where there is no accounting, or none that keeps it."""
    names = list(map(str, natives))
    try:
        runs = await queries.runs(names) if (await queries.site()).accounting else {}
    except OverspanError:
        # The script alone is worth showing.
        runs = {}
    return [next((run.submit_line for run in runs.get(name, ()) if run.submit_line), "") for name in names]
