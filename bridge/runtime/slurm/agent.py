"""The agent: one node run on a compute node, as the only program of an srun.

It takes the launch from its standard input, gives the program its names, watches over everything below it as a shim
does, and tells how it ended on its standard output. Slurm signals every process of a step itself, so the agent passes
on only what comes over the channel. When the channel closes, it ends everything: TERM, grace period, KILL.

A guard, its parent, ends what is left when the agent itself is killed: not every site's Slurm finds orphans of a step
(proctrack/linuxproc and pgid do not).
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from overspan.bridge.runtime.core import gated_child, isolation, kernel, shim_control
from overspan.bridge.runtime.core.gated_child import NodeLaunch, StartError
from overspan.bridge.runtime.core.isolation import Isolation
from overspan.bridge.runtime.core.node_records import NodeRecord
from overspan.bridge.runtime.core.shim import ALL_SIGNALS, KILL_INTERVAL, UNKILLABLE_TIMEOUT, Tree, fork_child
from overspan.bridge.runtime.slurm import containers, images, inline_files, node_staging
from overspan.bridge.runtime.slurm.channel import LineReader, RemoteLaunch, decode_launch, encode_line, read_members
from overspan.bridge.runtime.slurm.file_parts import write_part
from overspan.bridge.runtime.slurm.images import carry_variables, find_home, is_held, wrap_words, write_image_hosts
from overspan.bridge.runtime.slurm.node_folders import make_folder
from overspan.bridge.runtime.slurm.output_tails import FileWait, OutputTails, tail_streams
from overspan.bridge.runtime.slurm.variables import merge_variables, pin_steps, render_hostfile

_COMM = "span-agent"
_GUARD_COMM = "span-guard"
_READ_SIZE = 1 << 16
_LINK_SECONDS = 15.0
# Slurm signals the processes of a step one after the other: a program may end by it before the agent has it.
_SIGNAL_WINDOW = 0.005


class Agent:
    """The run of one node, from its launch to its end."""

    def __init__(self) -> None:
        self._lines = LineReader()
        self._messages: list[dict[str, Any]] = []
        self._signals = kernel.open_signalfd(ALL_SIGNALS - {int(signal.SIGKILL), int(signal.SIGSTOP)})
        self._poller = select.poll()
        self._poller.register(0, select.POLLIN)
        self._poller.register(self._signals, select.POLLIN)
        self._closed_at: Optional[float] = None
        self._term_at: Optional[float] = None
        self._folder = ""
        self._tails = OutputTails((), FileWait("", 0.0))

    def serve(self) -> int:
        """Run the one node run; gives the agent's exit status, which is the program's."""
        while not self._messages and self._closed_at is None:
            self._listen(None)
        if not self._messages:
            return 1
        launch = decode_launch(self._messages.pop(0).get("launch"))
        folder = make_folder(("/tmp", os.environ.get("TMPDIR", "")))
        self._folder = folder.path
        try:
            launch, record = self._stage(launch, folder.path)
            record = record or self._run(launch, folder.path)
            self._tell_rest()
        finally:
            if launch.parcel:
                inline_files.remove_links(launch.mounts, launch.cwd, folder.path)
            folder.remove()
        self._tell_end(launch, record)
        return record.exit_code if record.exit_code is not None else 128 + (record.signal or 0)

    # --- the program -------------------------------------------------------------------------------------------------

    def _stage(self, launch: RemoteLaunch, folder: str) -> tuple[RemoteLaunch, Optional[NodeRecord]]:
        """The launch by this node's paths, and a record where that cannot be."""
        try:
            if launch.links:
                # Of few: jobs without storage load nothing for it.
                from overspan.bridge.runtime.core.mounts import await_links

                await_links(launch.links, _LINK_SECONDS)
            if not launch.streamed:
                return launch, None
            launch = node_staging.stage_launch(launch, folder)
        except OSError as error:
            return launch, _fail(StartError("isolation", f"cannot prepare this node: {error}", error.errno or 0))
        awaited = FileWait(launch.awaited, launch.period)
        self._tails = OutputTails(tail_streams(launch), awaited)
        return launch, None

    def _run(self, launch: RemoteLaunch, folder: str) -> NodeRecord:
        try:
            mark = ""
            if is_held(launch.image):
                mark, ending = self._await_container(launch, folder)
                if ending:
                    return NodeRecord(0, 0, 0, "", ended_at=round(time.time(), 6), signal=ending)
            prepared = prepare_launch(launch, folder, mark)
        except OSError as error:
            return _fail(StartError("isolation", f"cannot prepare this node: {error}", error.errno or 0))
        try:
            kernel.set_subreaper()
        except OSError:
            pass  # only what leaves the program's own tree may then outlive it until Slurm ends the step
        try:
            pid, report, release = fork_child(-1, lambda gate: gated_child.run_child(prepared, gate), True)
        except OSError as error:
            return _fail(StartError("start", f"cannot fork: {os.strerror(error.errno or 0)}", error.errno or 0))
        told = os.read(report, 1)
        if told != gated_child.READY:
            told += kernel.read_descriptor(report)
            _, status = os.waitpid(pid, 0)
            return _fail(gated_child.parse_failure(told, status))
        started = round(time.time(), 6)
        try:
            os.write(release, gated_child.GO)
        except OSError:
            pass  # killed at the gate: its status tells
        os.close(release)
        self._tell({"started": {"at": started}})
        return self._watch(launch, Tree(pid), pid, report)

    def _await_container(self, launch: RemoteLaunch, folder: str) -> tuple[str, int]:
        """Ask for the image's container and wait for it; gives its mark, or the signal that ends the wait."""
        hosts = images.write_image_hosts(folder, launch.members)
        self._tell({"wanted": {"hosts": hosts, "home": find_home(merge_environment(launch)), "folder": folder}})
        seen = 0
        while self._closed_at is None and self._term_at is None:
            for message in self._messages[seen:]:
                number = int(message.get("signal", 0))
                if "container" in message:
                    return str(message["container"].get("mark", "")), 0
                if message.get("terminate") or number in (*shim_control.ENDING, signal.SIGKILL):
                    return "", number or int(signal.SIGTERM)
            # What comes before the program is for the program.
            seen = len(self._messages)
            self._listen(None)
        return "", int(signal.SIGTERM)

    def _watch(self, launch: RemoteLaunch, tree: Tree, pid: int, report: int) -> NodeRecord:
        """Follow everything below to its end; gives what became of the program."""
        ended: Optional[NodeRecord] = None
        deadline = 0.0
        while tree.reap():
            if tree.status is not None and ended is None:
                ended = self._conclude(tree, pid, report)
                deadline = time.monotonic() + UNKILLABLE_TIMEOUT
                # Other ends may have been announced meanwhile.
                continue
            self._obey(tree)
            self._insist(launch, tree)
            self._tell_output()
            if ended is None or self._is_patient(launch, tree):
                deadline = time.monotonic() + UNKILLABLE_TIMEOUT
                self._listen(self._tails.pause if self._closed_at is None and self._term_at is None else 0.1)
                continue
            if time.monotonic() > deadline:
                break
            tree.kill()
            self._listen(KILL_INTERVAL)
        return ended or self._conclude(tree, pid, report)

    def _conclude(self, tree: Tree, pid: int, report: int) -> NodeRecord:
        record = shim_control.conclude(NodeRecord(pid, 0, 0, ""), tree.status or 0)
        told = kernel.read_descriptor(report)
        if told:
            return _fail(gated_child.parse_failure(told, 0))._replace(pid=pid)
        if self._term_at is None:
            self._listen(_SIGNAL_WINDOW)
        return record

    def _is_patient(self, launch: RemoteLaunch, tree: Tree) -> bool:
        """Whether what outlives the program still has time, after a TERM of the supervisor's or of Slurm's."""
        if self._term_at is not None:
            return time.monotonic() < self._term_at + launch.grace
        return tree.patient

    def _obey(self, tree: Tree) -> None:
        messages, self._messages = self._messages, []
        for message in messages:
            if message.get("terminate") and self._term_at is None:
                tree.obey(signal.SIGTERM)
            if "part" in message:
                self._keep_notice(message["part"])
            if "members" in message:
                show_members(self._folder, read_members(message["members"]))
            if "members_file" in message:
                self._keep_members(str(message["members_file"]))
            number = int(message.get("signal", 0))
            if number:
                pass_signal(tree, number, str(message.get("scope", "tree")))

    def _keep_notice(self, part: Mapping[str, Any]) -> None:
        """Add lines to the notices that the program may read; a full disk keeps them away."""
        try:
            write_part(self._folder, {**part, "file": node_staging.NOTICE})
        except OSError:
            pass

    def _keep_members(self, text: str) -> None:
        """Replace the members file that the program may read; a full disk leaves the old one."""
        # Of few: what it takes from the model is not loaded for all others.
        from overspan.bridge.runtime.core.members_file import write_members

        try:
            write_members(self._folder, text)
        except OSError as error:
            print(f"span: error: the members file cannot be written: {error}", file=sys.stderr)

    def _insist(self, launch: RemoteLaunch, tree: Tree) -> None:
        """Without a supervisor, the end: TERM, once, and KILL after the grace period."""
        if self._closed_at is None:
            return
        if self._closed_at == 0.0:
            self._closed_at = time.monotonic()
            if self._term_at is None:
                tree.obey(signal.SIGTERM)
        elif time.monotonic() > self._closed_at + launch.grace:
            tree.obey(signal.SIGKILL)

    # --- the channel -------------------------------------------------------------------------------------------------

    def _listen(self, seconds: Optional[float]) -> None:
        """Take in messages and signals; waits for one at most so many seconds."""
        for fd, _ in self._poller.poll(None if seconds is None else seconds * 1000):
            if fd == self._signals:
                self._take_signals()
                continue
            try:
                data = os.read(0, _READ_SIZE)
            except OSError:
                data = b""
            if data:
                self._messages.extend(self._lines.feed(data))
            else:
                self._poller.unregister(0)
                self._closed_at = 0.0

    def _take_signals(self) -> None:
        for info in kernel.read_signalfd(self._signals):
            if info.number == signal.SIGTERM and self._term_at is None:
                self._term_at = time.monotonic()
                self._tell({"told": {"signal": info.number}})

    def _tell(self, message: dict[str, Any]) -> None:
        for body in message.values():
            body["sent"] = round(time.time(), 6)
        data = encode_line(message)
        try:
            while data:
                data = data[os.write(1, data) :]
        except OSError:
            pass  # srun is gone: the end of the input tells it too

    def _tell_output(self) -> None:
        for message in self._tails.look():
            self._tell(message)

    def _tell_rest(self) -> None:
        """Tell all that the program has written; nothing of it is left to write more."""
        while messages := self._tails.finish():
            for message in messages:
                self._tell(message)

    def _tell_end(self, launch: RemoteLaunch, record: NodeRecord) -> None:
        end: dict[str, Any] = {
            "at": record.ended_at,
            "exit_code": record.exit_code,
            "signal": record.signal,
            "failed_at": record.failed_at,
            "error": record.error,
            "errno": record.errno,
            "told": self._term_at is not None,
            "setup_failed": bool(launch.marker and record.exit_code and os.path.exists(launch.marker)),
        }
        self._tell({"ended": {name: value for name, value in end.items() if value not in (None, "", False)}})


