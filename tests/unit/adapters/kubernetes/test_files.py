"""The submitter's files and the cluster's volumes in pods."""

from __future__ import annotations

import base64
import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
from tests.unit.adapters.kubernetes.samples import NOW, configure, main_of, make_launch, render_job

from overspan.adapters.kubernetes import files as subject
from overspan.adapters.kubernetes.files import pack_files
from overspan.adapters.kubernetes.launches.gang import GangBackend
from overspan.adapters.kubernetes.manifests.rendering import plan_launch
from overspan.adapters.kubernetes.planning import render_plan
from overspan.adapters.kubernetes.settings import Settings
from overspan.bridge.model.errors import InvalidRequest, OverspanError
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.readers.submission import Submission, read_submission


def read_job(text: str, folder: Path) -> Job:
    request = Submission("job_file", f"name: one\n{text}run: echo\n", "job.yaml", directory=str(folder), user="ada")
    return new_job(7, read_submission(request, now=NOW), NOW)


def fill(folder: Path, size: int = 10) -> Path:
    folder.mkdir(parents=True)
    (folder / "a.py").write_bytes(os.urandom(size))
    (folder / ".git").mkdir()
    (folder / ".git" / "HEAD").write_text("x")
    return folder


def mounts_of(pod: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {mount["mountPath"]: mount for mount in main_of(pod)["volumeMounts"]}


def archives_of(objects: Any) -> list[dict[str, Any]]:
    return [item for item in objects.configs if "-files-" in item["metadata"]["name"]]


def render(job: Job, settings: Settings | None = None) -> Any:
    settings = settings or configure()
    return render_job(job, settings, packed=pack_files(job, settings))


def test_a_workdir_travels_and_is_where_the_task_starts(tmp_path: Path) -> None:
    folder = fill(tmp_path / "my code")
    objects = render(read_job("workdir: my code\n", tmp_path))
    (config,) = archives_of(objects)
    packed = base64.b64decode(config["binaryData"]["archive.tar.gz"])
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        assert archive.getnames() == ["my code", "my code/a.py"]
        assert archive.extractfile("my code/a.py").read() == (folder / "a.py").read_bytes()  # type: ignore[union-attr]
    assert config["immutable"]
    (pod,) = objects.pods
    assert main_of(pod)["workingDir"] == "/overspan/files/0/my code"
    (unpack,) = pod["spec"]["initContainers"]
    assert unpack["name"] == "unpack"
    assert unpack["image"] == main_of(pod)["image"]
    assert unpack["args"] == ["/overspan/archives/0/archive.tar.gz", "/overspan/files/0"]
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert volumes["overspan-archive-0"]["configMap"]["name"] == config["metadata"]["name"]
    assert volumes["overspan-files"] == {"name": "overspan-files", "emptyDir": {}}


def test_files_are_unpacked_with_the_rights_of_the_task_and_before_containers_of_the_user(tmp_path: Path) -> None:
    fill(tmp_path / "code")
    text = """\
workdir: code
resources: {cpus: 1, gpus: 1}
kubernetes:
  spec:
    containers: [{securityContext: {runAsUser: 1000}}]
    initContainers: [{name: warm, image: w}]
"""
    (pod,) = render(read_job(text, tmp_path)).pods
    unpack, warm = pod["spec"]["initContainers"]
    assert (unpack["name"], warm["name"]) == ("unpack", "warm")
    assert unpack["securityContext"] == {"runAsUser": 1000}
    # Devices are asked for once.
    assert unpack["resources"] == {"requests": {"cpu": "1"}}


def test_mounts_appear_where_they_are_wanted(tmp_path: Path) -> None:
    fill(tmp_path / "data")
    (tmp_path / "conf.yaml").write_text("a: 1")
    text = "file_mounts: {/in/data: data, conf.yaml: conf.yaml, ~/cache/x: data}\nworkdir: data\n"
    objects = render(read_job(text, tmp_path))
    (pod,) = objects.pods
    mounts = mounts_of(pod)
    assert mounts["/in/data"]["subPath"] == "0/data"
    assert mounts["/overspan/files/0/data/conf.yaml"]["subPath"] == "1/conf.yaml"
    assert main_of(pod)["args"][-3:] == ["1", "/overspan/files/0/data", "cache/x"]
    # Each source travels once.
    assert len(archives_of(objects)) == 2
    assert len(pod["spec"]["initContainers"][0]["args"]) == 4


def test_only_the_files_of_a_task_are_in_its_pods(tmp_path: Path) -> None:
    fill(tmp_path / "a")
    fill(tmp_path / "b")
    text = "name: g\nexecution: parallel\n---\nname: one\nworkdir: a\nrun: x\n---\nname: two\nworkdir: b\nrun: x\n"
    request = Submission("job_file", text, "job.yaml", directory=str(tmp_path), user="ada")
    objects = render(new_job(7, read_submission(request, now=NOW), NOW))
    assert [pod["spec"]["initContainers"][0]["args"][1] for pod in objects.pods] == [
        "/overspan/files/0",
        "/overspan/files/1",
    ]
    assert [item["name"] for item in objects.pods[0]["spec"]["initContainers"]] == ["unpack"]


def test_more_than_the_api_takes_is_refused_with_the_remedy(tmp_path: Path) -> None:
    fill(tmp_path / "big", 1 << 20)
    job = read_job("workdir: big\n", tmp_path)
    with pytest.raises(InvalidRequest, match=r"1\.0 MiB when packed") as caught:
        pack_files(job, configure())
    assert ".skyignore" in caught.value.remedy
    (tmp_path / "big" / ".skyignore").write_text("*.py\n")
    assert list(pack_files(job, configure())) == [str(tmp_path / "big")]


def test_what_is_much_too_large_is_not_even_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "big", 2000)
    monkeypatch.setattr(subject, "MAX_UNPACKED", 1000)
    with pytest.raises(InvalidRequest, match="to send to the cluster") as caught:
        pack_files(read_job("workdir: big\n", tmp_path), configure())
    assert "volume" in caught.value.remedy
    assert "max_staged" not in caught.value.remedy


