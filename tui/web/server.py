"""The web server: a page, a session for an invitation, and a websocket with a viewer behind it.

Each request is checked before anything else: its Host against DNS rebinding, its Origin where it changes something or
opens the websocket (any web page may open one to any address, with the cookies of that address's site), its cookie.
"""

from __future__ import annotations

import asyncio
import json
import math
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from aiohttp import WSMsgType, web

from overspan.tui.web.address import WebAddress, is_same_origin
from overspan.tui.web.viewer import Viewer, fit_size
from overspan.tui.web.web_access import WebAccess

VIEWERS = 8
"""Browsers that may look at once: each has a process of some 50 MB."""
HEARTBEAT_SECONDS = 15.0
"""Between two looks whether a browser is still there."""
MESSAGE_BYTES = 256 << 10
"""The longest message of a browser: what is pasted at once."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "font-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""On every answer. xterm.js writes styles into its elements, which is what 'unsafe-inline' is for."""
OWN = ("enter.js", "top.js", "top.css")
FOREIGN = {
    "textual.js": ("js", "textual.js"),
    "xterm.css": ("css", "xterm.css"),
    "mono.ttf": ("fonts", "RobotoMono-VariableFont_wght.ttf"),
}
"""What of textual-serve is served: xterm.js with the browser's half of the protocol, and its font."""
TYPES = {"js": "text/javascript", "css": "text/css", "ttf": "font/ttf", "html": "text/html"}
_WRONG_NAME = "this server does not answer to that name; use its address, or start it with --web NAME:PORT\n"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class TopServer:
    """Serves `span top` at an address; `words` are those of a viewer's process. `announce` is told each new link."""

    def __init__(
        self,
        address: WebAddress,
        words: Sequence[str],
        environment: Mapping[str, str],
        announce: Callable[[str], None],
        access: WebAccess | None = None,
    ) -> None:
        self._address = address
        self._words = words
        self._environment = environment
        self._announce = announce
        self._access = access or WebAccess()
        self._sockets: set[web.WebSocketResponse] = set()
        self._ending = asyncio.Event()

    def build(self) -> web.Application:
        """The application, with its checks."""
        app = web.Application(middlewares=[self._guard], client_max_size=4096)
        app.router.add_get("/", self._show_page)
        app.router.add_post("/session", self._enter)
        app.router.add_get("/static/{name}", self._send_file)
        app.router.add_get("/ws", self._connect)
        app.on_shutdown.append(self._end_viewers)
        return app

    async def serve(self) -> None:
        """Serve until SIGINT, SIGTERM or SIGHUP. Raises OSError where the address cannot be bound."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._ending.set)
        runner = web.AppRunner(self.build(), access_log=None, handle_signals=False)
        await runner.setup()
        try:
            site = web.TCPSite(runner, self._address.host, self._address.port)
            await site.start()
            self._address = self._address.with_port(runner.addresses[0][1])
            self._show_link()
            await self._ending.wait()
        finally:
            await runner.cleanup()

    @property
    def _cookie(self) -> str:
        # Cookies are one for all ports of a host: two servers must not take each other's.
        return f"span-top-{self._address.port}"

    def _show_link(self) -> None:
        self._announce(f"{self._address.url}#{self._access.invitation}")

    # --- checks -------------------------------------------------------------------------------------------------------

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            self._check(request)
            response = await handler(request)
        except web.HTTPException as error:
            error.headers.update(HEADERS)
            raise
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    def _check(self, request: web.Request) -> None:
        host = request.headers.get("Host", "")
        if len(request.headers.getall("Host", [])) != 1 or not self._address.answers_to(host):
            raise web.HTTPMisdirectedRequest(text=_WRONG_NAME)
        if request.method != "GET" or request.path == "/ws":
            origins = request.headers.getall("Origin", [])
            if len(origins) != 1 or not is_same_origin(origins[0], host):
                raise web.HTTPForbidden(text="this request does not come from a page of this server\n")

    def _is_known(self, request: web.Request) -> bool:
        return self._access.knows(request.cookies.get(self._cookie, ""))

    # --- pages --------------------------------------------------------------------------------------------------------

    async def _show_page(self, request: web.Request) -> web.Response:
        return _answer_file(_own("top.html" if self._is_known(request) else "enter.html"))

    async def _send_file(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name in OWN:
            return _answer_file(_own(name))
        if name in FOREIGN:
            return _answer_file(files("textual_serve").joinpath("static", *FOREIGN[name]))
        raise web.HTTPNotFound(text="there is no such file\n")

    async def _enter(self, request: web.Request) -> web.Response:
        form = await request.post()
        invitation = form.get("invitation")
        entry = self._access.enter(request.remote or "", invitation if isinstance(invitation, str) else "")
        if entry.wait:
            seconds = math.ceil(entry.wait)
            text = f"Too many wrong links came from here; try again in {seconds} s\n"
            raise web.HTTPTooManyRequests(text=text, headers={"Retry-After": str(seconds)})
        if not entry.session:
            raise web.HTTPForbidden(
                text="This link was used before, or is another server's; the terminal has a new one\n"
            )
        response = web.Response(status=204)
        response.set_cookie(self._cookie, entry.session, httponly=True, samesite="Strict", path="/")
        self._show_link()
        return response

    # --- the websocket ------------------------------------------------------------------------------------------------

    async def _connect(self, request: web.Request) -> web.StreamResponse:
        if not self._is_known(request):
            raise web.HTTPForbidden(text="open the link that the terminal shows\n")
        if len(self._sockets) >= VIEWERS:
            raise web.HTTPServiceUnavailable(text=f"{VIEWERS} browsers look already\n")
        socket = web.WebSocketResponse(heartbeat=HEARTBEAT_SECONDS, max_msg_size=MESSAGE_BYTES)
        # From here on it counts: several may come at the same moment.
        self._sockets.add(socket)
        try:
            await socket.prepare(request)
            size = fit_size(request.query.get("width"), request.query.get("height"))
            await self._view(socket, *size)
        finally:
            self._sockets.discard(socket)
        return socket

    async def _view(self, socket: web.WebSocketResponse, width: int, height: int) -> None:
        """Join a browser and a viewer until one of them ends."""
        viewer = Viewer(self._words, self._environment, socket.send_bytes)
        running = asyncio.ensure_future(viewer.run(width, height))
        reading = asyncio.ensure_future(_read_messages(socket, viewer))
        try:
            await asyncio.wait((running, reading), return_when=asyncio.FIRST_COMPLETED)
        finally:
            await asyncio.shield(_end(viewer, running, reading))
            await socket.close()

    async def _end_viewers(self, app: web.Application) -> None:
        await asyncio.gather(*(socket.close(code=1001, message=b"the server ends") for socket in list(self._sockets)))


async def _end(viewer: Viewer, *tasks: asyncio.Future[None]) -> None:
    await viewer.stop()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _read_messages(socket: web.WebSocketResponse, viewer: Viewer) -> None:
    async for message in socket:
        if message.type is WSMsgType.TEXT:
            await take_message(message.data, viewer, socket.send_str)


async def take_message(text: str, viewer: Viewer, reply: Callable[[str], Awaitable[None]]) -> None:
    """Carry out a message of a browser, a JSON list of its kind and a value; what is none is left out."""
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        return
    if not isinstance(message, list) or not message:
        return
    kind, value = message[0], message[1] if len(message) > 1 else None
    if kind == "stdin" and isinstance(value, str):
        await viewer.type(value)
    elif kind == "resize" and isinstance(value, dict):
        width, height = fit_size(value.get("width"), value.get("height"))
        await viewer.tell(type="resize", width=width, height=height)
    elif kind == "ping" and isinstance(value, str):
        await reply(json.dumps(["pong", value[:64]]))
    elif kind in ("focus", "blur"):
        await viewer.focus(kind == "focus")


def _own(name: str) -> Traversable:
    return files("overspan.tui.web").joinpath("static", name)


def _answer_file(file: Traversable) -> web.Response:
    kind = TYPES[file.name.rpartition(".")[2]]
    charset: dict[str, Any] = {} if kind.startswith("font") else {"charset": "utf-8"}
    return web.Response(body=file.read_bytes(), content_type=kind, **charset)
