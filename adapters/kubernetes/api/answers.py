"""Answers of the Kubernetes API, and what a refusal means to Overspan. Pure.

Facts from the API conventions (Status objects, HTTP codes) and apiserver's admission messages.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from overspan.bridge.model.errors import (
    Conflict,
    Denied,
    NotFound,
    OverspanError,
    Rejected,
    Unreachable,
)

EXPIRED = 410
_QUOTA = "exceeded quota"
"""How ResourceQuota's admission begins its message; the code is 403, as of a missing right."""


class ApiAnswer(NamedTuple):
    """One HTTP answer: its status, and the JSON object of its body (`{}` where there was none)."""

    status: int
    document: dict[str, Any]

    @property
    def works(self) -> bool:
        """Whether the request was carried out."""
        return 200 <= self.status < 300

    @property
    def message(self) -> str:
        """The API's own words for a refusal."""
        return str(self.document.get("message") or f"HTTP status {self.status}")

    @property
    def reason(self) -> str:
        """The API's one word for a refusal (AlreadyExists, Forbidden, Expired...)."""
        return str(self.document.get("reason") or "")


def read_answer(status: int, body: bytes) -> ApiAnswer:
    """An answer from its body; what is no JSON object becomes the message."""
    try:
        document = json.loads(body) if body.strip() else {}
    except ValueError:
        document = None
    if not isinstance(document, dict):
        document = {"message": body[:1000].decode("utf-8", "replace").strip()}
    return ApiAnswer(status, document)


def is_there(answer: ApiAnswer) -> bool:
    """Whether an object that was to be made is there: by this request, or another of its name already was."""
    return answer.works or (answer.status == 409 and answer.reason == "AlreadyExists")


def is_quota(answer: ApiAnswer) -> bool:
    """Whether a quota of the namespace refused: it passes when something ends."""
    return answer.status == 403 and _QUOTA in answer.message


def is_transient(answer: ApiAnswer) -> bool:
    """Whether the same request may be taken later: a quota, an overload, a fault of the server or a login."""
    return is_quota(answer) or answer.status in (401, 408, 429) or answer.status >= 500


def to_error(answer: ApiAnswer, doing: str) -> OverspanError:
    """The error of a refused request; `doing` says what was tried (`list pods in training`)."""
    text = f"the cluster refused to {doing}: {answer.message}"
    if answer.status == 401:
        return Unreachable(
            f"the cluster does not accept the login (to {doing}): {answer.message}",
            remedy="log in again as for kubectl; `span check` shows the context that is used",
        )
    if is_quota(answer):
        return Rejected(text, remedy="it is tried again when the quota has room: `kubectl describe quota`")
    if answer.status == 403:
        return Denied(text, remedy="ask for the right; `span check` lists those that are missing")
    if is_transient(answer):
        return Unreachable(f"the cluster could not {doing}: {answer.message}")
    kinds: dict[int, type[OverspanError]] = {404: NotFound, 409: Conflict, EXPIRED: Conflict}
    return kinds.get(answer.status, Rejected)(text)
