"""Trials of the ways between clusters: `Client().reach`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from overspan.bridge.client.transport import quote_part

if TYPE_CHECKING:
    from overspan.bridge.client.client import Client


class ReachCalls:
    """What can be asked of the ways between two clusters."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def prepare(self, clusters: Sequence[str], **options: Any) -> dict[str, Any]:
        """The job file of a trial: {text, has_host_network}; what was known of its ways is forgotten.

        `options` are ports, image (of pods, with python3), host_network, and the seconds that the trial may wait.
        """
        return self._client._post("/v1/reach/trial", {"clusters": list(clusters), **options})

    def conclude(self, ref: str) -> dict[str, Any]:
        """What a trial found: {findings: [{source, target, host_network, port, works, detail}], gaps: [sentence]}."""
        return self._client._post(f"/v1/jobs/{quote_part(ref)}/reach", {})
