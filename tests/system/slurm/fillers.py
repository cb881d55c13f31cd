"""Nodes that are somebody else's for a while, so that jobs wait for them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tests.system.slurm.conftest import Site
from tests.waiting import WaitUntil


@contextlib.contextmanager
def fill(site: Site, wait_until: WaitUntil, *words: str) -> Iterator[str]:
    """A native job that runs on what `words` of sbatch ask for, and is ended with the context; gives its id."""
    native = site.slurm("sbatch", "--parsable", *words, "--wrap", "sleep 3600").strip()
    state = ("squeue", "-ht", "all", "-j", native, "-o", "%T")
    try:
        # Until it runs, what is submitted after it could have the nodes before it.
        wait_until(lambda: site.slurm(*state).strip() == "RUNNING", 30, "the nodes to be taken")
        yield native
    finally:
        site.rig.run(["scancel", native])
