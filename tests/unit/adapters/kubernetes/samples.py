"""Jobs and settings for the tests of what is rendered for Kubernetes, its golden files, and the API's own schemas."""

from __future__ import annotations

import importlib
import json
import os
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from tests.unit.adapters.slurm.samples import EXAMPLES, NOW, read_file, read_script

from overspan.adapters.contract import ClusterConfig, Launch
from overspan.adapters.kubernetes.files import Archive
from overspan.adapters.kubernetes.launches.gang import GangBackend
from overspan.adapters.kubernetes.manifests.rendering import Objects, own, plan_launch, render
from overspan.adapters.kubernetes.settings import Settings, read_settings
from overspan.bridge.model.job import Job

__all__ = ["EXAMPLES", "NOW", "read_file", "read_script"]

GOLDEN = Path(__file__).parent / "golden"
VERSIONS = ("1.28", "1.31", "1.34", "1.36", "1.37")
"""Releases of Kubernetes whose schemas every manifest has to meet."""
GANG_VERSIONS = {GangBackend.V1ALPHA2: ("1.36",), GangBackend.V1ALPHA3: ("1.37",), GangBackend.V1BETA1: ("1.37",)}
"""Releases that have the fields of a rung."""
TOKEN = "4f2c9d0a1b3e-{job}-{launch}"
UID = "6f0e3c1a-0000-4000-8000-000000000001"
Document = dict[str, Any]


def configure(root: str = "", **settings: Any) -> Settings:
    """Settings as the configuration file gives them, with an image and a namespace unless it says otherwise."""
    given = {"namespace": "lab", "image": "registry.example.com/base:1", **settings}
    return read_settings(ClusterConfig("kube", "kubernetes", given, root))


def make_launch(job: Job, **environment: str) -> Launch:
    """The launch of a job."""
    return Launch(TOKEN.format(job=job.id, launch=job.launch), job, environment)


def render_job(
    job: Job,
    settings: Settings | None = None,
    backend: GangBackend = GangBackend.SOFT,
    packed: Mapping[str, Archive] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Objects:
    """The objects of a job, each one checked against the schemas."""
    settings = settings or configure()
    launch = make_launch(job, **(environment or {}))
    plan = plan_launch(launch, settings, backend, packed)
    objects = render(launch, plan, settings)
    for document in objects.owned():
        own(document, objects.anchor["metadata"]["name"], UID)
    check_all(objects, GANG_VERSIONS.get(plan.backend, VERSIONS))
    return objects


def check_all(objects: Objects, versions: tuple[str, ...] = VERSIONS) -> None:
    """Each object is one that those releases take; of equal pods the first few are looked at."""
    pods = {str(pod["metadata"]["annotations"]["overspan.io/task"]): pod for pod in objects.pods}
    others = [item for item in (objects.anchor, *objects.owned()) if item["kind"] != "Pod"]
    for document in (*others, *pods.values()):
        for version in versions:
            check_schema(document, version)


def check_schema(document: Document, version: str) -> None:
    """Raise where a release of Kubernetes would not take the document, unknown fields included."""
    group = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", document["apiVersion"])
    _validator(version, f"{document['kind'].lower()}-{group}.json").validate(json.loads(json.dumps(document)))


@cache
def _validator(version: str, name: str) -> Any:
    # The package's own validate reads the definitions again for every document.
    jsonschema, referencing = importlib.import_module("jsonschema"), importlib.import_module("referencing")
    folder = files("kubernetes_validate") / "kubernetes-json-schema" / f"v{version}.0-local-strict"
    schema = json.loads((folder / name).read_text())
    resources = [referencing.Resource.from_contents(item) for item in (schema, _definitions(version))]
    registry = referencing.Registry()
    for resource in resources:
        registry = resource @ registry
    return jsonschema.validators.Draft202012Validator(schema, registry=registry)


@cache
def _definitions(version: str) -> Any:
    folder = files("kubernetes_validate") / "kubernetes-json-schema" / f"v{version}.0-local-strict"
    return json.loads((folder / "_definitions.json").read_text())


def main_of(pod: Document) -> Document:
    """The task's own container."""
    return next(item for item in pod["spec"]["containers"] if item["name"] == "main")


def variables_of(pod: Document) -> dict[str, str]:
    """The plain variables of the task's container."""
    return {entry["name"]: entry["value"] for entry in main_of(pod)["env"] if "value" in entry}


def check_golden(name: str, text: str) -> None:
    """Compare with a golden file; OVERSPAN_WRITE_GOLDEN=1 writes it."""
    path = GOLDEN / name
    if os.environ.get("OVERSPAN_WRITE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()
