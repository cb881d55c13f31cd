"""Who sends a request, and whether the route is for that user: the dependencies that each route names one of.

The kernel tells who is at the other end of the socket (unix(7), SO_PEERCRED); nothing that a client says counts.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Collection
from typing import Annotated, Any

from fastapi import Depends, Path, Request

from overspan.adapters.identities import AccountDatabase
from overspan.bridge.controller.controller import Controller
from overspan.bridge.controller.orders.rights import Asker, deny

PEER = "peer_uid"
"""Where the server leaves the number of the user who connected."""
_REF = Annotated[str, Path(max_length=300)]


class Reception:
    """Knows the daemon's own user, whoever asks: the socket lets nobody else in."""

    def __init__(self) -> None:
        self._asker = Asker(own_name(), os.geteuid(), operator=True, alone=True)

    async def meet(self, state: dict[str, Any]) -> Asker:
        """Who asks."""
        return self._asker


class SharedReception(Reception):
    """Tells users apart by what the kernel says of their connections."""

    def __init__(self, operators: Collection[str], accounts: AccountDatabase | None = None) -> None:
        super().__init__()
        self._operators = frozenset(operators)
        self._accounts = accounts or AccountDatabase()

    async def meet(self, state: dict[str, Any]) -> Asker:
        """Who asks. Raises Denied for a connection that nobody vouches for, and for a user without an account."""
        uid = state.get(PEER)
        if not isinstance(uid, int):
            raise deny("connect by the daemon's own socket")
        name = await self._accounts.name(uid)
        return Asker(name, uid, operator=uid == 0 or name in self._operators)


def own_name() -> str:
    """The name of the user whose daemon this is."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


async def _meet(request: Request) -> Asker:
    reception: Reception = request.app.state.reception
    return await reception.meet(request.scope.get("state") or {})


async def _find_owner(request: Request, ref: str) -> tuple[str, bool]:
    """Whose job it is, and whether it is in memory as squeue's are. NotFound, InvalidRequest."""
    controller: Controller = request.app.state.controller
    entry = (await controller.directory.find(ref)).entry
    return entry.user, controller.recorder.book.get(entry.job.id) is not None


async def _meet_viewer(request: Request, ref: _REF, asker: Annotated[Asker, Depends(_meet)]) -> Asker:
    if asker.within:
        owner, listed = await _find_owner(request, ref)
        if not listed:
            asker.check_order(owner)
    return asker


async def _meet_owner(request: Request, ref: _REF, asker: Annotated[Asker, Depends(_meet)]) -> Asker:
    if asker.within:
        asker.check_order((await _find_owner(request, ref))[0])
    return asker


async def _meet_reader(request: Request, ref: _REF, asker: Annotated[Asker, Depends(_meet)]) -> Asker:
    if not asker.alone:
        asker.check_files((await _find_owner(request, ref))[0])
    return asker


async def _meet_operator(asker: Annotated[Asker, Depends(_meet)]) -> Asker:
    asker.check_operator()
    return asker


Anyone = Annotated[Asker, Depends(_meet)]
"""Everybody who has an account."""
Viewer = Annotated[Asker, Depends(_meet_viewer)]
"""Everybody while the queue has the job of the path, its owner and operators afterwards."""
Owner = Annotated[Asker, Depends(_meet_owner)]
"""The owner of the job in the path, and operators."""
Reader = Annotated[Asker, Depends(_meet_reader)]
"""The owner of the job in the path, and root."""
Operator = Annotated[Asker, Depends(_meet_operator)]
"""Whoever looks after the daemon."""
RIGHTS = (_meet, _meet_viewer, _meet_owner, _meet_reader, _meet_operator)
