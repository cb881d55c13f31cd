"""What each request of the kernel does to a mounted folder."""

from __future__ import annotations

import errno
import itertools
import os
import stat
import threading
import time
from concurrent.futures import Future
from typing import Callable, Optional, Union

from overspan.bridge.runtime.data.fuse import protocol
from overspan.bridge.runtime.data.fuse.blocks import BlockCache, ObjectHandle
from overspan.bridge.runtime.data.fuse.facts import StoreEntry
from overspan.bridge.runtime.data.fuse.folder import MountedFolder
from overspan.bridge.runtime.data.fuse.nodes import NodeTable
from overspan.bridge.runtime.data.fuse.protocol import Attributes, DirectoryEntry, Request
from overspan.bridge.runtime.data.fuse.session import Reply

_LOCAL = frozenset(
    {
        protocol.WRITE,
        protocol.FLUSH,
        protocol.FSYNC,
        protocol.FALLOCATE,
        protocol.STATFS,
        protocol.CREATE,
        protocol.MKNOD,
        protocol.MKDIR,
        protocol.SYMLINK,
        protocol.READLINK,
        protocol.OPENDIR,
        protocol.RELEASE,
        protocol.RELEASEDIR,
        protocol.FSYNCDIR,
    }
)
"""Requests that no store is asked for: the kernel has looked up what they name."""
_ZERO = stat.S_IFDIR | 0o755


class DiskHandle:
    """A file that is open on the node's disk."""

    def __init__(self, fd: int, node: int) -> None:
        self.fd = fd
        self.node = node


