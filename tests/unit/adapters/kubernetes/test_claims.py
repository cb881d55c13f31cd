"""Volumes that are claims: made, grown, listed, deleted, and looked at before a job that names one is taken."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.fakes.kubernetes_api import KubernetesApi
from tests.fakes.kubernetes_objects import Document, Key
from tests.unit.adapters.kubernetes.bench import Bench

from overspan.adapters.kubernetes.api.connection import Connection
from overspan.adapters.kubernetes.claims import ClaimKeeper
from overspan.adapters.traits import Traits
from overspan.bridge.model.errors import Conflict, Denied, InvalidRequest, NotFound, Rejected
from overspan.bridge.model.job import new_job
from overspan.bridge.model.spec import JobSpec, Origin, TaskSpec
from overspan.bridge.model.volumes import VolumeRequest

GIB = 1024
CLASSES = Key("storage.k8s.io", "storageclasses", "", "")
RIGHTS = "`span check` lists the rights that are missing"


@pytest.fixture
def keeper(connection: Connection, api: KubernetesApi) -> ClaimKeeper:
    for name, grows in (("fast", True), ("fixed", False)):
        api.objects.create(CLASSES, {"metadata": {"name": name}, "allowVolumeExpansion": grows})
    return ClaimKeeper(connection)


def claim_key(name: str) -> Key:
    return Key("", "persistentvolumeclaims", "default", name)


def bind(api: KubernetesApi, name: str) -> None:
    """What the cluster does with a claim for which it has a volume."""
    api.objects.replace(claim_key(name), lambda now: {**now, "status": {"phase": "Bound"}})


def make_claim(api: KubernetesApi, name: str, mode: str = "ReadWriteOnce", **metadata: Any) -> Document:
    """A claim of somebody else's."""
    spec = {"accessModes": [mode], "resources": {"requests": {"storage": "10G"}}}
    return api.objects.create(claim_key(""), {"metadata": {"name": name, **metadata}, "spec": spec})


def make_group(volume: str = "ckpts", nodes: int = 1) -> JobSpec:
    """A trainer and an evaluator with a volume in common."""
    tasks = tuple(
        TaskSpec(name=name, run="true", num_nodes=count, volumes={"/checkpoints": volume})
        for name, count in (("trainer", nodes), ("evaluator", 1))
    )
    return JobSpec("train-eval", tasks, group=True, origin=Origin(user="ada"))


