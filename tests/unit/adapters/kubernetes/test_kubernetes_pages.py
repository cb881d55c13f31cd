"""What the pages say about Kubernetes is what the code has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.adapters.kubernetes.samples import VERSIONS, check_schema
from tests.unit.docs import pages
from tests.unit.docs.pages import ROOT

from overspan.adapters.contract import ClusterConfig
from overspan.adapters.kubernetes.api.rights import list_extras, list_rights
from overspan.adapters.kubernetes.launches.gang import GangBackend
from overspan.adapters.kubernetes.manifests.exporting import CLUSTER, MACHINE, SESSION
from overspan.adapters.kubernetes.settings import read_settings
from overspan.bridge.model.errors import InvalidRequest

RBAC = Path(ROOT) / "docs" / "kubernetes-rbac.yaml"


def documents() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(RBAC.read_text()))


def granted(kind: str) -> set[tuple[str, str, str]]:
    """Group, resource and verb of all rules of that kind."""
    return {
        (group, resource, verb)
        for document in documents()
        if document["kind"] == kind
        for rule in document["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_roles_grant_what_is_needed_and_nothing_else() -> None:
    rights = [
        *list_rights(GangBackend.V1BETA1),
        *(right for extra in list_extras(GangBackend.KUEUE) for right in extra.rights),
    ]
    for kind, everywhere in (("Role", False), ("ClusterRole", True)):
        needed = {(right.group, right.name, right.verb) for right in rights if right.everywhere is everywhere}
        assert granted(kind) == needed


@pytest.mark.parametrize("version", VERSIONS)
def test_the_roles_are_objects_of_kubernetes(version: str) -> None:
    for document in documents():
        check_schema(document, version)


def test_variables_that_stay_are_all_described() -> None:
    section = pages.read_section(ROOT / "docs" / "operations.md", "Batch scripts in pods")
    rows = [
        line for line in section.splitlines() if line.startswith(("| what describes", "| the session", "| what the"))
    ]
    told = [set(re.findall(r"`([A-Z0-9_*]+)`", row)) for row in rows]
    assert told == [set(names) for names in (MACHINE, SESSION, CLUSTER)]


def test_settings_are_all_described() -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_settings(ClusterConfig("c", "kubernetes", {"no-such-key": 1}))
    known = set(caught.value.remedy.removeprefix("known keys: ").split(", "))
    words = pages.first_words(pages.read_section(ROOT / "docs" / "operations.md", "A Kubernetes cluster"))
    assert set(words) - {"resource", "label", "types", "value"} == known
