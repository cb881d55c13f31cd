"""Sorts the errors of Slurm's commands: to be tried again, final, or in doubt.

The patterns are texts of slurm_errno.c, 20.11 to 26.05, and of the commands.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from overspan.bridge.model.errors import Denied, NotFound, OverspanError, Rejected, TimedOut, Unreachable


class FailureKind(StrEnum):
    """What a failure means for the call."""

    NO_ANSWER = "no answer"
    """In doubt: the call may have had its effect, so look for that before the next try."""
    UNREACHABLE = "unreachable"
    """The call had no effect; the cluster does not answer."""
    BUSY = "busy"
    """The call had no effect; Slurm asks to try again later."""
    LIMIT = "limit"
    """The call had no effect; it exceeds a limit that other jobs use up for now."""
    UNKNOWN_JOB = "unknown job"
    DENIED = "denied"
    ENDED = "ended"
    """The job has ended already, or the step has."""
    REJECTED = "rejected"
    """Final, in Slurm's words."""
    NO_ACCOUNTING = "no accounting"
    OLD_CLIENT = "old client"
    """The command has no such option: an older version of Slurm."""
    MISSING = "missing"
    """There is no such command on the cluster."""


RATE_LIMIT = r"(?i:rate.?limit|too many (concurrent )?(requests|connections)|SLURMCTLD is busy|requested backoff)"
"""The controller limits the rate of requests (SlurmctldParameters=rl_enable)."""

TABLE: tuple[tuple[str, FailureKind], ...] = (
    (
        r"Socket timed out on send/recv|Connection timed out|Message receive failure|Zero Bytes were transmitted",
        FailureKind.NO_ANSWER,
    ),
    (r"Unexpected message received|Communication connection failure|Insane message length", FailureKind.NO_ANSWER),
    (
        r"Unable to contact slurm controller|Connection refused|Slurm backup controller in standby",
        FailureKind.UNREACHABLE,
    ),
    (r"No route to host|Network is unreachable|Transport endpoint is not connected", FailureKind.UNREACHABLE),
    (
        r"Unable to establish config(uration)? source|Could not (establish|resolve).*(config|host)",
        FailureKind.UNREACHABLE,
    ),
    (
        r"Slurm temporarily unable to accept job|Resource temporarily unavailable|in a transition state",
        FailureKind.BUSY,
    ),
    (RATE_LIMIT, FailureKind.BUSY),
    # From the mkdir of the job's folder that comes before sbatch.
    (r"mkdir: .*(No space left on device|[Qq]uota exceeded)", FailureKind.BUSY),
    (
        r"Invalid authentication credential|Protocol authentication error|[Mm]unge .*(fail|error|connect)",
        FailureKind.BUSY,
    ),
    # The sentence about the policy is the same for jobs that are too large for ever; the reason in front of it
    # distinguishes them (23.02 and later).
    (r"(Assoc|QOS)\w*MaxSubmit\w*", FailureKind.LIMIT),
    (r"maximum number of jobs|MaxJobCount|Unable to (create|allocate) job.*limit", FailureKind.LIMIT),
    (
        r"Slurm accounting storage is disabled|Problem talking to the database|slurmdbd.*(down|refused|Unable)",
        FailureKind.NO_ACCOUNTING,
    ),
    (r"Unable to connect to (the )?database|sacct.*accounting storage", FailureKind.NO_ACCOUNTING),
    (
        r"Job/step already completing or completed|Job is (no longer|not) running|Job has already finished",
        FailureKind.ENDED,
    ),
    (r"Invalid job id specified|Job not found|Unable to find job", FailureKind.UNKNOWN_JOB),
    (
        r"Access/permission denied|Operation not permitted|User's group not permitted|Permission denied",
        FailureKind.DENIED,
    ),
    (
        r"unrecognized option|invalid option --|Invalid job format specification|Invalid field requested",
        FailureKind.OLD_CLIENT,
    ),
    (
        r"command not found|No such file or directory.*(sbatch|squeue|sacct)|(sbatch|squeue|sacct).*: not found",
        FailureKind.MISSING,
    ),
)
"""Patterns of error texts; the first that matches counts. Everything else that sbatch says is a rejection."""

