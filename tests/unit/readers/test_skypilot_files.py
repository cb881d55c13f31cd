"""Files as SkyPilot's users have them: what is read, and what a note or a refusal says of the rest."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from tests.unit.readers.job_files import LOCAL, read, read_data, refusal

from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.storage import MountMode, StorageMount


def test_a_service_runs_as_a_job() -> None:
    job = read_data("skypilot/service.yaml")
    assert (job.tasks[0].run, job.tasks[0].ports) == ("python serve.py --port 8000", ("8000",))
    note = "service.yaml:3:1: service has no effect: the file runs as one job, without replicas, probes and an endpoint"
    assert job.notes == (f"skypilot/{note}",)


def test_mounts_that_cannot_be_made_are_named_with_their_lines() -> None:
    job = read_data("skypilot/buckets.yaml")
    places = {words: (place.line, place.column) for words, place in job.later_places.items()}
    assert places == {
        "sampler.volumes (a volume of its own at /scratch)": (17, 3),
    }
    assert set(job.later) == {"sampler.volumes"}
    assert job.tasks[0].storage == (
        StorageMount("/checkpoints", "s3://rl-checkpoints", MountMode.MOUNT_CACHED, named=True),
        StorageMount("/prompts", "s3://prompts/v2", MountMode.COPY),
    )


def test_every_key_that_is_left_for_later_has_a_place() -> None:
    text = "name: a\nworkdir: {url: u}\nevent_callback: echo\npool: {workers: 1}\nrun: x\n"
    job = read(text)
    assert {words: place.line for words, place in job.later_places.items()} == {
        "a.workdir (the repository u)": 2,
        "a.event_callback": 3,
        "pool": 4,
    }
    assert len(job.later) == len(job.later_places)


def test_a_header_names_its_placement() -> None:
    job = read_data("skypilot/buckets.yaml")
    assert job.notes[0].startswith("skypilot/buckets.yaml:3:1: placement has no effect: the tasks of a job are on one")


def test_options_of_the_program_that_mounts_are_noted() -> None:
    job = read_data("skypilot/buckets.yaml")
    note = "skypilot/buckets.yaml:10:20: mount_options has no effect: it is for other programs that mount"
    assert note in job.notes


def test_a_folder_of_a_volume_is_part_of_its_name_and_hooks_are_noted() -> None:
    job = read_data("skypilot/volumes.yaml")
    assert job.tasks[0].volumes == {"/data": "corpus/tokens/v2"}
    assert [note.partition(":")[2] for note in job.notes] == [
        "7:3: hooks has no effect: `on_preemption` runs a command before its end"
    ]


@pytest.mark.parametrize("written", ["../x", "/x", "a/../../b", '""'])
def test_a_folder_outside_of_the_volume_is_refused(written: str) -> None:
    assert "is no path in a volume" in refusal(f"volumes: {{/d: {{name: v, sub_path: {written}}}}}\nrun: x\n")


@pytest.mark.parametrize(
    ("infra", "cluster", "ignored"),
    [
        ("kubernetes", "gpu-cloud", False),
        ("k8s", "gpu-cloud", False),
        ("kubernetes/gpu-cloud", "gpu-cloud", False),
        ("kubernetes/elsewhere", "gpu-cloud", True),
        ("slurm/hpc/long", "hpc", False),
        ("slurm", "gpu-cloud", True),
        ("aws/us-east-1", "hpc", True),
    ],
)
def test_what_the_command_line_repeats_is_not_ignored(infra: str, cluster: str, ignored: bool) -> None:
    clusters = {**LOCAL.clusters, "kube2": "kubernetes", "hpc2": "slurm"} if LOCAL.clusters else None
    job = read(f"resources: {{infra: {infra}}}\nrun: x\n", replace(LOCAL, cluster=cluster, clusters=clusters))
    assert any("is ignored" in note for note in job.notes) == ignored
    assert job.clusters == (cluster,)


def test_a_region_of_no_cloud_is_noted_with_its_line() -> None:
    text = 'name: a\nresources:\n  infra: "*/us-east-1"\nrun: x\n'
    said = "job.yaml:3:10: */us-east-1 has no effect: it names no cloud; write kubernetes/CONTEXT or slurm/CLUSTER"
    assert read(text).notes == (said,)


ALTERNATIVES = """
name: a
resources:
  cpus: 2
  cloud: slurm
  any_of: [{infra: local, accelerators: "A100:8"}, {infra: slurm/hpc/p1, gpus: "H100:4"}]
