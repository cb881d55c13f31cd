"""`span cache`: what jobs only read is fetched once for all of them, told, bounded and cleaned."""

from __future__ import annotations

import json
import os
from functools import partial
from typing import Any

import yaml
from tests.stores import TestStore, configure_store
from tests.system.conftest import Span
from tests.waiting import WaitUntil

from overspan.bridge.client import Client

READING = "file_mounts: {./in: s3://lab/data}\n"


def contents(span: Span) -> list[dict[str, Any]]:
    """What the local cluster keeps."""
    (cache,) = json.loads(span.look("cache", "ls", "--json"))["caches"]
    assert cache["cluster"] == "local"
    return list(cache["contents"])


def said(span: Span, job: int) -> str:
    """What a job has written."""
    return span.log(job).strip()


def test_two_jobs_share_a_content_that_is_removed_when_nobody_uses_it(
    lab: Span, store: TestStore, wait_until: WaitUntil
) -> None:
    store.open("lab").put("data/a", b"hello")
    run = "run: stat -L -c %i in/a; until [ -e end ]; do sleep 0.1; done\n"
    jobs = []
    for name in ("one", "two"):
        (lab.folder / name).mkdir()
        jobs.append(lab.submit(f"workdir: {lab.folder}/{name}\n{READING}{run}"))
    for job in jobs:
        wait_until(partial(said, lab, job), 30, "the first line")
    assert lab.log(jobs[0]) == lab.log(jobs[1])
    (content,) = contents(lab)
    assert (content["name"], content["size"], content["links"], content["whole"]) == ("s3/lab/data/a", 5, 2, True)
    assert lab.look("cache", "clean") == "local: 0 contents removed, 0 bytes, 1 content kept\n"
    for name in ("one", "two"):
        (lab.folder / name / "end").touch()
    for job in jobs:
        lab.until(job, "COMPLETED")
    wait_until(lambda: contents(lab)[0]["links"] == 0, 20, "nobody to use it")
    rows = lab.look("cache", "ls").splitlines()
    assert rows[0].split() == ["CLUSTER", "SIZE", "LAST", "USE", "USED", "BY", "CONTENT"]
    assert rows[1].split()[0] == "local" and rows[1].split()[-2:] == ["-", "s3/lab/data/a"]
    assert rows[2].startswith("local: 5 bytes of ") and rows[2].endswith("/data/cache")
    assert "1 content kept" in lab.look("cache", "clean", "--unused-for", "1h")
    with Client(environment=lab.environment) as client:
        answer = client.cache.clean("local")
    assert answer["caches"] == [{"cluster": "local", "removed": 1, "size": 5, "kept": 0}] and answer["notes"] == []
    assert contents(lab) == []


def test_the_cache_has_a_limit(lab: Span, store: TestStore, wait_until: WaitUntil) -> None:
    settings = yaml.safe_load(lab.config.read_text())
    settings["clusters"]["local"]["data_cache_size"] = "1M"
    lab.config.write_text(yaml.safe_dump({**settings, "stores": configure_store(store, lab.folder)}))
    store.open("lab").put("data/a", os.urandom(700 << 10))
    lab.until(lab.submit(READING + "run: test -e in/a\n"), "COMPLETED")
    wait_until(lambda: [each["links"] for each in contents(lab)] == [0], 20, "the content to be kept")
    store.open("lab").put("data/a", os.urandom(600 << 10))
    lab.until(lab.submit(READING + "run: test -e in/a\n"), "COMPLETED")
    wait_until(lambda: [each["size"] for each in contents(lab)] == [600 << 10], 20, "the older version to be gone")


def test_mistakes_are_told(lab: Span, store: TestStore) -> None:
    for words, message in {
        ("cache", "clean", "--unused-for", "soon"): "--unused-for: 'soon' is not a delay",
        ("cache", "ls", "-M", "nowhere"): "nowhere",
        ("cache", "drop"): "drop",
    }.items():
        done = lab.run(*words, check=False)
        assert done.returncode != 0 and message in done.stderr, (words, done.stderr)
