"""Pool files with classes of workers: what each is, and where a mistake stands."""

from __future__ import annotations

import pytest

from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.pools import PoolSize, WorkerClass
from overspan.bridge.readers.pool_file import PoolSpec, read_pool_file
from overspan.bridge.readers.submission import Submission

CLUSTERS = {"leo": "slurm", "kube": "kubernetes"}
BOTH = """\
pool:
  max_workers: 6
  downscale_delay_seconds: 5
  classes:
  - name: h100
    resources: {infra: slurm/leo, accelerators: "H100:4"}
    min_workers: 1
    max_workers: 4
    weight: 2
  - {name: pod, cluster: kube, max_workers: 8, setup: apt, envs: {B: two}}
resources: {cpus: 3}
envs: {A: one}
setup: echo
"""


def read(text: str, *overrides: str) -> PoolSpec:
    return read_pool_file(Submission("job_file", text, file="p.yaml", overrides=overrides), CLUSTERS, 0.0)


def test_a_class_is_the_file_s_task_with_keys_of_its_own() -> None:
    spec = read(BOTH)
    assert spec.size == PoolSize(
        1, 6, idle=5.0, classes=(WorkerClass("h100", 1, 4, 2.0), WorkerClass("pod", 0, 8, 1.0))
    )
    h100, pod = spec.workers["h100"], spec.workers["pod"]
    assert (h100.clusters, pod.clusters) == (("leo",), ("kube",))
    assert [str(gpus.kind) for gpus in h100.tasks[0].resources.gpus] == ["H100"] and not pod.tasks[0].resources.gpus
    assert (h100.tasks[0].resources.cpus, pod.tasks[0].resources.cpus) == (3, 3)
    assert (h100.tasks[0].setup, pod.tasks[0].setup) == ("echo", "apt")
    assert dict(pod.tasks[0].env) == {"A": "one", "B": "two"} and dict(h100.tasks[0].env) == {"A": "one"}
    assert "pool" not in pod.later


def test_numbers_that_the_pool_does_not_say_are_those_of_its_classes() -> None:
    size = read("pool: {classes: [{name: a, workers: 2}, {name: b, min_workers: 1, max_workers: 4}]}\n").size
    assert (size.low, size.high) == (3, 6)
    size = read("pool: {workers: 3, classes: [{name: a, workers: 2}, {name: b}]}\n").size
    assert (size.low, size.high, size.classes[1]) == (3, 3, WorkerClass("b", 0, 3))


@pytest.mark.parametrize(
    ("classes", "place", "words"),
    [
        ("[]", "p.yaml:3:12", "there is no class in `classes`"),
        ("[{name: a, min_workers: 8}]", "p.yaml:3:13", "max_workers 5 is below min_workers 8"),
        ("[{name: a, min_workers: 3, max_workers: 2}]", "p.yaml:3:52", "max_workers 2 is below min_workers 3"),
        ("[{name: a, workers: 2, max_workers: 3}]", "p.yaml:3:13", "exclude each other"),
        ("[{name: a, workers: 2}, {name: a}]", "p.yaml:3:36", "two classes named a"),
        ("[{name: a_B}]", "p.yaml:3:20", "is no name of a class"),
        ("[{workers: 2}]", "p.yaml:3:13", "needs the key 'name'"),
        ("[{name: a, run: x}]", "p.yaml:3:23", "unknown key 'run'"),
        ("[{name: a, weight: -1}]", "p.yaml:3:31", "out of range"),
        ("[{name: a, resources: {infra: slurm/leoo}}]", "p.yaml:3:42", "no slurm cluster named 'leoo'"),
        ("[{name: a, workers: 4}, {name: b, workers: 2}]", "p.yaml:2:16", "is below 6, the min_workers of its classes"),
    ],
)
def test_mistakes_have_a_place(classes: str, place: str, words: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(f"pool:\n  max_workers: 5\n  classes: {classes}\n")
    assert str(caught.value.place) == place and words in caught.value.message.splitlines()[0]


def test_a_pool_of_more_than_its_classes_can_be_and_a_class_without_an_end() -> None:
    with pytest.raises(InvalidRequest, match=r"p.yaml:1:21: min_workers 3 of the pool is above 2"):
        read("pool: {min_workers: 3, max_workers: 5, classes: [{name: a, workers: 2}]}\n")
    with pytest.raises(InvalidRequest, match=r"the class a has no highest number"):
        read("pool: {classes: [{name: a, min_workers: 2}]}\n")


def test_overrides_change_the_file_and_the_keys_of_a_class_come_after() -> None:
    spec = read(
        "pool: {classes: [{name: a, workers: 1, resources: {cpus: 4}}, {name: b, workers: 1}]}\nresources: {cpus: 2}\n",
        "resources.cpus=8",
        "resources.memory=16",
    )
    assert [spec.workers[name].tasks[0].resources.cpus for name in "ab"] == [4, 8]
    assert [spec.workers[name].tasks[0].resources.memory_mib for name in "ab"] == [16 * 1024] * 2


@pytest.mark.parametrize(
    "classes", ["[{name: x, workers: 3, resources: {cpus: 7}}]", "[{name: x}, {name: y}, {name: z}]"]
)
def test_classes_of_an_override_are_taken_whole(classes: str) -> None:
    spec = read(BOTH, f"pool.classes={classes}")
    assert list(spec.workers) == [each.name for each in spec.size.classes]
    assert spec.workers["x"].tasks[0].resources.cpus == (7 if "cpus" in classes else 3)
    assert not spec.workers["x"].tasks[0].resources.gpus
    with pytest.raises(InvalidRequest, match=r"exclude each other"):
        read(BOTH, "pool.classes=[{name: x, workers: 2, max_workers: 3}]")


def test_a_pool_with_classes_is_one_document() -> None:
    with pytest.raises(InvalidRequest, match=r"p.yaml:4:1: a pool with classes is one document"):
        read("execution: serial\npool: {classes: [{name: a, workers: 1}]}\n---\nresources: {cpus: 3}\n")


ALTERNATIVES = """\
pool: {classes: [{name: a, workers: 1, resources: %s}]}
resources:
  %s:
  - {infra: slurm/leo, accelerators: "H100:4"}
  - {infra: kubernetes/kube, accelerators: "H100:1"}
"""


@pytest.mark.parametrize("listed", ["any_of", "ordered"])
def test_a_class_says_nothing_that_alternatives_of_the_file_hide(listed: str) -> None:
    for own, key in (
        ("{cpus: 2, infra: slurm/leo}", "infra"),
        ("{gpus: 'H100:2'}", "gpus"),
        ("{cloud: slurm}", "cloud"),
    ):
        with pytest.raises(InvalidRequest, match=f"`{listed}` of the file's resources says {key} too") as caught:
            read(ALTERNATIVES % (own, listed))
        assert str(caught.value.place).startswith("p.yaml:1:5") or str(caught.value.place).startswith("p.yaml:1:6")
        assert f"`{listed}: null`" in caught.value.remedy
    assert read(ALTERNATIVES % ("{cpus: 2}", listed)).workers["a"].tasks[0].resources.cpus == 2
    for own in (f"{{infra: slurm/leo, {listed}: null}}", f"{{{listed}: [{{infra: slurm/leo}}]}}"):
        assert read(ALTERNATIVES % (own, listed)).workers["a"].clusters == ("leo",)
