"""The daemon's own certificate: one file with the key, made once, 0600.

Jobs are given the certificate and trust no other, so it needs no authority and no name. The secret from which their
tokens follow is derived from the key: who has a new certificate has new tokens.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import ssl
import subprocess
import tempfile
from dataclasses import dataclass

from overspan.bridge.config.paths import make_private_folder
from overspan.bridge.model.errors import OverspanError

log = logging.getLogger(__name__)

FILE = "certificate.pem"
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----\n?", re.DOTALL)
_DAYS = "36500"
_SECONDS = 30.0
_WORDS = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-batch")


@dataclass(frozen=True)
class DaemonCertificate:
    """The file with certificate and key, the certificate alone as PEM, and the secret of the tokens."""

    path: str
    text: str
    secret: bytes


def open_certificate(folder: str) -> DaemonCertificate:
    """The certificate in `folder`, made where there is none, or none that can be read.

    Raises OverspanError where it cannot be made.
    """
    make_private_folder(folder)
    path = os.path.join(folder, FILE)
    found = _read(path)
    if found is None:
        _make(folder, path)
        found = _read(path)
    if found is None:
        raise OverspanError(f"the certificate that openssl has made cannot be read: {path}")
    return found


def _read(path: str) -> DaemonCertificate | None:
    try:
        # A link would let another file stand in for it.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        with os.fdopen(descriptor) as file:
            text = file.read()
        os.chmod(path, 0o600)
        certificate = _CERTIFICATE.search(text)
        if certificate is None:
            raise ValueError("it holds no certificate")
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        log.warning("%s cannot be used (%s): a new one takes its place, and jobs that run lose the daemon", path, error)
        return None
    secret = hashlib.sha256(b"overspan job tokens\0" + text.encode()).digest()
    return DaemonCertificate(path, certificate.group(), secret)


def _make(folder: str, path: str) -> None:
    program = shutil.which("openssl")
    if program is None:
        raise OverspanError("there is no openssl to make the daemon's certificate", remedy="install openssl")
    with tempfile.TemporaryDirectory(dir=folder) as place:
        key, certificate = os.path.join(place, "key"), os.path.join(place, "certificate")
        files = ("-keyout", key, "-out", certificate, "-days", _DAYS, "-subj", "/CN=overspan")
        try:
            done = subprocess.run(
                [program, *_WORDS, *files], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise OverspanError(f"openssl does not make the daemon's certificate: {error}") from None
        if done.returncode:
            words = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            raise OverspanError(f"openssl does not make the daemon's certificate: {words[-1]}")
        whole = os.path.join(place, FILE)
        with open(os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            for part in (key, certificate):
                with open(part) as source:
                    file.write(source.read())
            file.flush()
            os.fsync(file.fileno())
        os.replace(whole, path)
