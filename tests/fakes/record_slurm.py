"""Plays the lives of `slurm_lives.py` on the real Slurm of the rig, and writes what it shows of them and when.

    .venv/bin/python -m tests.fakes.record_slurm

Seconds count from the answer of sbatch, by the rig's own clock. `steps` are when each command was given, and what it
said; the last field of a row of `queue` is the time of submission.
"""

from __future__ import annotations

import json
import threading
from typing import Any

from tests.fakes.slurm_lives import ACCOUNTS_FORMAT, KILL_WAIT, LIVES, QUEUE_FORMAT, TIMELINES
from tests.rigs.slurm import SlurmRig, Variant, open_rig

FAILING = "/run/fail-prolog"
VARIANT = Variant(
    lines={
        "KillWait=": f"KillWait={KILL_WAIT}",
        "Prolog=": "Prolog=/etc/slurm/prolog",
        # What is set down stays down until somebody resumes it.
        "ReturnToService=": "ReturnToService=0",
        # Lives that are played beside each other do not wait for each other's processors.
        "NodeName=": "NodeName=node[1-3] CPUs=64 RealMemory=64000 Gres=gpu:2 State=UNKNOWN",
    },
    files={"/etc/slurm/prolog": f"#!/bin/sh\n[ ! -e {FAILING} ]\n"},
)
PLAYER = """\
import json, os, subprocess, sys, time
lives, queue_format, accounts_format = json.load(sys.stdin)
def run(*words, user="", text=""):
    words = ["runuser", "-u", user, "--", *words] if user else words
    done = subprocess.run(words, input=text, capture_output=True, text=True, cwd="/home/researcher")
    return done.stdout, done.stderr
def squash(row):
    return [" ".join(field.split()) for field in row]
os.environ["SLURM_TIME_FORMAT"] = "%s"
for life in lives:
    words = ["sbatch", "--parsable", "--mem=100", "--job-name=" + life["name"], *life["options"]]
    out, err = run(*words, user="researcher", text="#!/bin/sh\\n" + life["script"] + "\\n")
    life.update(job=out.strip(), began=time.time(), todo=list(life["steps"]), given=[], queue=[], accounts=[])
    assert life["job"], err
while any(time.time() - life["began"] < life["seconds"] for life in lives):
    at = time.time()
    shown = [line.split("|")[:6] for line in run(
        "squeue", "--noheader", "--all", "--array", "--states=all", "--Format=" + queue_format)[0].splitlines()]
    kept = [line.split("|") for line in run("sacct", "--noheader", "--parsable2", "--duplicates", "--allocations",
        "--jobs=" + ",".join(life["job"] for life in lives), "--format=" + accounts_format)[0].splitlines()]
    for life in lives:
        second = round(at - life["began"], 1)
        if second > life["seconds"]:
            continue
        for found, rows in ((life["queue"], shown), (life["accounts"], kept)):
            rows = [row for row in map(squash, rows) if row[0].replace("_", "+").split("+")[0] == life["job"]]
            rows = sorted([row[0].replace(life["job"], "J", 1), row[1].split(" by ")[0], *row[2:]] for row in rows)
            if found is life["queue"]:
                rows = [[*row[:-1], int(row[-1]) - int(life["began"])] for row in rows]
            if not found or found[-1][1] != rows:
                found.append([second, rows])
        while life["todo"] and life["todo"][0][0] <= time.time() - life["began"]:
            words = [word.replace("{}", life["job"]) for word in life["todo"].pop(0)[1]]
            life["given"].append([round(time.time() - life["began"], 1), "".join(run(*words)).strip()])
    time.sleep(0.1)
print(json.dumps({life["name"]: {"steps": life["given"], "queue": life["queue"], "accounts": life["accounts"]}
                  for life in lives}).replace("for job " + lives[0]["job"], "for job J"))
"""


def record(rig: SlurmRig) -> dict[str, Any]:
    """All lives, one stage after the other."""
    found: dict[str, Any] = {}
    for stage in sorted({life.stage for life in LIVES}):
        lives = [life for life in LIVES if life.stage == stage]
        asked = [
            {"name": one.name, "script": one.script, "options": one.options, "steps": one.steps, "seconds": one.seconds}
            for one in lives
        ]
        if any(life.behaviour.launch == "prolog" for life in lives):
            rig.put(FAILING, "", on="node3")
        if any(life.behaviour.launch == "silent" for life in lives):
            rig.containers["node2"].pause()
            threading.Timer(lives[0].thaw, rig.containers["node2"].unpause).start()
        rig.put("/run/player.py", PLAYER)
        words = ["python3", "/run/player.py"]
        done = rig.run(words, stdin=json.dumps([asked, QUEUE_FORMAT, ACCOUNTS_FORMAT]), user="root")
        assert done.rc == 0, done.stderr
        found |= json.loads(done.stdout)
        rig.run(["scancel", "--user=researcher"])
        TIMELINES.write_text(render(found))
    return found


def render(found: dict[str, Any]) -> str:
    """The data, a line for each change."""
    blocks = []
    for name, life in found.items():
        parts = [f"  {json.dumps(kind)}: {_render_rows(rows)}" for kind, rows in life.items()]
        blocks.append(f"{json.dumps(name)}: {{\n" + ",\n".join(parts) + "\n}")
    return "{\n" + ",\n".join(blocks) + "\n}\n"


def _render_rows(rows: list[Any]) -> str:
    return "[\n    " + ",\n    ".join(json.dumps(row) for row in rows) + "\n  ]" if rows else "[]"


if __name__ == "__main__":
    with open_rig(VARIANT) as opened:
        record(opened)
