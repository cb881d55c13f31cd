"""A handle on a submitted job, for Python programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from overspan.bridge.client.messages import Accepted, CancelOrder, LogSelection, Outcome
from overspan.bridge.model.errors import OverspanError, TimedOut

if TYPE_CHECKING:
    from overspan.bridge.client.client import Client


class JobHandle:
    """One job of the daemon's. Every property asks the daemon; nothing is cached."""

    def __init__(self, client: Client, job_id: int, accepted: Accepted | None = None) -> None:
        self.id = job_id
        self.accepted = accepted
        self._client = client

    def __repr__(self) -> str:
        return f"<JobHandle {self.id}>"

    @property
    def details(self) -> dict[str, Any]:
        """Everything known of the job: facts, tasks, attempts."""
        return self._client.show(str(self.id))

    @property
    def state(self) -> str:
        """The job's state in Slurm's words, such as RUNNING."""
        return self._client.wait(str(self.id), timeout=0).state

    @property
    def done(self) -> bool:
        """Whether the job has ended."""
        return self._client.wait(str(self.id), timeout=0).over

    def wait(self, timeout: float | None = None, task: str = "") -> Outcome:
        """Wait for the end of the job, or of one task, and give its state and exit code.

        Raises TimedOut after `timeout` seconds.
        """
        ref = f"{self.id}.{task}" if task else str(self.id)
        outcome = self._client.wait(ref, timeout)
        if not outcome.over:
            raise TimedOut(f"job {ref} is still {outcome.state} after {timeout:g} s")
        return outcome

    def logs(self, task: str = "", *, node: int | None = None, stream: str = "", follow: bool = False) -> Iterator[str]:
        """The text of the job's logs in pieces, newest attempt; with `follow` until the job is over."""
        wish = LogSelection(task=task, node=node, stream=stream, follow=follow)
        for _, data in self._client.logs(str(self.id), wish):
            yield data.decode(errors="replace")

    def evals(self) -> list[dict[str, Any]]:
        """What is evaluated of the job's checkpoints, with states and scores."""
        return self._client.evals(str(self.id))

    def scale(self, task: str, size: int | None) -> dict[str, Any]:
        """Change how many members an elastic task has; None: as its file says, and more where there is room."""
        return self._client.scale(str(self.id), task, size)

    def cancel(self, task: str = "", signal: str = "") -> None:
        """Cancel the job, or one task of it, or only send a signal. Ending what has ended is fine."""
        result = self._client.cancel(CancelOrder(refs=(str(self.id),), task=task, signal=signal))
        for failed in result.errors:
            if failed.code != "conflict":
                raise OverspanError(failed.message, remedy=failed.remedy)
