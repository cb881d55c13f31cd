"""What users are told of what is damaged, missing, short, hanging or renamed: which, how many, and how to mend it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.leaks import nothing_is_dropped
from tests.unit.messages import kubernetes_situations as pods
from tests.unit.messages import local_situations as local
from tests.unit.messages import slurm_situations as slurm
from tests.unit.messages.told_texts import Stage, Told

__all__ = ["nothing_is_dropped"]


class Row(NamedTuple):
    """A situation, and what each place says of it."""

    name: str
    make: Callable[[Stage], Told]
    told: dict[str, str]
    """Regular expressions by the place where a text of it stands."""


NO_FOLDER = r"/runs/1 is gone"
LINE = r"journal\.0\.jsonl, line 4: this is no line of a journal"
AWAY = r"Nodes required for job are DOWN, DRAINED"
SILENT = r"Slurm has not said whether it has job 1 \(sbatch has not answered within 61 s\); it is looked up, and"
UNNAMED = (
    r"does not name the cluster kube, which was kubernetes http://\S+, namespace default: its 1 live job is left as it"
    r" is; name it kube again to follow them; `span config` shows the files"
)

ROWS = [
    Row(
        "the run directory of a job is removed",
        local.lose_the_folder,
        {
            "squeue": "FAILED SystemFailure",
            "show": NO_FOLDER,
            "ping": f"^local: job 1 cannot be looked after, so it was ended: .*{NO_FOLDER}; `span requeue 1` starts it",
        },
    ),
    Row(
        "the journal of a job is damaged",
        local.tear_the_journal,
        {
            "squeue": "FAILED SystemFailure",
            "show": f"attempt 0: FAILED system .*{LINE}",
            "ping": f"^local: job 1 cannot be looked after, .*{LINE}; `span requeue 1` starts it anew",
        },
    ),
    Row(
        "a job is cancelled with a full disk",
        local.fill_the_disk,
        {
            "scancel": "^the store overspan.db could not be written: the disk is full; what was asked is under way",
            "ping": r"^the store overspan.db could not be written: the disk is full; look at .* \(df, quota, ulimit",
        },
    ),
    Row(
        "no process is left for a launch",
        local.lack_processes,
        {
            "squeue": r"PENDING Resources: the limit of processes is reached \(ulimit -u (is \d+|has none, so)",
            "show": "limit of processes",
        },
    ),
    Row(
        "a group waits for a server that does not become ready",
        local.wait_for_readiness,
        {
            "squeue": "^t PENDING Dependency",
            "show": "^t waits for s: tcp s-0:9999, 8 tries, connection refused$",
            "timeline": "t waits for s: tcp s-0:9999, 8 tries, connection refused",
        },
    ),
    Row(
        "a file of SkyPilot's names a cloud without a cluster",
        slurm.name_an_absent_cloud,
        {"submit": r"^job:1:20: no kubernetes cluster is configured\n  the clusters are fake, local; --cluster NAME"},
    ),
    Row(
        "a file of SkyPilot's names GPUs and no CPUs",
        slurm.name_no_cpus,
        {"submit": r"names no CPUs and no memory: it gets 4 CPUs for each GPU and 4G .* \(gpu_defaults of the cluster"},
    ),
    Row(
        "the first alternative of a file never fits",
        slurm.choose_an_alternative,
        {
            "submit": "^fake: no node has 900 CPUs for job: the largest, node1, has 4 CPUs, .*; it goes to fake$",
            "show": r"^Note: +fake: no node has 900 CPUs",
        },
    ),
    Row(
        "Slurm requeues a job",
        slurm.requeue,
        {
            "squeue": "PENDING BeginTime",
            "show": r"(?s)Cluster: +fake 1\n.*Expected: +\d.*attempt 0: CANCELLED requeue 0:0 \S+ requeued by Slurm",
            "timeline": "requeue by slurm",
        },
    ),
    Row("a group needs a node that is down", slurm.lack_a_node, {"squeue": f"PENDING {AWAY}", "show": AWAY}),
    Row(
        "a group needs more nodes than there are",
        slurm.never_fit,
        {"submit": r"not available\nthere are 3 nodes in the default partition; it needs 4\n.*`span sinfo -M fake`"},
    ),
    Row(
        "a member of a group is larger than any node",
        slurm.never_fit_a_node,
        {"submit": r"\nno node has 5 CPUs for server: the largest has 4 CPUs, 4000 MiB and 2 GPUs\n.*`span sinfo -M"},
    ),
    Row(
        "an sbatch hangs",
        slurm.hang,
        {"ping": f"^fake: submission unknown: {SILENT}"},
    ),
    Row(
        "an array of 450 is cancelled",
        slurm.cancel_an_array,
        {
            "scancel": "^$",
            "show": "^State: +CANCELLED$",
            "elements": r"^{'COMPLETED None': \d+, 'CANCELLED None': 4\d\d}, 0 started$",
        },
    ),
    Row(
        "the right to exec is missing",
        pods.miss_a_right,
        {
            "check": r"^signals False: may not get pods/exec: scancel .* fail\nan administrator (?s:.)* --verb=get",
            "timeline": r"Signal was not carried out: `kill -s USR1 -1` .* cannot get resource .pods/exec.*span check",
        },
    ),
    Row(
        "the configuration names a cluster otherwise",
        pods.rename,
        {
            "scancel": f"^what was asked waits: .*{UNNAMED}",
            "ping": UNNAMED,
            "clusters": f"^kube unconfigured: .*{UNNAMED}",
            "show": f"^Note: .*{UNNAMED}",
        },
    ),
    Row(
        "a node removes the end of a log that nobody read",
        pods.lose_an_end,
        {"log": r"^first\n\[overspan: what was printed after this is not known: the node removed it before it was"},
    ),
    Row(
        "a pod is lost, and the next one runs elsewhere",
        pods.move,
        {
            "squeue": "RUNNING None node-2$",
            "show": r" 1 +0:0 +node-2$\n\njob attempt 0: NODE_FAIL .* the pod was deleted",
        },
    ),
    Row(
        "a group has no place for all of its pods",
        pods.fit_nowhere,
        {
            "squeue": r"PENDING Resources: 2 of 3 have a place: 0/2 nodes are available: 2 Insufficient cpu\.",
            "show": "2 of 3",
        },
    ),
    Row(
        "a group that has given its pods back has no room",
        pods.have_no_room,
        {"squeue": "PENDING Resources: 2 of 3 pods have room: the next needs cpu 2, and a node has cpu 1 left"},
    ),
    Row(
        "a script over pods has its files on no shared volume",
        pods.run_a_script,
        {
            "submit": r"(?s)both go to /home/ada/out\n.*/home/ada/in is on no volume that pods share, so .* effect\n"
            r".*/home/ada, the folder of its output, does not exist on this machine: `span logs` has the output",
            "show": "^Note: +batch: a pod's log has output and error in one",
        },
    ),
    Row(
        "a script over pods has its folder on no shared volume",
        pods.run_a_script,
        {"submit": r"^batch: /home/ada is on no volume .* \(`volumes` with `shared`\), so the script works in /"},
    ),
    Row(
        "a script over pods has a variable that no pod can have",
        pods.run_a_script,
        {"submit": r"no pod can have the variables LONG \(is longer than 100 KiB, .*\): put them into files"},
    ),
    Row(
        "the environment of a script over pods is too large",
        pods.export_too_much,
        {"submit": r"540 KiB, and 512 KiB travel.*LARGE_0 \(90 KiB\).*\s+unset .* or name what it needs by --export"},
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_who_is_concerned_is_told(row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = row.make(Stage(tmp_path, monkeypatch))
    for place, words in row.told.items():
        assert re.search(words, told[place], re.MULTILINE), f"{place} says:\n{told[place]}"