def show_members(folder: str, members: Sequence[tuple[str, Sequence[str]]]) -> None:
    """Rewrite the node run's hosts file, where it has one; a full disk leaves the old one."""
    for name in (isolation.HOSTS_FILE, images.HOSTS_FILE):
        path = os.path.join(folder, name)
        if os.path.exists(path):
            try:
                isolation.write_hosts(path, isolation.render_machine_hosts(members))
            except OSError as error:
                print(f"span: error: the hosts file cannot be written: {error}", file=sys.stderr)


def pass_signal(tree: Tree, number: int, scope: str) -> None:
    """Signal the program (`leader`), the ranks of its steps (`steps`), or all below the agent (`tree`)."""
    if scope == "tree":
        tree.obey(number)
        return
    ending = number in shim_control.ENDING
    if scope == "steps":
        kernel.signal_below(os.getpid(), shim_control.STEP_COMM, number)
        if ending:
            kernel.signal_below(os.getpid(), shim_control.STEP_COMM, signal.SIGCONT)
        return
    leader = kernel.read_process(tree.leader)
    if leader is not None and leader.parent == os.getpid() and leader.state not in "ZX":
        kernel.signal_process(leader, number)
        if ending:
            kernel.signal_process(leader, signal.SIGCONT)


def merge_environment(launch: RemoteLaunch) -> dict[str, str]:
    """The program's environment with what Slurm set for this step."""
    return merge_variables(launch.environment, os.environ, launch.bare)


