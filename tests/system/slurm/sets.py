"""The end of one native job of a set."""

from __future__ import annotations

import re

from tests.system.conftest import Span
from tests.system.slurm.conftest import Site


def name_run(span: Span, site: Site, job: int) -> str:
    """The name of a set's run directory, which begins the tokens of its native jobs."""
    native = str(span.wait_until(lambda: span.job(job).get("native_id"), 20, "a native id"))
    comment = site.slurm("squeue", "-hat", "all", "-j", native, "-O", "Comment:200")
    found = re.search(r"overspan=(\S+)-\d+/", comment)
    assert found, comment
    return found[1]


def stop(span: Span, site: Site, job: int) -> None:
    """Tell the tasks that look for it to end."""
    path = f"/home/researcher/.overspan/runs/{name_run(span, site, job)}/stop"
    assert site.rig.run(["touch", path]).rc == 0
