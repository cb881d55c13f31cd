"""Jobs on compute nodes that do not see `root`: what can run there, and how output is read.

Such a job gets only what Slurm itself transports: its script and variables. It runs in a folder that every node has. A
step beside a running single job reads its output there; a group has a relay for that.
"""

from __future__ import annotations

from overspan.adapters.slurm.commands.errors import FailureKind, read_failure
from overspan.adapters.slurm.transports.programs import INTERPRETER, NO_FILE, NO_REGULAR, NO_RIGHT, render_read
from overspan.adapters.slurm.transports.transport import FileChunk, Transport
from overspan.adapters.slurm.unshared.groups import REMEDY
from overspan.bridge.model.errors import Conflict, Denied, NotFound, Rejected
from overspan.bridge.model.job import Job

_SECONDS = 60.0


def refuse_unshared(job: Job) -> None:
    """Refuse jobs that need a folder that the nodes share. Raises Rejected."""
    if any(not path.startswith(("/", "~/")) for task in job.spec.tasks for path in task.volumes.values()):
        what = "a volume by its name"
        raise Rejected(f"{what} needs a folder that the compute nodes share, and this cluster has none", remedy=REMEDY)


async def read_there(transport: Transport, native: str, path: str, offset: int, limit: int) -> FileChunk:
    """Bytes of a file on a running job's first node. Raises NotFound without the file, Conflict after the job's end."""
    step = ("srun", f"--jobid={native}", "--overlap", "--quiet", "--nodes=1", "--ntasks=1", "--relative=0", "--mem=0")
    program = render_read(path, offset, limit).encode("utf-8", "surrogateescape")
    done = await transport.run((*step, INTERPRETER), stdin=program, timeout=_SECONDS)
    if done.rc == 0:
        size, _, data = done.out.partition(b"\n")
        return FileChunk(data, int(size))
    if done.rc in (NO_FILE, NO_REGULAR):
        raise NotFound(f"there is no file {path} on the first node of job {native}")
    if done.rc == NO_RIGHT:
        raise Denied(f"{path} may not be read")
    failure = read_failure(done.words, done.rc)
    if failure.transient or failure.kind is FailureKind.MISSING:
        raise failure.error()
    raise Conflict(
        f"job {native} does not run, and its node shares no folder with the login node: {path} stayed there",
        remedy="have it write to a folder that all nodes see, with `#SBATCH --output`",
    )
