"""Reference counting of files that runs share on a cluster: each is removed with its last reference.

ROOT/references/RUN has a line for each shared file that a job's runs use; the fields are separated by tabs:

    file PATH               an archive of files, or the supervisor's application
    link TARGET SOURCE      a link of `file_mounts` or `volumes`, outside of the run directory

RUN is the name of the run directory. An installation refers to its own version of the application in the same way
(INSTALLATION+NAME). A file is removed only if no reference file names it, so several daemons may share a root. A
reference file is moved to ROOT/references/ended before its lines are worked through, so that a removal that is cut off
is finished by the next one.
"""

from __future__ import annotations

import logging
import posixpath
import re
from collections.abc import Collection, Iterable, Sequence

from overspan.adapters.slurm.files.application import name_archive
from overspan.adapters.slurm.groups.handles import is_group_handle
from overspan.adapters.slurm.handles import Handle, is_handle, parse_any
from overspan.adapters.slurm.transports.programs import INTERPRETER
from overspan.adapters.slurm.transports.transport import Transport
from overspan.bridge.model.errors import NotFound
from overspan.bridge.model.file_paths import join_path
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import Form

log = logging.getLogger(__name__)

FOLDER = "references"
TOGETHER = 200
"""Runs that one call removes."""
_BREAKS = re.compile(r"[\t\n]")


def name_file(path: str) -> str:
    """The reference to a file."""
    return f"file\t{path}"


def list_links(job: Job, home: str, runs: str) -> list[str]:
    """References to the links that a job's tasks make outside of `runs`, the folder of the run directories.

    A task in an image makes none: its paths are mounted.
    """
    lines = []
    for task in job.spec.tasks:
        if task.form is not Form.RUN or task.image:
            continue
        cwd = task.workdir or job.spec.origin.directory
        for target, source in {**task.file_mounts, **task.volumes}.items():
            paths = [_expand(target, home, cwd), _expand(source, home, cwd)]
            inside = paths[0].startswith(runs)
            if all(map(posixpath.isabs, paths)) and not inside and not any(map(_BREAKS.search, paths)):
                lines.append("\t".join(["link", *paths]))
    return list(dict.fromkeys(lines))


def _expand(path: str, home: str, cwd: str) -> str:
    return join_path(cwd, f"{home}{path[1:]}" if path == "~" or path.startswith("~/") else path)


class References:
    """The references of one cluster's runs. The first release of a process lists those of earlier processes."""

    def __init__(self, transport: Transport, timeout: float) -> None:
        self._transport = transport
        self._timeout = timeout
        self._known: set[str] = set()
        self._listed = False
        self._unwatched: set[str] = set()
        """New runs whose launches are not watched yet: a release keeps them, though its handles lack them."""
        self._own: set[str] = set()
        """The references of installations that this process has written."""

    def note(self, run: str) -> None:
        """Note a run that is about to get references."""
        self._unwatched.add(run)

    def note_watched(self, handles: Iterable[str]) -> None:
        """Note launches that are watched: from now on every release gets their handles until they are over."""
        if self._unwatched:
            numbers = _list_numbers(handles)
            self._settle({run for run in self._unwatched if run.rpartition("-")[2] in numbers})

    def refuse(self, run: str) -> None:
        """Note that a run was refused: no launch of it will be watched."""
        self._settle({run})

    def _settle(self, runs: set[str]) -> None:
        """Leave it to the handles of the next release whether these runs are over."""
        self._unwatched -= runs
        self._known |= runs

    async def add(self, root: str, run: str, lines: Sequence[str]) -> None:
        """Add references of a run. A failure to write them is only logged: it must stop no job. Raises Unreachable."""
        if not lines:
            return
        self.note(run)
        await self._run(_ADD, root, run, *lines)

    async def add_library(self, root: str, run: str) -> None:
        """Add references of a run and of its installation to this version's application."""
        line = name_file(f"{root}/lib/{name_archive()}")
        await self.add(root, run, [line])
        own = _name_own(run.rpartition("-")[0])
        if own not in self._own:
            await self._run(_ADD, root, own, line)
            self._own.add(own)

    async def release(self, root: str, installation: str, handles: Collection[str], tokens: Collection[str]) -> None:
        """Remove files that no run uses any more; `handles` and `tokens` are those of all live launches."""
        if not self._listed:
            self._known |= await self._list(root)
            self._listed = True
        known = self._known | self._unwatched | self._own
        groups, runs = _name_groups(installation, handles), _name_runs(installation, handles, tokens)
        wanted = runs | {_name_own(installation)}
        if not groups <= known:
            # A group that an earlier version submitted without references may use any application.
            wanted |= {run for run in known if "+" in run}
        ended = sorted(
            run for run in known - wanted - self._unwatched if re.match(rf"{re.escape(installation)}[-+]", run)
        )
        for start in range(0, len(ended), TOGETHER):
            await self._run(
                _DROP, root, *(run for run in ended[start : start + TOGETHER] if run not in self._unwatched)
            )
        self._known -= set(ended)

    async def _list(self, root: str) -> set[str]:
        try:
            items = await self._transport.list(f"{root}/{FOLDER}")
        except NotFound:
            return set()
        return {item.name for item in items if not item.folder}

    async def _run(self, program: str, root: str, *words: str) -> None:
        if not words:
            return
        argv = [INTERPRETER, "-c", program, "sh", f"{root}/{FOLDER}", *words]
        done = await self._transport.run(argv, timeout=self._timeout)
        if done.rc != 0:
            log.info("references of %s: %s", ", ".join(words[:1]), done.words.strip() or f"exit code {done.rc}")


