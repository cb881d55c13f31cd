"""Whose jobs the queue shows, and what the command line has chosen of them."""

from __future__ import annotations

import enum
import grp
import os
import pwd
from collections.abc import Collection, Iterable
from typing import NamedTuple

from overspan.bridge.client.records import JobFilter
from overspan.bridge.client.terminal_texts import clean_text
from overspan.bridge.model.state_words import CODES


class Owners(enum.Enum):
    """Whose jobs are shown; one key goes round."""

    ASKED = "asked"
    """Those of the users that the command line names, else of all."""
    MINE = "mine"
    GROUP = "group"
    """Of all who are in one of my Unix groups."""
    ALL = "all"


def next_owners(owners: Owners, named: bool) -> Owners:
    """Whose jobs come next; `named`: the command line names users, whose jobs are not those of all."""
    round_ = [Owners.MINE, Owners.GROUP, Owners.ALL, *([Owners.ASKED] if named else [])]
    return round_[(round_.index(owners) + 1) % len(round_)] if owners in round_ else Owners.MINE


def find_me() -> str:
    """The user's own name; the number where there is no name for it."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def find_colleagues(users: Iterable[str]) -> frozenset[str]:
    """Those of the users who are in one of my groups; it may take as long as the directory service does."""
    mine = {os.getgid(), *os.getgroups()}
    members: set[str] = {find_me()}
    for number in mine:
        try:
            members.update(grp.getgrgid(number).gr_mem)
        except KeyError:
            continue
    return frozenset(user for user in {*users, find_me()} if user in members or _find_group(user) in mine)


def _find_group(user: str) -> int | None:
    try:
        return pwd.getpwnam(user).pw_gid
    except KeyError:
        return None


class Scope(NamedTuple):
    """What of the queue is asked for and shown, before any filter."""

    wanted: JobFilter
    """As the command line has it."""
    owners: Owners = Owners.ASKED
    users: Collection[str] = ()
    """Of MINE and GROUP."""
    ended: bool = False

    @property
    def asked(self) -> JobFilter:
        """What the daemon is asked for: users that are not shown are not left out."""
        return self.wanted if self.owners is Owners.ASKED else self.wanted._replace(users=())

    def describe(self) -> str:
        """What is shown, as options of the command line and words; empty for everything."""
        words = [f"{letter} {','.join(values)}" for letter, values in _list_options(self.asked)]
        if self.owners in (Owners.MINE, Owners.GROUP):
            words.append("my jobs" if self.owners is Owners.MINE else "my groups' jobs")
        if self.ended and self.asked.states != ("all",):
            words.append("ended too")
        return clean_text(", ".join(words))


def _list_options(wanted: JobFilter) -> list[tuple[str, tuple[str, ...]]]:
    states = tuple(CODES.get(state, state) for state in wanted.states)
    found = (
        ("-u", wanted.users),
        ("-t", states),
        ("-M", wanted.clusters),
        ("-p", wanted.partitions),
        ("-n", wanted.names),
        ("-j", wanted.ids),
        ("-A", wanted.accounts),
        ("-q", wanted.qos),
    )
    return [(letter, values) for letter, values in found if values]
