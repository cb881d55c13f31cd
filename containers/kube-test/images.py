#!/usr/bin/env python3
"""images.py BUILD IMAGES: writes the rig's images as OCI archives into the folder IMAGES, without an image registry.

`rig/pause:1` keeps a pod's namespaces, `rig/sh:1` has busybox and a C library (so names resolve) and nothing else,
`rig/python:1` has python3, bash and getent too. Their files come from a Debian made with debootstrap, as root.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

SUITE = "bookworm"
PACKAGES = "busybox,python3"
FOLDERS = ("dev", "etc", "proc", "root", "run", "sys", "tmp", "usr/bin", "usr/lib", "usr/lib64", "usr/sbin", "var/tmp")
LINKS = {"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64", "sbin": "usr/sbin"}
FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Parts of the standard library that no job needs.
UNUSED = ("test", "idlelib", "lib2to3", "ensurepip", "pydoc_data", "config-")
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


def pack_layer(root: Path | None, paths: Iterable[str], texts: dict[str, bytes], links: dict[str, str]) -> bytes:
    """One layer: FOLDERS, what is at `paths` below `root`, files with these texts, symbolic links."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as layer:
        for folder in FOLDERS:
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder.endswith("tmp") else 0o755
            layer.addfile(entry)
        for name, target in links.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            layer.addfile(entry)
        for name, text in texts.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(text), 0o644 if name.startswith("etc/") else 0o755
            layer.addfile(entry, io.BytesIO(text))
        for path in sorted(set(paths)):
            assert root is not None
            layer.add(root / path, path, recursive=False, filter=_plain)
    return packed.getvalue()


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


def write_image(path: Path, name: str, layers: list[bytes], settings: dict[str, Any]) -> None:
    """An OCI archive of one image that containerd imports under `name`."""
    blobs: dict[str, bytes] = {}

    def add(blob: bytes, media_type: str) -> dict[str, Any]:
        digest = hashlib.sha256(blob).hexdigest()
        blobs[digest] = blob
        return {"mediaType": f"application/vnd.oci.image.{media_type}", "digest": f"sha256:{digest}", "size": len(blob)}

    parts = [add(layer, "layer.v1.tar") for layer in layers]
    platform = {"architecture": MACHINES.get(os.uname().machine, os.uname().machine), "os": "linux"}
    rootfs = {"type": "layers", "diff_ids": [part["digest"] for part in parts]}
    config = add(json.dumps({**platform, "config": settings, "rootfs": rootfs}).encode(), "config.v1+json")
    manifest_type = "application/vnd.oci.image.manifest.v1+json"
    document = {"schemaVersion": 2, "mediaType": manifest_type, "config": config, "layers": parts}
    manifest = add(json.dumps(document).encode(), "manifest.v1+json")
    manifest["annotations"] = {
        "io.containerd.image.name": f"docker.io/{name}",
        "org.opencontainers.image.ref.name": name.rpartition(":")[2],
    }
    index = {"schemaVersion": 2, "manifests": [manifest]}
    members = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps(index).encode()}
    members.update({f"blobs/sha256/{digest}": blob for digest, blob in blobs.items()})
    with tarfile.open(path, "w") as archive:
        for member, text in members.items():
            entry = tarfile.TarInfo(member)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text))


def find_libraries(root: Path, programs: list[str]) -> Iterator[str]:
    """The shared libraries that programs below `root` load, with the files that their links lead to."""
    command = ["chroot", str(root), "/usr/bin/ldd", *(f"/{program}" for program in programs)]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    for word in listed.split():
        if not word.startswith(("/lib", "/usr/lib")) or word.endswith(":"):
            continue
        path = word.lstrip("/").removeprefix("usr/")
        yield f"usr/{path}"
        real = os.path.relpath(os.path.realpath(root / "usr" / path), os.path.realpath(root))
        yield real


def find_python(root: Path) -> list[str]:
    """The interpreter and its standard library, compiled files too: a pod that is not root could not keep its own."""
    version = os.readlink(root / "usr/bin/python3")
    library = root / "usr/lib" / version
    found = ["usr/bin/python3", f"usr/bin/{version}"]
    for path in library.rglob("*"):
        parts = path.relative_to(library).parts
        if not parts[0].startswith(UNUSED) and path.exists():
            found.append(str(path.relative_to(root)))
    return found


def write_images(build: Path, images: Path, root: Path) -> None:
    """All images, from the compiled programs and a Debian's files."""
    pause = pack_layer(None, [], {"pause": (build / "bin" / "pause").read_bytes()}, {})
    write_image(images / "pause.tar", "rig/pause:1", [pause], {"Entrypoint": ["/pause"]})
    busybox = "usr/bin/busybox"
    listed = subprocess.run(
        ["chroot", str(root), f"/{busybox}", "--list"], capture_output=True, text=True, check=True
    ).stdout.split()
    links = {**LINKS, **{f"usr/bin/{applet}": "busybox" for applet in listed if applet != "busybox"}}
    texts = {name: text.encode() for name, text in FILES.items()}
    small = pack_layer(root, [busybox, *find_libraries(root, [busybox])], texts, links)
    settings = {"Cmd": ["sh"], "Env": [PATH]}
    write_image(images / "sh.tar", "rig/sh:1", [small], settings)
    programs = ["usr/bin/bash", "usr/bin/getent", *find_python(root)]
    libraries = find_libraries(root, [name for name in programs if name.endswith(".so") or "/bin/" in name])
    more = pack_layer(root, [*programs, *libraries], {}, LINKS)
    write_image(images / "python.tar", "rig/python:1", [small, more], settings)


def main() -> int:
    """Make a Debian, take the images' files out of it, and leave nothing else."""
    build, images = (Path(argument) for argument in sys.argv[1:3])
    images.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="span-kube-images-") as folder:
        root = Path(folder) / "root"
        command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(root)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print("debootstrap failed:", *(done.stdout + done.stderr).strip().splitlines()[-1:], file=sys.stderr)
            return 1
        write_images(build, images, root)
    return 0


if __name__ == "__main__":
    sys.exit(main())
