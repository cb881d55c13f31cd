"""Invocation: one command line with its environment, passed to every command."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from overspan.bridge.client import Client

SLURM_VERBS = frozenset(
    {
        *("sbatch", "srun", "salloc", "sattach", "squeue", "scancel", "scontrol"),
        *("sacct", "sacctmgr", "sinfo", "sprio", "sshare", "sstat", "sdiag"),
    }
)


class Invocation(NamedTuple):
    """A command to run: `span VERB WORD...` in an environment."""

    verb: str
    words: tuple[str, ...]
    environment: Mapping[str, str]

    @property
    def prefix(self) -> str:
        """The name before messages on stderr: the verb for Slurm's verbs, else `span`."""
        return self.verb if self.verb in SLURM_VERBS else "span"

    @property
    def json(self) -> bool:
        """Whether the answer, or an error, is JSON."""
        return any(word == "--json" or word.startswith("--json=") for word in self.words)

    def client(self) -> Client:
        """A client of the user's daemon, not yet connected."""
        from overspan.bridge.client import Client

        client = Client(environment=self.environment)
        client.for_terminal = sys.stdout is not None and sys.stdout.isatty() and not self.json
        return client


def outlive_order(environment: Mapping[str, str]) -> None:
    """Inside a job, ignore TERM, so that this process lives to read the answer to an order that ends its own job."""
    if environment.get("OVERSPAN_JOB_ID") or environment.get("SLURM_JOB_ID"):
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
