"""Where things are: the state folder, the daemon's socket and the configuration files.

Used by the client, the daemon and the commands; standard library only.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from typing import NamedTuple

from overspan.bridge.model.errors import Denied, OverspanError

SOCKET_NAME = "span.sock"
SHARED_STATE, SHARED_RUNTIME = "/var/lib/overspan", "/run/overspan"
"""The folders of a daemon of several users."""
SERVER_FILE = "server"
"""Beside the site's configuration: the socket of the shared daemon, for commands to find, in one line."""
MAX_SOCKET_PATH = 107
"""Bytes of a unix socket's path: sun_path has 108 with the closing zero (unix(7))."""


class Paths(NamedTuple):
    """The places of one user's daemon; every path is absolute."""

    state: str
    runtime: str
    socket: str
    config: str
    site_config: str

    @property
    def log(self) -> str:
        """The file that a daemon started by a command writes its messages to."""
        return os.path.join(self.state, "daemon.log")

    @property
    def start_lock(self) -> str:
        """The file whose lock the one command holds that starts the daemon."""
        return os.path.join(self.state, "daemon.start")


def find_paths(environment: Mapping[str, str]) -> Paths:
    """Find the places for these variables; nothing is read or made.

    SPAN_STATE_DIR, SPAN_RUNTIME_DIR, SPAN_CONFIG and SPAN_SITE_CONFIG win over the XDG folders. A state folder of
    its own brings its own socket, so that two daemons never meet. A relative XDG path counts as unset, as the XDG
    base directory specification asks.
    """
    home = environment.get("HOME") or os.path.expanduser("~")
    own_state = environment.get("SPAN_STATE_DIR", "")
    state = os.path.abspath(own_state or os.path.join(_xdg(environment, "STATE", home, ".local/state"), "overspan"))
    runtime = environment.get("SPAN_RUNTIME_DIR", "")
    session = environment.get("XDG_RUNTIME_DIR", "")
    if not runtime and not own_state and os.path.isabs(session) and os.path.isdir(session):
        runtime = os.path.join(session, "overspan")
    runtime = os.path.abspath(runtime or os.path.join(state, "run"))
    if len(os.fsencode(os.path.join(runtime, SOCKET_NAME))) > MAX_SOCKET_PATH:
        runtime = _short_folder(runtime)
    config = environment.get("SPAN_CONFIG") or os.path.join(
        _xdg(environment, "CONFIG", home, ".config"), "overspan", "config.yaml"
    )
    return Paths(
        state=state,
        runtime=runtime,
        socket=os.path.join(runtime, SOCKET_NAME),
        config=os.path.abspath(config),
        site_config=os.path.abspath(environment.get("SPAN_SITE_CONFIG") or "/etc/overspan/config.yaml"),
    )


def list_missing(environment: Mapping[str, str], paths: Paths) -> list[tuple[str, str]]:
    """The variables that name a configuration file which is not there, with the file."""
    named = (("SPAN_CONFIG", paths.config), ("SPAN_SITE_CONFIG", paths.site_config))
    return [(name, path) for name, path in named if environment.get(name) and not os.path.exists(path)]


def find_shared_paths(environment: Mapping[str, str]) -> Paths:
    """Find the places of a daemon of several users; without SPAN_CONFIG it has the site's configuration alone."""
    site_config = os.path.abspath(environment.get("SPAN_SITE_CONFIG") or "/etc/overspan/config.yaml")
    runtime = os.path.abspath(environment.get("SPAN_RUNTIME_DIR") or SHARED_RUNTIME)
    return Paths(
        state=os.path.abspath(environment.get("SPAN_STATE_DIR") or SHARED_STATE),
        runtime=runtime,
        socket=os.path.join(runtime, SOCKET_NAME),
        config=os.path.abspath(environment.get("SPAN_CONFIG") or os.devnull),
        site_config=site_config,
    )


def find_server(environment: Mapping[str, str], paths: Paths) -> str:
    """The socket of the shared daemon that commands are to use; empty for the user's own daemon.

    SPAN_SERVER says which, and that there is none where it is empty. A state or runtime folder that is named means the
    daemon of that folder. Else the site says it, in the file beside its configuration.
    """
    if "SPAN_SERVER" in environment:
        named = environment["SPAN_SERVER"]
        return os.path.abspath(named) if named else ""
    if environment.get("SPAN_STATE_DIR") or environment.get("SPAN_RUNTIME_DIR"):
        return ""
    try:
        with open(os.path.join(os.path.dirname(paths.site_config), SERVER_FILE)) as file:
            path = file.readline(4096).strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return path if os.path.isabs(path) else ""


def make_shared_folders(paths: Paths) -> None:
    """Make the state folder, 0700, and the runtime folder, which all users may enter. Raises as make_folders does."""
    make_private_folder(paths.state)
    try:
        os.makedirs(paths.runtime, mode=0o755, exist_ok=True)
        facts = os.lstat(paths.runtime)
        if facts.st_uid != os.geteuid() or not stat.S_ISDIR(facts.st_mode) or stat.S_IMODE(facts.st_mode) & 0o022:
            raise Denied(
                f"others may write to {paths.runtime}, so any user could pose as the daemon",
                remedy="give it to root with mode 0755, or name another folder with SPAN_RUNTIME_DIR",
            )
        # The daemon's umask leaves others out.
        os.chmod(paths.runtime, 0o755)
    except OSError as error:
        raise OverspanError(
            f"cannot use the folder {paths.runtime}: {error.strerror}", remedy="name another with SPAN_RUNTIME_DIR"
        ) from None


def make_folders(paths: Paths) -> None:
    """Make the state and runtime folders, 0700. Raises as make_private_folder does."""
    for folder in (paths.state, paths.runtime):
        make_private_folder(folder)


def make_private_folder(folder: str) -> None:
    """Make a folder that only its owner can enter, or close an own one that others can enter.

    Raises Denied when it is another user's, a link of another user's, or open to all; OverspanError when it cannot be
    made.
    """
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        facts = os.stat(folder)
        owners = {facts.st_uid, os.lstat(folder).st_uid}
        if owners != {os.geteuid()}:
            raise Denied(
                f"the folder {folder} belongs to another user",
                remedy="name one of your own with SPAN_STATE_DIR and SPAN_RUNTIME_DIR",
            )
        if facts.st_mode & stat.S_ISVTX and facts.st_mode & stat.S_IWOTH:
            # One that is meant for all, such as /tmp: closing it would lock them out.
            raise Denied(
                f"the folder {folder} is open to all users",
                remedy="name a folder in it, or another one, with SPAN_STATE_DIR and SPAN_RUNTIME_DIR",
            )
        if stat.S_IMODE(facts.st_mode) & 0o077:
            os.chmod(folder, 0o700)
    except OSError as error:
        raise OverspanError(
            f"cannot use the folder {folder}: {error.strerror}",
            remedy="name another with SPAN_STATE_DIR (state) or SPAN_RUNTIME_DIR (socket)",
        ) from None


def _xdg(environment: Mapping[str, str], kind: str, home: str, default: str) -> str:
    folder = environment.get(f"XDG_{kind}_HOME", "")
    return folder if os.path.isabs(folder) else os.path.join(home, default)


def _short_folder(runtime: str) -> str:
    """Stand in for a folder whose path is too long for a socket."""
    import hashlib  # only the rare long path pays for it

    return f"/tmp/span-{os.geteuid()}-{hashlib.sha256(os.fsencode(runtime)).hexdigest()[:16]}"
