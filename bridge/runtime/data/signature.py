"""AWS Signature Version 4, by which requests to an S3-compatible store are authorised. Pure.

https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import time
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from overspan.bridge.model.records import NamedTuple

UNSIGNED = "UNSIGNED-PAYLOAD"
"""In place of a payload's hash, where TLS keeps the payload from being changed."""
EMPTY = hashlib.sha256(b"").hexdigest()
_ALGORITHM = "AWS4-HMAC-SHA256"


class Credentials(NamedTuple):
    """An access key, its secret, and the token of temporary ones."""

    access_key: str
    secret_key: str
    session_token: str = ""

    def __repr__(self) -> str:
        return f"Credentials({self.access_key[:4]}...)"


class SignedRequest(NamedTuple):
    """What is signed of a request: `path` as it is sent, `query` by name, headers without those of the signature."""

    method: str
    host: str
    path: str
    query: Sequence[tuple[str, str]]
    headers: Mapping[str, str]
    payload: str = EMPTY
    """The payload's SHA-256 in hexadecimal digits, or UNSIGNED."""


def sign(request: SignedRequest, credentials: Credentials, region: str, at: float) -> dict[str, str]:
    """The headers of the request with its authorisation, dated `at` (seconds since the epoch)."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(at))
    headers = {name.lower(): value.strip() for name, value in request.headers.items()}
    headers.update({"host": request.host, "x-amz-date": stamp, "x-amz-content-sha256": request.payload})
    if credentials.session_token:
        headers["x-amz-security-token"] = credentials.session_token
    names = ";".join(sorted(headers))
    scope = f"{stamp[:8]}/{region}/s3/aws4_request"
    text = "\n".join((_ALGORITHM, stamp, scope, _digest(_canonical(request, headers, names))))
    key = _derive_key(credentials.secret_key, region, stamp[:8])
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    headers["authorization"] = (
        f"{_ALGORITHM} Credential={credentials.access_key}/{scope},SignedHeaders={names},Signature={signature}"
    )
    return headers


def quote_path(path: str) -> str:
    """A key as it stands in the path of a request; bytes that are no UTF-8 stay what they are."""
    return quote(path, safe="/-_.~", errors="surrogateescape")


def quote_query(query: Sequence[tuple[str, str]]) -> str:
    """Parameters in the order in which they are signed."""
    return "&".join(f"{_quote(name)}={_quote(value)}" for name, value in sorted(query))


def _quote(text: str) -> str:
    return quote(text, safe="-_.~", errors="surrogateescape")


def _canonical(request: SignedRequest, headers: Mapping[str, str], names: str) -> str:
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    return "\n".join((request.method, request.path, quote_query(request.query), lines, names, request.payload))


@functools.lru_cache(maxsize=8)
def _derive_key(secret_key: str, region: str, date: str) -> bytes:
    """The same for all requests of a day."""
    key = f"AWS4{secret_key}".encode()
    for part in (date, region, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
