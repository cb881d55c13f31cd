"""TLS sockets that are never dropped: each has an owner that closes it, from its first moment on."""

from __future__ import annotations

import errno
import ssl
from typing import Any


class OwnedSocket(ssl.SSLSocket):
    """Closed where its peer has gone before the handshake.

    `SSLContext.wrap_socket` takes the descriptor over from the plain socket and asks for its peer. Where that has reset
    the connection by then, it raises and leaves the new socket to the collector (CPython 3.11, ssl.py, `_create`),
    which finds it much later, in the middle of other code.
    """

    def getpeername(self) -> Any:
        """The peer's address. Raises ConnectionResetError for a socket in the making that has none any more."""
        try:
            return super().getpeername()
        except OSError as error:
            if getattr(self, "_connected", None) is None:
                self.close()
                raise ConnectionResetError(errno.ECONNRESET, "closed before the handshake of TLS") from error
            raise


def own_sockets(context: ssl.SSLContext) -> ssl.SSLContext:
    """The context, whose sockets are closed wherever they fail."""
    context.sslsocket_class = OwnedSocket
    return context
