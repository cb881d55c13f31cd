"""Authentication and authorization: FastAPI dependencies that identify the requester and check a right.

Each route names one of them.

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
from overspan.bridge.controller.orders.rights import Requester, deny

PEER = "peer_uid"
"""Where the server leaves the number of the user who connected."""
_REF = Annotated[str, Path(max_length=300)]


class Authenticator:
    """For a daemon of one user: every requester is that user, since the socket admits no other."""

    def __init__(self) -> None:
        self._requester = Requester(own_name(), os.geteuid(), operator=True, alone=True)

    async def identify(self, state: dict[str, Any]) -> Requester:
        """Who asks."""
        return self._requester


class PeerAuthenticator(Authenticator):
    """Tells users apart by what the kernel says of their connections."""

    def __init__(self, operators: Collection[str], accounts: AccountDatabase | None = None) -> None:
        super().__init__()
        self._operators = frozenset(operators)
        self._accounts = accounts or AccountDatabase()

    async def identify(self, state: dict[str, Any]) -> Requester:
        """The requester. Raises Denied for a connection without a peer uid, and for a user without an account."""
        uid = state.get(PEER)
        if not isinstance(uid, int):
            raise deny("connect by the daemon's own socket")
        name = await self._accounts.name(uid)
        return Requester(name, uid, operator=uid == 0 or name in self._operators)


def own_name() -> str:
    """The name of the user whose daemon this is."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


async def _identify(request: Request) -> Requester:
    authenticator: Authenticator = request.app.state.authenticator
    return await authenticator.identify(request.scope.get("state") or {})


async def _find_owner(request: Request, ref: str) -> tuple[str, bool]:
    controller: Controller = request.app.state.controller
    return await controller.find_owner(ref)


async def _identify_viewer(
    request: Request, ref: _REF, requester: Annotated[Requester, Depends(_identify)]
) -> Requester:
    if requester.within:
        owner, listed = await _find_owner(request, ref)
        if not listed:
            requester.check_order(owner)
    return requester


async def _identify_owner(
    request: Request, ref: _REF, requester: Annotated[Requester, Depends(_identify)]
) -> Requester:
    if requester.within:
        requester.check_order((await _find_owner(request, ref))[0])
    return requester


async def _identify_reader(
    request: Request, ref: _REF, requester: Annotated[Requester, Depends(_identify)]
) -> Requester:
    if not requester.alone:
        requester.check_files((await _find_owner(request, ref))[0])
    return requester


async def _identify_operator(requester: Annotated[Requester, Depends(_identify)]) -> Requester:
    requester.check_operator()
    return requester


Anyone = Annotated[Requester, Depends(_identify)]
"""Everybody who has an account."""
Viewer = Annotated[Requester, Depends(_identify_viewer)]
"""Everybody while the queue has the job of the path, its owner and operators afterwards."""
Owner = Annotated[Requester, Depends(_identify_owner)]
"""The owner of the job in the path, and operators."""
Reader = Annotated[Requester, Depends(_identify_reader)]
"""The owner of the job in the path, and root."""
Operator = Annotated[Requester, Depends(_identify_operator)]
"""Operators of the daemon."""
RIGHTS = (_identify, _identify_viewer, _identify_owner, _identify_reader, _identify_operator)
