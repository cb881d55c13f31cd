"""What a launch is sent of the object stores that it mounts."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from overspan.adapters.store_files import list_stores, render_stores
from overspan.bridge.model.errors import Denied
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.model.spec import JobSpec, TaskSpec
from overspan.bridge.model.storage import MountMode, StorageMount, StoreAccess

SECRET = "[lab]\naws_access_key_id = key\naws_secret_access_key = secret\naws_session_token = token\n"


def make_job(stores: Sequence[str]) -> Job:
    mounts = tuple(StorageMount(f"/{name}", f"s3://{name}/x", MountMode.COPY, name) for name in stores)
    return new_job(7, JobSpec("j", (TaskSpec("a", run="x", storage=mounts),)), 1.0)


def test_each_store_of_the_job_once_and_no_other() -> None:
    known = {name: StoreAccess(name, f"http://{name}") for name in ("one", "two", "three")}
    files = render_stores(list_stores(make_job(["one", "two", "one"])), known, "/run")
    assert {path: json.loads(data)["endpoint"] for path, data in files.items()} == {
        "/run/stores/one.json": "http://one",
        "/run/stores/two.json": "http://two",
    }


def test_a_web_server_needs_none() -> None:
    mounts = (StorageMount("/x", "https://host/x", MountMode.COPY, "https"),)
    job = new_job(7, JobSpec("j", (TaskSpec("a", run="x", storage=mounts),)), 1.0)
    assert render_stores(list_stores(job), {}, "/run") == {}


def test_credentials_of_a_file_are_sent_as_they_are_at_each_launch(tmp_path: Path) -> None:
    path = tmp_path / "credentials"
    path.write_text(SECRET)
    known = {"one": StoreAccess("one", credentials_file=str(path), profile="lab")}
    sent = json.loads(render_stores(["one"], known, "/run")["/run/stores/one.json"])
    assert (sent["access_key"], sent["secret_key"], sent["session_token"]) == ("key", "secret", "token")
    assert not sent.get("credentials_file")
    path.write_text(SECRET.replace("= secret", "= renewed"))
    os.utime(path, (1, 1))
    assert "renewed" in str(render_stores(["one"], known, "/run"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "cannot be read"),
        ("[other]\n", "no profile \\[lab\\]"),
        ("damaged", "no file of credentials"),
    ],
)
def test_credentials_that_cannot_be_read(text: str | None, why: str, tmp_path: Path) -> None:
    path = tmp_path / "credentials"
    if text is not None:
        path.write_text(text)
    known = {"one": StoreAccess("one", credentials_file=str(path), profile="lab")}
    with pytest.raises(Denied, match=why):
        render_stores(["one"], known, "/run")


def test_a_store_that_is_not_configured_any_more() -> None:
    with pytest.raises(Denied, match="the store one is not in the configuration any more"):
        render_stores(["one"], {}, "/run")
