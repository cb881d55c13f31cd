"""Measures folders of object stores on this machine, with MinIO as the store, else moto: writing, sending, ends."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.minio import find_program, run_minio
from tests.stores import SECRET, TestStore, configure_store, run_store

from benchmarks.installation import Installation, processor_seconds, proportional_memory, until
from benchmarks.rows import Bar, Row
from overspan.bridge.client.client import Client

CHECKPOINT = 256
"""MB of one large file."""
SMALL = 10_000
"""Files of 100 bytes."""
BARE = 2_000
"""Bare requests beside them."""
LONG_SECONDS = 100.0
"""What so many may take of them at most."""
MOUNTED = 512
"""MB of an object that is read through a mount."""
IDLE_SECONDS = 10.0
_RCLONE = {
    "TYPE": "s3",
    "PROVIDER": "Other",
    "ACCESS_KEY_ID": "testing",
    "SECRET_ACCESS_KEY": SECRET,
    "REGION": "us-east-1",
}
_JOB = "workdir: {top}\nfile_mounts: {{./{name}: {{source: 's3://bench/{name}', mode: MOUNT_CACHED}}}}\nrun: |\n{run}\n"
_LARGE = """
  dd if=/dev/zero of=plain bs=1M count={size} conv=fsync 2>&1 | tail -1
  dd if=/dev/zero of=large/file bs=1M count={size} conv=fsync 2>&1 | tail -1
"""
_SMALL = """
  python3 -c '
  for number in range({count}):
      with open(f"small/{{number:06}}", "w") as file:
          file.write("x" * 100)
  '
"""


@contextlib.contextmanager
def _open_store() -> Iterator[tuple[Client, Path, TestStore]]:
    """An installation that knows a store, its folder, and the store."""
    run = run_minio if find_program().exists() else run_store
    with tempfile.TemporaryDirectory() as top, run(Path(top)) as store:
        store.make_bucket("bench")
        stores = configure_store(store, Path(top))
        # Past the proxy, which costs each request more than the store does.
        stores["s3"]["endpoint"] = store.direct
        with Installation(json.dumps({"stores": stores})) as span, span.client() as client:
            yield client, span.folder, store


def data() -> list[Row]:
    """A large file, and jobs that end when all is sent."""
    with _open_store() as (client, top, _):
        return [*_time_large(client, top), *_time_ends(client, top), *_measure_idle(client, top)]


def small_files() -> list[Row]:
    """Many small files of one job."""
    with _open_store() as (client, top, store):
        return _time_small(client, top, store)


def transfers() -> list[Row]:
    """A folder that a user sends."""
    with _open_store() as (client, top, store):
        return _time_rclone(client, top, store)


def mounts() -> list[Row]:
    """A large object through a MOUNT, beside the bare GET of the same client; and the start of such a task."""
    with _open_store() as (client, top, store):
        return _time_mounts(client, top, store)


def _submit(client: Client, top: Path, name: str, run: str) -> int:
    return client.submit(_JOB.format(top=top, name=name, run=run)).id


def _find_span(client: Client, job: int) -> float:
    """Seconds from the end of a job's program to that of its data."""
    told = {row.cause: row.at for row in client.timeline(str(job))}
    return float(told["Flushed"] - told["NodeEnded"])


def _time_large(client: Client, top: Path) -> list[Row]:
    """Each the better of three, in turns."""
    job = client.job(_submit(client, top, "large", _LARGE.format(size=CHECKPOINT) * 3))
    assert job.wait(300).state == "COMPLETED"
    times = [float(line.split(", ")[2].split()[0]) for line in "".join(job.logs()).splitlines()]
    title = f"{CHECKPOINT} MB into a MOUNT_CACHED folder, beside the same disk"
    sent = CHECKPOINT / _find_span(client, job.id)
    return [
        Row(title, min(times[::2]) / min(times[1::2]), Bar(size=0.9), "times", at_least=True),
        Row(f"{CHECKPOINT} MB sent to the store after the program's end", sent, None, "MB/s"),
    ]


def _time_small(client: Client, top: Path, store: TestStore) -> list[Row]:
    """Beside what four threads that do nothing else put into the same store, which is the slow part here.

    They come first: on a machine where they take long, the job has no more files than they.
    """
    bucket = store.open("bench")
    began = time.monotonic()
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda number: bucket.put(f"plain/{number}", b"x" * 100), range(BARE)))
    plain = (time.monotonic() - began) / BARE
    count = SMALL if SMALL * plain < LONG_SECONDS else BARE
    began = time.monotonic()
    job = client.job(_submit(client, top, "small", _SMALL.format(count=count)))
    assert job.wait(600).state == "COMPLETED"
    took = (time.monotonic() - began) / count
    assert len(list(bucket.list_objects("small/"))) == count
    return [
        Row(f"{count:,} small files written and in the store", took * count, None, "s"),
        Row("bare requests by four threads, beside that", plain / took, Bar(size=0.6), "times", at_least=True),
    ]


