"""`span volume` on the local cluster: folders that jobs mount by their names."""

from __future__ import annotations

import json

import yaml
from tests.system.conftest import Span

from overspan.bridge.client import Client

READS = {
    "name": "reads",
    "volumes": {"./ckpts": "ckpts"},
    "run": "cat ckpts/step; until [ -e end ]; do sleep 0.1; done",
}


def test_a_volume_is_made_mounted_listed_and_deleted(span: Span) -> None:
    assert span.run("volume", "apply", "ckpts").stdout == "Volume ckpts on local: made\n"
    assert span.run("volume", "apply", "-n", "ckpts", "--yes").stdout == "Volume ckpts on local: unchanged\n"
    write = {"name": "writes", "volumes": {"./out": "ckpts/deep"}, "run": "echo 900 > out/../step"}
    span.until(span.submit(yaml.safe_dump(write)), "COMPLETED")
    job = span.submit(yaml.safe_dump(READS))
    span.until(job, "RUNNING")
    span.wait_until(lambda: span.log(job) == "900\n", 20, "the volume's file in the job")
    head, row = (line.split() for line in span.run("volume", "ls").stdout.splitlines())
    assert head == ["NAME", "CLUSTER", "KIND", "SIZE", "CLASS", "ACCESS", "STATUS", "USED", "BY"]
    assert row == ["ckpts", "local", "folder", "-", "-", "ReadWriteMany", "Ready", str(job)]
    refused = span.run("volume", "delete", "ckpts", check=False)
    assert refused.returncode == 1 and f"ckpts on local is mounted by live jobs: {job}" in refused.stderr
    (span.folder / "end").touch()
    span.until(job, "COMPLETED")
    assert span.run("volume", "delete", "ckpts").stdout == "Volume ckpts on local: deleted\n"
    assert json.loads(span.run("volume", "ls", "--json").stdout) == {"format": 1, "volumes": []}


def test_a_volume_file_of_skypilot_is_taken_and_told_where_it_is_wrong(span: Span) -> None:
    file = span.folder / "volume.yaml"
    file.write_text("name: data\ninfra: local\nsize: 10Gi\nconfig:\n  access_mode: ReadWriteMany\n")
    done = span.run("volume", "apply", "volume.yaml")
    assert done.stdout == "Volume data on local: made\n"
    assert "the size and the access mode has no effect: the volume is a folder" in done.stderr
    assert span.run("volume", "apply", "volume.yaml", "--name", "other").stdout == "Volume other on local: made\n"
    file.write_text("name: data\nsize: plenty\nconfig:\n  access_mode: ReadWriteSome\n  zone: a\n")
    refused = span.run("volume", "apply", "volume.yaml", check=False)
    assert refused.returncode == 2
    for words in (
        "volume.yaml:2:7: size: 'plenty' is no size of a volume; write GB such as 100",
        "volume.yaml:4:16: config.access_mode: 'ReadWriteSome' is no access mode; write one of ReadWriteOnce",
        "volume.yaml:5:3: unknown key 'config.zone'",
    ):
        assert words in refused.stderr, refused.stderr


def test_mistakes_are_told(span: Span) -> None:
    for words, message in {
        ("apply",): "name the volume, or a volume file",
        ("apply", "Bad_Name"): "'Bad_Name' is no name of a volume",
        ("apply", "../up"): "Unable to open file ../up",
        ("apply", "a", "-n", "b"): "the volume has two names, a and b",
        ("apply", "a", "--size", "10+"): "'10+' is no size of a volume; write GB such as 100, or 500M, 10Gi, 2T",
        ("apply", "a", "--access-mode", "RWX"): "'RWX' is no access mode; write one of ReadWriteOnce",
        ("apply", "a", "--type", "k8s-pvc"): "no kubernetes cluster is configured",
        ("apply", "a", "--infra", "aws"): "'aws' is no cluster that Overspan knows",
        ("apply", "a", "-M", "moon"): "no cluster 'moon'",
        ("apply", "a", "--type", "hostdisk"): "'hostdisk' is a type of volume that this version does not make",
        ("delete", "../tmp"): "'../tmp' is no name of a volume",
        ("delete", "none"): "there is no volume none",
        ("grow", "a"): "invalid choice: 'grow'",
    }.items():
        done = span.run("volume", *words, check=False)
        assert done.returncode in (2, 4) and message in done.stderr, (words, done.stderr)


def test_python_has_it_too(span: Span) -> None:
    with Client(environment=span.environment) as client:
        assert client.volumes.apply("ckpts")["done"] == "made"
        assert [each["name"] for each in client.volumes.list("local")["volumes"]] == ["ckpts"]
        assert client.volumes.delete("ckpts") == "local"
