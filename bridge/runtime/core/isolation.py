"""Name isolation: gives each member the group's hosts file and its own host name, without root.

Three methods, best first:

- ``namespace``: mount and UTS namespaces, in a user namespace unless root; works for every program, static ones too;
- ``nss_wrapper``: a preloaded library, for dynamic programs of glibc;
- ``env``: nothing; members find each other by the addresses in their environment.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Sequence
from typing import Callable, NoReturn, Optional

from overspan.bridge.model.records import NamedTuple
from overspan.bridge.runtime.core import kernel
from overspan.bridge.runtime.core.shortages import EX_TEMPFAIL, is_shortage

NAMESPACE = "namespace"
NSS_WRAPPER = "nss_wrapper"
ENV = "env"
CONTAINER = "container"
"""Not for names: the program joins a container that is there, with its own hosts file."""

HOSTS_FILE = "hosts"
"""The name of a node's hosts file in the folder that was prepared for it."""
_HOSTS = "/etc/hosts"
_NSSWITCH = "/etc/nsswitch.conf"
# The cache daemon's socket answers before the hosts file is read (nscd(8)).
_NSCD = ("/run/nscd", "/var/run/nscd")
_LIBRARY = "libnss_wrapper.so"
_NAMES = kernel.CLONE_NEWNS | kernel.CLONE_NEWUTS


class Isolation(NamedTuple):
    """How one node is to get its names; paths are absolute, empty where a part is not needed.

    `hosts` is the group's hosts file, `nsswitch` a file shown as /etc/nsswitch.conf, `empty` an empty folder shown as
    /run/nscd, `library` the path of libnss_wrapper.so, `hostname` the member's own name (`rollout-2`). `pid` is a
    process in the container that is joined.
    """

    method: str = ENV
    hosts: str = ""
    hostname: str = ""
    nsswitch: str = ""
    empty: str = ""
    library: str = ""
    pid: int = 0


class IsolationProbe(NamedTuple):
    """The best method that works here, why not a better one, and the library's path where it is the method."""

    method: str
    reason: str
    library: str = ""


def render_hosts(base: str, members: Sequence[tuple[str, Sequence[str]]]) -> str:
    """Render a hosts file: `base` (the machine's own) and a line for each member's (address, names).

    A member's name wins over the same name in `base`; localhost keeps an address of each family (hosts(5)).
    """
    taken = {name.lower() for _, names in members for name in names}
    lines: list[str] = []
    localhost = set()
    for line in base.splitlines():
        content = line.partition("#")[0].split()
        kept = [name for name in content[1:] if name.lower() not in taken]
        if "localhost" in kept:
            localhost.add(":" in content[0])
        if len(kept) == len(content[1:]):
            lines.append(line)
        elif kept:
            lines.append("\t".join([content[0], " ".join(kept)]))
    for family, address in ((True, "::1"), (False, "127.0.0.1")):
        if family not in localhost:
            lines.insert(0, address + "\tlocalhost")
    lines.extend(address + "\t" + " ".join(names) for address, names in members)
    return "\n".join(lines) + "\n"


def render_nsswitch(base: str) -> Optional[str]:
    """Put ``files`` first on the `hosts:` line; None when it is first already or there is no such line.

    ``resolve [!UNAVAIL=return] files`` never reads the hosts file while systemd-resolved runs (nss-resolve(8)).
    """
    lines = base.splitlines()
    changed = False
    for number, line in enumerate(lines):
        content, _, _ = line.partition("#")
        database, colon, sources = content.partition(":")
        if not colon or database.strip() != "hosts":
            continue
        words = sources.split()
        if words and words[0] == "files":
            continue
        lines[number] = " ".join(["hosts:", "files", *_without_files(words)])
        changed = True
    return "\n".join(lines) + "\n" if changed else None


def _without_files(words: Sequence[str]) -> list[str]:
    """Drop ``files`` and the actions in brackets that belong to it; an action may hold spaces."""
    kept: list[str] = []
    dropping = inside = False
    for word in words:
        action = inside or word.startswith("[")
        if not action:
            dropping = word == "files"
        if not dropping:
            kept.append(word)
        inside = action and not word.endswith("]")
    return kept