def shared(tmp_path: Path) -> Settings:
    root = tmp_path / "shared"
    root.mkdir()
    volumes = {"team": {"claim": "team", "path": str(root), "shared": True, "sub_path": "top"}}
    return configure(str(root / "overspan"), volumes=volumes)


def test_a_shared_root_takes_large_archives_once(tmp_path: Path) -> None:
    settings = shared(tmp_path)
    fill(tmp_path / "big", 1 << 20)
    job = read_job("workdir: big\n", tmp_path)
    files = pack_files(job, settings)
    assert pack_files(job, settings) == files
    (kept,) = (tmp_path / "shared" / "overspan" / "files").iterdir()
    assert kept.name == f"{files[str(tmp_path / 'big')].digest}.tar.gz"
    objects = render_job(job, settings, packed=files)
    assert archives_of(objects) == []
    (unpack,) = objects.pods[0]["spec"]["initContainers"]
    assert unpack["args"][0] == str(kept)
    mount = {"name": "overspan-volume-0", "mountPath": str(tmp_path / "shared"), "subPath": "top"}
    assert mount in unpack["volumeMounts"]


def test_a_plan_writes_nothing(tmp_path: Path) -> None:
    settings = shared(tmp_path)
    fill(tmp_path / "big", 1 << 20)
    assert "CONTENT.tar.gz" in render_plan(read_job("workdir: big\n", tmp_path), settings)
    assert list((tmp_path / "shared").iterdir()) == []


def test_a_root_that_cannot_be_written(tmp_path: Path) -> None:
    settings = shared(tmp_path)
    (tmp_path / "shared" / "overspan").write_text("a file")
    fill(tmp_path / "big", 1 << 20)
    with pytest.raises(OverspanError, match="cannot be written"):
        pack_files(read_job("workdir: big\n", tmp_path), settings)


