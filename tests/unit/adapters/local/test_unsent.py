"""What jobs of this machine could not send, below a root that may not be mounted."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from overspan.adapters.abilities import EndedLaunch
from overspan.adapters.local.unsent import LocalUnsent
from overspan.bridge.model.job import new_job
from overspan.bridge.model.spec import JobSpec, TaskSpec


def test_a_root_that_is_not_mounted_has_lost_nothing(tmp_path: Path) -> None:
    root = tmp_path / "root"
    mount = root / "data/7/0123"
    (mount / "files").mkdir(parents=True)
    facts = {"url": "s3://lab/run", "mode": "MOUNT_CACHED", "store": "s3", "markers": []}
    (mount / "mount.json").write_text(json.dumps(facts))
    (mount / "files/a").write_bytes(b"123")
    (root / "runs/7").mkdir(parents=True)
    launch = EndedLaunch(new_job(7, JobSpec("x", (TaskSpec("x", run="true"),)), 0.0), "7.0")
    unsent = LocalUnsent(str(root), None)
    root.rename(tmp_path / "elsewhere")
    listing = asyncio.run(unsent.remove_unsent([launch]))
    assert [job for job, text in listing.errors if "is its file system mounted?" in text] == [7]
    (tmp_path / "elsewhere").rename(root)
    assert [each.files for each in asyncio.run(unsent.remove_unsent([launch])).found] == [1]
    assert asyncio.run(unsent.remove_unsent([launch])) == ((), ())
