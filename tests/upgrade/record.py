"""Records the corpus again: `python -m tests.upgrade.record`. Takes two minutes; `corpus` is replaced by what it finds.

A daemon of the old version has jobs on this machine, on a fake Slurm, in a fake Kubernetes and for a cluster that does
not answer. It is ended in their midst, and what it leaves is what the corpus keeps.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.upgrade.asking import ENDED, read_accounts, read_timeline
from tests.upgrade.corpus import CORPUS, Places, keep
from tests.upgrade.installation import Installation, end_processes
from tests.upgrade.old_version import build_old_version
from tests.upgrade.submissions import submit_all
from tests.waiting import wait_until


def main() -> None:
    """Record."""
    old = build_old_version()
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="corpus-")))
        span = Installation(root, old.span)
        stack.callback(end_processes, span.state)
        stack.enter_context(span.stand_in(old))
        span.configure()
        jobs = submit_all(span)
        wait_for_calm(span)
        said = ask(span, jobs)
        span.run("shutdown")
        places = Places(root=str(root), programs=str(old.python.parent))
        keep(root, places, time.time())
        (CORPUS / "said.json").write_text(places.scrub(json.dumps(said, indent=1) + "\n"))


def ask(span: Installation, jobs: Mapping[str, int]) -> dict[str, Any]:
    """What the old version says of all this, for the new one to say too: accounts, logs, timelines without times."""
    ended = [name for name in jobs if span.show(jobs[name])["state"] in ENDED]
    logs = {name: span.log(jobs[name]) for name in ended if not name.startswith(("slurm-", "array-"))}
    timelines = {name: read_timeline(span, jobs[name]) for name in ended}
    return {"jobs": dict(jobs), "accounts": read_accounts(span), "logs": logs, "timelines": timelines}


def wait_for_calm(span: Installation) -> None:
    """Wait until everything is as it stays: no call is owed but that of the silent cluster, no state changes."""

    def look() -> list[Any]:
        listed: list[Any] = json.loads(span.run("squeue", "--json").stdout)["jobs"]
        return [(job["job_id"], job["job_state"]) for job in listed]

    def is_calm() -> bool:
        before = look()
        time.sleep(3)
        return look() == before

    wait_until(is_calm, 30, "nothing changes any more")


if __name__ == "__main__":
    main()
