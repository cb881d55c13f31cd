"""What a login node needs to run Overspan itself."""

from __future__ import annotations

import importlib.metadata
import io
import re
import tarfile
from pathlib import Path

import overspan

PACKAGES = "/opt/overspan"


def list_needed(name: str, found: dict[str, importlib.metadata.Distribution]) -> None:
    """The packages that a package needs, itself not among them, wherever they are installed here."""
    for line in importlib.metadata.requires(name) or ():
        words = re.match(r"[A-Za-z0-9._-]+", line)
        if words is None or "extra ==" in line or words[0].lower() in found:
            continue
        try:
            found[words[0].lower()] = importlib.metadata.distribution(words[0])
        except importlib.metadata.PackageNotFoundError:
            # One for another Python or system.
            continue
        list_needed(words[0], found)


def pack() -> bytes:
    """Overspan and what it needs, as a tar."""
    packed, found = io.BytesIO(), dict[str, importlib.metadata.Distribution]()
    list_needed("overspan", found)
    with tarfile.open(fileobj=packed, mode="w", dereference=True) as archive:
        for distribution in found.values():
            for file in distribution.files or ():
                if ".." not in file.parts and file.suffix != ".pyc":
                    archive.add(str(distribution.locate_file(file)), f"{PACKAGES}/{file}")
        archive.add(str(Path(overspan.__file__).parent), f"{PACKAGES}/overspan", filter=leave_caches_out)
    return packed.getvalue()


def leave_caches_out(item: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if item.name.endswith("__pycache__") else item