class TestApply:
    def test_a_claim_is_made_once(self, keeper: ClaimKeeper, api: KubernetesApi) -> None:
        request = VolumeRequest("ckpts", 100 * GIB, "fast", "ReadWriteMany", owner="ada")
        made = asyncio.run(keeper.apply(request))
        assert (made.done, made.volume.size, made.volume.status) == ("made", "100Gi", "Pending")
        found = api.objects.get(claim_key("ckpts"))
        assert found["spec"] == {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "100Gi"}},
            "storageClassName": "fast",
        }
        assert found["metadata"]["labels"] == {
            "app.kubernetes.io/managed-by": "overspan",
            "overspan.io/user": "ada",
        }
        for again in (request, VolumeRequest("ckpts")):
            assert asyncio.run(keeper.apply(again)).done == "unchanged"
        assert api.objects.get(claim_key("ckpts"))["metadata"]["uid"] == found["metadata"]["uid"]

    def test_without_a_mode_it_is_mounted_by_one_node(self, keeper: ClaimKeeper, api: KubernetesApi) -> None:
        asyncio.run(keeper.apply(VolumeRequest("small", 512)))
        spec = api.objects.get(claim_key("small"))["spec"]
        assert spec == {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "512Mi"}}}

    def test_it_grows_where_its_class_lets_it(self, keeper: ClaimKeeper, api: KubernetesApi) -> None:
        asyncio.run(keeper.apply(VolumeRequest("ckpts", 10 * GIB, "fast")))
        grown = asyncio.run(keeper.apply(VolumeRequest("ckpts", 20 * GIB)))
        assert (grown.done, grown.volume.size) == ("grown", "20Gi")
        assert api.objects.get(claim_key("ckpts"))["spec"]["resources"]["requests"]["storage"] == "20Gi"

    @pytest.mark.parametrize(
        ("request_", "words"),
        [
            (VolumeRequest("old", 20 * GIB), "has 10Gi, and 20Gi is wanted: the class fixed lets no claim grow"),
            (VolumeRequest("old", 5 * GIB), "has 10Gi, and 5Gi is less: a claim never shrinks"),
            (VolumeRequest("old", storage_class="fast"), "has the class fixed, and fast is wanted"),
            (VolumeRequest("old", access_mode="ReadWriteMany"), "has the access mode ReadWriteOnce, and ReadWriteMany"),
            (VolumeRequest("old", namespace="other"), "in the namespace other, and the cluster's jobs are in default"),
        ],
    )
    def test_other_changes_are_refused_with_both_values(
        self, keeper: ClaimKeeper, api: KubernetesApi, request_: VolumeRequest, words: str
    ) -> None:
        asyncio.run(keeper.apply(VolumeRequest("old", 10 * GIB, "fixed")))
        before = api.objects.get(claim_key("old"))
        with pytest.raises(Conflict) as raised:
            asyncio.run(keeper.apply(request_))
        assert words in raised.value.message and raised.value.remedy
        assert api.objects.get(claim_key("old")) == before

    def test_a_class_that_is_missing_is_told_with_those_that_are_there(self, keeper: ClaimKeeper) -> None:
        with pytest.raises(InvalidRequest, match="no storage class 'gold'") as raised:
            asyncio.run(keeper.apply(VolumeRequest("ckpts", GIB, "gold")))
        assert "classes there: fast, fixed" in raised.value.remedy

    def test_a_login_that_reads_no_classes_leaves_them_to_the_cluster(
        self, keeper: ClaimKeeper, api: KubernetesApi
    ) -> None:
        api.denied.add(("get", "storageclasses"))
        asyncio.run(keeper.apply(VolumeRequest("ckpts", GIB, "fixed")))
        words = (
            'persistentvolumeclaims "ckpts" is forbidden: only dynamically provisioned pvc can be resized and '
            "the storageclass that provisions the pvc must support resize"
        )
        api.refuse("PATCH", "persistentvolumeclaims/ckpts", 403, words, reason="Forbidden")
        with pytest.raises(Conflict, match=r"grow from 1Gi to 2Gi: .*must support resize"):
            asyncio.run(keeper.apply(VolumeRequest("ckpts", 2 * GIB)))

    def test_a_new_claim_needs_a_size(self, keeper: ClaimKeeper) -> None:
        with pytest.raises(InvalidRequest, match="there is no volume ckpts yet, and a new claim needs a size"):
            asyncio.run(keeper.apply(VolumeRequest("ckpts")))

    def test_missing_rights_and_quotas_are_told(self, keeper: ClaimKeeper, api: KubernetesApi) -> None:
        api.denied.add(("create", "persistentvolumeclaims"))
        with pytest.raises(Denied, match=r"refused to make the claim ckpts: .*cannot create") as raised:
            asyncio.run(keeper.apply(VolumeRequest("ckpts", GIB)))
        assert raised.value.remedy.startswith(RIGHTS)
        api.denied.clear()
        words = 'persistentvolumeclaims "ckpts" is forbidden: exceeded quota: disk, requested: requests.storage=1Gi'
        api.refuse("POST", "persistentvolumeclaims", 403, words, reason="Forbidden")
        with pytest.raises(Rejected, match="exceeded quota: disk"):
            asyncio.run(keeper.apply(VolumeRequest("ckpts", GIB)))


