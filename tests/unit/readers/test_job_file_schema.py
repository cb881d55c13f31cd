"""The JSON Schema: valid itself, and in agreement with the reader."""

from __future__ import annotations

from pathlib import Path

import jsonschema_rs
import pytest

from overspan.bridge.readers.job_file_schema import DIALECT, job_file_schema
from overspan.bridge.validation.yaml_documents import read_documents
from overspan.bridge.validation.yaml_nodes import plain

DATA = Path(__file__).parent / "data"


def test_the_schema_is_valid() -> None:
    schema = job_file_schema()
    assert schema["$schema"] == DIALECT
    jsonschema_rs.meta.validate(schema)


@pytest.mark.parametrize("name", sorted(path.name for path in DATA.glob("*.yaml")))
def test_files_that_are_read_fit_the_schema(name: str) -> None:
    validator = jsonschema_rs.Draft202012Validator(job_file_schema())
    for document in read_documents((DATA / name).read_text(), name):
        validator.validate(plain(document))


@pytest.mark.parametrize(
    "text",
    [
        "runn: x",
        "num_nodes: 0",
        "execution: paralel",
        "resources: {cpu: 1}",
        "restart: all",
        "backoff: {jitter: 2}",
    ],
)
def test_files_that_are_refused_do_not_fit(text: str) -> None:
    (document,) = read_documents(text, "f")
    assert not jsonschema_rs.Draft202012Validator(job_file_schema()).is_valid(plain(document))


def test_every_key_is_described() -> None:
    for part in job_file_schema()["$defs"].values():
        assert all(schema["description"] for schema in part["properties"].values())
