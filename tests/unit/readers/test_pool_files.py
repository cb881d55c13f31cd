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


def read(text: str) -> PoolSpec:
    return read_pool_file(Submission("job_file", text, file="p.yaml"), CLUSTERS, 0.0)


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