class TestListing:
    def test_claims_are_listed_and_an_unbound_one_says_why(self, keeper: ClaimKeeper, api: KubernetesApi) -> None:
        asyncio.run(keeper.apply(VolumeRequest("waits", GIB)))
        asyncio.run(keeper.apply(VolumeRequest("bound", GIB, "fast")))
        bind(api, "bound")
        make_claim(api, "theirs", "ReadWriteMany")
        uid = api.objects.get(claim_key("waits"))["metadata"]["uid"]
        for at, words in (("10:00:01Z", "no storage class is set"), ("10:00:00Z", "an older word")):
            api.objects.create_simple(
                "events",
                f"event-{at[6:8]}",
                "default",
                involvedObject={"kind": "PersistentVolumeClaim", "uid": uid},
                message=words,
                lastTimestamp=f"2026-01-01T{at}",
            )
        assert [tuple(each) for each in asyncio.run(keeper.list())] == [
            ("bound", "claim", "1Gi", "fast", "ReadWriteOnce", "Bound", ""),
            ("theirs", "foreign claim", "10G", "", "ReadWriteMany", "Pending", "nothing has bound it yet"),
            ("waits", "claim", "1Gi", "", "ReadWriteOnce", "Pending", "no storage class is set"),
        ]
        api.denied.add(("list", "events"))
        assert asyncio.run(keeper.list())[2].message == "nothing has bound it yet"

    def test_only_claims_that_were_made_by_it_are_deleted(self, keeper: ClaimKeeper, api: KubernetesApi) -> None:
        asyncio.run(keeper.apply(VolumeRequest("ckpts", GIB)))
        make_claim(api, "theirs")
        asyncio.run(keeper.delete("ckpts"))
        with pytest.raises(NotFound, match="there is no claim ckpts in the namespace default"):
            asyncio.run(keeper.delete("ckpts"))
        with pytest.raises(Conflict, match="the claim theirs was not made by") as raised:
            asyncio.run(keeper.delete("theirs"))
        assert "kubectl -n default delete pvc theirs" in raised.value.remedy
        assert [each.name for each in asyncio.run(keeper.list())] == ["theirs"]


class TestJobs:
    def admit(self, bench: Bench, spec: JobSpec) -> tuple[str, str]:
        """The refusal of a job and its remedy; empty where it is taken."""

        async def ask() -> tuple[str, str]:
            async with bench.open() as cluster:
                assert isinstance(cluster.traits, Traits) and cluster.traits.volumes is not None
                refusal = await cluster.admit(new_job(7, spec, 0.0))
                return (refusal.message, refusal.remedy) if refusal is not None else ("", "")

        return asyncio.run(ask())

    def test_one_that_names_a_volume_that_is_not_there_is_told_the_command(
        self, bench: Bench, api: KubernetesApi
    ) -> None:
        message, remedy = self.admit(bench, make_group())
        assert "trainer: there is no volume ckpts on kube (no claim of that name in the namespace default)" in message
        assert "`span volume apply ckpts --size 100 -M kube`" in remedy
        make_claim(api, "ckpts")
        assert self.admit(bench, make_group()) == ("", "")
        assert self.admit(bench, make_group("ckpts/run-3")) == ("", "")

    def test_several_nodes_need_a_volume_for_several(self, bench: Bench, api: KubernetesApi) -> None:
        assert "--size 100 -M kube --access-mode ReadWriteMany`" in self.admit(bench, make_group(nodes=2))[1]
        make_claim(api, "ckpts")
        message, remedy = self.admit(bench, make_group(nodes=2))
        assert "trainer: the volume ckpts is mounted by one node at a time (ReadWriteOnce)" in message
        assert "the task has several nodes" in message and "--access-mode ReadWriteMany" in remedy
        make_claim(api, "wide", "ReadWriteMany")
        assert self.admit(bench, make_group("wide", nodes=2)) == ("", "")

    def test_one_that_is_being_deleted_is_told(self, bench: Bench, api: KubernetesApi) -> None:
        make_claim(api, "ckpts", finalizers=["kubernetes.io/pvc-protection"])
        api.objects.delete(claim_key("ckpts"), {})
        assert "trainer: the volume ckpts is being deleted" in self.admit(bench, make_group())[0]

    def test_a_login_that_may_not_look_is_not_hindered(self, bench: Bench, api: KubernetesApi) -> None:
        api.denied.add(("get", "persistentvolumeclaims"))
        assert self.admit(bench, make_group()) == ("", "")
