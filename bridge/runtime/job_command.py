"""`span` inside a job: fetches the client application of the daemon that answers, and becomes it.

    command WORDS...     a command line of span, beginning with its verb

Nothing of it travels with the job: the first command of a job takes it from the daemon (some 200 KB) into the run
directory, later ones ask whether it is still the daemon's. Where the daemon does not answer, what is there runs and
says so itself.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import socket
import ssl
import stat
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from typing import Any

from overspan.bridge.model.access_documents import find_token
from overspan.bridge.model.records import NamedTuple
from overspan.bridge.runtime.core.job_access import ACCESS

SECONDS = 10.0
MAX_BYTES = 16 << 20
_NO_TIMES = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME: the node's clock may be wrong, and the certificate is pinned."""
_PREFIX = "client-"
_RUN = "import sys; sys.path.insert(0, sys.argv.pop(1)); from overspan.bridge.cli.program import main; sys.exit(main())"


class FetchedClient(NamedTuple):
    """An answer of the daemon: the digest of its client, and the client unless it was there."""

    digest: str
    data: bytes


class NoDaemon(Exception):
    """Why no client was had, in one sentence."""


def main(words: Sequence[str]) -> int:
    """Become the client; gives an exit code where there is none."""
    path = os.environ.get(ACCESS, "")
    try:
        folder = _find_folder(os.environ.get("OVERSPAN_RUN_DIR", ""))
        found = _find_client(folder)
        try:
            client = fetch(path, found.rpartition(_PREFIX)[2])
            found = found if not client.data else _unpack(client, folder)
        except NoDaemon:
            if not found:
                raise
    except (NoDaemon, OSError, zipfile.BadZipFile) as error:
        print(f"span: error: {error}", file=sys.stderr)
        return 1
    os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", _RUN, found, *words])


def fetch(path: str, have: str) -> FetchedClient:
    """The daemon's client, unless it is the one with the digest `have`. Raises NoDaemon."""
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        host, port = document["host"], int(document["port"])
        token, certificate = find_token(document, os.environ), document["certificate"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise NoDaemon(f"{path or ACCESS}, by which this job reaches the daemon, cannot be read: {error}") from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags = ssl.VerifyFlags(context.verify_flags | _NO_TIMES)
    lines = (
        f"GET /v1/client?have={have} HTTP/1.1",
        "Host: span",
        "Connection: close",
        f"Authorization: Bearer {token}",
    )
    try:
        context.load_verify_locations(cadata=certificate)
        with socket.create_connection((host, port), SECONDS) as plain, context.wrap_socket(plain) as stream:
            stream.sendall("\r\n".join((*lines, "", "")).encode("latin-1"))
            return _read(stream.makefile("rb"))
    except ssl.SSLCertVerificationError:
        raise NoDaemon(f"what listens at {host}:{port} is not the daemon that started this job") from None
    except OSError as error:
        raise NoDaemon(
            f"the daemon cannot be reached from inside this job, at {host}:{port}: {error}; "
            "run it where the job was submitted"
        ) from None


def _read(stream: Any) -> FetchedClient:
    words = stream.readline(4096).split(None, 2)
    headers = {}
    while True:
        line = stream.readline(65536).strip()
        if not line:
            break
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    data = stream.read(MAX_BYTES)
    if words[1:2] == [b"304"]:
        return FetchedClient("", b"")
    if words[1:2] != [b"200"]:
        raise NoDaemon(_word_refusal(data))
    if len(data) != int(headers.get("content-length") or -1):
        raise NoDaemon("the daemon went away before it answered")
    return FetchedClient(headers.get("x-span-client", ""), data)


def _word_refusal(data: bytes) -> str:
    try:
        error = json.loads(data)["error"]
        return "; ".join(filter(None, (str(error["message"]), str(error.get("remedy") or ""))))
    except (ValueError, LookupError, TypeError):
        return "the daemon does not answer as expected"


# --- the client on the disk ------------------------------------------------------------------------------------------


def _find_folder(run: str) -> str:
    """A folder that no other user can write to; a new one where the run directory has no room for it."""
    folder = os.path.join(run, "client") if run else ""
    if folder:
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            facts = os.lstat(folder)
            if stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid() and os.access(folder, os.W_OK):
                return folder
        except OSError:
            pass
    return tempfile.mkdtemp(prefix="span-client-")


def _find_client(folder: str) -> str:
    """The newest client in the folder; empty where there is none."""
    found = [entry for entry in os.scandir(folder) if entry.name.startswith(_PREFIX) and entry.is_dir()]
    return max(found, key=lambda entry: entry.stat().st_mtime).path if found else ""


def _unpack(client: FetchedClient, folder: str) -> str:
    digest = "".join(letter for letter in client.digest if letter.isalnum())
    path = os.path.join(folder, _PREFIX + digest)
    fresh = tempfile.mkdtemp(prefix=".new-", dir=folder)
    try:
        with zipfile.ZipFile(io.BytesIO(client.data)) as archive:
            archive.extractall(fresh)
        try:
            os.rename(fresh, path)
        except OSError:
            # Another command was faster.
            if not os.path.isdir(path):
                raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return path
