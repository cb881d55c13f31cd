"""Unix accounts that a shared daemon acts for, looked up by uid and by name."""

from __future__ import annotations

import asyncio
import os
import pwd
import time
from collections.abc import Callable
from dataclasses import dataclass

from overspan.bridge.model.errors import Denied

KEPT_SECONDS = 60.0
"""How long an answer of the account database counts: groups change, accounts go."""
_REMEDY = "ask who looks after this machine for an account"


@dataclass(frozen=True)
class Identity:
    """An account: what a process needs to be that user. `groups` are all of the user's, the primary one among them."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    shell: str


def find_identity(name: str) -> Identity:
    """The account of that name. Denied where there is none."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise Denied(f"there is no account {name!r} on this machine", remedy=_REMEDY) from None
    return _make_identity(entry)


def name_owner(uid: int) -> str:
    """The name of the account with that number. Denied where there is none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        raise Denied(f"the user {uid} has no account on this machine", remedy=_REMEDY) from None


def _make_identity(entry: pwd.struct_passwd) -> Identity:
    groups = tuple(sorted({entry.pw_gid, *os.getgrouplist(entry.pw_name, entry.pw_gid)}))
    home, shell = entry.pw_dir or "/", entry.pw_shell or "/bin/sh"
    return Identity(entry.pw_name, entry.pw_uid, entry.pw_gid, groups, home, shell)


class AccountDatabase:
    """Asks the account database, which may be far away: in a thread, and not for each call."""

    def __init__(
        self,
        find: Callable[[str], Identity] = find_identity,
        name: Callable[[int], str] = name_owner,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._find = find
        self._name = name
        self._clock = clock
        self._found: dict[str, tuple[float, Identity]] = {}
        self._names: dict[int, tuple[float, str]] = {}

    async def find(self, name: str) -> Identity:
        """The account of that name, at most a minute old. Raises Denied."""
        known = self._found.get(name)
        if known is None or self._clock() - known[0] > KEPT_SECONDS:
            self._found.pop(name, None)
            known = self._found[name] = self._clock(), await asyncio.to_thread(self._find, name)
        return known[1]

    async def name(self, uid: int) -> str:
        """The name of the account with that number, at most a minute old. Raises Denied."""
        known = self._names.get(uid)
        if known is None or self._clock() - known[0] > KEPT_SECONDS:
            self._names.pop(uid, None)
            known = self._names[uid] = self._clock(), await asyncio.to_thread(self._name, uid)
        return known[1]
