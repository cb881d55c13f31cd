"""What commands inside a job are given to reach the daemon, and which job a token is of. Pure.

A token follows from the daemon's secret and the job's number, so nothing is stored for it, a later daemon knows it, and
all launches of a job have the same. It counts while the job lives.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass

from overspan.bridge.model.job import Job

FORMAT = 1


@dataclass(frozen=True)
class JobAccess:
    """The way for the jobs of some clusters: `addresses` by cluster, HOST or HOST:PORT, and the port that listens."""

    secret: bytes
    certificate: str
    addresses: Mapping[str, str]
    port: int

    def describe(self, job: Job, cluster: str) -> str:
        """The document that a job's commands read, with its token; empty on a cluster that does not reach here."""
        address = self.addresses.get(cluster, "")
        if not address:
            return ""
        host, _, port = address.partition(":")
        return json.dumps(
            {
                "format": FORMAT,
                "host": host,
                "port": int(port or self.port),
                "certificate": self.certificate,
                "token": self.draw_token(job.id),
            },
            separators=(",", ":"),
        )

    def draw_token(self, job: int) -> str:
        """NUMBER.HMAC: computed, so that nothing has to be kept of it."""
        return f"{job}.{hmac.new(self.secret, str(job).encode(), hashlib.sha256).hexdigest()}"

    def find_job(self, token: str) -> int | None:
        """The number of the job that a token was drawn for; None for any other text."""
        number, dot, _ = token.partition(".")
        if not dot or not number.isascii() or not number.isdigit() or len(number) > 18:
            return None
        job = int(number)
        return job if hmac.compare_digest(self.draw_token(job).encode(), token.encode()) else None
