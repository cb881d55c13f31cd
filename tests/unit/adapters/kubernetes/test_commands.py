"""Slurm's commands as pods mount them."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.adapters.kubernetes.samples import configure, main_of, make_launch, read_file, read_script, render_job

from overspan.adapters.kubernetes.launches.gang import GangBackend
from overspan.adapters.kubernetes.manifests import programs
from overspan.adapters.kubernetes.manifests.commands import (
    ASKING,
    BODY,
    COMMAND,
    MOUNTED,
    has_commands,
    pack_program,
    render_commands,
)
from overspan.adapters.kubernetes.manifests.launch_plans import PodSelection, read_plan, write_plan
from overspan.adapters.kubernetes.manifests.rendering import plan_launch, render, render_pods
from overspan.adapters.kubernetes.manifests.scripts import COMMANDS_DIR, WORK, Work
from overspan.adapters.kubernetes.planning import render_plan
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.runtime import zip_application

ROOT = "overspan.bridge.runtime.srun.pod_commands"
TWO = "#!/bin/sh\n#SBATCH -N 2 -n 4 --gpus-per-node=2\nsrun hostname\n"
HET = "#!/bin/sh\n#SBATCH -n 1\n#SBATCH hetjob\n#SBATCH -n 1\nsrun hostname\n"


def commands_of(objects: Any) -> dict[str, Any] | None:
    return next((item for item in objects.configs if item["metadata"]["name"].endswith("-commands")), None)


def volumes_of(pod: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {item["name"]: item for item in pod["spec"]["volumes"]}


@pytest.mark.parametrize(
    ("run", "has"),
    [
        ("srun -n 2 hostname", True),
        ("x=$(scontrol show hostnames)", True),
        ("/overspan/commands/srun true", True),
        ("echo; squeue", True),
        ("python train.py", False),
        ("echo my-srun srun.log", False),
        ("unsrun", False),
    ],
)
def test_a_task_has_them_whose_text_names_one(run: str, has: bool) -> None:
    job = read_file(f"name: one\nrun: {json.dumps(run)}\n")
    (task,) = job.spec.tasks
    assert has_commands(task, configure()) is has
    assert has_commands(replace(task, run="", setup=run), configure()) is has
    assert has_commands(task, configure(commands="always"))
    objects = render_job(job)
    assert (commands_of(objects) is not None) is has
    mounted = [mount["mountPath"] for mount in main_of(objects.pods[0])["volumeMounts"]]
    assert (COMMANDS_DIR in mounted) is has


def test_a_task_with_files_has_them() -> None:
    (task,) = read_file("name: one\nrun: ./train.sh\n").spec.tasks
    assert has_commands(replace(task, workdir="/somewhere"), configure())
    assert has_commands(replace(task, file_mounts={"/a": "/b"}), configure())


@pytest.mark.parametrize("key", ["commands: sometimes", "step_port: 80", "step_port: yes", "commands: true"])
def test_settings_that_are_none(key: str) -> None:
    name, _, text = key.partition(": ")
    value: Any = {"80": 80, "yes": True, "true": True}.get(text, text)
    with pytest.raises(InvalidRequest, match=name):
        configure(**{name: value})


def test_the_program_is_small_whole_and_always_the_same(tmp_path: Path) -> None:
    program = pack_program(MOUNTED)
    assert len(program) < 150_000
    # Enough others for it to be forgotten.
    for number in range(4):
        programs.build_program(f"# {number}\n", ROOT)
    assert pack_program(MOUNTED) == program
    path = tmp_path / "commands.pyz"
    path.write_bytes(program)
    text = (
        f"import sys; sys.path.insert(0, {str(path)!r})\n"
        "import pkgutil, importlib, overspan\n"
        "found = [each.name for each in pkgutil.walk_packages(overspan.__path__, 'overspan.')]\n"
        "[importlib.import_module(name) for name in found]\n"
        "print(len(found), [name for name in found if 'lifecycle' in name or 'adapters' in name])\n"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", text], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    count, others = done.stdout.split(" ", 1)
    assert int(count) > 30 and others.strip() == "[]"


# --- a script of several nodes ---------------------------------------------------------------------------------------


def test_a_script_of_two_nodes_runs_in_the_first_pod_and_waits_in_the_other() -> None:
    settings = configure(gpus={"types": {}}, step_port=7000)
    objects = render_job(read_script(TWO), settings)
    assert len(objects.pods) == 2 and objects.service is not None
    words = [main_of(pod)["args"][-3:] for pod in objects.pods]
    assert words == [["/bin/sh", f"{COMMANDS_DIR}/body", "/overspan/scripts/slurm_script"]] * 2
    config = commands_of(objects)
    assert config is not None and config["immutable"] is True
    document = json.loads(config["data"]["allocation.json"])
    (component,) = document["components"]
    domain = objects.service["metadata"]["name"]
    assert [(row["name"], row["address"], row["served"], row["port"], row["gpus"]) for row in component["nodes"]] == [
        ("batch-0", f"batch-0.{domain}", False, 0, [0, 1]),
        ("batch-1", f"batch-1.{domain}", True, 7000, [0, 1]),
    ]
    assert (document["batch"], document["pods"], document["port"], component["cpus"]) == (True, True, 7000, 2)
    assert document["environment"]["SLURM_JOB_NODELIST"] == "batch-[0-1]"
    assert "SLURM_NODEID" not in document["environment"]


def test_the_components_of_a_hetjob_without_a_script_wait_too() -> None:
    objects = render_job(read_script(HET))
    assert [main_of(pod)["args"][-2:] for pod in objects.pods][1] == ["/bin/sh", f"{COMMANDS_DIR}/body"]
    config = commands_of(objects)
    assert config is not None
    parts = json.loads(config["data"]["allocation.json"])["components"]
    assert [[row["served"] for row in part["nodes"]] for part in parts] == [[False], [True]]


def test_the_key_is_in_the_secret_alone_and_new_each_time() -> None:
    objects = render_job(read_script(TWO))
    assert objects.secret is not None
    key = base64.b64decode(objects.secret["data"]["steps.key"]).decode()
    assert len(bytes.fromhex(key)) == 32
    others = json.dumps([objects.anchor, *objects.configs, *objects.pods])
    assert key not in others and key not in render_plan(read_script(TWO), configure(), GangBackend.SOFT)
    again = render_job(read_script(TWO)).secret
    assert again is not None and again["data"] != objects.secret["data"]
    volumes = volumes_of(objects.pods[0])
    assert volumes["overspan-key"]["secret"]["optional"] and volumes["overspan-commands"]["configMap"]["optional"]


@pytest.mark.parametrize("access", ["", '{"token": "of-the-job"}'])
def test_the_way_to_the_daemon_is_in_the_secret_alone_and_beside_the_commands(access: str) -> None:
    launch = replace(make_launch(read_file("name: watcher\nrun: sbatch judge.sh\n")), access=access)
    plan = plan_launch(launch, configure(), GangBackend.SOFT)
    objects = render(launch, plan, configure())
    kept = {} if objects.secret is None else objects.secret["data"]
    assert {name: base64.b64decode(value).decode() for name, value in kept.items()} == (
        {"job.access": access} if access else {}
    )
    assert "of-the-job" not in json.dumps([objects.anchor, *objects.configs, *objects.pods])
    # A pod that is made later, from the kept plan, has it too.
    (later,) = render_pods(read_plan(write_plan(plan)), configure(), PodSelection("watcher", 0))
    for pod in (*objects.pods, later):
        volumes = volumes_of(pod)
        verbs = {item["path"] for item in volumes["overspan-commands"]["configMap"]["items"]}
        mounted = [item["path"] for item in volumes.get("overspan-key", {}).get("secret", {}).get("items", [])]
        assert {"sbatch", "squeue", "scancel"} <= verbs
        assert (mounted, "span" in verbs) == ((["access"], True) if access else ([], False))


@pytest.mark.parametrize("text", ["name: one\nnum_nodes: 2\nrun: srun hostname\n", "name: one\nrun: srun hostname\n"])
def test_where_steps_stay_in_their_pod_there_is_no_key_and_no_list_of_nodes(text: str) -> None:
    objects = render_job(read_file(text))
    assert objects.secret is None
    config = commands_of(objects)
    assert config is not None and "body" not in config["data"]
    assert json.loads(config["data"]["allocation.json"])["components"] == []
    assert "overspan-key" not in volumes_of(objects.pods[0])


def test_too_many_nodes_are_refused_with_the_remedy() -> None:
    job = read_script("#!/bin/sh\n#SBATCH -N 9000\nsrun hostname\n")
    plan = plan_launch(make_launch(job), configure(), GangBackend.SOFT)
    with pytest.raises(InvalidRequest, match="list of its nodes") as caught:
        render_commands(plan, configure())
    assert "num_nodes" in caught.value.remedy


def test_the_plan_shows_what_is_mounted_and_not_its_bytes() -> None:
    text = render_plan(read_script(TWO), configure(), GangBackend.SOFT)
    assert "commands.pyz: <the program" in text and "<the job's nodes, for its steps>" in text


# --- the shell's part ------------------------------------------------------------------------------------------------


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A folder for PATH without Python."""
    folder = tmp_path / "bare"
    folder.mkdir()
    for name in ("sh", "sleep"):
        (folder / name).symlink_to(shutil.which(name) or "")
    return folder


