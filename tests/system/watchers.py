"""The published shape of checkpoint evaluation (a CPU-only watcher that launches a job for each checkpoint).

The trainer is primary, the watcher auxiliary: it ends with the trainer, after its last evaluation.
"""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path

from tests.system.conftest import Span

CHECKPOINTS = 3
_WATCH = """\
import argparse, pathlib, subprocess, sys, time

words = argparse.ArgumentParser()
words.add_argument("--ckpt_dir", type=pathlib.Path)
folder = words.parse_args().ckpt_dir
done = set()
while True:
    for found in sorted(folder.glob("step-*")):
        if found.name not in done:
            done.add(found.name)
            job = "name: eval-NAME\\nresources: {cpus: 0.1, memory: 0.05}\\nrun: echo evaluated NAME\\n"
            job = job.replace("NAME", found.name)
            said = subprocess.run(["span", "submit", "-", "--parsable"], input=job, text=True, capture_output=True)
            print("launched", found.name, said.stdout.strip(), said.stderr.strip(), flush=True)
            # The trainer of this story waits for it.
            (folder / ("launched-" + found.name)).touch()
    time.sleep(0.2)
"""
_TRAIN = """\
import pathlib, sys, time

folder, count = pathlib.Path(sys.argv[1]), int(sys.argv[2])
for step in range(count):
    (folder / ("step-%d" % step)).touch()
    while not (folder / ("launched-step-%d" % step)).exists():
        time.sleep(0.1)
"""
_GROUP = """\
name: train-eval-group
execution: parallel
primary_tasks: [trainer]
---
name: trainer
resources: {{cpus: 0.1, memory: 0.05}}
run: |
  python3 {folder}/train.py {folder} {count}
---
name: eval-watcher
resources: {{cpus: 0.1, memory: 0.05}}  # CPU-only, no GPUs needed
run: |
  stat -L -c 'access %a %n' "$SPAN_JOB_ACCESS"
  python3 {folder}/watch_and_launch_eval.py --ckpt_dir {folder}  # it calls span
"""


def list_programs() -> dict[str, str]:
    """The two programs by their names, to be put beside the checkpoints."""
    return {"train.py": _TRAIN, "watch_and_launch_eval.py": _WATCH}


def write_programs(folder: Path) -> None:
    """Put them there, for everybody."""
    folder.mkdir(mode=0o777, exist_ok=True)
    folder.chmod(0o777)
    for name, text in list_programs().items():
        (folder / name).write_text(text)


def train_and_evaluate(span: Span, folder: str, *words: str) -> int:
    """Run the group; each checkpoint has one evaluation, which has joined it. Gives the group's id."""
    group = span.submit(_GROUP.format(folder=folder, count=CHECKPOINTS), *words)
    span.until(group, "COMPLETED", timeout=120)
    told = span.log(group, "eval-watcher")
    launched = re.findall(r"launched step-(\d+) (\d+) ", told, re.MULTILINE)
    assert [int(step) for step, _ in launched] == list(range(CHECKPOINTS)), told
    for step, job in launched:
        ended = span.until(job, "COMPLETED", "CANCELLED", timeout=60)
        assert (ended["parent"], ended["cluster"]) == (group, span.job(group)["cluster"])
        if ended["state"] == "COMPLETED":
            assert f"evaluated step-{step}" in span.log(job)
    return group


def find_own_address(towards: str) -> str:
    """This machine's address as it is seen from another one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((towards, 9))
        address: str = probe.getsockname()[0]
    return address


def open_for_jobs(span: Span, address: str) -> None:
    """Give each cluster of a configuration the address."""
    settings = json.loads(span.config.read_text())
    for cluster in settings["clusters"].values():
        cluster["daemon_address"] = address
    span.config.write_text(json.dumps(settings))
