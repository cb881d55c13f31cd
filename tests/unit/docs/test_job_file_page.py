"""docs/job-file.md has the keys that the reader has, and the variables that tasks get; no more and no fewer."""

from __future__ import annotations

import re

import pytest
from tests.unit.docs import pages
from tests.unit.docs.pages import ROOT

from overspan.bridge.lifecycle.reduction import reduce
from overspan.bridge.model.elastic import Elastic
from overspan.bridge.model.events import Granted
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.model.resources import Resources, parse_accelerators
from overspan.bridge.model.spec import Form, JobSpec, TaskSpec
from overspan.bridge.readers import evaluation_fields, header_fields, resource_fields, task_fields
from overspan.bridge.readers.field_types import Effect, Record
from overspan.bridge.readers.job_file import read_job_file
from overspan.bridge.readers.read_context import ReadContext
from overspan.bridge.runtime.core.environment import NodeRunContext, build_environment

PAGE = ROOT / "docs" / "job-file.md"

SECTIONS: dict[str, Record] = {
    "Header": header_fields.HEADER,
    "Task": header_fields.TASK,
    "needs": task_fields.NEED,
    "ready": task_fields.READY,
    "elastic": task_fields.ELASTIC,
    "backoff": task_fields.BACKOFF,
    "resources": resource_fields.RESOURCES,
    "job_recovery": resource_fields.JOB_RECOVERY,
    "config": task_fields.CONFIG,
    "pool": task_fields.POOL,
    "class": task_fields.WORKER_CLASS,
    "on_checkpoint": evaluation_fields.ON_CHECKPOINT,
    "select": evaluation_fields.SELECT,
    "result": evaluation_fields.RESULT,
    "stop_when": evaluation_fields.STOP_WHEN,
    "storage": task_fields.STORAGE,
    "repository": task_fields.REPOSITORY,
    "volume": task_fields.VOLUME,
}

REFUSED = {
    "event_callback": "event_callback: echo",
    "workdir": "workdir: {url: 'https://host/repo'}",
    "file_mounts": "file_mounts: {/data: 'ftp://host/data'}",
    "volumes": "volumes: {/data: {name: d, size: 10Gi}}",
}


def key_rows(section: str) -> list[list[str]]:
    """The rows of a section's tables of keys, which have four cells."""
    return [row for row in pages.read_rows(pages.read_section(PAGE, section)) if len(row) == 4]


@pytest.mark.parametrize("section", SECTIONS)
def test_the_keys_are_the_readers(section: str) -> None:
    written = [word for row in key_rows(section) for word in pages.read_words(row[0])]
    assert len(written) == len(set(written)), "a key is there twice"
    assert set(written) == set(SECTIONS[section].fields)


@pytest.mark.parametrize("section", SECTIONS)
def test_required_keys_and_keys_without_effect_say_so(section: str) -> None:
    for row in key_rows(section):
        for key in pages.read_words(row[0]):
            field = SECTIONS[section].fields[key]
            assert field.required == (row[2] == "required"), key
            if field.effect is Effect.NOTED:
                assert "effect" in row[3], key
            if field.effect is Effect.REFUSED:
                assert "not supported" in row[3], key


def test_a_single_document_takes_the_keys_that_are_said() -> None:
    sentence = re.search(r"^A file of one document takes.*$", PAGE.read_text(), re.MULTILINE)
    assert sentence is not None
    extra = set(header_fields.SINGLE.fields) - set(header_fields.TASK.fields)
    assert set(pages.read_words(sentence[0])) == extra | {"needs"}


@pytest.mark.parametrize("key", REFUSED)
def test_keys_that_are_said_to_be_refused_are(key: str) -> None:
    text = f"name: j\nrun: 'true'\n{REFUSED[key]}\n"
    spec = read_job_file(text, "j.yaml", context=ReadContext(directory="/work"))
    assert any(name.split(".")[-1] == key for name in spec.later)
    assert f"`{key}`" in pages.read_section(PAGE, "Read and refused")


@pytest.mark.parametrize("key", ["event_callback"])
def test_tables_mark_what_is_refused_today(key: str) -> None:
    section = "Task" if key == "event_callback" else "Header"
    row = next(row for row in key_rows(section) if pages.read_words(row[0]) == [key])
    assert "**refused today**" in row[3]


DEFAULTS = {
    "grace_period": "grace_period",
    "num_nodes": "num_nodes",
    "on_failure": "on_failure.value",
    "max_restarts_on_errors": "retry.max_restarts_on_errors",
    "max_recoveries": "retry.max_recoveries",
    "max_restarts": "retry.max_restarts",
    "first": "retry.backoff.first",
    "factor": "retry.backoff.factor",
    "limit": "retry.backoff.limit",
    "jitter": "retry.backoff.jitter",
}


@pytest.mark.parametrize("key", DEFAULTS)
def test_defaults_are_the_models(key: str) -> None:
    row = next(row for name in ("Task", "backoff") for row in key_rows(name) if pages.read_words(row[0]) == [key])
    value: object = TaskSpec("t")
    for part in DEFAULTS[key].split("."):
        value = getattr(value, part)
    text = f"{value:g}" if isinstance(value, float) else str(value)
    assert row[2] == text


def make_job() -> Job:
    """A group with everything that a variable depends on."""
    need = Resources(cpus=2, memory_mib=64, gpus=parse_accelerators("A100:1"))
    tasks = (
        TaskSpec("trainer", form=Form.BATCH, resources=need, ntasks_per_node=2, cpus_per_task=1),
        TaskSpec("data-server", num_nodes=2, primary=False, elastic=Elastic(2, 4, 2)),
    )
    spec = JobSpec("g", tasks, group=True, account="lab", qos="high", environment={"HOME": "/h", "SLURM_X": "1"})
    granted = Granted(
        2.0,
        (
            ("trainer", 0, "n", "127.1.0.1", (0,)),
            ("data-server", 0, "n", "127.1.0.2", ()),
            ("data-server", 1, "n", "127.1.0.3", ()),
        ),
    )
    return reduce(new_job(1, spec, 1.0), granted)


def test_the_variables_are_those_that_tasks_get() -> None:
    from dataclasses import replace

    job = replace(make_job(), launch=1)
    found = build_environment(job, NodeRunContext("trainer", 0, 0, 0, "/run/1", "local", {})).keys() - {"HOME", "PATH"}
    folded = set()
    for name in found:
        name = re.sub("^OVERSPAN_(TRAINER|DATA_SERVER)_", "OVERSPAN_<TASK>_", name)
        folded.add(re.sub(r"^SLURM_.*_HET_GROUP_\d+$", "SLURM_*_HET_GROUP_<k>", name))
    written = pages.first_words(pages.read_section(PAGE, "What a task finds"))
    assert len(written) == len(set(written))
    assert set(written) == folded