def install(folder: Path, verb: str) -> str:
    path = folder / verb
    path.write_text(COMMAND)
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("words", ["srun x", "srun", "scontrol show hostnames n1", "scontrol show hostlist a,b"])
def test_without_python_a_command_says_so(words: str, tmp_path: Path, bare: Path) -> None:
    verb, *rest = words.split()
    done = subprocess.run([install(tmp_path, verb), *rest], env={"PATH": str(bare)}, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (127, "")
    assert done.stderr == f"{verb}: error: this image has no python3, which {verb} needs in a pod\n"


@pytest.mark.parametrize("words", [*(f"{verb} -h" for verb in ASKING), "scontrol show job 1", "scontrol"])
def test_what_asks_the_daemon_says_that_it_cannot_and_where_it_can(words: str, tmp_path: Path, bare: Path) -> None:
    verb, *rest = words.split()
    paths = [str(bare)] if verb == "scontrol" else [str(bare), os.environ["PATH"]]
    for path in paths:
        done = subprocess.run([install(tmp_path, verb), *rest], env={"PATH": path}, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (1, "")
        words_told = "the daemon of Overspan cannot be reached from a pod, run this where the job was submitted"
        assert done.stderr == f"{verb}: error: {words_told}\n"


def test_the_script_runs_on_the_first_node_alone(tmp_path: Path, bare: Path) -> None:
    body = tmp_path / "body"
    body.write_text(BODY.replace("exec sleep", "echo would sleep; exit 3; sleep"))
    words = ["/bin/sh", str(body), "/bin/sh", "-c", "echo script $0", "name"]
    env = {"PATH": str(bare), "OVERSPAN_NODE_INDEX": "0"}
    assert subprocess.run(words, env=env, capture_output=True, text=True).stdout == "script name\n"
    for index, more in (("1", words), ("0", words[:2])):
        done = subprocess.run(more, env={**env, "OVERSPAN_NODE_INDEX": index}, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (3, "would sleep\n")
        assert "no python3" in done.stderr


def test_an_old_python_is_told(tmp_path: Path) -> None:
    path = tmp_path / "commands.pyz"
    path.write_bytes(pack_program(MOUNTED))
    text = (
        "import runpy, sys\n"
        "sys.version_info = (3, 6, 8)\n"
        f"sys.argv = ['x', 'srun']; runpy.run_path({str(path)!r}, run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 1
    assert done.stderr == "srun: error: the python3 of this image is older than 3.9, which srun needs\n"


@pytest.mark.parametrize("shell", [shell for shell in ("dash", "bash") if shutil.which(shell)])
def test_the_commands_come_first_on_the_path(shell: str, tmp_path: Path) -> None:
    commands = tmp_path / "commands"
    commands.mkdir()
    install(commands, "srun")
    program = WORK.replace("/overspan/", f"{tmp_path}/")
    words = [shell, "-c", program, "overspan", *Work("", "command -v srun", "t").arguments()]
    env = {"PATH": f"{tmp_path}/with a blank:{os.environ['PATH']}", "HOME": str(tmp_path)}
    (tmp_path / "run").mkdir()
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, f"{commands}/srun\n")


def test_submissions_at_the_same_time_build_the_program_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    read = zip_application.read_sources

    def note() -> Any:
        calls.append(1)
        return read()

    monkeypatch.setattr(programs, "read_sources", note)
    together = threading.Barrier(4)

    def build(_: int) -> bytes:
        together.wait()
        return programs.build_program("# of this test\n", ROOT)

    with ThreadPoolExecutor(4) as threads:
        assert len(set(threads.map(build, range(4)))) == len(calls) == 1