run: x
"""


def test_gpus_of_the_command_line_are_those_of_every_alternative() -> None:
    words = ("*.resources.*.gpus=", '*.resources.*.accelerators="T4:1"')
    job = read(ALTERNATIVES, replace(LOCAL, overrides=words))
    asked = [(one.cluster, [str(gpu) for gpu in one.demands[0].resources.gpus]) for one in job.candidates]
    assert asked == [("local", ["T4:1"]), ("hpc", ["T4:1"])]


def test_a_place_of_the_command_line_replaces_that_of_every_alternative() -> None:
    words = (*(f"*.resources.*.{key}=" for key in ("cloud", "region", "zone")), '*.resources.*.infra="slurm/hpc/p2"')
    job = read(ALTERNATIVES, replace(LOCAL, overrides=words))
    assert (job.clusters, job.partition) == (("hpc",), "p2")


@pytest.mark.parametrize("text", ["image_id: docker:x\nrun: x\n", "run: x\nuse_spot: true\n"])
def test_a_key_of_resources_elsewhere_says_where_it_belongs(text: str) -> None:
    assert "it belongs under `resources`" in hint(text)
    assert "it belongs under `resources`" in hint("name: g\nexecution: parallel\n---\nname: a\n" + text)


def hint(text: str) -> str:
    with pytest.raises(InvalidRequest) as caught:
        read(text)
    return caught.value.remedy


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("run: conda activate rl\n", "conda activate"),
        ("run: |\n  cd x && mamba activate rl\n  train\n", "mamba activate"),
        ("login: false\nrun: conda activate rl\n", ""),
        ("login: true\nrun: conda activate rl\n", ""),
        ("run: |\n  # conda activate rl\n  echo conda activate\n", ""),
        ("run: |\n  . /opt/conda/etc/profile.d/conda.sh\n  conda activate rl\n", ""),
        ('run: |\n  eval "$(conda shell.bash hook)"; conda activate rl\n', ""),
        ("run: |\n  source ~/.bashrc\n  nvm use 20\n", ""),
    ],
)
def test_a_command_of_a_login_environment_is_noted_with_its_line(text: str, command: str) -> None:
    said = f"job.yaml:2:6: {command} is a function of a login environment, which the task does not have:"
    assert read(f"name: a\n{text}").notes == ((f"{said} write `login: true`",) if command else ())


@pytest.mark.parametrize("name", ["1X", "A-B", ""])
def test_variables_of_the_command_line_have_names(name: str) -> None:
    with pytest.raises(InvalidRequest, match="is not the name of a variable") as caught:
        read("run: x\n", replace(LOCAL, env={name: "2"}))
    assert caught.value.place == (f"--env {name}", 0, 0)


NAMED = "file_mounts:\n  /p: {name: bucket-1%s}\nrun: x\n"


@pytest.mark.parametrize(
    ("more", "sources", "mode"),
    [
        ("", (), MountMode.MOUNT),
        (", source: ./dir/", ("/home/u/work/dir/",), MountMode.MOUNT),
        (", source: ~/dir, mode: COPY", ("/home/u/dir/",), MountMode.COPY),
        (", source: [a, ./b/c.txt], store: gcs", ("/home/u/work/a", "/home/u/work/b/c.txt"), MountMode.MOUNT),
    ],
)
def test_files_that_go_to_a_bucket_first(more: str, sources: tuple[str, ...], mode: MountMode) -> None:
    (mount,) = read(NAMED % more).tasks[0].storage
    scheme, kind = ("gs", "gcs") if "gcs" in more else ("s3", "")
    assert mount == StorageMount("/p", f"{scheme}://bucket-1", mode, kind, named=True, sources=sources)


def test_a_bucket_that_is_not_to_stay() -> None:
    job = read(NAMED % ", persistent: false")
    assert not job.tasks[0].storage[0].persistent and job.notes == ()
    job = read("file_mounts:\n  /p: {source: s3://bucket-1, persistent: false}\nrun: x\n")
    assert job.tasks[0].storage[0].persistent
    assert job.notes == ("job.yaml:2:43: persistent has no effect: a bucket that is given by its URL stays",)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{source: ./dir}", "by way of a bucket: write its `name`"),
        ("{source: [a, b], mode: COPY}", "by way of a bucket: write its `name`"),
        ("{name: bucket-1, source: [x/a, y/a]}", "two sources are called a"),
        ("{name: bucket-1, source: [s3://x]}", "is no file or folder with a name"),
        ("{name: bucket-1, source: [..]}", "is no file or folder with a name"),
        ("{name: Bad Name, source: a}", "is no name of a bucket"),
    ],
)
def test_files_that_can_go_to_no_bucket(text: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(words)) as failed:
        read(f"file_mounts:\n  /p: {text}\nrun: x\n")
    assert str(failed.value.place).startswith("job.yaml:2:")