def write_hosts(path: str, text: str) -> None:
    """Write a hosts file in place: a bind mount shows the file that it was given, not its successor by rename.

    Raises OSError on a full disk, before the old content is touched where the file system can reserve space.
    """
    data = text.encode()
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        if os.pread(fd, len(data) + 1, 0) == data:
            return
        if len(data) > os.fstat(fd).st_size:
            _reserve(fd, len(data))
        done = 0
        while done < len(data):
            done += os.pwrite(fd, data[done:], done)
        os.ftruncate(fd, len(data))
    finally:
        os.close(fd)


def _reserve(fd: int, size: int) -> None:
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise


def prepare_isolation(
    directory: str, probed: IsolationProbe, members: Sequence[tuple[str, Sequence[str]]]
) -> Isolation:
    """Write what a group's nodes need into `directory`; each node then adds its own `hostname`.

    Raises OSError when the folder cannot be written.
    """
    if probed.method == ENV:
        return Isolation()
    directory = os.path.abspath(directory)
    hosts = os.path.join(directory, HOSTS_FILE)
    write_hosts(hosts, render_machine_hosts(members))
    if probed.method == NSS_WRAPPER:
        return Isolation(NSS_WRAPPER, hosts, library=probed.library)
    nsswitch = empty = ""
    text = render_nsswitch(_read_text(_NSSWITCH))
    if text is not None:
        nsswitch = os.path.join(directory, "nsswitch.conf")
        write_hosts(nsswitch, text)
    if _find_nscd():
        empty = os.path.join(directory, "empty")
        os.makedirs(empty, 0o755, exist_ok=True)
    return Isolation(NAMESPACE, hosts, nsswitch=nsswitch, empty=empty)


def render_machine_hosts(members: Sequence[tuple[str, Sequence[str]]]) -> str:
    """This machine's own hosts file with the members' lines."""
    return render_hosts(_read_text(_HOSTS), members)


def _read_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _find_nscd() -> list[str]:
    return sorted({os.path.realpath(path) for path in _NSCD if os.path.isdir(path)})


def enter_isolation(isolation: Isolation) -> None:
    """Take this process into its namespaces; called in the node's own process, before exec.

    An ordinary user's capabilities in the new user namespace end at exec (capabilities(7)). Raises OSError.
    """
    if isolation.method == CONTAINER:
        _enter_container(isolation.pid)
    if isolation.method != NAMESPACE:
        return
    enter_namespaces()
    kernel.bind_mount(isolation.hosts, _HOSTS)
    if isolation.nsswitch:
        kernel.bind_mount(isolation.nsswitch, _NSSWITCH)
    if isolation.empty:
        for folder in _find_nscd():
            kernel.bind_mount(isolation.empty, folder)
    if isolation.hostname:
        kernel.set_hostname(isolation.hostname)


def _unshare_as_root() -> bool:
    """Whether it is allowed without a user namespace: root of a container may not be the machine's."""
    try:
        kernel.unshare(_NAMES)
    except PermissionError:
        return False
    return True


