"""A stand-in for Pyxis on the nodes of the rig: srun with its options, and the container as the plugin makes it.

The step's task itself enters a user and a mount namespace, sees the image's files as its root with the mounts in them,
and becomes the program with the image's variables over the job's. An image is a folder of the nodes.
"""

from __future__ import annotations

SRUN = """\
#!/bin/bash
# srun with --container-*: its program runs in the image, on its node.
options=() inside=() found=
while case $1 in -*) true;; *) false;; esac; do
  case $1 in
    --container-image=*) found=1; inside+=("$1");;
    --container-*|--no-container-*) inside+=("$1");;
    *) options+=("$1");;
  esac
  shift
done
[ -n "$found" ] || exec /usr/bin/srun "${options[@]}" "$@"
exec /usr/bin/srun "${options[@]}" /usr/local/bin/image-task "${inside[@]}" -- "$@"
"""

TASK = """\
#!/usr/bin/python3
import ctypes, os, sys

at = sys.argv.index("--")
options = dict(word.lstrip("-").partition("=")[::2] for word in sys.argv[1:at])
words = sys.argv[at + 1 :]
root = options["container-image"]
if not os.path.isdir(root):
    print("slurmstepd: error: pyxis: child 7 failed with error code: 1", file=sys.stderr)
    sys.exit(f"slurmstepd: error: pyxis:     [ERROR] No such file or directory: {root}")
libc = ctypes.CDLL(None, use_errno=True)


def check(result):
    if result < 0:
        number = ctypes.get_errno()
        sys.exit(f"slurmstepd: error: pyxis: {os.strerror(number)}")


def mount(source, target, kind, flags):
    check(libc.mount(source.encode(), target.encode(), kind.encode(), flags, None))


NEWNS, NEWUSER, BIND, REC, PRIVATE = 0x20000, 0x10000000, 4096, 16384, 1 << 18
uid, gid = os.getuid(), os.getgid()
check(libc.unshare(NEWUSER | NEWNS))
for name, text in (("setgroups", "deny"), ("gid_map", f"{gid} {gid} 1"), ("uid_map", f"{uid} {uid} 1")):
    with open(f"/proc/self/{name}", "w") as file:
        file.write(text)
mount("none", "/", "", REC | PRIVATE)
mount(root, root, "", BIND | REC)
for folder in ("proc", "dev"):
    mount(f"/{folder}", f"{root}/{folder}", "", BIND | REC)
for pair in filter(None, options.get("container-mounts", "").split(",")):
    source, target = pair.split(":")[:2]
    if os.path.isdir(source):
        os.makedirs(root + target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(root + target), exist_ok=True)
        open(root + target, "a").close()
    mount(source, root + target, "", BIND | REC)
os.chdir(root)
check(libc.syscall(155, b".", b"."))
check(libc.umount2(b".", 2))
os.chdir(options.get("container-workdir") or "/")
variables = dict(line.rstrip().partition("=")[::2] for line in open("/etc/environment"))
os.execvpe(words[0], words, {**os.environ, **variables})
"""
"""155 is pivot_root (x86-64)."""

MAKE = """\
set -e
root=$1
for program in /bin/sh /bin/sleep /usr/bin/getent; do
  for file in "$program" $(ldd "$program" | grep -o '/[^ ]*'); do
    mkdir -p "$root${file%/*}"
    cp -L "$file" "$root$file"
  done
done
for folder in etc proc dev home corpus; do mkdir -p "$root/$folder"; done
: >"$root/etc/hosts"
echo 'hosts: files' >"$root/etc/nsswitch.conf"
printf 'PATH=/usr/bin:/bin\\nGREETING=image\\nBASE=image\\n' >"$root/etc/environment"
chown -R researcher: "$root"
"""
"""Makes an image in the folder $1: a shell, three programs, no bash, no Python."""
