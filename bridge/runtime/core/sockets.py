"""Sockets by the C module that the module `socket` wraps.

`socket` makes enums of several hundred constants when it is imported, a tenth of the processor time of a start.
"""

from __future__ import annotations

import _socket
import sys

Socket = _socket.socket
TimedOut = _socket.timeout

_DESCRIPTOR_SIZE = 4


def create_pair() -> tuple[Socket, Socket]:
    """Two ends for packets: each is received whole or not at all."""
    return _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)


def send_descriptor(line: Socket, text: bytes, descriptor: int) -> None:
    """Send a packet, and a descriptor with it."""
    rights = descriptor.to_bytes(_DESCRIPTOR_SIZE, sys.byteorder)
    line.sendmsg([text], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])


def receive_descriptor(line: Socket, size: int) -> tuple[bytes, int]:
    """The next packet and its descriptor; an empty one and -1 at the end of packets."""
    text, ancillary, _, _ = line.recvmsg(size, _socket.CMSG_SPACE(_DESCRIPTOR_SIZE))
    return text, int.from_bytes(ancillary[0][2], sys.byteorder) if text else -1


def connect(host: str, port: int, seconds: float) -> Socket:
    """A TCP connection to the first address of a host that takes it; each operation may take so long.

    Raises TimedOut, or OSError of the last address.
    """
    refusal = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in _socket.getaddrinfo(host, port, 0, _socket.SOCK_STREAM):
        line = _socket.socket(family, kind, protocol)
        line.settimeout(seconds)
        try:
            line.connect(address)
        except OSError as error:
            line.close()
            refusal = error
        else:
            return line
    raise refusal