def _enter_container(pid: int) -> None:
    """Join the namespaces of a process, and stand where it stands."""
    folder = os.open(f"/proc/{pid}/cwd", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        kernel.join_namespaces(pid)
        os.fchdir(folder)
    finally:
        os.close(folder)


def enter_namespaces() -> None:
    """Take this process into mount and UTS namespaces of its own, in a user namespace unless root. Raises OSError."""
    uid, gid = os.geteuid(), os.getegid()
    if uid != 0 or not _unshare_as_root():
        kernel.set_dumpable()
        kernel.unshare(_NAMES | kernel.CLONE_NEWUSER)
        # Without "deny" an ordinary user may not write gid_map (user_namespaces(7)).
        for name, text in (("setgroups", "deny"), ("gid_map", "{0} {0} 1"), ("uid_map", "{0} {0} 1")):
            number = uid if name == "uid_map" else gid
            fd = os.open("/proc/self/" + name, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(fd, text.format(number).encode())
            finally:
                os.close(fd)
    kernel.detach_mounts()


def extend_environment(isolation: Isolation, environment: dict[str, str]) -> dict[str, str]:
    """Add what the method needs to a node's environment. HOSTNAME too: bash keeps an inherited one."""
    result = dict(environment)
    if isolation.method == NSS_WRAPPER:
        earlier = result.get("LD_PRELOAD", "")
        result["LD_PRELOAD"] = isolation.library + (":" + earlier if earlier else "")
        result["NSS_WRAPPER_HOSTS"] = isolation.hosts
        if isolation.hostname:
            result["NSS_WRAPPER_HOSTNAME"] = isolation.hostname
    if isolation.method != ENV and isolation.hostname:
        result["HOSTNAME"] = isolation.hostname
    return result


def probe() -> IsolationProbe:
    """Try the methods in order, each in a child process; what works depends on the kernel, the site and the user.

    Raises OSError where this node is short of what a try needs: another one may find more.
    """
    failure = ask_child(_try_namespaces)
    if not failure:
        return IsolationProbe(NAMESPACE, "")
    library = ask_child(_find_library)
    if library.startswith("/"):
        return IsolationProbe(NSS_WRAPPER, failure, library)
    # The last resort of a container's root: in it, files of other users are not root's to change.
    if os.geteuid() == 0 and not ask_child(_try_user_namespace):
        return IsolationProbe(NAMESPACE, "")
    return IsolationProbe(ENV, failure + "; " + (library or _LIBRARY + " is not installed"))


def _try_namespaces() -> str:
    try:
        if os.geteuid() == 0:
            kernel.unshare(_NAMES)
        return _try_user_namespace()
    except OSError as error:
        return find_obstacle(error)


def _try_user_namespace() -> str:
    try:
        enter_namespaces()
        kernel.bind_mount(_HOSTS, _HOSTS)
        kernel.set_hostname("localhost")
    except OSError as error:
        return find_obstacle(error)
    return ""


def find_obstacle(error: OSError) -> str:
    """Why namespaces do not work here. Raises the error where that is a shortage."""
    # ENOSPC is the limit of namespaces, which many sites set to 0.
    if error.errno != errno.ENOSPC and is_shortage(error):
        raise error
    return explain(error)


def explain(error: OSError) -> str:
    """Say in words why namespaces do not work; a limit of 0 reads as a full disk otherwise."""
    if error.errno in (errno.ENOSPC, errno.EUSERS):
        return "user namespaces are off or used up (user.max_user_namespaces)"
    if error.errno in (errno.EPERM, errno.EACCES) and os.getuid() != 0:
        return f"the kernel or the site does not allow user namespaces ({error})"
    return f"namespaces do not work here ({error})"


def _find_library() -> str:
    return kernel.load_library(_LIBRARY) or kernel.load_library(_LIBRARY + ".0")


def ask_child(question: Callable[[], str]) -> str:
    """Run a function in a forked child, which its effects die with; gives its answer.

    Raises OSError where there can be no child now, or it was short of something.
    """
    reading, writing = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        os.close(reading)
        os.close(writing)
        raise
    if pid == 0:
        _answer(question, writing)
    os.close(writing)
    parts: list[bytes] = []
    try:
        while True:
            part = os.read(reading, 4096)
            if not part:
                break
            parts.append(part)
    finally:
        os.close(reading)
        _, status = os.waitpid(pid, 0)
    # The kernel kills where memory is short.
    if status == signal.SIGKILL or (os.WIFEXITED(status) and os.WEXITSTATUS(status) == EX_TEMPFAIL):
        raise OSError(errno.EAGAIN, "what works here cannot be tried now: this node is short of something")
    answer = b"".join(parts).decode("utf-8", "replace")
    return answer if status == 0 else answer or f"the probe died (status {status})"


def _answer(question: Callable[[], str], writing: int) -> NoReturn:
    status = 1
    try:
        os.write(writing, question().encode("utf-8", "replace"))
        status = 0
    except OSError as error:
        status = EX_TEMPFAIL if is_shortage(error) else 1
    finally:
        os._exit(status)
