"""Storage of a task: folders of object stores that are mounted at paths, and what its end means for their data."""

from __future__ import annotations

import re
from enum import Enum

from overspan.bridge.model.records import NamedTuple, dataclass

DEFAULT_FLUSH_TIMEOUT = 30 * 60
# Compiled where it is needed: this module is in each start beside the work.
_BUCKET = r"[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]"
SCHEMES = ("s3", "gs", "r2", "cos", "oci", "nebius")
"""Schemes of URLs that name an object store; each is also the name of the entry of `stores` that it means."""

WEB = "https"
"""The scheme of URLs that name a file of a web server; what reaches it has that in place of a store's name."""


class MountMode(str, Enum):
    """How a folder of an object store is seen at its path; SkyPilot's words."""

    MOUNT = "MOUNT"
    """Of a job file: MOUNT_CACHED whose files may be read through the store. No plan has it."""
    COPY = "COPY"
    """Copied to the node before the start, for reading."""
    MOUNT_CACHED = "MOUNT_CACHED"
    """A folder on the node's own disk; what is written there is sent to the store beside the work."""


class OnFlushFailure(str, Enum):
    """What it means for an attempt that data of it could not be sent to its store."""

    FAIL = "fail"
    WARN = "warn"


class ObjectUrl(NamedTuple):
    """A place in an object store: a bucket, and the key of an object or the prefix of several; written SCHEME://."""

    scheme: str
    bucket: str
    key: str = ""

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.key}".rstrip("/")


@dataclass(frozen=True)
class FlushPolicy:
    """How long an ended attempt may go on sending its data, in seconds, and what it means if that fails."""

    timeout: int = DEFAULT_FLUSH_TIMEOUT
    on_failure: OnFlushFailure = OnFlushFailure.FAIL


@dataclass(frozen=True)
class StorageMount:
    """A folder of an object store at a path of the task's.

    `store` is the entry of `stores` that reaches it; empty until the submission is checked. `markers` are names of
    files that are written last into a folder, besides those that are known: they are sent last. A bucket that is
    `named`, and not given by its URL, is made where there is none; one that is not `persistent` is removed when no job
    needs it any more, if it was made so. `sources` are absolute paths of the submitter's, sent to the bucket before
    the start: each under its own name, or what is in it where the path ends in a slash. One of MOUNT_CACHED that is
    `read_through` may be mounted with FUSE; earlier versions, which pass that by, bring what is there.
    """

    target: str
    url: str
    mode: MountMode
    store: str = ""
    markers: tuple[str, ...] = ()
    named: bool = False
    persistent: bool = True
    sources: tuple[str, ...] = ()
    read_through: bool = False

    @property
    def written(self) -> bool:
        """Whether work writes to it."""
        return self.mode is not MountMode.COPY


@dataclass(frozen=True)
class StoreAccess:
    """How an object store is reached. Credentials are a file that is read anew when they expire, or given here.

    The empty endpoint is Amazon's of the region. Without credentials, requests are not signed.
    """

    name: str
    endpoint: str = ""
    region: str = "us-east-1"
    credentials_file: str = ""
    profile: str = "default"
    access_key: str = ""
    secret_key: str = ""
    session_token: str = ""

    def __repr__(self) -> str:
        # A record that is printed or logged must show no secret.
        return f"StoreAccess({self.name!r}, {self.endpoint!r})"

    @property
    def address(self) -> str:
        """The URL of the store's API, without a slash at its end."""
        return (self.endpoint or f"https://s3.{self.region}.amazonaws.com").rstrip("/")


def is_object_url(text: str) -> bool:
    """Whether a text names a place in an object store."""
    return text.partition("://")[0].lower() in SCHEMES and "://" in text


def is_web_url(text: str) -> bool:
    """Whether a text names a file of a web server."""
    return text.lower().startswith(f"{WEB}://")


def parse_web_url(text: str) -> ObjectUrl:
    """Read https://HOST/PATH: the host is the bucket, all behind it the key. Raises ValueError with what is wanted."""
    host, _, path = text.partition("://")[2].partition("#")[0].partition("/")
    name = path.partition("?")[0].rpartition("/")[2]
    if not host or "@" in host or not name or not text.isprintable() or " " in text:
        raise ValueError(f"{text.partition('?')[0]!r} is no URL of a file; write one such as https://HOST/FOLDER/FILE")
    return ObjectUrl(WEB, host, path)


def parse_mounted_url(text: str) -> ObjectUrl:
    """Read the URL of a mount, of an object store or a web server. Raises ValueError."""
    return parse_web_url(text) if is_web_url(text) else parse_object_url(text)


def parse_object_url(text: str) -> ObjectUrl:
    """Read SCHEME://BUCKET/PREFIX. Raises ValueError with what is wanted."""
    if not is_object_url(text):
        raise ValueError(f"{text!r} is no URL of an object store; write one such as s3://BUCKET/FOLDER")
    scheme, _, place = text.partition("://")
    bucket, _, path = place.partition("/")
    key = path.strip("/")
    if not re.fullmatch(_BUCKET, bucket):
        raise ValueError(f"{bucket!r} is no name of a bucket; write one such as s3://BUCKET/FOLDER")
    if any(part in ("", ".", "..") for part in key.split("/")) and key:
        raise ValueError(f"{text!r} has an empty part, `.` or `..` in its path")
    return ObjectUrl(scheme.lower(), bucket, key)
