"""`span` inside elements of a native array and inside steps of an allocation: each is known by a token of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.rigs.reach import find_address
from tests.system.conftest import Span
from tests.system.interactive import SPAN, newest
from tests.system.slurm.conftest import Site
from tests.system.watchers import find_own_address, open_for_jobs
from tests.waiting import WaitUntil

FOLDER = "/home/researcher/elements"
ROOT = "/home/researcher/.overspan"


@pytest.fixture
def span(site: Site, tmp_path: Path, wait_until: WaitUntil) -> Iterator[Span]:
    """A daemon outside, which the nodes reach by its port for jobs alone."""
    span = Span(tmp_path, wait_until)
    settings = {"kind": "slurm", "tick": 0.5, "shared": False, **site.access.settings}
    span.config.write_text(json.dumps({"default_cluster": "rig", "clusters": {"rig": settings}}))
    open_for_jobs(span, find_own_address(find_address(site.rig)))
    site.slurm("sh", "-c", f"rm -rf {FOLDER} {ROOT}/steps; mkdir -p {FOLDER}")
    yield span
    span.close()
    site.rig.run(["rm", "-rf", FOLDER])


ELEMENTS = f"""\
#!/bin/bash
#SBATCH --job-name=sweep --mem=50 --array=3,5,8%2 --requeue --open-mode=append
exec 2>&1
own=$SLURM_ARRAY_TASK_ID
echo "begins $(span squeue -h -o '%i')"
touch {FOLDER}/up.$own.${{SLURM_RESTART_COUNT:-0}}
while [ ! -e {FOLDER}/go.$own ]; do sleep 0.2; done
echo "{{name: inner-$own, resources: {{memory: 0.05}}, run: sleep 20}}" | span submit - >{FOLDER}/submit.$own
echo code $?
echo "sees $(span squeue -h -o '%j' | sort | paste -sd' ')"
for other in 3 5 8; do
  [ "$other" = "$own" ] && continue
  span scancel "$(cat {FOLDER}/array)_$other" >{FOLDER}/said.$own.$other 2>&1 || echo "not $other"
done
"""
SEARCH = """\
import glob, sys
tokens = sys.stdin.read().encode().split()
files = [*glob.glob("/proc/[0-9]*/cmdline"), *glob.glob("/proc/[0-9]*/environ")]
for path in [*files, *glob.glob("/var/*/slurm*/**", recursive=True)]:
    try:
        data = open(path, "rb").read()
    except OSError:
        continue
    if any(token in data for token in tokens):
        print(path)
"""


def list_files(site: Site) -> list[str]:
    """The access files of elements and of steps that are on the cluster."""
    return site.slurm("sh", "-c", f"ls -d {ROOT}/runs/*/access/*.json {ROOT}/steps/*/access.json; true").split()


def _reason(site: Site, native: str) -> str:
    return site.slurm("squeue", "-hj", native, "-o", "%r").strip()


def read_tokens(site: Site, path: str) -> list[str]:
    """The secret halves of a file's tokens."""
    return re.findall(r'"\d+\.([0-9a-f]{64})"', site.slurm("cat", path))


def test_elements_that_run_at_once_ask_each_as_itself(span: Span, site: Site) -> None:
    def exists(name: str) -> bool:
        return site.rig.run(["test", "-e", f"{FOLDER}/{name}"]).rc == 0

    script = span.folder / "sweep.sh"
    script.write_text(ELEMENTS)
    array = span.run("sbatch", "--parsable", str(script)).stdout.partition(";")[0].strip()
    site.slurm("sh", "-c", f"echo {array} >{FOLDER}/array")
    span.wait_until(lambda: exists("up.3.0") and exists("up.5.0"), 60, "two elements at once")
    assert not exists("up.8.0")
    (path,) = list_files(site)
    assert site.slurm("stat", "-c", "%a", path).strip() == "600"
    tokens = read_tokens(site, path)
    assert len(set(tokens)) == 3
    native = str(span.job(f"{array}_5")["native_id"])
    # An element that runs again is the same job: its token counts.
    span.run("scontrol", "requeue", f"{array}_5")
    site.slurm("touch", f"{FOLDER}/go.3", f"{FOLDER}/go.8")
    span.wait_until(lambda: _reason(site, native) == "BeginTime", 60, "Slurm keeps it for a while")
    site.slurm("scontrol", "update", f"JobId={native}", "StartTime=now")
    span.wait_until(lambda: exists("up.5.1"), 60, "the second run of an element")
    for machine in site.rig.containers:
        found = site.rig.run(["python3", "-c", SEARCH], " ".join(tokens), user="root", on=machine)
        assert (found.stdout, found.rc) == ("", 0), (machine, found)
    written = "".join(each.read_text(errors="replace") for each in span.folder.rglob("*.log"))
    assert not any(token in written for token in tokens)
    site.slurm("touch", f"{FOLDER}/go.5")
    for index in ("3", "5", "8"):
        span.until(f"{array}_{index}", "COMPLETED", timeout=60)
        begun = 2 if index == "5" else 1
        # Slurm's words for a requeue, and those of a shell whose program is told first.
        told = [
            line for line in span.log(f"{array}_{index}").splitlines() if not re.search("slurmstepd|Terminated", line)
        ]
        assert told[:begun] == [f"begins {array}_{index}"] * begun, told
        assert told[begun : begun + 2] == ["code 0", f"sees inner-{index} sweep"], told
        others = [other for other in ("3", "5", "8") if other != index]
        assert told[begun + 2 :] == [f"not {other}" for other in others]
        for other in others:
            said = site.slurm("cat", f"{FOLDER}/said.{index}.{other}")
            assert "Access/permission denied" in said or "Invalid job id" in said, said
    span.wait_until(lambda: not list_files(site), 60, "the tokens to be removed")


STEP = (
    "span squeue -h -o %j; "
    "echo '{name: late, resources: {memory: 0.05}, run: echo evaluated}' | span submit - --parsable >/dev/null; "
    'echo code $?; stat -c %a "$SPAN_JOB_ACCESS"; '
    'env | grep -cF "$(sed \'s/.*"token":"//; s/".*//\' "$SPAN_JOB_ACCESS")"; true'
)


@pytest.mark.parametrize("command", ["salloc", "srun"])
def test_a_step_of_an_allocation_asks_as_its_job(span: Span, site: Site, command: str) -> None:
    words = ("sh", "-c", STEP)
    begun = ("salloc", "-Jheld", "--mem=100", SPAN, "srun", *words) if command == "salloc" else ("srun", *words)
    options = () if command == "salloc" else ("-Jheld", "--mem=100")
    done = span.run(begun[0], *options, *begun[1:])
    assert done.stdout.split("\n")[:4] == ["held", "code 0", "600", "0"], (done.stdout, done.stderr)
    late = newest(span)
    span.until(late, "COMPLETED", timeout=60)
    assert span.job(late)["name"] == "late" and span.job(late)["cluster"] == "rig"
    span.wait_until(lambda: not list_files(site), 30, "the step's folder to be removed")
