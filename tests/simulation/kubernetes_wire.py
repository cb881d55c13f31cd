"""The way to the fake API server as a seed has it: a request may be lost before or behind its effect, hang, be refused,
or have its effect after its daemon's end."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import urllib3
from tests.fakes.kubernetes_api import KubernetesApi
from tests.fakes.kubernetes_exec import Run
from tests.fakes.kubernetes_http import Reply, Request
from tests.fakes.kubernetes_objects import Key, Refused
from tests.simulation.clockwork import LIFE, Chaos
from tests.simulation.fibers import Fiber, Fibers, Killed, Silent

from overspan.adapters.kubernetes.api.answers import ApiAnswer, to_error
from overspan.adapters.kubernetes.api.connection import Connection
from overspan.adapters.kubernetes.api.logins import ApiLogin
from overspan.adapters.kubernetes.settings import Settings
from overspan.bridge.model.errors import TimedOut, Unreachable

LATE = 3.0
"""By how many seconds at most a request may have its effect after its daemon has died."""
_POOL: Any = None
_REFUSALS = ((500, "InternalError"), (429, "TooManyRequests"), (504, "Timeout"))


class Response:
    """What urllib3 gives for one request."""

    def __init__(self, wire: Wire, reply: Reply, patience: float) -> None:
        self.status = reply.status
        self.data = reply.text if reply.text is not None else json.dumps(reply.document or {}).encode()
        self._wire, self._patience = wire, patience
        self._lines = reply.lines
        self._reader: Fiber | None = None
        self._shut = False

    def read(self, cache_content: bool = False) -> bytes:
        """The whole of it."""
        return self.data

    def release_conn(self) -> None:
        """Nothing is kept."""

    def stream(self, amount: int) -> Generator[bytes]:
        """The parts as they come, each some time after it was sent."""
        assert self._lines is not None
        fibers = self._wire.fibers
        self._reader = fiber = fibers.current
        try:
            while not self._shut:
                fiber.deadline = fibers.time() + self._patience
                part = next(self._lines, None)
                fiber.deadline = None
                if part is None:
                    return
                if part:
                    self._wire.travel()
                    yield part
        except Silent as error:
            raise urllib3.exceptions.ReadTimeoutError(_POOL, "", "silent") from error
        except ConnectionError as error:
            raise urllib3.exceptions.ProtocolError("the connection was cut") from error
        finally:
            fiber.deadline = self._reader = None

    def shutdown(self) -> None:
        """Wake who reads it."""
        self._shut = True
        if self._reader is not None:
            self._wire.fibers.wake(self._reader, ConnectionError("shut down"))

    def close(self) -> None:
        """Read no more of it."""
        if self._lines is not None and self._reader is None:
            self._lines.close()


class Wire:
    """In the place of urllib3's pool; it belongs to the cluster and outlives daemons."""

    def __init__(self, api: KubernetesApi, fibers: Fibers, chaos: Chaos) -> None:
        self.api, self.fibers, self.chaos = api, fibers, chaos
        self.down_until = 0.0

    @property
    def is_down(self) -> bool:
        """Whether there is no way to the cluster just now; outages come by themselves."""
        if self.chaos.calm:
            return False
        if self.chaos.happens(self.chaos.trouble_rate / 100):
            self.down_until = self.fibers.time() + self.chaos.random.uniform(1, 60)
            self.api.streams.cut()
        return self.fibers.time() < self.down_until

    def travel(self) -> None:
        """Some time passes, and the daemon may die."""
        life, chance = LIFE.get(), self.chaos.random
        if not life.dead and self.chaos.crashes_left and self.chaos.happens(self.chaos.crash_rate):
            self.chaos.crashes_left -= 1
            life.end()
        self.fibers.park(chance.uniform(0.001, 0.02) if chance.random() < 0.9 else chance.uniform(0.0, 1.0))

    def urlopen(self, method: str, url: str, body: bytes | None, headers: Mapping[str, str], **options: Any) -> Any:
        """One request. Raises as urllib3 does."""
        patience = options["timeout"].read_timeout
        parts = urlsplit(url)
        query = parse_qsl(parts.query, keep_blank_values=True)
        named = {name.lower(): value for name, value in headers.items()}
        reply = self._carry(Request(method, parts.path, dict(query), named, body or b"", []), patience)
        return Response(self, reply, patience)

    def _carry(self, request: Request, patience: float) -> Reply:
        if self.is_down:
            self.fibers.park(self.chaos.random.choice((0.01, 10.0)))
            raise urllib3.exceptions.HTTPError("no route to the API server")
        try:
            self.travel()
        except Killed:
            self._leave(request)
            raise
        trouble = self.chaos.random.choice(("drop", "lose", "hang", "late", "refuse")) if self.chaos.trouble else ""
        if trouble == "refuse":
            return Reply(*self._refuse())
        if trouble in ("drop", "hang"):
            self._fail(trouble == "hang", patience)
        reply = self.api.answer(request)
        assert reply is not None
        if trouble and reply.lines is None:
            self._fail(trouble == "late", patience)
        self.travel()
        return reply

    def _fail(self, hangs: bool, patience: float) -> None:
        if hangs:
            self.fibers.park(patience)
            raise urllib3.exceptions.ReadTimeoutError(_POOL, "", "no answer")
        raise urllib3.exceptions.ProtocolError("the connection broke")

    def _refuse(self) -> tuple[int, dict[str, Any]]:
        status, reason = self.chaos.random.choice(_REFUSALS)
        return status, Refused(status, reason, f"the API server is in trouble: {reason}").document

    def _leave(self, request: Request) -> None:
        """A request that was sent may be carried out although nobody waits for it any more."""
        if request.method != "GET" and self.chaos.happens(0.3):
            self.fibers.later(self.chaos.random.uniform(0, LATE), lambda: self.api.answer(request))

    def run(self, run: Run, timeout: float) -> tuple[int, str]:
        """Words in a container. Raises Refused, Unreachable and TimedOut."""
        if self.is_down:
            raise Unreachable("no route to the API server")
        self.travel()
        trouble = self.chaos.random.choice(("drop", "lose", "hang")) if self.chaos.trouble else ""
        if trouble == "hang":
            self.fibers.park(timeout)
            raise TimedOut("the node does not answer")
        if trouble == "drop":
            raise Unreachable("the connection broke")
        # The fake's own words for what cannot be run anywhere.
        self.api.exec.open(Key("", "pods", run.namespace, run.pod), {}, list(run.words), self.api.objects)
        code = self.api.exec.reply(run)
        self.travel()
        if trouble == "lose" or code is None:
            raise Unreachable("the end was not told")
        return code


class SimulatedConnection(Connection):
    """The real connection over a wire of the world's."""

    def __init__(self, settings: Settings, wire: Wire) -> None:
        super().__init__(settings)
        self._wire = wire
        # A program that logs in is no part of this world.
        self._login_thread = SimpleNamespace(run=lambda function: function())  # type: ignore[assignment]

    @property
    def address(self) -> str:
        """Where the cluster is."""
        return "https://fake, namespace default"

    def exec(
        self, namespace: str, pod: str, container: str, words: Sequence[str], timeout: float = 30.0
    ) -> tuple[int, str]:
        """Run words in a container."""
        try:
            return self._wire.run(Run(namespace, pod, container, tuple(words)), timeout)
        except Refused as refused:
            raise to_error(ApiAnswer(refused.status, refused.document), f"run {words[0]} in pod {pod}") from refused

    def _log_in(self) -> ApiLogin:
        # A proxy has all requests go by the pool, which the wire stands for.
        given = SimpleNamespace(auth_settings=dict, host="https://fake", proxy="https://proxy")
        return ApiLogin(given, SimpleNamespace(clear=lambda: None), "fake", "default", self._wire, "")
