"""The section `stores`: object stores, how they are reached, and where their credentials are.

The file names credentials and never holds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.storage import StoreAccess
from overspan.bridge.validation.models import DocumentModel, Mistake

StoreName = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]


def _check_endpoint(text: str) -> str:
    try:
        parts = urlsplit(text)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.query and parts.port != 0
        fine = fine and "@" not in parts.netloc
    except ValueError:
        fine = False
    if text and not fine:
        raise ValueError(f"{text!r} is no URL of a server; write one such as https://minio.lab:9000")
    return text


class CredentialSettings(DocumentModel):
    """Where credentials are: a file in the form of ~/.aws/credentials, or variables PREFIX_ACCESS_KEY_ID and so on."""

    file: str = Field(default="", max_length=4096)
    profile: str = Field(default="default", min_length=1, max_length=256)
    environment: str = Field(default="", pattern=r"^([A-Za-z_][A-Za-z0-9_]*)?$", max_length=256)

    @model_validator(mode="after")
    def _check_one(self) -> CredentialSettings:
        if bool(self.file) == bool(self.environment):
            raise Mistake("credentials are in a file or in the environment", "write {file: ~/.aws/credentials}")
        return self

    @model_validator(mode="before")
    @classmethod
    def _refuse_secrets(cls, values: Any) -> Any:
        if isinstance(values, Mapping):
            for key in values:
                if "secret" in str(key).lower() or "access_key" in str(key).lower():
                    raise Mistake(
                        "the configuration holds no credentials",
                        "write them into a file that only you can read, and name that: {file: PATH}",
                        (key,),
                    )
        return values


class StoreSettings(DocumentModel):
    """One object store. It has the buckets named in `buckets`, under any URL scheme."""

    endpoint: Annotated[str, Field(max_length=4096), AfterValidator(_check_endpoint)] = ""
    region: str = Field(default="us-east-1", pattern=r"^[A-Za-z0-9-]{1,63}$")
    buckets: tuple[Annotated[str, Field(min_length=1, max_length=255)], ...] = Field(default=(), max_length=1000)
    credentials: CredentialSettings | None = None


def find_store(stores: Mapping[str, StoreSettings], bucket: str, *names: str) -> str:
    """The entry that reaches a bucket: one that lists it, else the first of these names; empty where there is none."""
    listed = next((name for name, store in stores.items() if bucket in store.buckets), "")
    return listed or next((name for name in names if name in stores), "")


def open_access(name: str, store: StoreSettings, environment: Mapping[str, str]) -> StoreAccess:
    """How a store is reached, with credentials of the environment. Raises InvalidRequest where those are missing."""
    credentials = store.credentials
    access = StoreAccess(name, store.endpoint, store.region)
    if credentials is None:
        return access
    if credentials.file:
        return StoreAccess(name, store.endpoint, store.region, credentials.file, credentials.profile)
    prefix = credentials.environment
    key, secret = (environment.get(f"{prefix}_{part}", "") for part in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"))
    if not key or not secret:
        raise InvalidRequest(
            f"the store {name} wants {prefix}_ACCESS_KEY_ID and {prefix}_SECRET_ACCESS_KEY in the daemon's environment",
            remedy="set them, and start the daemon anew with `span shutdown`",
        )
    token = environment.get(f"{prefix}_SESSION_TOKEN", "")
    return StoreAccess(name, store.endpoint, store.region, access_key=key, secret_key=secret, session_token=token)
