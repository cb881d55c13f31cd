"""Programs for sh that the adapter sends, run by the real sh; Slurm's commands in there are the fake's.

Each command in such a program is a small script that hands its words to this process and waits for the answer. So what
the adapter sends is tried as it is, its quoting too, and nothing of it is written a second time here.
"""

from __future__ import annotations

import os
import select
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.fakes.slurm_commands import Answer, Asked

_STUB = """\
#!/bin/sh
d=$(mktemp -d "$FAKE_SLURM/call.XXXXXX") && mkfifo "$d/rc" || exit 1
printf '%s\\0' "${0##*/}" "$@" >"$d/words"
env -0 >"$d/environment"
[ "${0##*/}" != sbatch ] || cat >"$d/stdin"
printf '%s\\n' "$d" >"$FAKE_SLURM/ask"
read -r rc <"$d/rc"
cat "$d/out"; cat "$d/err" >&2
exit "$rc"
"""

SRUN = '#!/bin/sh\nwhile case $1 in -*) true;; *) false;; esac; do shift; done\nexec "$@"\n'
"""A stand-in for srun(1) on a PATH: it runs the program here."""

Dispatch = Callable[[str, Asked], Answer]


def split_nul(path: Path) -> list[str]:
    """Texts that are ended by NUL."""
    return path.read_bytes().decode("utf-8", "surrogateescape").split("\0")[:-1]


class RealShell:
    """Runs programs in a folder of its own; `dispatch` answers the commands in them."""

    def __init__(self, folder: Path, commands: Sequence[str], dispatch: Dispatch) -> None:
        self._folder, self._dispatch = folder, dispatch
        (folder / "bin").mkdir(parents=True)
        os.mkfifo(folder / "ask")
        for name in commands:
            stub = folder / "bin" / name
            stub.write_text(_STUB)
            stub.chmod(0o755)

    def run(self, argv: Sequence[str], stdin: bytes, environment: Mapping[str, str]) -> tuple[int, bytes, bytes]:
        """Run one command to its end; gives exit code and output."""
        path = f"{self._folder / 'bin'}:/usr/bin:/bin"
        variables = {"PATH": path, "FAKE_SLURM": str(self._folder), "LC_ALL": "C", **environment}
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            given.write(stdin)
            given.seek(0)
            bell = os.open(self._folder / "ask", os.O_RDWR)
            try:
                with subprocess.Popen(argv, stdin=given, stdout=out, stderr=err, env=variables) as process:
                    self._serve(process, bell)
            finally:
                os.close(bell)
            out.seek(0)
            err.seek(0)
            code = process.returncode if process.returncode >= 0 else 128 - process.returncode
            return code, out.read(), err.read()

    def _serve(self, process: subprocess.Popen[bytes], bell: int) -> None:
        ended = os.pidfd_open(process.pid)
        try:
            while True:
                ready, _, _ = select.select([bell, ended], [], [])
                if bell in ready:
                    for call in os.read(bell, 65536).decode().split():
                        self._answer(Path(call))
                elif ended in ready:
                    return
        finally:
            os.close(ended)

    def _answer(self, call: Path) -> None:
        name, *words = split_nul(call / "words")
        variables = dict(text.split("=", 1) for text in split_nul(call / "environment") if "=" in text)
        stdin = (call / "stdin").read_text("utf-8", "surrogateescape") if (call / "stdin").exists() else ""
        answer = self._dispatch(name, Asked(words, stdin, variables))
        (call / "out").write_text(answer.out)
        (call / "err").write_text(answer.err)
        (call / "rc").write_text(f"{answer.rc}\n")
