"""Addresses: where the web server listens, and by which names a browser may ask for it."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple
from urllib.parse import urlsplit

from overspan.bridge.model.errors import InvalidRequest

LOOPBACK = "127.0.0.1"
_LOCAL_NAMES = frozenset({"localhost", LOOPBACK, "::1"})
_EVERYWHERE = frozenset({"0.0.0.0", "::"})


class WebAddress(NamedTuple):
    """Where to listen; port 0 takes a free one."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        if self.host == "localhost":
            return True
        address = _read_ip(self.host)
        return address is not None and address.is_loopback

    def with_port(self, port: int) -> WebAddress:
        """The same host at another port."""
        return self._replace(port=port)

    @property
    def url(self) -> str:
        """What to open in a browser on this machine."""
        host = LOOPBACK if self.host in _EVERYWHERE else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"

    def answers_to(self, host_header: str) -> bool:
        """Whether a request that names this host is meant for us.

        A name that is not ours may be one whose owner has pointed it here, so that their page is of our origin (DNS
        rebinding); addresses cannot be pointed anywhere, so that any is right where others' machines may ask.
        """
        name = _read_name(host_header)
        if name in _LOCAL_NAMES or (name and name == self.host.lower()):
            return True
        return not self.is_loopback and _read_ip(name) is not None


def parse_address(text: str) -> WebAddress:
    """Read `[HOST:]PORT`. Raises InvalidRequest."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or LOOPBACK
    if not port.isascii() or not port.isdecimal() or int(port) > 65535 or any(sign in host for sign in "/@ []"):
        raise InvalidRequest(f"--web {text!r} is no [HOST:]PORT", remedy="as in `--web 8080` or `--web 0.0.0.0:8080`")
    return WebAddress(host, int(port))


def is_same_origin(origin: str | None, host_header: str) -> bool:
    """Whether a request comes from a page of this server: every browser says so for websockets and for forms."""
    if not origin or not host_header:
        return False
    parts = urlsplit(origin)
    return parts.scheme in ("http", "https") and parts.netloc.lower() == host_header.lower()


def _read_name(host_header: str) -> str:
    try:
        return (urlsplit(f"//{host_header}").hostname or "").lower()
    except ValueError:
        return ""


def _read_ip(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None
