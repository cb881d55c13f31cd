"""Loopback addresses of members: 127.x.y.z, the same for a job's next launch, shared by no two live members.

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
    """The addresses in use; members draw theirs here and give them back."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def __contains__(self, address: str) -> bool:
        return address in self._taken

    def __len__(self) -> int:
        return len(self._taken)

    def draw(self, job: int, task: str, index: int, salt: int = 0) -> str:
        """Take an address for a member: its own where that is free, else the next free one.

        `salt` tells the users of one machine apart.
        """
        digest = blake2b(f"{salt}/{job}/{task}/{index}".encode(), digest_size=8).digest()
        number = int.from_bytes(digest, "big") % _SIZE
        while (address := _format(number)) in self._taken:
            number = (number + 1) % _SIZE
        self._taken.add(address)
        return address

    def take(self, addresses: Iterable[str]) -> None:
        """Enter addresses that are known to be in use."""
        self._taken.update(addresses)

    def release(self, addresses: Iterable[str]) -> None:
        """Give addresses back."""
        self._taken.difference_update(addresses)


def _format(number: int) -> str:
    rest, last = divmod(number, _HOSTS)
    second, third = divmod(rest, 256)
    return f"127.{second + 1}.{third}.{last + 1}"
