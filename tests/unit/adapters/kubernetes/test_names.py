"""Names: DNS labels all of them, and never the same for two things."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.adapters.kubernetes.samples import NOW, TOKEN, read_file

from overspan.adapters.kubernetes.manifests.names import (
    check_names,
    has_names,
    label_launch,
    name_anchor,
    name_archive,
    name_domain,
    name_host,
    name_pod,
    parse_token,
)
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.job import Job, Placement, new_job
from overspan.bridge.model.spec import JobSpec, TaskSpec
from overspan.bridge.runtime.core import environment

LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
SERVICE = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
WORDS = st.from_regex(r"[A-Za-z0-9_-]{1,70}", fullmatch=True)


def make_job(name: str, tasks: dict[str, int], *, group: bool, number: int = 7) -> Job:
    specs = tuple(TaskSpec(task, run="true", num_nodes=count) for task, count in tasks.items())
    return new_job(number, JobSpec(name, specs, group=group), NOW)


def token_of(job: Job, installation: str = "4f2c9d0a1b3e") -> str:
    return f"{installation}-{job.id}-{job.launch}"


@given(WORDS, st.lists(WORDS, min_size=1, max_size=3, unique=True), st.booleans(), st.integers(1, 10**10))
def test_every_name_is_one_for_dns_or_the_job_is_refused(name: str, tasks: list[str], group: bool, number: int) -> None:
    job = make_job(name, dict.fromkeys(tasks, 3), group=group, number=number)
    try:
        check_names(job)
    except InvalidRequest as error:
        assert error.remedy
        return
    assert SERVICE.fullmatch(name_domain(job))
    for task in tasks:
        for index in range(3):
            assert LABEL.fullmatch(name_host(job, task, index))
            assert SUBDOMAIN.fullmatch(name_pod(token_of(job), job, (task, index), 12345, 9))


@given(st.lists(WORDS, min_size=1, max_size=4, unique=True), st.booleans())
def test_no_two_pods_of_a_job_have_one_name(tasks: list[str], group: bool) -> None:
    job = make_job("g", dict.fromkeys(tasks, 2), group=group)
    try:
        check_names(job)
    except InvalidRequest:
        return
    keys = [(task, index, attempt, run) for task in tasks for index in (0, 1) for attempt in (0, 1) for run in (0, 1)]
    found = {name_pod(token_of(job), job, (task, index), attempt, run) for task, index, attempt, run in keys}
    assert len(found) == len(keys)


@given(WORDS, WORDS, st.integers(1, 99), st.integers(1, 99), st.sampled_from([1, 2]))
def test_pods_of_different_jobs_outside_groups_have_different_names(
    first: str, second: str, one: int, two: int, nodes: int
) -> None:
    jobs = [make_job(first, {"t": nodes}, group=False, number=one), make_job(second, {"t": 1}, group=False, number=two)]
    names = {name_pod(token_of(job), job, ("t", 0), 0) for job in jobs}
    assert len(names) == (1 if one == two and nodes == 1 and name_domain(jobs[0]) == name_domain(jobs[1]) else 2)


def test_two_installations_in_one_namespace_do_not_meet() -> None:
    job = make_job("wrap", {"batch": 1}, group=False)
    assert name_pod(token_of(job, "aaaa"), job, ("batch", 0), 0) != name_pod(
        token_of(job, "bbbb"), job, ("batch", 0), 0
    )


def test_the_pods_of_a_group_say_who_they_are() -> None:
    job = make_job("RL_hf", {"ppo_trainer": 2, "buffer": 1}, group=True)
    token = TOKEN.format(job=7, launch=0)
    assert name_domain(job) == "rl-hf"
    assert name_host(job, "ppo_trainer", 1) == "ppo-trainer-1"
    assert name_pod(token, job, ("ppo_trainer", 1), 3) == "rl-hf-ppo-trainer-1-a3"
    assert name_pod(token, job, ("buffer", 0), 0, 2) == "rl-hf-buffer-0-a0-r2"
    assert name_anchor(token) == "overspan-4f2c9d0a1b3e-7-0"
    assert name_archive(token, 2) == "overspan-4f2c9d0a1b3e-7-0-files-2"
    assert label_launch(token) == {
        "app.kubernetes.io/managed-by": "overspan",
        "overspan.io/installation": "4f2c9d0a1b3e",
        "overspan.io/launch": token,
        "overspan.io/job": "7",
    }


def test_jobs_outside_groups_have_their_id_in_their_domain() -> None:
    assert name_domain(make_job("train.sh", {"batch": 2}, group=False)) == "train-sh-7"
    assert name_domain(make_job("7-up", {"batch": 2}, group=False)) == "job-7-up-7"
    assert name_domain(make_job("_", {"batch": 2}, group=False)) == "job-7"
    assert name_domain(make_job("x" * 200, {"batch": 2}, group=False, number=12)) == "x" * 60 + "-12"
    assert name_host(make_job("train", {"batch": 1}, group=False), "batch", 0) == "train-7"


@pytest.mark.parametrize(
    ("name", "tasks", "words"),
    [
        ("g" * 64, {"a": 1}, "64 letters"),
        ("7b", {"a": 1}, "begins with a digit"),
        ("g", {"t" * 61: 11}, "64 letters"),
        ("g", {"Data_server": 1, "data-server": 1}, "same host name"),
    ],
)
def test_names_that_dns_cannot_have_are_refused(name: str, tasks: dict[str, int], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words) as caught:
        check_names(make_job(name, tasks, group=True))
    assert caught.value.remedy


def test_the_highest_index_counts() -> None:
    check_names(make_job("g", {"t" * 61: 10}, group=True))


@pytest.mark.parametrize("text", ["", "a", "a-b-0", "a-1", "a-1-x", "a b-1-0", "x" * 60 + "-1-0"])
def test_what_is_no_token(text: str) -> None:
    with pytest.raises(ValueError, match="token"):
        parse_token(text)


@pytest.mark.parametrize("group", [True, False])
@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("connected", [True, False])
def test_who_has_names_is_as_everywhere(group: bool, nodes: int, connected: bool) -> None:
    job = make_job("g", {"t": nodes}, group=group)
    job = replace(job, spec=replace(job.spec, inter_connection=connected))
    placed = replace(job, placements=tuple(Placement("t", index) for index in range(nodes)))
    assert has_names(job) is environment.has_names(placed)


def test_a_job_file_of_one_task_is_no_group() -> None:
    assert not has_names(read_file("name: one\nrun: echo\n"))
