"""The rigs as fixtures: a test that asks for one is skipped by name where it cannot run."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest
from tests.rigs.engine import RigMissing
from tests.rigs.slurm import SlurmRig, Variant, open_rig


@contextlib.contextmanager
def rig_or_skip(variant: Variant) -> Iterator[SlurmRig]:
    """A running Slurm of this variant; where there can be none, a skip, or a failure if it was required.

    OVERSPAN_REQUIRE_RIGS is a list of rigs that must run, separated by commas: `slurm`.
    """
    with contextlib.ExitStack() as stack:
        try:
            rig = stack.enter_context(open_rig(variant))
        except RigMissing as missing:
            if "slurm" in os.environ.get("OVERSPAN_REQUIRE_RIGS", "").split(","):
                pytest.fail(f"the Slurm rig is required and cannot run: {missing}")
            pytest.skip(f"no Slurm rig: {missing}")
        yield rig


@pytest.fixture(scope="session")
def slurm_rig() -> Iterator[SlurmRig]:
    """A controller and three nodes, for the whole session; nothing of it is left afterwards."""
    with rig_or_skip(Variant()) as rig:
        yield rig
