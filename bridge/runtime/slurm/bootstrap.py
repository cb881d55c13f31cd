"""Bootstrap on nodes that share no folder: the application comes by standard input, documents by variables. Pure.

The program `UNPACK` stands before every entry there. It reads ten digits and so many bytes (base64 of zlib's), keeps
the application in a file without a name, and becomes that; what follows on standard input is the entry's own.
"""

from __future__ import annotations

import base64
import io
import json
import zlib
from collections.abc import Mapping, MutableMapping, Sequence

UNPACK = """\
import base64, os, sys, tempfile, zlib
def take(size):
    data = b""
    while len(data) < size:
        part = os.read(0, size - len(data))
        if not part:
            sys.exit(70)
        data += part
    return data
file = tempfile.TemporaryFile(buffering=0)
file.write(zlib.decompress(base64.b64decode(take(int(take(10))))))
os.set_inheritable(file.fileno(), True)
name = "/proc/self/fd/%d" % file.fileno()
os.execv(sys.executable, [sys.executable, "-I", "-S", name, *sys.argv[1:]])
"""

MOST = 1 << 20
"""Bytes of documents that travel by variables; all variables and words of a program may have 2 MiB (execve(2))."""
_PART = 96 << 10
"""Bytes of one variable, which may have 128 KiB with its name (execve(2), MAX_ARG_STRLEN)."""
_NAME = "OVERSPAN_CARRIED_"
_ELSEWHERE = ("/runtime/data/", "/runtime/local/", "/runtime/pool/", "/runtime/srun/", "/core/storage_mounts.py")
"""Parts of the runtime that nothing in an allocation uses."""


def pack_application(archive: bytes) -> bytes:
    """The bytes that `UNPACK` reads."""
    text = base64.b64encode(zlib.compress(archive, 9))
    return b"%010d" % len(text) + text


def select_sources(archive: bytes) -> bytes:
    """The application without what was compiled for one interpreter, and without what other clusters use."""
    import zipfile  # where it is packed only

    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as whole, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as part:
        for item in whole.infolist():
            if item.filename.endswith(".py") and not any(folder in item.filename for folder in _ELSEWHERE):
                part.writestr(zipfile.ZipInfo(item.filename, item.date_time), whole.read(item))
    return file.getvalue()


def pack_documents(documents: Mapping[str, bytes]) -> dict[str, str]:
    """Variables that carry documents by name. ValueError where they are too large."""
    texts = {name: data.decode("utf-8", "surrogateescape") for name, data in documents.items()}
    packed = base64.b64encode(zlib.compress(json.dumps(texts).encode())).decode()
    if len(packed) > MOST:
        raise ValueError(f"{len(packed)} bytes of plan and scripts, where {MOST} can travel")
    parts = [packed[start : start + _PART] for start in range(0, len(packed), _PART)]
    return {f"{_NAME}{number}": part for number, part in enumerate(parts)}


def take_documents(environment: MutableMapping[str, str]) -> dict[str, bytes]:
    """The documents, whose variables are removed: no program that is started gets them. ValueError where none came."""
    parts: list[str] = []
    while f"{_NAME}{len(parts)}" in environment:
        parts.append(environment.pop(f"{_NAME}{len(parts)}"))
    try:
        texts = json.loads(zlib.decompress(base64.b64decode("".join(parts))))
    except (ValueError, zlib.error):
        raise ValueError("the plan has not come with the batch script's variables") from None
    return {name: text.encode("utf-8", "surrogateescape") for name, text in texts.items()}


def entry_words(python: str, entry: str, *words: str) -> Sequence[str]:
    """The words that start an entry of the application from its standard input."""
    return (python, "-I", "-S", "-c", UNPACK, entry, *words)
