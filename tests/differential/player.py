"""Plays cases on one installation: commands in order, each in the case's own empty folder, and what they answered.

Standard library only, and no import from the project: the same file runs inside the Slurm rig and next to Overspan.
`python player.py REQUEST` reads a JSON document and prints one JSON line for each case. How a command is run is the
caller's: `play_all` takes a function for it.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

SUBMITTED = (
    re.compile(r"^Submitted batch job (\d+)"),
    re.compile(r"^sbatch: Job (\d+) to start"),
    re.compile(r"^(?:salloc|srun): (?:job|Pending job allocation|Granted job allocation) (\d+)"),
    re.compile(r"^(\d{5,})(?:;\S+)?$"),
)
PLACE = re.compile(r"\{(\d+)\}")
SHELL = ("cat", "sh", "env", "ls")

Execute = Callable[["list[str]", bytes, Path, "dict[str, str]", float], "subprocess.CompletedProcess[bytes]"]
"""Runs words with an input, in a folder and an environment; raises subprocess.TimeoutExpired after so many seconds."""


def execute_process(
    argv: list[str], data: bytes, folder: Path, env: dict[str, str], seconds: float
) -> subprocess.CompletedProcess[bytes]:
    """Start a process for it."""
    return subprocess.run(argv, input=data, capture_output=True, cwd=folder, env=env, timeout=seconds)


def play_case(case: dict[str, Any], execute: Execute, folder: Path, base: dict[str, str]) -> list[dict[str, Any]]:
    """Run a case's steps; gives for each compared step rc, stdout and stderr, with ids, folder and user replaced.

    A step is {"argv", "stdin", "env", "until"}; `{1}` in it stands for the id of the first job that the case submitted.
    A step with `until` is repeated for $PATIENCE seconds until its stdout matches that expression, and is compared
    only if it never does. A command has $COMMAND_SECONDS.
    """
    folder.mkdir(parents=True)
    for name, text in case.get("files", {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    ids: list[str] = []
    answers = []
    for step in case["steps"]:
        if any(int(number) > len(ids) for number in PLACE.findall(" ".join(step["argv"]))):
            break  # the job that it is about was refused
        answer = (
            _until(step, ids, execute, folder, base) if step.get("until") else _run(step, ids, execute, folder, base)
        )
        _learn(step["argv"], answer["stdout"] + answer["stderr"], ids)
        if not step.get("until") or answer.get("late"):
            answers.append(answer)
    shown = [_plain(answer, ids, folder) for answer in answers]
    if ids:
        _run({"argv": ["scancel", *ids]}, ids, execute, folder, base)
    return shown


def _run(step: dict[str, Any], ids: list[str], execute: Execute, folder: Path, base: dict[str, str]) -> dict[str, Any]:
    argv = [_fill(word, ids) for word in step["argv"]]
    env = {**base, **{key: _fill(value, ids) for key, value in step.get("env", {}).items()}}
    text = step.get("stdin", "").encode("utf-8", "surrogateescape")
    try:
        way = execute_process if argv[0] in SHELL else execute
        done = way(argv, text, folder, env, float(base["COMMAND_SECONDS"]))
    except subprocess.TimeoutExpired:
        return {"rc": -1, "stdout": "", "stderr": "not ended in time\n"}
    except OSError as error:
        return {"rc": -1, "stdout": "", "stderr": f"{error}\n"}
    return {"rc": done.returncode, "stdout": _text(done.stdout), "stderr": _text(done.stderr)}


def _until(
    step: dict[str, Any], ids: list[str], execute: Execute, folder: Path, base: dict[str, str]
) -> dict[str, Any]:
    deadline = time.monotonic() + float(base["PATIENCE"])
    pause = 0.05
    while True:
        answer = _run(step, ids, execute, folder, base)
        if re.search(_fill(step["until"], ids), answer["stdout"], re.MULTILINE):
            return answer
        if "internal error" in answer["stderr"] or time.monotonic() > deadline:
            return {**answer, "late": True, "stderr": f"{answer['stderr']}never: {step['until']}\n"}
        time.sleep(pause)
        pause = min(pause * 1.5, 0.5)


def _fill(word: str, ids: list[str]) -> str:
    return PLACE.sub(lambda match: ids[int(match[1]) - 1], word)


def _learn(argv: list[str], text: str, ids: list[str]) -> None:
    """Remember the ids of the jobs that a command submitted, in their order."""
    if argv[0] not in ("sbatch", "srun", "salloc"):
        return
    for line in text.splitlines():
        for pattern in SUBMITTED:
            match = pattern.match(line)
            if match and match[1] not in ids:
                ids.append(match[1])


def _plain(answer: dict[str, Any], ids: list[str], folder: Path) -> dict[str, Any]:
    user = pwd.getpwuid(os.geteuid())
    shown = dict(answer)
    shown.pop("late", None)
    for stream in ("stdout", "stderr"):
        text = shown[stream].replace(str(folder), "$DIR")
        for place, number in enumerate(ids, 1):
            text = re.sub(rf"(?<!\d)(0*){number}(?!\d)", rf"\g<1><{place}>", text)
        text = re.sub(rf"\b{user.pw_name}\({user.pw_uid}\)", "USER(UID)", text)
        # The listings cut long names.
        text = re.sub(rf"\b({user.pw_name}|{user.pw_name[:8]}\b|{user.pw_name[:7]}[+])", "USER", text)
        shown[stream] = re.sub(rf"\bby {user.pw_uid}\b", "by UID", text)
    return shown


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def play_all(request: dict[str, Any], execute: Execute, tell: Callable[[str, list[dict[str, Any]]], None]) -> None:
    """Play {"cases", "folder", "env", "workers"}; those marked `alone` first and one after the other.

    `tell` gets each case's name and answers, from one thread at a time.
    """

    def play(place: int) -> None:
        case = request["cases"][place]
        answers = play_case(case, execute, Path(request["folder"]) / f"{place:04d}", request["env"])
        with lock:
            tell(case["name"], answers)

    lock = threading.Lock()
    alone = [place for place, case in enumerate(request["cases"]) if case["alone"]]
    for place in alone:
        play(place)
    with ThreadPoolExecutor(request["workers"]) as pool:
        list(pool.map(play, (place for place in range(len(request["cases"])) if place not in alone)))


if __name__ == "__main__":
    play_all(
        json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")),
        execute_process,
        lambda case, steps: print(json.dumps({"case": case, "steps": steps}), flush=True),
    )
