"""Whose jobs are shown; pure."""

from __future__ import annotations

import grp
import os
import pwd
from types import SimpleNamespace
from typing import Any

import pytest

from overspan.bridge.client.records import JobFilter
from overspan.tui.queue.scope import Owners, Scope, find_colleagues, find_me, next_owners


def test_a_key_goes_round_the_owners() -> None:
    assert [next_owners(owners, named=False) for owners in Owners] == [
        Owners.MINE,
        Owners.GROUP,
        Owners.ALL,
        Owners.MINE,
    ]
    assert next_owners(Owners.ALL, named=True) is Owners.ASKED
    assert next_owners(Owners.ASKED, named=True) is Owners.MINE


def test_the_daemon_is_asked_for_all_users_that_are_shown() -> None:
    scope = Scope(JobFilter(users=("bob",), partitions=("gpu",)))
    assert scope.asked.users == ("bob",)
    for owners in (Owners.MINE, Owners.GROUP, Owners.ALL):
        assert scope._replace(owners=owners).asked == JobFilter(partitions=("gpu",))


@pytest.mark.parametrize(
    ("scope", "text"),
    [
        (Scope(JobFilter()), ""),
        (Scope(JobFilter(users=("ana", "bob"), states=("PENDING",), clusters=("leo",))), "-u ana,bob, -t PD, -M leo"),
        (Scope(JobFilter(users=("ana",)), Owners.MINE, ("me",)), "my jobs"),
        (Scope(JobFilter(), Owners.GROUP), "my groups' jobs"),
        (Scope(JobFilter(), ended=True), "ended too"),
        (Scope(JobFilter(states=("all",)), ended=True), "-t all"),
        (Scope(JobFilter(names=("x\x1b[2J",))), "-n x?[2J"),
    ],
)
def test_a_scope_is_told_in_words(scope: Scope, text: str) -> None:
    assert scope.describe() == text


def test_colleagues_are_in_one_of_my_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = {7: ["me", "ana"], 8: ["bob"]}
    users = {"me": 7, "ana": 100, "bob": 101, "eve": 9, "kim": 8}

    def find_group(number: int) -> Any:
        if number == 9:
            raise KeyError
        return SimpleNamespace(gr_mem=groups[number])

    monkeypatch.setattr(os, "getgroups", lambda: [8, 9])
    monkeypatch.setattr(os, "getgid", lambda: 7)
    monkeypatch.setattr(grp, "getgrgid", find_group)
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: SimpleNamespace(pw_name="me"))
    monkeypatch.setattr(pwd, "getpwnam", lambda name: SimpleNamespace(pw_gid={**users, "eve": 55}[name]))
    assert find_me() == "me"
    # ana and bob are listed in a group of mine, kim has one of mine; nobody knows zoe.
    assert find_colleagues(["ana", "bob", "kim", "eve", "zoe"]) == {"me", "ana", "bob", "kim"}
