"""The client application that commands inside jobs take from the daemon: the commands and what they import.

Standard library only, Python 3.9. It is built at the first request, so a daemon whose jobs never ask has nothing of it.
"""

from __future__ import annotations

import functools
import hashlib
import io
import os
import zipfile
from typing import NamedTuple

import overspan

_BRIDGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_PACKAGES = ("cli", "client", "listings", "model")
_FILES = ("config/__init__.py", "config/paths.py", "config/disk_space.py", "config/command_wrappers.py")
_ELSEWHERE = ("cli/jobs/top.py", "cli/jobs/map.py", "client/executor.py", "client/line_map.py", "client/line_runner.py")
"""What needs other packages, or a daemon on the same machine."""
_OF_THE_MODEL = (
    *("causes", "checkpoints/__init__", "checkpoints/listings", "checkpoints/patterns", "checkpoints/readiness"),
    *("deciders", "documents"),
    *("events", "file_paths", "job", "log_matching", "parts", "patterns", "ranks", "reach", "secret_names", "stages"),
    "volumes",
)
"""What no command imports."""
_LEFT_OUT = {
    *_ELSEWHERE,
    *(f"model/{name}.py" for name in _OF_THE_MODEL),
    *("client/call.py", "listings/explanations.py"),
}
_DATE = (1980, 1, 1, 0, 0, 0)


class ClientApplication(NamedTuple):
    """A zip file, and a digest that names its content."""

    digest: str
    data: bytes


@functools.cache
def build_client() -> ClientApplication:
    """Build it. Raises OSError."""
    head = f'"""Overspan, as far as commands inside jobs need it."""\n\n__version__ = "{overspan.__version__}"\n'
    sources = {"overspan/__init__.py": head.encode(), "overspan/bridge/__init__.py": b""}
    paths = list(_FILES)
    for package in _PACKAGES:
        for folder, _, names in os.walk(os.path.join(_BRIDGE, package)):
            inner = os.path.relpath(folder, _BRIDGE)
            paths += [f"{inner}/{name}" for name in names if name.endswith(".py")]
    for path in sorted({*paths} - _LEFT_OUT):
        with open(os.path.join(_BRIDGE, path), "rb") as file:
            sources[f"overspan/bridge/{path}"] = file.read()
    digest = hashlib.sha256()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(sources):
            digest.update(b"%s\0%d\0" % (name.encode(), len(sources[name])) + sources[name])
            archive.writestr(zipfile.ZipInfo(name, _DATE), sources[name], zipfile.ZIP_DEFLATED, 9)
    return ClientApplication(digest.hexdigest()[:16], packed.getvalue())
