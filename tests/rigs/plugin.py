"""The rigs as fixtures: a test that asks for one is skipped by name where it cannot run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TypeVar

import pytest
from tests.rigs.engine import RigMissing, is_required
from tests.rigs.kube import KubeRig, open_kube
from tests.rigs.slurm import SlurmRig, Variant, open_rig

R = TypeVar("R")


@contextlib.contextmanager
def rig_or_skip(variant: Variant) -> Iterator[SlurmRig]:
    """A running Slurm of this variant; where there can be none, a skip, or a failure if it was required.

    OVERSPAN_REQUIRE_RIGS is a list of rigs that must run, separated by commas: `slurm,kube`.
    """
    with _open_or_skip("slurm", "Slurm", open_rig(variant)) as rig:
        yield rig


@contextlib.contextmanager
def kube_or_skip(nodes: int = 2) -> Iterator[KubeRig]:
    """A running Kubernetes with so many nodes; where there can be none, a skip or a failure, as for Slurm."""
    with _open_or_skip("kube", "Kubernetes", open_kube(nodes)) as rig:
        yield rig


@contextlib.contextmanager
def _open_or_skip(name: str, title: str, opened: contextlib.AbstractContextManager[R]) -> Iterator[R]:
    with contextlib.ExitStack() as stack:
        try:
            rig = stack.enter_context(opened)
        except RigMissing as missing:
            if is_required(name):
                pytest.fail(f"the {title} rig is required and cannot run: {missing}")
            pytest.skip(f"no {title} rig: {missing}")
        yield rig


def _share(config: pytest.Config, opened: contextlib.AbstractContextManager[R], kind: type[R]) -> R:
    """One rig of a kind for the whole process, until `close_shared`."""
    shared = config.stash.setdefault(_SHARED, {})
    if kind not in shared:
        stack = contextlib.ExitStack()
        shared[kind] = stack.enter_context(opened), stack
        config.add_cleanup(stack.close)
    rig = shared[kind][0]
    assert isinstance(rig, kind)
    return rig


_SHARED = pytest.StashKey[dict[type, tuple[object, contextlib.ExitStack]]]()


def close_shared(config: pytest.Config) -> None:
    """End the rigs of this process: an idle one takes a tenth of a processor."""
    for _, stack in config.stash.setdefault(_SHARED, {}).values():
        stack.close()
    config.stash[_SHARED].clear()


@pytest.fixture(scope="module")
def slurm_rig(pytestconfig: pytest.Config) -> SlurmRig:
    """A controller and three nodes, for all modules in a row that need them; nothing of it is left afterwards."""
    return _share(pytestconfig, rig_or_skip(Variant()), SlurmRig)


@pytest.fixture(scope="module")
def kube_rig(pytestconfig: pytest.Config) -> KubeRig:
    """A control plane and two nodes, for all modules in a row that need them; nothing of it is left afterwards."""
    return _share(pytestconfig, kube_or_skip(), KubeRig)


@pytest.fixture
def kube_namespace(kube_rig: KubeRig) -> Iterator[str]:
    """A namespace for one test."""
    with kube_rig.open_namespace() as name:
        yield name
