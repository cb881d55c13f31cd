"""Credentials of an object store: given, or in a file of AWS's form, read anew when it changes or is refused."""

from __future__ import annotations

import configparser
import os
from typing import Optional, Protocol

from overspan.bridge.model.storage import StoreAccess
from overspan.bridge.runtime.data.object_store import ObjectStoreError, StoreTrouble
from overspan.bridge.runtime.data.signature import Credentials


class CredentialsReader(Protocol):
    """Reads the credentials of one store."""

    def load(self) -> Optional[Credentials]:
        """The credentials as they are now; None for a store that wants none. Raises ObjectStoreError."""

    def doubt(self) -> None:
        """The store has refused them: read them anew at the next call, even if their file looks the same."""


class CredentialsSource:
    """Where the credentials of one store come from (`CredentialsReader`)."""

    def __init__(self, access: StoreAccess) -> None:
        self._access = access
        self._mark: object = None
        self._read: Optional[Credentials] = None

    def load(self) -> Optional[Credentials]:
        """The credentials as they are now; None for a store that wants none. Raises ObjectStoreError."""
        access = self._access
        if not access.credentials_file:
            if not access.access_key:
                return None
            return Credentials(access.access_key, access.secret_key, access.session_token)
        path = os.path.expanduser(access.credentials_file)
        try:
            status = os.stat(path)
            mark = (status.st_mtime_ns, status.st_size, status.st_ino)
            if mark != self._mark:
                self._read, self._mark = _read_profile(path, access.profile), mark
        except OSError as error:
            text = f"the credentials of the store {access.name} cannot be read: {path}: {os.strerror(error.errno or 0)}"
            raise ObjectStoreError(StoreTrouble.DENIED, text) from None
        return self._read

    def doubt(self) -> None:
        """Read the file anew at the next call."""
        self._mark = None


def _read_profile(path: str, profile: str) -> Credentials:
    """One profile of ~/.aws/credentials. Raises OSError and ObjectStoreError; never tells what the file holds."""
    parser = configparser.RawConfigParser()
    try:
        with open(path, encoding="utf-8") as file:
            parser.read_file(file)
        part = parser[profile]
        keys = (part["aws_access_key_id"], part["aws_secret_access_key"], part.get("aws_session_token", ""))
    except (configparser.Error, UnicodeDecodeError):
        raise ObjectStoreError(StoreTrouble.DENIED, f"{path} is no file of credentials in AWS's form") from None
    except KeyError as error:
        missing = str(error).strip("'\"")
        what = f"has no profile [{profile}]" if missing == profile else f"has no {missing} in [{profile}]"
        raise ObjectStoreError(StoreTrouble.DENIED, f"{path} {what}") from None
    return Credentials(*keys)
