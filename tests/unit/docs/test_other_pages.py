"""Settings, contract and Python API: the tables of the pages have what the code has."""

from __future__ import annotations

import dataclasses
import inspect
import re

import pytest
from tests.unit.docs import pages
from tests.unit.docs.pages import ROOT

import overspan.bridge.client as client
from overspan.adapters import abilities, checkpoint_sources, contract
from overspan.adapters.contract import ClusterConfig
from overspan.adapters.local.settings import read_settings
from overspan.adapters.slurm.settings import read_settings as read_slurm_settings
from overspan.adapters.traits import Traits
from overspan.bridge.config.settings import ClusterSettings, DaemonLimits, PollIntervals, Settings
from overspan.bridge.model import errors
from overspan.bridge.model.errors import InvalidRequest

OPERATIONS = ROOT / "docs" / "operations.md"
PYTHON = ROOT / "docs" / "python.md"
ADAPTERS = ROOT / "docs" / "adapters.md"


def test_settings_are_those_of_the_configuration() -> None:
    known = {*Settings.model_fields, "final"} - {"ticks", "limits"}
    known |= {f"ticks.{name}" for name in PollIntervals.model_fields} | {
        f"limits.{name}" for name in DaemonLimits.model_fields
    }
    own = set(ClusterSettings.model_fields)
    for read in (read_settings, read_slurm_settings):
        with pytest.raises(InvalidRequest) as raised:
            read(ClusterConfig("c", "any", {"no-such-key": 1}))
        own |= set(raised.value.remedy.removeprefix("known keys: ").split(", "))
    assert set(pages.first_words(pages.read_section(OPERATIONS, "Configuration"))) == known | own


def test_defaults_of_settings_are_right() -> None:
    rows = {row[0].strip("`"): row[1] for row in pages.read_rows(pages.read_section(OPERATIONS, "Configuration"))}
    for prefix, part in (("ticks", PollIntervals()), ("limits", DaemonLimits())):
        for name in type(part).model_fields:
            assert rows[f"{prefix}.{name}"] == str(getattr(part, name))
    assert rows["retention"] == f"{Settings().retention // 86400}d"


def methods(kind: type) -> set[str]:
    """Public functions and properties of a class."""
    found = inspect.getmembers(kind, lambda member: inspect.isfunction(member) or isinstance(member, property))
    return {name for name, _ in found if not name.startswith("_")}


def test_every_method_of_the_client_is_there() -> None:
    words = pages.first_words(pages.read_section(PYTHON, "Client"))
    assert {word.partition("(")[0] for word in words} == methods(client.Client)


def test_every_member_of_a_handle_is_there() -> None:
    words = pages.first_words(pages.read_section(PYTHON, "JobHandle"))
    assert {word.partition("(")[0] for word in words} == methods(client.JobHandle) | {"id", "accepted"}


@pytest.mark.parametrize("kind", [client.Client, client.JobHandle], ids=lambda kind: kind.__name__)
def test_parameters_are_named_as_they_are(kind: type) -> None:
    for word in pages.first_words(pages.read_section(PYTHON, kind.__name__)):
        match = re.fullmatch(r"(\w+)\((.*)\)", word)
        if match:
            names = re.findall(r"(?:^|, )\**(\w+)(?=[:,=]|$)", match[2])
            known = list(inspect.signature(getattr(kind, match[1])).parameters)[1:]
            assert names == known, word


def test_records_have_their_fields() -> None:
    rows = {pages.read_words(row[0])[0]: row[1] for row in pages.read_rows(pages.read_section(PYTHON, "Records"))}
    assert {"JobRow", "Submission"} | set(rows) | {"Client", "JobHandle"} == set(client.__all__)
    for name, cell in rows.items():
        record = getattr(client, name)
        known = list(getattr(record, "_fields", None) or record.__annotations__)
        assert sorted(word for word in pages.read_words(cell) if word != "submit") == sorted(known), name


def test_errors_are_the_tree() -> None:
    written = set(pages.first_words(pages.read_section(PYTHON, "Errors")))
    assert written == {kind.__name__ for kind in errors.ERRORS.values()} - {"OverspanError"}


def test_the_contract_is_whole() -> None:
    words = set(pages.first_words(pages.read_section(ADAPTERS, "Add an adapter")))
    optional = {
        f"{name}.{member}"
        for name, ability in {**vars(abilities), **vars(checkpoint_sources)}.items()
        if getattr(ability, "_is_protocol", False) and name not in ("Adapter", "Opener", "Protocol")
        for member in methods(ability) | set(inspect.get_annotations(ability))
    }
    stated = {f"traits.{field.name}" for field in dataclasses.fields(Traits)}
    assert words == methods(contract.Adapter) | set(contract.Adapter.__annotations__) | {"traits"} | optional | stated


@pytest.mark.parametrize("page", [ADAPTERS, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_places_that_are_named_exist(page: object) -> None:
    text = (ADAPTERS if page == ADAPTERS else ROOT / "CONTRIBUTING.md").read_text()
    for word in re.findall(r"`((?:bridge|adapters|tests|docs|benchmarks|examples)/[\w./-]+)`", text):
        if "NAME" not in word:
            assert (ROOT / word).exists(), word
