"""Gates: files on a cluster that programs wait for, so that a test says when they go on."""

from __future__ import annotations

import itertools
import time

from tests.system.slurm.conftest import Site

_numbers = itertools.count(time.time_ns())


class Gate:
    """A file on the cluster that programs wait for."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.path = f"/home/researcher/gate-{next(_numbers)}"
        self.wait = f"until [ -e {self.path} ]; do sleep 0.05; done"

    def open(self) -> None:
        """Let them go on."""
        self.site.slurm("touch", self.path)
