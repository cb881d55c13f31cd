"""Programs of this package for pods: zip applications with the modules that one of them needs. Reads its own source."""

from __future__ import annotations

import ast
import io
import posixpath
import threading
import zipfile
from collections.abc import Iterator, Mapping
from functools import lru_cache

from overspan.bridge.runtime.zip_application import read_sources

_DATE = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip file can hold: the same sources give the same bytes."""


_building = threading.Lock()
"""`ast.parse` of Python 3.11 fails now and then where two threads are in it (SystemError, recursion depth mismatch)."""


def build_program(main: str, root: str) -> bytes:
    """The application whose first module has the text `main`, with the module `root` and all that it imports.

    Raises OSError where the sources cannot be read.

    Compressed and without compiled modules, since the image's Python is unknown.
    """
    with _building:
        return _build(main, root)


@lru_cache(maxsize=4)
def _build(main: str, root: str) -> bytes:
    sources = read_sources()
    modules = {_name_module(path): path for path in sources}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path in sorted(_gather(root, modules, sources)):
            _add(archive, path, sources[path])
        _add(archive, "__main__.py", main.encode())
    return packed.getvalue()


def _add(archive: zipfile.ZipFile, path: str, content: bytes) -> None:
    info = zipfile.ZipInfo(path, _DATE)
    info.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(info, content, compresslevel=9)


def _name_module(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _gather(root: str, modules: Mapping[str, str], sources: Mapping[str, bytes]) -> set[str]:
    """The paths of all modules that `root` needs, with their packages."""
    found: set[str] = set()
    waiting = [root]
    while waiting:
        path = modules.get(waiting.pop())
        if path is None or path in found:
            continue
        found.add(path)
        waiting += _list_imports(sources[path])
        folder = posixpath.dirname(path)
        while folder:
            # A package that has no text of its own need not be in `sources`.
            waiting.append(folder.replace("/", "."))
            folder = posixpath.dirname(folder)
    return found


def _list_imports(source: bytes) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
