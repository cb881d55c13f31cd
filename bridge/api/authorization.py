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
from overspan.bridge.controller.core.job_access import JobAccess
from overspan.bridge.controller.core.rights import Requester, deny

JOB_TOKEN = "job_token"
"""Where the port for jobs leaves the token of a request, be it empty."""
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


class JobAuthenticator(Authenticator):
    """Knows jobs by their tokens, and users as another authenticator does."""

    def __init__(self, users: Authenticator, access: JobAccess, controller: Controller) -> None:
        super().__init__()
        self._users = users
        self._access = access
        self._controller = controller

    async def identify(self, state: dict[str, Any]) -> Requester:
        """The requester. Raises Denied for a token that no job has, or whose job is over."""
        token = state.get(JOB_TOKEN)
        if token is None:
            return await self._users.identify(state)
        number = self._access.find_job(token)
        if number is None:
            raise deny("the daemon does not know this token: the job is of another daemon, or of a lost certificate")
        entry = self._controller.find_live(number)
        if entry is None:
            raise deny(f"job {number} is over, and its token with it")
        return Requester(entry.user, entry.job.spec.origin.uid, job=number)


def own_name() -> str:
    """The name of the user whose daemon this is."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


async def _identify(request: Request) -> Requester:
    authenticator: Authenticator = request.app.state.authenticator
    return await authenticator.identify(request.scope.get("state") or {})


async def identify(request: Request) -> Requester:
    """Who asks, for a route that is none of FastAPI's: a user, or a job by its token. Raises Denied."""
    return await _identify(request)


async def _identify_user(requester: Annotated[Requester, Depends(_identify)]) -> Requester:
    requester.check_user()
    return requester


async def _check_inside(request: Request, ref: str, requester: Requester) -> None:
    if requester.job:
        controller: Controller = request.app.state.controller
        requester.check_job(await controller.find_job(ref))


async def _find_owner(request: Request, ref: str) -> tuple[str, bool]:
    controller: Controller = request.app.state.controller
    return await controller.find_owner(ref)


async def _identify_viewer(
    request: Request, ref: _REF, requester: Annotated[Requester, Depends(_identify)]
) -> Requester:
    await _check_inside(request, ref, requester)
    if requester.within:
        owner, listed = await _find_owner(request, ref)
        if not listed:
            requester.check_order(owner)
    return requester


async def _identify_owner(
    request: Request, ref: _REF, requester: Annotated[Requester, Depends(_identify)]
) -> Requester:
    await _check_inside(request, ref, requester)
    if requester.within:
        requester.check_order((await _find_owner(request, ref))[0])
    return requester


async def _identify_reader(
    request: Request, ref: _REF, requester: Annotated[Requester, Depends(_identify)]
) -> Requester:
    await _check_inside(request, ref, requester)
    if not requester.alone:
        requester.check_files((await _find_owner(request, ref))[0])
    return requester


async def _identify_operator(requester: Annotated[Requester, Depends(_identify)]) -> Requester:
    requester.check_operator()
    return requester


Anyone = Annotated[Requester, Depends(_identify_user)]
"""Every user who has an account; no job."""
AnyoneOrJob = Annotated[Requester, Depends(_identify)]
"""Every user who has an account, and jobs by their tokens: the route itself keeps a job to what is its own."""
Viewer = Annotated[Requester, Depends(_identify_viewer)]
"""Every user while the queue has the job of the path; afterwards its owner and operators."""
Owner = Annotated[Requester, Depends(_identify_owner)]
"""The owner of the job in the path, and operators."""
Reader = Annotated[Requester, Depends(_identify_reader)]
"""The owner of the job in the path, and root."""
Operator = Annotated[Requester, Depends(_identify_operator)]
"""Operators of the daemon."""
RIGHTS = (_identify, _identify_user, _identify_viewer, _identify_owner, _identify_reader, _identify_operator)
