"""Builds the zip application that runs beside the work: model, lifecycle and supervisor in one file.

Source in a zip is compiled at every start, so each module is there twice: as source, for any interpreter, and compiled
for the one that built it. `__main__.pyc` is a legacy .pyc, unchecked (PEP 552). The code of the other modules is one
entry, `compiled.MAGIC`, from which `__main__` imports them by the places in `index.MAGIC`. Another version of Python
has another magic number and takes the sources. This module is not in the application.
"""

from __future__ import annotations

import hashlib
import importlib.util
import marshal
import os
import tempfile
import zipfile

PACKAGES = (
    "model",
    "model/checkpoints",
    "model/options",
    "model/slurm",
    "lifecycle",
    "runtime",
    "runtime/core",
    "runtime/data",
    "runtime/data/fuse",
    "runtime/local",
    "runtime/slurm",
    "runtime/srun",
    "runtime/pool",
)

_FORMAT = 2
_TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_MAIN = "runtime/__main__.py"
"""The table of entries: the application starts with it."""
_START = "__main__.py"
"""Its name in the application."""
_LEFT_OUT = ("runtime/zip_application.py", _MAIN)
# PEP 552: a hash in place of a time, never checked against the source.
_UNCHECKED = (1).to_bytes(4, "little")
# Without references between objects, which differ from one run to the next.
_MARSHAL = 2
# The earliest time that a zip file can hold.
_DATE = (1980, 1, 1, 0, 0, 0)


def build_archive(folder: str) -> str:
    """Make sure that the application is in `folder` and give its path; its name carries a hash of its content.

    Built once; two that build at the same time do no harm. Raises OSError when the folder cannot be written.
    """
    sources = read_sources()
    path = os.path.join(folder, f"supervisor-{hash_sources(sources)}.pyz")
    if os.path.exists(path):
        return path
    os.makedirs(folder, 0o700, exist_ok=True)
    fd, temporary = tempfile.mkstemp(".new", "supervisor-", folder)
    try:
        with os.fdopen(fd, "wb") as file:
            _write_zip(file, sources)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return path


def read_sources() -> dict[str, bytes]:
    """Every file of the application by its name in the zip, as source."""
    with open(os.path.join(_TOP, _MAIN), "rb") as file:
        sources = {_START: file.read(), "overspan/__init__.py": b"", "overspan/bridge/__init__.py": b""}
    for package in PACKAGES:
        folder = os.path.join(_TOP, package)
        for name in sorted(os.listdir(folder)):
            inner = f"{package}/{name}"
            if name.endswith(".py") and inner not in _LEFT_OUT:
                with open(os.path.join(folder, name), "rb") as file:
                    sources["overspan/bridge/" + inner] = file.read()
    return sources


def hash_sources(sources: dict[str, bytes]) -> str:
    """A short hash of the application's content and of the interpreter version that compiles it."""
    digest = hashlib.sha256(b"%d" % _FORMAT + importlib.util.MAGIC_NUMBER)
    for name in sorted(sources):
        digest.update(b"%s\0%d\0" % (name.encode(), len(sources[name])))
        digest.update(sources[name])
    return digest.hexdigest()[:16]


def _write_zip(file: object, sources: dict[str, bytes]) -> None:
    magic = importlib.util.MAGIC_NUMBER
    main = sources[_START]
    head = magic + _UNCHECKED + importlib.util.source_hash(main)
    modules, code = compile_modules(sources)
    # Stored, not compressed: a start then needs no decompression, and finds each module by its place in the file.
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:  # type: ignore[call-overload]
        for name in sorted(sources):
            archive.writestr(zipfile.ZipInfo(name, _DATE), sources[name])
        archive.writestr(zipfile.ZipInfo("__main__.pyc", _DATE), head + compile_source(_START, main))
        entry = zipfile.ZipInfo(f"compiled.{magic.hex()}", _DATE)
        archive.writestr(entry, code)
        start = entry.header_offset + len(entry.FileHeader())
        index = {name: (package, start + place, size) for name, (package, place, size) in modules.items()}
        archive.writestr(zipfile.ZipInfo(f"index.{magic.hex()}", _DATE), marshal.dumps(index, _MARSHAL))


def compile_modules(sources: dict[str, bytes]) -> tuple[dict[str, tuple[bool, int, int]], bytes]:
    """By each module's name whether it is a package, and place and size of its code; and the code of all."""
    modules, parts, place = {}, [], 0
    for path in sorted(sources.keys() - {_START}):
        name, package, _ = path[: -len(".py")].partition("/__init__")
        parts.append(compile_source(path, sources[path]))
        modules[name.replace("/", ".")] = (bool(package), place, len(parts[-1]))
        place += len(parts[-1])
    return modules, b"".join(parts)


def compile_source(name: str, source: bytes) -> bytes:
    """The code of one module, in marshal's format."""
    return marshal.dumps(compile(source, name, "exec", dont_inherit=True, optimize=0), _MARSHAL)
