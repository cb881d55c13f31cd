"""The connection of commands inside a job to the daemon: TLS by the one certificate that the job was given.

`SPAN_JOB_ACCESS` names the file that says where the daemon listens, with its certificate and the job's token. Python
3.9, standard library only: it runs in pods and on compute nodes.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import NamedTuple

from overspan.bridge.client.connection import HttpConnection
from overspan.bridge.model.access_documents import MAX_BYTES, find_token
from overspan.bridge.model.errors import Unreachable

FORMAT = 1
CONNECT_SECONDS = 10.0
_NO_TIMES = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME (openssl/x509_vfy.h): the clock of a node may be wrong, and the certificate is pinned."""


class JobAccessFile(NamedTuple):
    """What such a file says."""

    host: str
    port: int
    certificate: str
    token: str


def read_access(path: str, environment: Mapping[str, str]) -> JobAccessFile:
    """Read the file of `SPAN_JOB_ACCESS` for the job that has this environment. Raises Unreachable."""
    try:
        with open(path, encoding="utf-8") as file:
            document = json.loads(file.read(MAX_BYTES))
        if document["format"] != FORMAT:
            raise ValueError(f"it has format {document['format']}, this command reads {FORMAT}")
        token = find_token(document, environment)
        return JobAccessFile(document["host"], int(document["port"]), document["certificate"], token)
    except OSError as error:
        raise Unreachable(f"{path}, by which this job reaches the daemon, cannot be read: {error.strerror}") from None
    except (ValueError, LookupError, TypeError) as error:
        raise Unreachable(f"{path}, by which this job reaches the daemon, cannot be used: {error}") from None


class JobConnection(HttpConnection):
    """A connection with a job's token in each request."""

    def __init__(self, access: JobAccessFile, timeout: float) -> None:
        headers = f"Authorization: Bearer {access.token}\r\n"
        super().__init__(f"{access.host}:{access.port}", timeout, _open_socket(access, timeout), headers)

    @property
    def peer(self) -> int:
        """The daemon is on another machine, or in another container: its process has no number here."""
        return 0


def _open_socket(access: JobAccessFile, timeout: float) -> socket.socket:
    import ssl

    place = f"{access.host}:{access.port}"
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_flags = ssl.VerifyFlags(context.verify_flags | _NO_TIMES)
        context.load_verify_locations(cadata=access.certificate)
        plain = socket.create_connection((access.host, access.port), min(timeout, CONNECT_SECONDS))
    except OSError as error:
        why = error.strerror or str(error)
        raise Unreachable(
            f"the daemon cannot be reached from inside this job, at {place}: {why}",
            remedy="run it where the job was submitted; `daemon_address` of the cluster says where jobs look for it",
        ) from None
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return context.wrap_socket(plain)
    except ssl.SSLCertVerificationError:
        plain.close()
        raise Unreachable(f"what listens at {place} is not the daemon that started this job") from None
    except OSError as error:
        plain.close()
        raise Unreachable(f"the daemon at {place} does not speak: {error.strerror or error}") from None
