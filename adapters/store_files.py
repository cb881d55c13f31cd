"""The files that tell the data movers of a launch how object stores are reached, as bytes to send to its cluster."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace

from overspan.bridge.model.documents import encode
from overspan.bridge.model.errors import Denied
from overspan.bridge.model.job import Job
from overspan.bridge.model.storage import StoreAccess, is_web_url
from overspan.bridge.runtime.data.credentials import CredentialsSource
from overspan.bridge.runtime.data.object_store import ObjectStoreError
from overspan.bridge.runtime.data.stores import name_store


def list_stores(job: Job) -> tuple[str, ...]:
    """The stores that a job's mounts need."""
    mounts = (mount for task in job.spec.tasks for mount in task.storage)
    return tuple(sorted({mount.store for mount in mounts if not is_web_url(mount.url)}))


def render_stores(names: Iterable[str], stores: Mapping[str, StoreAccess], root: str) -> dict[str, bytes]:
    """Paths below `root` and contents for stores, with the credentials as they are now.

    Raises Denied where a store is not known any more, or its credentials cannot be read.
    """
    files = {}
    for name in names:
        if name not in stores:
            raise Denied(f"the store {name} is not in the configuration any more, or its credentials are not set")
        files[name_store(root, name)] = render_store(stores[name])
    return files


def pack_stores(names: Iterable[str], stores: Mapping[str, StoreAccess]) -> bytes:
    """A line of JSON with these stores by name, for the input of a program. Raises Denied as above."""
    files = {name: render_stores((name,), stores, "") for name in names}
    return json.dumps({name: json.loads(*data.values()) for name, data in files.items()}).encode() + b"\n"


def render_store(access: StoreAccess) -> bytes:
    """The file of one store, with the credentials as they are now. Raises Denied where they cannot be read."""
    return json.dumps(encode(_resolve(access))).encode()


def _resolve(access: StoreAccess) -> StoreAccess:
    """The store with the credentials of its file, which is on this machine alone."""
    try:
        credentials = CredentialsSource(access).load()
    except ObjectStoreError as error:
        raise Denied(str(error)) from None
    if credentials is None:
        return access
    key, secret, token = credentials
    return replace(access, credentials_file="", access_key=key, secret_key=secret, session_token=token)