def test_what_both_sides_see_does_not_travel(tmp_path: Path) -> None:
    settings = shared(tmp_path)
    folder = fill(tmp_path / "shared" / "code")
    text = f"workdir: {folder}\nfile_mounts: {{/in: {folder}}}\n"
    job = read_job(text, tmp_path)
    assert pack_files(job, settings) == {}
    (pod,) = render(job, settings).pods
    assert main_of(pod)["workingDir"] == str(folder)
    assert "initContainers" not in pod["spec"]
    mounts = mounts_of(pod)
    assert mounts["/in"] == {"name": "overspan-volume-0", "mountPath": "/in", "subPath": "top/code"}
    assert mounts[str(tmp_path / "shared")]["name"] == "overspan-volume-0"
    assert len([item for item in pod["spec"]["volumes"] if item["name"] == "overspan-volume-0"]) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("workdir: nothing\n", "there is no"),
        ("file_mounts: {/in: /nothing/at/all}\n", "there is no"),
        ("workdir: file\n", "is a file"),
        ("file_mounts: {/overspan: file}\n", "cannot be mounted over"),
        ("file_mounts: {/in: file}\nvolumes: {/in: data}\n", "mounted twice"),
        ("volumes: {/: data}\n", "cannot be mounted over"),
        ("volumes: {~/x: data}\n", "below the home"),
        ("volumes: {/x: /data}\n", "is a path"),
        ("volumes: {/x: Data_1}\n", "neither a volume"),
    ],
)
def test_files_and_volumes_that_cannot_be(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(InvalidRequest, match=words) as caught:
        render(read_job(text, tmp_path))
    assert caught.value.remedy


def test_a_workdir_elsewhere_is_the_image_s_own(tmp_path: Path) -> None:
    (pod,) = render(read_job("workdir: /only/in/the/image\n", tmp_path)).pods
    assert main_of(pod)["workingDir"] == "/only/in/the/image"


def test_volumes_by_the_settings_and_by_claim(tmp_path: Path) -> None:
    volumes = {
        "data": {"nfs": {"server": "nas", "path": "/x"}, "read_only": True},
        "home": {"claim": "home", "path": "/home"},
        "tmp": {"emptyDir": {"medium": "Memory"}, "path": "/fast"},
    }
    job = read_job("volumes: {/data: data, /models: model-store, /fast: data}\nnum_nodes: 2\n", tmp_path)
    for pod in render(job, configure(volumes=volumes)).pods:
        mounts = mounts_of(pod)
        assert mounts["/data"] == {"name": "overspan-volume-0", "mountPath": "/data", "readOnly": True}
        assert mounts["/home"]["name"] == "overspan-volume-1"
        # What a task mounts at a path comes before the cluster's own there.
        assert mounts["/fast"]["name"] == "overspan-volume-0"
        found = {item["name"]: item for item in pod["spec"]["volumes"]}
        claim = found[mounts["/models"]["name"]]
        assert claim["persistentVolumeClaim"] == {"claimName": "model-store"}
        assert "overspan-volume-2" not in found


def test_draw_needs_no_files(tmp_path: Path) -> None:
    fill(tmp_path / "code")
    plan = plan_launch(make_launch(read_job("workdir: code\n", tmp_path)), configure(), GangBackend.SOFT)
    assert plan.files == {}


def test_a_folder_of_a_volume(tmp_path: Path) -> None:
    volumes = {"data": {"claim": "data", "sub_path": "top"}}
    text = "volumes: {/a: {name: data, sub_path: x/y}, /b: {name: models, sub_path: v2}, /c: data}\n"
    mounts = mounts_of(render(read_job(text, tmp_path), configure(volumes=volumes)).pods[0])
    assert mounts["/a"] == {"name": "overspan-volume-0", "mountPath": "/a", "subPath": "top/x/y"}
    assert mounts["/b"]["subPath"] == "v2"
    assert mounts["/c"]["subPath"] == "top"
