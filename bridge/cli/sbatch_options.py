"""What sbatch's options look like: enough to find the script among the words, and the few that the client obeys.

The daemon reads the options themselves; here only which ones take a value matters (sbatch(1)).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from overspan.bridge.cli.getopt import FLAG, OPTIONAL, VALUE, Option
from overspan.bridge.model.errors import InvalidRequest

_VALUES = """
account:A acctg-freq array:a batch bb bbf begin:b chdir:D cluster-constraint clusters:M comment constraint:C
container container-id core-spec:S cores-per-socket cpu-freq cpus-per-gpu cpus-per-task:c deadline delay-boot
dependency:d distribution:m error:e exclude:x export export-file extra extra-node-info:B gid gpu-bind gpu-freq gpus:G
gpus-per-node gpus-per-socket gpus-per-task gres gres-flags hint input:i job-name:J kill-on-invalid-dep licenses:L
mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus network nodefile:F nodelist:w nodes:N
ntasks:n ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket open-mode output:o partition:p power prefer
priority profile qos:q reservation segment signal sockets-per-node switches tasks-per-node thread-spec
threads-per-core time:t time-min tmp tres-bind tres-per-task uid wait-all-nodes wckey wrap
"""
_OPTIONALS = "exclusive get-user-env nice no-kill:k propagate requeue tasks"
_FLAGS = """
contiguous help:h hold:H ignore-pbs no-requeue overcommit:O oversubscribe:s parsable quiet:Q reboot resv-ports
spread-job test-only usage use-min-nodes verbose:v version:V wait:W stepmgr json
"""


def _table(text: str, kind: str) -> tuple[Option, ...]:
    parts = [word.partition(":") for word in text.split()]
    return tuple(Option(name, letter, kind) for name, _, letter in parts)


OPTIONS: tuple[Option, ...] = _table(_VALUES, VALUE) + _table(_OPTIONALS, OPTIONAL) + _table(_FLAGS, FLAG)


class Scan(NamedTuple):
    """The words taken apart: what the client obeys itself, the script's name and the script's own arguments."""

    options: tuple[tuple[str, str], ...]
    script: str = ""
    args: tuple[str, ...] = ()

    def has(self, name: str) -> bool:
        """Whether the option was given."""
        return any(key == name for key, _ in self.options)

    def last(self, name: str) -> str:
        """The value given last."""
        return next((value for key, value in reversed(self.options) if key == name), "")


def scan(words: Sequence[str]) -> Scan:
    """Find the script among sbatch's words; everything after it is the script's. A lone `:` begins another component.

    Raises InvalidRequest in getopt's words for an unknown option.
    """
    from overspan.bridge.cli.getopt import parse

    found: list[tuple[str, str]] = []
    rest = tuple(words)
    while True:
        read = parse(rest, OPTIONS, permute=False)
        found += read.options
        if read.rest and read.rest[0] == ":":
            rest = read.rest[1:]
            continue
        script, args = (read.rest[0], read.rest[1:]) if read.rest else ("", ())
        if args and any(name == "wrap" for name, _ in found):
            raise InvalidRequest("Script arguments not permitted with --wrap option")
        return Scan(tuple(found), script, args)