def prepare_launch(launch: RemoteLaunch, folder: str, mark: str = "") -> NodeLaunch:
    """What the gated child starts: with this node's names, files of its own in `folder`, and Slurm's variables.

    `mark` is that of the container, where a step of its own holds one. Raises OSError.
    """
    isolated = Isolation()
    argv = launch.argv
    if launch.mounted:
        # Of few; and before the fork, since the child might not find it any more.
        import overspan.bridge.runtime.core.storage_mounts  # noqa: F401
    # An image has its hosts file bound into it: its runtime may need the node's own namespaces (a setuid Apptainer).
    if launch.members and not launch.image:
        isolated = isolation.prepare_isolation(folder, isolation.probe(), launch.members)
        if isolated.method != isolation.ENV:
            isolated = isolated._replace(hostname=launch.hostname)
    environment = merge_environment(launch)
    # Such a container does not show this node's files.
    if launch.nodes and not mark:
        hostfile = os.path.join(folder, "nodes")
        with open(hostfile, "w", encoding="utf-8") as file:
            file.write(render_hostfile(launch.nodes, environment.get("SLURM_NTASKS", "")))
        pin_steps(environment, hostfile)
    if mark:
        isolated, environment = enter_held(launch, environment, mark)
        argv = wrap_words((), argv, "", "")
    elif launch.image:
        hosts = write_image_hosts(folder, launch.members)
        argv = wrap_words(launch.image, argv, find_home(environment), hosts, folder)
        environment = carry_variables(environment, launch.carried)
    return NodeLaunch(
        directory=folder,
        key=launch.key,
        argv=argv,
        env=environment,
        cwd=launch.cwd,
        stdin=launch.stdin,
        stdout=launch.stdout,
        stderr=launch.stderr,
        append=launch.append,
        folders_awaited=launch.folders_awaited,
        umask=launch.umask,
        recorded=False,
        server=launch.server,
        mounted=launch.mounted,
        note=launch.note,
        isolation=isolated,
    )


