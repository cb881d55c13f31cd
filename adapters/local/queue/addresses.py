"""Loopback addresses of members: 127.x.y.z, unique among live members, and usually the same in a job's next launch.

All of 127.0.0.0/8 is this machine (RFC 1122, 3.2.1.3). 127.0.0.0/16 is left alone: 127.0.0.1, Debian's 127.0.1.1 and
systemd-resolved's 127.0.0.53 are there.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

_BLOCKS = 254  # second numbers 1 to 254
_HOSTS = 254  # last numbers 1 to 254
_SIZE = _BLOCKS * 256 * _HOSTS


class Addresses:
    """The addresses in use."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def __contains__(self, address: str) -> bool:
        return address in self._taken

    def __len__(self) -> int:
        return len(self._taken)

    def draw(self, job: int, task: str, index: int, salt: int = 0) -> str:
        """Allocate an address for a member: the one that its hash gives, or the next free one.

        `salt` gives different users of one machine different addresses.
        """
        digest = blake2b(f"{salt}/{job}/{task}/{index}".encode(), digest_size=8).digest()
        number = int.from_bytes(digest, "big") % _SIZE
        while (address := _format(number)) in self._taken:
            number = (number + 1) % _SIZE
        self._taken.add(address)
        return address

    def take(self, addresses: Iterable[str]) -> None:
        """Mark addresses as in use."""
        self._taken.update(addresses)

    def release(self, addresses: Iterable[str]) -> None:
        """Free addresses."""
        self._taken.difference_update(addresses)


def _format(number: int) -> str:
    rest, last = divmod(number, _HOSTS)
    second, third = divmod(rest, 256)
    return f"127.{second + 1}.{third}.{last + 1}"