def _name_own(installation: str) -> str:
    return f"{installation}+{name_archive()}"


def _name_runs(installation: str, handles: Iterable[str], tokens: Iterable[str]) -> set[str]:
    """The run directories of these launches."""
    named = {f"{installation}-{number}" for number in _list_numbers(handles)}
    return named | {token.rpartition("-")[0] for token in tokens}


def _list_numbers(handles: Iterable[str]) -> set[str]:
    """The ids in the names of run directories: the job's, for an element the array's."""
    found = set()
    for text in handles:
        if is_handle(text):
            handle = parse_any(text)
            found.add(str((isinstance(handle, Handle) and handle.array) or handle.job))
    return found


def _name_groups(installation: str, handles: Iterable[str]) -> set[str]:
    """The run directories that use an application: those of groups."""
    return _name_runs(installation, filter(is_group_handle, handles), ())


_TAB = "tab=$(printf '\\t')\n"

_ADD = (
    _TAB
    + """\
used() { cat ./* ended/* 2>/dev/null | grep -qxF -- "$1"; }
umask 077; mkdir -p "$1/ended" && cd "$1" || exit 1
run=$2; shift 2
for line; do
  case $line in
  link"$tab"*)
    # What was there before any job stays.
    target=${line#*"$tab"}; target=${target%"$tab"*}
    { [ -e "$target" ] || [ -L "$target" ]; } && ! used "$line" && continue ;;
  esac
  grep -qsxF -- "$line" "$run" || printf '%s\\n' "$line" >>"$run" || exit 1
done
"""
)

# The file is moved away before the check, and moved back if it got a reference in between.
_DROP = (
    _TAB
    + """\
# Lines of those that have ended do not count: their turn comes.
used() { cat ./* 2>/dev/null | grep -qxF -- "$1"; }
cd "$1" 2>/dev/null || exit 0
shift
remove() {
  case $1 in
  file"$tab"*)
    path=${1#*"$tab"}
    mv -f -- "$path" "$path.gone" 2>/dev/null || return
    if used "$1"; then mv -f -- "$path.gone" "$path"; else rm -f -- "$path.gone"; fi ;;
  link"$tab"*)
    target=${1#*"$tab"}; source=${target#*"$tab"}; target=${target%%"$tab"*}
    [ -L "$target" ] || return
    [ "$(readlink -- "$target")" = "$source" ] || [ "$(readlink -f -- "$target")" = "$(readlink -f -- "$source")" ] ||
      return
    rm -f -- "$target" ;;
  esac
}
for run; do
  [ ! -f "$run" ] || { cat -- "$run" >>"ended/$run" && rm -f -- "$run"; } || exit 1
done
for run in ended/*; do
  [ -f "$run" ] || continue
  while IFS= read -r line; do
    used "$line" || remove "$line"
  done <"$run"
  rm -f -- "$run"
done
exit 0
"""
)