def enter_held(launch: RemoteLaunch, environment: dict[str, str], mark: str) -> tuple[Isolation, dict[str, str]]:
    """How the child gets into the container of this mark, and its environment there. Raises OSError."""
    holder = containers.find_holder(mark)
    if not holder:
        raise FileNotFoundError("the container of the image is not on this node")
    inside = containers.read_variables(holder)
    environment = containers.merge_image(environment, inside, os.environ, launch.carried)
    return Isolation(isolation.CONTAINER, pid=holder), environment


def _fail(failure: StartError) -> NodeRecord:
    """The record of a start that failed."""
    ended = round(time.time(), 6)
    return NodeRecord(
        0, 0, 0, "", ended_at=ended, exit_code=127, error=failure.text, failed_at=failure.step, errno=failure.number
    )


def guard(agent: int) -> int:
    """Wait for the agent; gives its exit status, or 128 and its signal once everything below it was killed."""
    _, status = os.waitpid(agent, 0)
    if os.WIFEXITED(status):
        return os.WEXITSTATUS(status)
    Tree(agent).clear()
    return 128 + os.WTERMSIG(status)


def main(words: Sequence[str] = ()) -> int:
    """Serve the channel on the standard streams; gives the program's exit code, or 128 and its signal."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ALL_SIGNALS)
    kernel.reset_signals()
    os.umask(0o077)
    os.chdir("/")
    try:
        kernel.set_subreaper()
        agent = os.fork()
    except OSError:
        agent = 0  # without a guard, then
    if agent:
        kernel.set_comm(_GUARD_COMM)
        return guard(agent)
    kernel.set_comm(_COMM)
    try:
        return Agent().serve()
    except Exception as error:
        # srun carries it to the supervisor, which shows the last line.
        print(f"span: error: the agent failed: {error!r}", file=sys.stderr)
        return 70