def _time_mounts(client: Client, top: Path, store: TestStore) -> list[Row]:
    bucket = store.open("bench")
    block = os.urandom(64 << 20)
    upload = bucket.begin_upload("mounted/large", len(block))
    parts = [
        bucket.put_part("mounted/large", upload, number, block)
        for number in range(1, MOUNTED * 2**20 // len(block) + 1)
    ]
    bucket.finish_upload("mounted/large", upload, parts)
    spans: dict[str, list[float]] = {"bare": [], "mount": []}
    starts = []
    for _ in range(3):
        began = time.monotonic()
        reader = bucket.open("mounted/large")
        while reader.read(1 << 20):
            pass
        spans["bare"].append(time.monotonic() - began)
        run = (
            "  head -c 1 data/large > /dev/null; date +%s.%N > first\n  cat data/large > /dev/null; date +%s.%N > last"
        )
        asked = time.time()
        mount = "file_mounts: {./data: {source: 's3://bench/mounted', mode: MOUNT}}"
        job = client.job(client.submit(f"workdir: {top}\n{mount}\nrun: |\n{run}\n").id)
        assert job.wait(LONG_SECONDS).state == "COMPLETED"
        first, last = (float((top / name).read_text()) for name in ("first", "last"))
        starts.append(first - asked)
        spans["mount"].append(last - first)
    bare, mounted = (MOUNTED * 1.048576 / statistics.median(each) for each in spans.values())
    return [
        Row(f"`cat` of an object of {MOUNTED} MB through a MOUNT", mounted, None, "MB/s"),
        Row("a bare GET of it by the same client", bare, None, "MB/s"),
        Row("from a submission to the first byte of it", statistics.median(starts), None, "s"),
    ]


def _time_rclone(client: Client, top: Path, store: TestStore) -> list[Row]:
    """`span data put` beside `rclone copy` of the same files, each the better of three, in turns; where it is there."""
    program = shutil.which("rclone")
    if program is None:
        return []
    source = top / "beside"
    source.mkdir()
    for number in range(100):
        (source / f"{number:03}").write_bytes(os.urandom(1 << 20))
    (source / "large").write_bytes(os.urandom(CHECKPOINT << 20))
    environment = {
        # Its library cannot load a bundle of certificates.
        **{name: value for name, value in os.environ.items() if name != "AWS_CA_BUNDLE"},
        "RCLONE_CONFIG": "/dev/null",
        **{f"RCLONE_CONFIG_BENCH_{key}": value for key, value in _RCLONE.items()},
        "RCLONE_CONFIG_BENCH_ENDPOINT": store.direct,
    }
    times: dict[str, list[float]] = {"rclone": [], "span": []}
    for number in range(3):
        began = time.monotonic()
        words = [program, "copy", str(source), f"bench:bench/rclone{number}"]
        subprocess.run(words, env=environment, check=True, capture_output=True)
        times["rclone"].append(time.monotonic() - began)
        began = time.monotonic()
        list(client.storage.put(str(source), f"s3://bench/span{number}"))
        times["span"].append(time.monotonic() - began)
    ratio = min(times["rclone"]) / min(times["span"])
    title = f"{CHECKPOINT + 100} MB in 101 files by `span data put`, beside `rclone copy`"
    return [Row(title, ratio, Bar(size=0.9), "times", at_least=True)]


def _time_ends(client: Client, top: Path) -> list[Row]:
    spans = []
    for number in range(3):
        job = client.job(_submit(client, top, f"end{number}", f"  echo 1 > end{number}/a; sleep 3"))
        assert job.wait(60).state == "COMPLETED"
        spans.append(_find_span(client, job.id))
    return [Row("an end with nothing to send", statistics.median(spans), Bar(starts=100), "s")]


def _measure_idle(client: Client, top: Path) -> list[Row]:
    job = _submit(client, top, "idle", "  sleep 600")
    until(lambda: client.job(job).state == "RUNNING", 60)
    time.sleep(3)
    movers = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _is_mover(pid)]
    before = processor_seconds(movers)
    time.sleep(IDLE_SECONDS)
    share = (processor_seconds(movers) - before) / IDLE_SECONDS * 100
    memory = proportional_memory(movers)
    client.job(job).cancel()
    return [
        Row("what sends data, idle: memory (PSS)", memory, Bar(size=60), "MB"),
        Row("what sends data, idle: processor", share, Bar(starts=5), "% of a core"),
    ]


def _is_mover(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"data" in words and any(word.endswith(b"/runs/1") or b"/runs/" in word for word in words)
