"""Whose token an access document has: one job's, or that of an element by its index."""

from __future__ import annotations

import json

import pytest

from overspan.bridge.model.access_documents import MAX_BYTES, find_token, join_access

OWN = {index: json.dumps({"format": 1, "host": "h", "token": f"{60 + index}.{'f' * 64}"}) for index in range(5000)}


def test_an_element_finds_its_own_token_and_no_other() -> None:
    text = join_access(OWN)
    document = json.loads(text)
    assert document["host"] == "h" and "token" not in document and len(text) < MAX_BYTES
    assert find_token(document, {"SLURM_ARRAY_TASK_ID": "7"}).startswith("67.")
    for environment, told in (({"SLURM_ARRAY_TASK_ID": "5000"}, "is 5000"), ({}, "is not set")):
        with pytest.raises(ValueError, match=f"elements of an array.*SLURM_ARRAY_TASK_ID {told}"):
            find_token(document, environment)


def test_a_job_s_own_document_asks_for_no_index() -> None:
    # A script that is no element of Overspan's may have been started from one.
    assert find_token(json.loads(OWN[3]), {"SLURM_ARRAY_TASK_ID": "7"}).startswith("63.")


def test_elements_of_which_one_has_none_have_none() -> None:
    assert join_access({}) == join_access({1: OWN[1], 2: ""}) == ""