_CLASSES: dict[FailureKind, type[OverspanError]] = {
    FailureKind.NO_ANSWER: TimedOut,
    FailureKind.UNREACHABLE: Unreachable,
    FailureKind.BUSY: Unreachable,
    FailureKind.LIMIT: Rejected,
    FailureKind.UNKNOWN_JOB: NotFound,
    FailureKind.DENIED: Denied,
    FailureKind.ENDED: NotFound,
    FailureKind.REJECTED: Rejected,
    FailureKind.NO_ACCOUNTING: Unreachable,
    FailureKind.OLD_CLIENT: Rejected,
    FailureKind.MISSING: Unreachable,
}
_TRANSIENT = frozenset(
    {FailureKind.NO_ANSWER, FailureKind.UNREACHABLE, FailureKind.BUSY, FailureKind.LIMIT, FailureKind.NO_ACCOUNTING}
)
_PREFIX = re.compile(r"^(?:sbatch|squeue|sacct|scancel|scontrol|sinfo|srun|slurm_\w+)(?: error)?: (?:error: |fatal: )?")
_NOISE = re.compile(r"^\S+: (?:warning|debug\d?|info|verbose): |^\s*$", re.IGNORECASE)

REMEDIES: tuple[tuple[str, str], ...] = (
    (r"[Ii]nvalid partition", "`span sinfo` lists the partitions"),
    (r"Invalid account or account/partition", "`sacctmgr show user -s $USER` lists your accounts"),
    (r"Invalid qos", "`sacctmgr show qos` lists them"),
    (r"Requested node configuration is not available", "ask for less on each node: `span sinfo -N` shows the nodes"),
    (r"DOS line breaks", "convert the script with dos2unix"),
    (r"Requested time limit is invalid|Time limit specification", "`span sinfo` shows the partitions' time limits"),
    (r"No space left on device|[Qq]uota exceeded", "make room there, or set `root` to a folder with room"),
    (r"I/O error writing script/environment", "the controller's own disk is full: tell the site"),
    (r"job submit limit", "wait for others to end, or set `max_submitted` of the cluster"),
)


@dataclass(frozen=True)
class SlurmFailure:
    """A failed command: its kind, its own words without prefixes, and a remedy."""

    kind: FailureKind
    message: str
    remedy: str = ""

    @property
    def transient(self) -> bool:
        """Whether the same call may work later."""
        return self.kind in _TRANSIENT

    @property
    def uncertain(self) -> bool:
        """Whether the call may have had its effect."""
        return self.kind is FailureKind.NO_ANSWER

    def error(self) -> OverspanError:
        """As an error of the tree."""
        error = _CLASSES[self.kind](self.message, remedy=self.remedy)
        error.transient = self.transient
        return error


def read_failure(stderr: str, code: int) -> SlurmFailure:
    """Read the stderr of a Slurm command that ended with that code."""
    message = clean(stderr) or f"the command ended with code {code} and no message"
    for pattern, kind in TABLE:
        if re.search(pattern, stderr):
            return SlurmFailure(kind, message, _find_remedy(message))
    if code > 128 and code != 255 and not clean(stderr):
        # A signal has ended the command on its machine.
        return SlurmFailure(FailureKind.NO_ANSWER, message)
    if code == 127:
        return SlurmFailure(FailureKind.MISSING, message)
    if code == 255 and re.search(r"^(ssh|kex_|Connection (closed|reset)|Host key)", stderr, re.MULTILINE):
        return SlurmFailure(FailureKind.UNREACHABLE, message)
    return SlurmFailure(FailureKind.REJECTED, message, _find_remedy(message))


def clean(stderr: str) -> str:
    """An error text without the commands' names, warnings, and empty and repeated lines."""
    lines = [_PREFIX.sub("", line).strip() for line in stderr.splitlines() if not _NOISE.match(line)]
    return "\n".join(dict.fromkeys(line for line in lines if line))


def _find_remedy(message: str) -> str:
    return next((remedy for pattern, remedy in REMEDIES if re.search(pattern, message)), "")


def read_submitted(stdout: str) -> str:
    """The native id in what `sbatch --parsable` prints: `N` or `N;CLUSTER`; empty when there is none.

    A site's wrapper of sbatch may print other lines before it.
    """
    for line in reversed(stdout.splitlines()):
        match = re.fullmatch(r"\s*(\d+)(?:;\S+)?\s*", line) or re.search(r"Submitted batch job (\d+)", line)
        if match:
            return match[1]
    return ""