class ListingHandle:
    """A folder that is open: its rows as they were when it was opened, or rewound."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, Attributes]] = []


Handle = Union[DiskHandle, ObjectHandle, ListingHandle]


class FolderOperations:
    """The requests of one mount (`session.FuseOperations`); called by several threads."""

    def __init__(self, folder: MountedFolder, cache: BlockCache) -> None:
        self._folder = folder
        self._cache = cache
        self._nodes = NodeTable()
        self._handles: dict[int, Handle] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._disk: dict[int, list[DiskHandle]] = {}
        """Files that are open on the disk, by their nodes: a removed one has no name to ask by."""
        self._begun: dict[int, list[Future[bytes]]] = {}
        """The blocks of reads that wait, by the numbers of their requests."""
        self._table: dict[int, Callable[[Request], Reply]] = {
            protocol.LOOKUP: self._look_up,
            protocol.GETATTR: self._get_attributes,
            protocol.SETATTR: self._set_attributes,
            protocol.READLINK: self._read_link,
            protocol.SYMLINK: self._make_link,
            protocol.MKNOD: self._make_file,
            protocol.MKDIR: self._make_folder,
            protocol.UNLINK: self._unlink,
            protocol.RMDIR: self._remove_folder,
            protocol.RENAME: self._rename,
            protocol.RENAME2: self._rename,
            protocol.LINK: self._link,
            protocol.OPEN: self._open,
            protocol.CREATE: self._create,
            protocol.READ: self._read,
            protocol.WRITE: self._write,
            protocol.STATFS: self._tell_space,
            protocol.RELEASE: self._release,
            protocol.RELEASEDIR: self._release,
            protocol.FSYNC: self._sync,
            protocol.FLUSH: self._flush,
            protocol.OPENDIR: self._open_folder,
            protocol.READDIR: self._read_folder,
            protocol.READDIRPLUS: self._read_folder,
            protocol.FSYNCDIR: lambda _: (),
            protocol.FALLOCATE: self._allocate,
        }

    # --- the session -------------------------------------------------------------------------------------------------

    def answer(self, request: Request) -> Reply:
        """Answer a request. Raises OSError."""
        operation = self._table.get(request.opcode)
        if operation is None:
            raise _fail(errno.ENOSYS)
        return operation(request)

    def answer_now(self, request: Request) -> Optional[Reply]:
        """The answer to a read of blocks that are there, and to what has no effect."""
        if request.opcode != protocol.READ:
            return None
        number, offset, size = request.unpack("QQI")
        handle = self._handles.get(number)
        if not isinstance(handle, ObjectHandle):
            return None
        blocks = handle.begin(offset, size)
        if all(block.done() and block.exception() is None for block in blocks):
            return tuple(handle.finish(blocks, offset, size))
        self._begun[request.unique] = blocks
        return None

    def is_local(self, request: Request) -> bool:
        """Whether no store is asked for it."""
        code = request.opcode
        if code == protocol.READ:
            return isinstance(self._handles.get(request.unpack("Q")[0]), DiskHandle)
        if code not in (protocol.LOOKUP, protocol.GETATTR, protocol.OPEN):
            return code in _LOCAL
        try:
            last = request.names()[0] if code == protocol.LOOKUP else ""
            return self._folder.look_written(self._nodes.name_of(request.node, last)) is not None
        except OSError:
            # It is not there, and the answer says so.
            return True

    def forget(self, node: int, count: int) -> None:
        """The kernel knows a node so many times less."""
        self._nodes.forget(node, count)

    def undo(self, request: Request, reply: Reply) -> None:
        """Nobody takes the answer any more: close what was opened, forget what was looked up."""
        if request.opcode in (protocol.OPEN, protocol.OPENDIR):
            self._close(int.from_bytes(reply[0][:8], "little"))
        elif request.opcode in (protocol.LOOKUP, protocol.CREATE):
            self._nodes.forget(int.from_bytes(reply[0][:8], "little"), 1)
            if request.opcode == protocol.CREATE:
                self._close(int.from_bytes(reply[1][:8], "little"))

    # --- names -------------------------------------------------------------------------------------------------------

    def _name(self, request: Request, skip: int = 0) -> str:
        """The name of a child that a request names."""
        return self._nodes.name_of(request.node, request.names(skip)[0])

    def _enter(self, request: Request, last: str) -> bytes:
        attributes = self._folder.look(self._nodes.name_of(request.node, last))
        return protocol.encode_entry(self._nodes.look_up(request.node, last), attributes)

    def _look_up(self, request: Request) -> Reply:
        return (self._enter(request, request.names()[0]),)

    def _get_attributes(self, request: Request) -> Reply:
        with self._lock:
            handles = list(self._disk.get(request.node, ()))
        if handles:
            attributes = Attributes.of(os.fstat(handles[-1].fd))
        elif request.node == protocol.ROOT:
            attributes = Attributes.of(os.stat(self._folder.files))
        else:
            attributes = self._look(request.node)
        return (protocol.encode_attributes(request.node, attributes),)

    def _look(self, number: int) -> Attributes:
        try:
            return self._folder.look(self._nodes.name_of(number))
        except FileNotFoundError:
            with self._lock:
                opened = [
                    each for each in self._handles.values() if isinstance(each, ObjectHandle) and each.node == number
                ]
            if not opened:
                raise
            # A file of the store that was removed while a program has it open.
            return self._folder.describe(StoreEntry(opened[-1].stored))

    def _set_attributes(self, request: Request) -> Reply:
        changes = protocol.parse_changes(request)
        handle = self._handles.get(changes.handle) if changes.valid & protocol.SET_HANDLE else None
        if isinstance(handle, DiskHandle):
            _change(handle.fd, changes)
            return (protocol.encode_attributes(request.node, Attributes.of(os.fstat(handle.fd))),)
        name = self._nodes.name_of(request.node)
        if changes.valid & protocol.SET_SIZE:
            self._folder.truncate(name, changes.size)
        if self._folder.look_written(name) is not None:
            _change(self._folder.path_of(name), changes._replace(valid=changes.valid & ~protocol.SET_SIZE))
        # Of a file that the store alone has, rights and times are the store's.
        self._folder.facts.forget(name)
        return self._get_attributes(request)

    def _read_link(self, request: Request) -> Reply:
        return (os.fsencode(os.readlink(self._folder.path_of(self._nodes.name_of(request.node)))),)

    def _make_link(self, request: Request) -> Reply:
        last, target = request.names()
        self._folder.make_link(self._nodes.name_of(request.node, last), target)
        return (self._enter(request, last),)

    def _make_file(self, request: Request) -> Reply:
        mode = request.unpack("I")[0]
        if not stat.S_ISREG(mode):
            raise _fail(errno.EPERM)
        last = request.names(16)[0]
        os.close(self._folder.create(self._nodes.name_of(request.node, last), os.O_WRONLY | os.O_EXCL, mode))
        return (self._enter(request, last),)

    def _make_folder(self, request: Request) -> Reply:
        last = request.names(8)[0]
        self._folder.make_folder(self._nodes.name_of(request.node, last), request.unpack("I")[0])
        return (self._enter(request, last),)

    def _unlink(self, request: Request) -> Reply:
        self._folder.remove_file(self._name(request))
        self._nodes.remove(request.node, request.names()[0])
        return ()

    def _remove_folder(self, request: Request) -> Reply:
        self._folder.remove_folder(self._name(request))
        self._nodes.remove(request.node, request.names()[0])
        return ()

    def _rename(self, request: Request) -> Reply:
        flags, skip = (request.unpack("QI")[1], 16) if request.opcode == protocol.RENAME2 else (0, 8)
        parent = request.unpack("Q")[0]
        old, new = request.names(skip)
        self._folder.rename(self._nodes.name_of(request.node, old), self._nodes.name_of(parent, new), flags)
        self._nodes.move(request.node, old, parent, new)
        return ()

    def _link(self, request: Request) -> Reply:
        old, last = self._nodes.name_of(request.unpack("Q")[0]), request.names(8)[0]
        self._folder.join_file(old, self._nodes.name_of(request.node, last))
        return (self._enter(request, last),)

    # --- files -------------------------------------------------------------------------------------------------------

    def _open(self, request: Request) -> Reply:
        flags = request.unpack("I")[0]
        name = self._nodes.name_of(request.node)
        fd = self._folder.open_written(name, flags)
        if fd is None:
            stored = self._folder.find_stored(name).stored
            handle: Handle = ObjectHandle(self._cache, stored, request.node)
            version: object = stored.etag
        else:
            handle = DiskHandle(fd, request.node)
            status = os.fstat(fd)
            version = status.st_ino, status.st_mtime_ns, status.st_size
        node = self._nodes.find(request.node)
        kept, node.version = node.version == version, version
        return (protocol.encode_open(self._keep(handle), protocol.KEEP_CACHE if kept else 0),)

    def _create(self, request: Request) -> Reply:
        flags, mode = request.unpack("II")
        last = request.names(16)[0]
        fd = self._folder.create(self._nodes.name_of(request.node, last), flags, mode)
        entry = self._enter(request, last)
        node = int.from_bytes(entry[:8], "little")
        return (entry, protocol.encode_open(self._keep(DiskHandle(fd, node))))

    def _read(self, request: Request) -> Reply:
        number, offset, size = request.unpack("QQI")
        handle = self._handles.get(number)
        if isinstance(handle, DiskHandle):
            return (os.pread(handle.fd, size, offset),)
        if isinstance(handle, ObjectHandle):
            return tuple(handle.finish(self._begun.pop(request.unique), offset, size))
        raise _fail(errno.EBADF)

    def _write(self, request: Request) -> Reply:
        number, offset, size = request.unpack("QQI")
        fd = self._file(number)
        data = memoryview(request.body)[40 : 40 + size]
        done = 0
        while done < size:
            done += os.pwrite(fd, data[done:], offset + done)
        return (protocol.encode_written(size),)

    def _sync(self, request: Request) -> Reply:
        number, flags = request.unpack("QI")
        handle = self._handles.get(number)
        if isinstance(handle, DiskHandle):
            (os.fdatasync if flags & 1 else os.fsync)(handle.fd)
        return ()

    def _flush(self, request: Request) -> Reply:
        handle = self._handles.get(request.unpack("Q")[0])
        if isinstance(handle, DiskHandle):
            # A network file system tells here whether all was written.
            os.close(os.dup(handle.fd))
        return ()

    def _allocate(self, request: Request) -> Reply:
        number, offset, length, mode = request.unpack("QQQI")
        if mode:
            raise _fail(errno.EOPNOTSUPP)
        os.posix_fallocate(self._file(number), offset, length)
        return ()

    def _tell_space(self, request: Request) -> Reply:
        return (protocol.encode_space(os.statvfs(self._folder.files)),)

    # --- folders -----------------------------------------------------------------------------------------------------

    def _open_folder(self, request: Request) -> Reply:
        self._nodes.name_of(request.node)
        return (protocol.encode_open(self._keep(ListingHandle())),)

    def _read_folder(self, request: Request) -> Reply:
        number, offset, size = request.unpack("QQI")
        handle = self._handles.get(number)
        if not isinstance(handle, ListingHandle):
            raise _fail(errno.EBADF)
        if offset == 0:
            found = self._folder.list_folder(self._nodes.name_of(request.node))
            own = Attributes(0, _ZERO, os.getuid(), os.getgid(), 0)
            handle.rows = [(".", own), ("..", own), *sorted(found.items())]
        plus = request.opcode == protocol.READDIRPLUS
        text = b""
        for index in range(offset, len(handle.rows)):
            name, attributes = handle.rows[index]
            known = plus and name not in (".", "..")
            room = len(protocol.encode_row(DirectoryEntry(name, 0, attributes), 0, plus=plus))
            if len(text) + room > size:
                break
            node = self._nodes.look_up(request.node, name) if known else 0
            text += protocol.encode_row(DirectoryEntry(name, node, attributes), index + 1, plus=plus)
        return (text,)

    # --- handles -----------------------------------------------------------------------------------------------------

    def _keep(self, handle: Handle) -> int:
        with self._lock:
            number = next(self._numbers)
            self._handles[number] = handle
            if isinstance(handle, DiskHandle):
                self._disk.setdefault(handle.node, []).append(handle)
            return number

    def _file(self, number: int) -> int:
        """The descriptor of a handle that is written to."""
        handle = self._handles.get(number)
        if not isinstance(handle, DiskHandle):
            raise _fail(errno.EBADF)
        return handle.fd

    def _release(self, request: Request) -> Reply:
        self._close(request.unpack("Q")[0])
        return ()

    def _close(self, number: int) -> None:
        with self._lock:
            handle = self._handles.pop(number, None)
            if isinstance(handle, DiskHandle):
                others = self._disk[handle.node]
                others.remove(handle)
                if not others:
                    del self._disk[handle.node]
        if isinstance(handle, DiskHandle):
            os.close(handle.fd)
        elif isinstance(handle, ObjectHandle):
            handle.close()


def _change(file: Union[int, str], changes: protocol.SetAttributes) -> None:
    """Change the attributes of a file on the disk. Raises OSError."""
    valid = changes.valid
    # A descriptor is not followed in any case, and takes no such flag.
    follow = isinstance(file, int)
    if valid & protocol.SET_SIZE:
        os.truncate(file, changes.size)
    if valid & protocol.SET_MODE:
        os.chmod(file, stat.S_IMODE(changes.mode))
    if valid & (protocol.SET_UID | protocol.SET_GID):
        uid = changes.uid if valid & protocol.SET_UID else -1
        gid = changes.gid if valid & protocol.SET_GID else -1
        os.chown(file, uid, gid, follow_symlinks=follow)
    if valid & (protocol.SET_ATIME | protocol.SET_MTIME):
        status = os.stat(file, follow_symlinks=follow)
        now = time.time_ns()
        atime, mtime = status.st_atime_ns, status.st_mtime_ns
        if valid & protocol.SET_ATIME:
            atime = now if valid & protocol.SET_ATIME_NOW else changes.atime
        if valid & protocol.SET_MTIME:
            mtime = now if valid & protocol.SET_MTIME_NOW else changes.mtime
        os.utime(file, ns=(atime, mtime), follow_symlinks=follow)


def _fail(number: int) -> OSError:
    return OSError(number, os.strerror(number))
