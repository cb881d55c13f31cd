"""Tasks with an image: the words for Pyxis and Apptainer, and that the scripts do with them what they should.

The stand-ins for srun and apptainer note their words, and run the program with an image's own variables.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given
from tests.unit.adapters.slurm.samples import check_golden, read_file

from overspan.adapters.contract import ClusterConfig, Launch, Node
from overspan.adapters.slurm.groups.rendering import GroupFiles, GroupPlace, render_launch
from overspan.adapters.slurm.planning import render_placement, render_submission
from overspan.adapters.slurm.rendering.images import (
    APPTAINER,
    HOME,
    HOSTS,
    NONE,
    PYXIS,
    ImagePlace,
    apptainer_words,
    make_container,
    member_words,
    pyxis_options,
    quote_words,
)
from overspan.adapters.slurm.rendering.script import BatchSubmission, RenderContext, render_job
from overspan.adapters.slurm.rendering.volumes import place_volumes
from overspan.adapters.slurm.settings import Settings, read_settings
from overspan.bridge.model.documents import decode
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.job import Job
from overspan.bridge.runtime.slurm.images import is_held

TASK = """
name: train
num_nodes: {nodes}
workdir: /data/it's here
resources: {{image_id: "docker:ghcr.io/lab/torch:2.4", accelerators: "H100:2", cpus: 4}}
envs: {{GREETING: "it's $HOME"}}
secrets: {{TOKEN: "s'ecret"}}
file_mounts: {{"~/models": /shared/models, weights: /shared/weights}}
slurm: {{container-mounts: "/scratch:/scratch:ro", partition: gpu}}
setup: echo "set up"
run: echo "$GREETING|$TOKEN|$OVERSPAN_NODE_INDEX"
"""
IMAGE = "name: x\nresources: {{image_id: 'docker:{image}'}}\nrun: echo ran\n"


def setting(runtime: str, run_dir: str = "/root/runs/7") -> RenderContext:
    return RenderContext("7.0", secrets_path=f"{run_dir}/secrets", run_dir=run_dir, containers=runtime)


@pytest.mark.parametrize("runtime", [PYXIS, APPTAINER])
@pytest.mark.parametrize("nodes", [1, 2])
def test_golden_tasks_in_images(runtime: str, nodes: int) -> None:
    submission = render_job(read_file(TASK.format(nodes=nodes)), setting(runtime))
    check_golden(f"task-{runtime}-{nodes}.txt", render_submission(submission))
    done = subprocess.run(["bash", "-n"], input=submission.script, text=True, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "ecret" not in submission.script.replace("/root/runs/7/secrets", "")
    assert not any("container-" in word for word in submission.argv) and "#SBATCH --container" not in submission.script


class TestNames:
    @pytest.mark.parametrize(
        ("image", "pyxis", "apptainer"),
        [
            ("ubuntu:22.04", "ubuntu:22.04", "docker://ubuntu:22.04"),
            ("lab/torch", "lab/torch", "docker://lab/torch"),
            ("ghcr.io/lab/torch:2", "ghcr.io#lab/torch:2", "docker://ghcr.io/lab/torch:2"),
            ("localhost:5000/a/b", "localhost:5000#a/b", "docker://localhost:5000/a/b"),
            (
                "nvcr.io#nvidia/pytorch:24.01-py3",
                "nvcr.io#nvidia/pytorch:24.01-py3",
                "docker://nvcr.io/nvidia/pytorch:24.01-py3",
            ),
            ("/images/x.sqsh", "/images/x.sqsh", "/images/x.sqsh"),
            ("oras://ghcr.io/lab/x", "oras://ghcr.io/lab/x", "oras://ghcr.io/lab/x"),
        ],
    )
    def test_an_image_is_spelled_as_each_reads_it(self, image: str, pyxis: str, apptainer: str) -> None:
        task = read_file(IMAGE.format(image=image)).spec.tasks[0]
        ours = make_container(task, {}, ImagePlace(PYXIS))
        theirs = make_container(task, {}, ImagePlace(APPTAINER))
        assert ours is not None and pyxis_options(ours)[0] == f"--container-image={pyxis}"
        assert theirs is not None and apptainer_words(theirs)[-1] == apptainer

    @pytest.mark.parametrize(
        ("image", "runtime", "words"),
        [
            ("ubuntu", "", "set `containers`"),
            ("ubuntu", NONE, "take `image_id` out"),
            ("/x/y.sif", PYXIS, ".sqsh"),
            ("--bind=/:/x", APPTAINER, "docker:NAME"),
        ],
    )
    def test_what_cannot_run_is_refused_with_a_remedy(self, image: str, runtime: str, words: str) -> None:
        job = read_file(IMAGE.format(image=image))
        with pytest.raises(InvalidRequest) as caught:
            render_job(job, setting(runtime))
        assert "the task 'x' has the image" in caught.value.message and words in caught.value.remedy

    def test_a_job_without_images_needs_no_setting(self) -> None:
        assert make_container(read_file("name: x\nrun: x\n").spec.tasks[0], {}, ImagePlace()) is None


class TestOptions:
    def test_what_the_user_asks_of_pyxis_goes_to_its_srun(self) -> None:
        text = IMAGE.format(image="ubuntu") + "slurm: {container-mount-home: true, container-writable: true}\n"
        script = render_job(read_file(text), setting(PYXIS)).script
        start = script.splitlines()[-1]
        assert "--container-mount-home" in start and "--container-writable" in start
        assert "--no-container-mount-home" not in script and "#SBATCH --container" not in script
        with pytest.raises(InvalidRequest, match="one of Pyxis'"):
            render_job(read_file(text), setting(APPTAINER))

    def test_the_home_is_shown_only_where_it_is_asked_for(self) -> None:
        text = IMAGE.format(image="ubuntu")
        assert "--no-home" in render_job(read_file(text), setting(APPTAINER)).script
        asked = read_file(text + "slurm: {container-mount-home: true, container-workdir: /work}\n")
        script = render_job(asked, setting(APPTAINER)).script
        assert "--no-home" not in script and "--pwd=/work" in script

    def test_a_group_gets_its_hosts_file(self) -> None:
        task = read_file(TASK.format(nodes=2)).spec.tasks[0]
        place = ImagePlace(APPTAINER, "/data", "/root/runs/7", "/home/ada", "/tmp/span-1/hosts")
        container = make_container(task, {}, place)
        assert container is not None
        words = apptainer_words(container)
        assert "--bind=/tmp/span-1/hosts:/etc/hosts" in words
        assert "--bind=/shared/models:/home/ada/models" in words and "--bind=/shared/weights:/data/weights" in words
        assert words[:2] == ("apptainer", "exec") and words[-2:] == ("--nv", "docker://ghcr.io/lab/torch:2.4")

    def test_a_file_is_found_wherever_srun_is_started(self) -> None:
        for image, found in (("./x.sqsh", "/data/x.sqsh"), ("~/x.sqsh", f"{HOME}/x.sqsh")):
            task = read_file(IMAGE.format(image=image)).spec.tasks[0]
            container = make_container(task, {}, ImagePlace(PYXIS, "/data"))
            assert container is not None and container.image == found

    def test_a_member_of_a_group_is_started_by_its_agent(self) -> None:
        job = read_file(TASK.format(nodes=2))
        words = member_words(job, job.spec.tasks[0], APPTAINER, "/root/runs/7")
        assert f"--bind={HOSTS}:/etc/hosts" in words and f"--bind=/shared/models:{HOME}/models" in words
        assert "--bind=/scratch:/scratch:ro" in words
        held = member_words(job, job.spec.tasks[0], PYXIS, "/root/runs/7")
        assert is_held(held) and not is_held(words) and not is_held(())
        old = member_words(job, job.spec.tasks[0], PYXIS, "/root/runs/7", (20, 2))
        assert held == ("--overlap", *old)
        with pytest.raises(InvalidRequest, match="does not say"):
            member_words(job, job.spec.tasks[0], "", "/root/runs/7")
        plain = read_file("name: x\nrun: x\n")
        assert member_words(plain, plain.spec.tasks[0], "", "") == ()

    @pytest.mark.parametrize("runtime", [PYXIS, APPTAINER])
    def test_a_volume_is_a_folder_that_is_made_and_shown(self, runtime: str) -> None:
        job = place_volumes(read_file(IMAGE.format(image="ubuntu") + "volumes: {/data: corpus}\n"), "/shared/o's")
        script = render_job(job, setting(runtime)).script
        assert "(umask 077; mkdir -p -- '/shared/o'\"'\"'s/volumes/corpus') || exit 1" in script.splitlines()
        container = make_container(job.spec.tasks[0], {}, ImagePlace(runtime))
        assert container is not None and ("/shared/o's/volumes/corpus", "/data") in container.mounts

    def test_the_gpus_of_another_maker(self) -> None:
        text = "name: x\nresources: {image_id: 'docker:a', accelerators: 'MI300X:1'}\nrun: x\n"
        assert "--rocm" in render_job(read_file(text), setting(APPTAINER)).script

    def test_a_path_that_cannot_be_bound_is_refused(self) -> None:
        text = "name: x\nworkdir: /data/a:b\nresources: {image_id: 'docker:a'}\nrun: x\n"
        with pytest.raises(InvalidRequest, match="'x'"):
            render_job(read_file(text), setting(PYXIS))

    @given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20))
    def test_words_reach_the_shell_whole(self, text: str) -> None:
        words = [f"--bind={HOME}/{text}:{HOME}", text]
        plain = quote_words(words).replace('"$HOME"', "/h")
        assert shlex.split(plain) == [f"--bind=/h/{text}:/h", text]


SRUN = """\
#!/bin/bash
printf '%s\\n' "$@" >"$NOTES/srun"
count=1
while [ $# -gt 0 ]; do
  case $1 in --nodes=*) count=${1#*=};; --*) ;; *) break;; esac
  shift
done
for ((node = 0; node < count; node++)); do SLURM_NODEID=$node GREETING=image HOME=/root "$@" || exit; done
"""
RUNTIME = """\
#!/bin/bash
printf '%s\\n' "$@" >"$NOTES/apptainer"
shift
while case $1 in --*) true;; *) false;; esac; do shift; done
shift
GREETING=image exec "$@"
"""


class Rendered:
    """A submission whose script runs here, in a folder with stand-ins on PATH."""

    def __init__(self, folder: Path, submission: BatchSubmission) -> None:
        self.folder = folder
        self.submission = submission
        for name, text in (("srun", SRUN), ("apptainer", RUNTIME)):
            path = folder / "bin" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)
        (folder / "secrets").write_text(submission.secrets)

    def run(self) -> subprocess.CompletedProcess[str]:
        variables = {
            "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
            "HOME": "/home/ada",
            "NOTES": str(self.folder),
            "SLURM_CPUS_ON_NODE": "4",
            "TMPDIR": "/no/such/folder",
        }
        script = self.submission.script
        return subprocess.run(["bash", "-s"], input=script, env=variables, capture_output=True, text=True, timeout=60)

    def words(self, program: str) -> list[str]:
        return (self.folder / program).read_text().splitlines()


def render(folder: Path, text: str, runtime: str) -> Rendered:
    return Rendered(folder, render_job(read_file(text), setting(runtime, str(folder))))


class TestRuns:
    def test_apptainer_runs_the_program_with_the_tasks_variables(self, tmp_path: Path) -> None:
        rendered = render(tmp_path, TASK.format(nodes=1), APPTAINER)
        done = rendered.run()
        assert (done.returncode, done.stdout, done.stderr) == (0, "set up\nit's $HOME|s'ecret|0\n", "")
        words = rendered.words("apptainer")
        assert "--bind=/shared/models:/home/ada/models" in words and "--bind=/scratch:/scratch:ro" in words
        assert "--pwd=/data/it's here" in words and f"--bind={tmp_path}:{tmp_path}" in words
        assert not any("ecret" in word for word in words)
        assert not (tmp_path / "srun").exists()

    def test_pyxis_runs_it_by_an_srun(self, tmp_path: Path) -> None:
        rendered = render(tmp_path, TASK.format(nodes=1), PYXIS)
        done = rendered.run()
        assert (done.returncode, done.stdout, done.stderr) == (0, "set up\nit's $HOME|s'ecret|0\n", "")
        words = rendered.words("srun")
        assert "--container-image=ghcr.io#lab/torch:2.4" in words and "--no-container-mount-home" in words
        mounts = next(word for word in words if word.startswith("--container-mounts=")).partition("=")[2].split(",")
        assert mounts == [
            "/data/it's here:/data/it's here",
            f"{tmp_path}:{tmp_path}",
            "/shared/models:/home/ada/models",
            "/shared/weights:/data/it's here/weights",
            "/scratch:/scratch:ro",
        ]
        assert "--container-workdir=/data/it's here" in words and "--nodes=1" in words
        assert not any("ecret" in word for word in words)

    @pytest.mark.parametrize("runtime", [PYXIS, APPTAINER])
    def test_every_node_of_a_task_is_in_the_image(self, tmp_path: Path, runtime: str) -> None:
        text = "name: x\nnum_nodes: 2\nresources: {image_id: 'docker:a'}\nrun: echo $OVERSPAN_NODE_INDEX; exit 0\n"
        rendered = render(tmp_path, text, runtime)
        done = rendered.run()
        assert (done.returncode, done.stdout) == (0, "0\n1\n")
        assert ("--container-image=a" in rendered.words("srun")) == (runtime == PYXIS)
        assert ("docker://a" in rendered.words("srun")) == (runtime == APPTAINER)

    @pytest.mark.parametrize("runtime", [PYXIS, APPTAINER])
    def test_exit_codes_and_failed_set_ups_are_told(self, tmp_path: Path, runtime: str) -> None:
        base = "name: x\nresources: {image_id: 'docker:a'}\n"
        assert render(tmp_path, base + "run: exit 7\n", runtime).run().returncode == 7
        assert not (tmp_path / "setup-failed").exists()
        assert render(tmp_path, base + "setup: exit 4\nrun: echo no\n", runtime).run().returncode == 4
        assert (tmp_path / "setup-failed").exists()

    def test_a_text_with_an_interpreter_runs_by_it(self, tmp_path: Path) -> None:
        text = "name: x\nresources: {image_id: 'docker:a'}\nrun: |\n  #!/usr/bin/env python3\n  raise SystemExit(5)\n"
        assert render(tmp_path, text, APPTAINER).run().returncode == 5


GROUP = """
name: learn
execution: parallel
slurm: {container-mounts: "/scratch:/scratch:ro", constraint: ib}
---
name: trainer
num_nodes: 2
workdir: /data/it's here
resources: {image_id: "docker:ghcr.io/lab/torch:2.4", accelerators: "H100:2", cpus: 4}
file_mounts: {"~/models": /shared/models}
volumes: {/corpus: corpus}
run: train
---
name: server
resources: {cpus: 1}
file_mounts: {weights: /shared/weights}
run: serve
"""


class TestGroups:
    NODES = (Node("g1", "main", "idle", 64, 0, 256_000, 0, 8, 0, "h100"),) * 2

    def render(self, runtime: str) -> GroupFiles:
        place = GroupPlace("leo", "/root", "/root/runs/7", self.NODES)
        return render_launch(Launch("7-0", read_file(GROUP)), Settings(containers=runtime), place, False)

    def test_golden_a_group_with_an_image(self) -> None:
        found = self.render(APPTAINER)
        script = found.submission.script.rpartition("exec ")[0]
        check_golden("group-apptainer.txt", render_placement(found.plan, ("node",)) + script)
        steps = json.loads(dict(found.files)["placement.0.json"])["steps"]
        assert {step["task"]: "image" in step for step in steps} == {"trainer": True, "server": False}
        assert f"--bind={HOSTS}:/etc/hosts" in steps[0]["image"]

    def test_what_is_shown_in_the_image_is_not_linked_on_the_node(self) -> None:
        job = decode(Job, json.loads(dict(self.render(APPTAINER).files)["plan.0.json"])["job"])
        trainer, server = job.spec.tasks
        assert trainer.file_mounts == {} and dict(server.file_mounts) == {"weights": "/shared/weights"}
        assert dict(trainer.volumes) == {"/root/volumes/corpus": "/root/volumes/corpus"}

    def test_golden_a_group_whose_images_srun_opens(self) -> None:
        found = self.render(PYXIS)
        check_golden("group-pyxis.txt", render_placement(found.plan, ("node",)))
        steps = json.loads(dict(found.files)["placement.0.json"])["steps"]
        assert {step["task"]: "image" in step for step in steps} == {"trainer": True, "server": False}
        (mounts,) = (word for word in steps[0]["image"] if word.startswith("--container-mounts="))
        assert f",{HOSTS}:/etc/hosts," in mounts

    def test_what_the_user_asks_of_pyxis_goes_to_the_srun_that_holds_the_container(self) -> None:
        asked = GROUP.replace("slurm: {", "slurm: {container-writable: true, container-mount-home: true, ")
        place = GroupPlace("leo", "/root", "/root/runs/7", self.NODES)
        found = render_launch(Launch("7-0", read_file(asked)), Settings(containers=PYXIS), place, False)
        step = json.loads(dict(found.files)["placement.0.json"])["steps"][0]
        assert {"--container-mount-home", "--container-writable"} <= set(step["image"])
        assert not any("container" in word for word in step["options"])


class TestSetting:
    @pytest.mark.parametrize("value", [PYXIS, APPTAINER, NONE])
    def test_the_cluster_says_how(self, value: str) -> None:
        assert read_settings(ClusterConfig("leo", "slurm", {"containers": value})).containers == value

    def test_another_word_is_refused(self) -> None:
        with pytest.raises(InvalidRequest, match="pyxis, apptainer, none"):
            read_settings(ClusterConfig("leo", "slurm", {"containers": "docker"}))
