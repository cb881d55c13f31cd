"""The client's part for what people want of jobs: cancel, hold, requeue, change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from overspan.bridge.client.transport import Transport, quote_part
from overspan.bridge.model.errors import InvalidRequest

if TYPE_CHECKING:
    from overspan.bridge.client.messages import Cancelled, CancelOrder

FILTERS = ("states", "users", "names", "partitions", "clusters", "accounts", "qos", "nodes")
"""What a cancel can be filtered by in the daemon."""


class OrderCalls(Transport):
    """Orders to jobs; raises as every method of the client does."""

    def cancel(self, order: CancelOrder) -> Cancelled:
        """Cancel or signal jobs; what could not be done is listed, not raised. An order without a choice is refused."""
        if not order.refs and order.filter.empty:
            raise InvalidRequest("No job identification provided", remedy="name jobs, or filter with -u, -n, -p or -t")
        from overspan.bridge.client.messages import Cancelled, Failed

        asked = order.filter
        filters = {name: list(getattr(asked, name)) for name in FILTERS}
        body = {
            "refs": list(order.refs),
            "task": order.task,
            "filters": filters,
            "signal": order.signal or None,
            "batch_only": order.batch_only,
            "full": order.full,
        }
        document = self._post("/v1/cancel", body)
        errors = []
        for row in document.get("errors") or ():
            error = row.get("error") or {}
            texts = (str(error.get(name, "")) for name in ("code", "message", "remedy"))
            errors.append(Failed(str(row.get("ref", "")), *texts))
        done = tuple(str(ref) for ref in document.get("done") or ())
        return Cancelled(done, tuple(errors), str(document.get("note") or ""))

    def hold(self, ref: str) -> None:
        """Keep a pending job from starting."""
        self._post(f"/v1/jobs/{quote_part(ref)}/hold", {})

    def release(self, ref: str) -> None:
        """End a hold."""
        self._post(f"/v1/jobs/{quote_part(ref)}/release", {})

    def requeue(self, ref: str, hold: bool = False) -> None:
        """End what runs of a job and put it back into the queue."""
        self._post(f"/v1/jobs/{quote_part(ref)}/requeue", {"hold": hold})

    def suspend(self, ref: str) -> None:
        """Stop what runs of a job, in place."""
        self._post(f"/v1/jobs/{quote_part(ref)}/suspend", {})

    def resume(self, ref: str) -> None:
        """Let a suspended job go on."""
        self._post(f"/v1/jobs/{quote_part(ref)}/resume", {})

    def top(self, ref: str) -> None:
        """Put a pending job before the user's other ones."""
        self._post(f"/v1/jobs/{quote_part(ref)}/top", {})

    def restart(self, ref: str, task: str = "") -> None:
        """Start one task again in place, or all."""
        self._post(f"/v1/jobs/{quote_part(ref)}/restart", {"task": task})

    def update(self, ref: str, changes: Mapping[str, Any]) -> None:
        """Change a job.

        Keys: time_limit (seconds, None for none), priority, nice, begin, dependency (as --dependency), throttle,
        comment, name, partition.
        """
        self._post(f"/v1/jobs/{quote_part(ref)}/update", dict(changes))
