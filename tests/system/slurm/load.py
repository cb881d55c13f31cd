"""Jobs that note each run of theirs in one file there."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from tests.rigs.plugin import rig_or_skip
from tests.rigs.reach import open_access
from tests.rigs.slurm import CONTEXT, Variant
from tests.system.conftest import Span
from tests.system.slurm.conftest import Site
from tests.system.slurm.groups import group, start

CODES = (0, 0, 3, 77)


def restart_daemons(script: str) -> str:
    """start.sh with daemons that are started again when they end, as by systemd."""
    for command in ("slurmctld -D", 'slurmd -D -N "$(hostname)"'):
        assert f"exec {command}" in script
        script = script.replace(f"exec {command}", f"while :; do {command} || :; sleep 0.3; done")
    return script


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site whose daemons come back by themselves."""
    files = {"/start.sh": restart_daemons((CONTEXT / "start.sh").read_text())}
    folder = tmp_path_factory.mktemp("ssh")
    with rig_or_skip(Variant("chaos", files=files)) as rig, open_access(rig, folder) as access:
        yield Site(access)


@dataclass(frozen=True)
class Answered:
    """A job whose id was printed: the words of its tasks, and the exit code it has to have."""

    ref: str
    words: tuple[str, ...]
    code: int


@dataclass
class Load:
    """A mix of jobs, each of which tells when it runs."""

    span: Span
    site: Site
    seed: int
    answered: list[Answered] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.folder = f"/home/researcher/starts-{self.seed}-{time.time_ns()}"
        self.site.slurm("mkdir", "-p", f"{self.folder}/locks")

    def line(self, word: str, code: int) -> str:
        """A program that says once that it runs, complains of another that does, and takes some seconds."""
        native = "$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}.${OVERSPAN_ATTEMPT:-0}"
        return (
            f"exec 9>>{self.folder}/locks/{word}; flock -n 9 || echo {word} twice >>{self.folder}/starts; "
            f"echo {word} {native} >>{self.folder}/starts; sleep {self.chance.uniform(1, 5):.1f}; exit {code}"
        )

    def submit_single(self, word: str) -> None:
        code = self.chance.choice(CODES)
        words = ("sbatch", "--parsable", "-M", "rig", "--mem=50", "--wrap", self.line(word, code))
        done = self.span.run(*words, check=False)
        assert done.returncode == 0 or done.stderr
        if done.returncode == 0:
            self.answered.append(Answered(done.stdout.partition(";")[0], (word,), code))

    def submit_array(self, word: str, count: int) -> None:
        name = f"{word}-$SLURM_ARRAY_TASK_ID"
        words = ("sbatch", "--parsable", "-M", "rig", "--mem=50", f"--array=0-{count - 1}", "--wrap")
        array = self.span.run(*words, self.line(name, 0)).stdout.partition(";")[0]
        self.answered += [Answered(f"{array}_{index}", (f"{word}-{index}",), 0) for index in range(count)]

    def submit_group(self, word: str, **header: str) -> None:
        """Two tasks that run beside each other; with `restart: task` each has a native job of its own."""
        code, both = self.chance.choice(CODES), {"spread": True, "backoff": {"first": 0.1}}
        tasks = {name: {"run": self.line(f"{word}-{name}", end), **both} for name, end in (("a", 0), ("b", code))}
        job = start(self.span, group(tasks, **header))
        self.answered.append(Answered(str(job), (f"{word}-a", f"{word}-b"), code))

    def check(self, lost: bool) -> None:
        """Each job has its true end, and ran once; a group whose supervisor was lost once for each launch."""
        rows = [row.split() for row in self.site.slurm("cat", f"{self.folder}/starts").splitlines()]
        assert not [row for row in rows if row[1] == "twice"]
        runs = [tuple(row) for row in rows]
        assert len(set(runs)) == len(runs), runs
        for job in self.answered:
            shown = self.span.job(job.ref)
            attempts = {f"{task['name']}": len(task["attempts"]) for task in shown["tasks"]}
            counts = [sum(row[0] == word for row in rows) for word in job.words]
            told = f"{job} {counts} {shown} {self.site.slurm('cat', f'{self.folder}/starts')}"
            assert (shown["state"], shown["exit_code"]) == ("FAILED" if job.code else "COMPLETED", job.code), told
            most = 1 if len(job.words) == 1 or not lost else max(attempts.values())
            assert all(1 <= count <= most for count in counts), told
