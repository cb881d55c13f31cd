"""The suite against a real Slurm, over ssh from outside."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from tests.contract.conformance import Conformance, Rig
from tests.contract.slurm_clusters import RemoteSlurm
from tests.rigs.plugin import slurm_rig
from tests.rigs.reach import SshAccess, open_access
from tests.rigs.slurm import SlurmRig

__all__ = ["slurm_rig"]


@pytest.fixture(scope="module")
def access(slurm_rig: SlurmRig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshAccess]:
    with open_access(slurm_rig, tmp_path_factory.mktemp("ssh")) as access:
        yield access


@pytest.fixture(scope="module")
def ids() -> Iterator[int]:
    # Tokens and folders stay on the cluster for as long as it runs.
    return itertools.count(1)


class TestSlurm(Conformance):
    @pytest.fixture(params=["task", "script", "group"])
    def rig(self, request: pytest.FixtureRequest, access: SshAccess, ids: Iterator[int]) -> Iterator[Rig]:
        rig = RemoteSlurm(access, request.param, ids)
        rig.clean()
        yield rig
        rig.clean()
