"""`span sbatch`: submit a batch script. The daemon reads the options; the client reads the script's text."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import say, shown, write, write_json
from overspan.bridge.client import Accepted, Client, Outcome, Submission
from overspan.bridge.client.submission import decode_text, read_text
from overspan.bridge.model.durations import parse_time_limit
from overspan.bridge.model.errors import ExitCode, InvalidRequest, OverspanError
from overspan.bridge.model.options.getopt import SEPARATOR, Words, parse
from overspan.bridge.model.options.sbatch import WORDS
from overspan.bridge.model.sizes import parse_memory
from overspan.bridge.model.slurm.words import TOO_MUCH_MEMORY

_UNKNOWN_OPTION = 255
_FAILED = "Batch job submission failed: "
_EMPTY = "Batch script is empty"
_MAX_HOSTS_FILE = 1 << 20
_FILE_OPTIONS = {
    "bbf": "Invalid --bbf specification",
    "export-file": "Could not open user environment file {}",
}
_VALUES = {
    **dict.fromkeys(("time", "time-min"), parse_time_limit),
    **dict.fromkeys(("mem", "mem-per-cpu", "mem-per-gpu"), parse_memory),
}


class _BadValue(InvalidRequest):
    exit_code = _UNKNOWN_OPTION


class SbatchWords(Words):
    """sbatch's command line: the options of all components, then the script and its arguments."""

    @property
    def script(self) -> str:
        """The script's name; empty where there is none."""
        return self.rest[0] if self.rest else ""

    @property
    def args(self) -> tuple[str, ...]:
        """The script's own arguments."""
        return self.rest[1:]


def scan(words: Sequence[str]) -> SbatchWords:
    """Find the script among sbatch's words; everything after it is the script's. A lone `:` begins another component.

    The daemon reads the options; here it only matters which ones take a value.

    Raises InvalidRequest in getopt's words for an unknown option.
    """
    found: list[tuple[str, str]] = []
    rest = tuple(words)
    while True:
        options, rest = parse(rest, WORDS, permute=False)
        found += options
        if rest[:1] != (SEPARATOR,):
            return SbatchWords(tuple(found), rest)
        rest = rest[1:]


def run(call: Invocation) -> int:
    """Submit, and print Slurm's line."""
    try:
        found = scan(call.words)
    except InvalidRequest as error:
        print(f"sbatch: {error.message}", file=sys.stderr)
        print('Try "sbatch --help" for more information', file=sys.stderr)
        return _UNKNOWN_OPTION
    told = _tell(found)
    if told is not None:
        write(told)
        return 0
    try:
        if found.has("verbose") or call.environment.get("SBATCH_DEBUG", "0").strip("0"):
            _show_options(found)
        submission = make_submission(call, found)
        with call.client() as client:
            accepted = client.send(submission)
            return _answer(call, client, found, accepted)
    except OverspanError as error:
        if call.json:
            raise
        if error.message.startswith(_EMPTY) and os.path.isdir(found.script):
            # Slurm reads a folder as an empty script.
            error.remedy, error.place = f"{found.script} is a directory", None
        return _report(call, error, trial=found.has("test-only"))


def _tell(found: SbatchWords) -> str | None:
    """The text printed instead of submitting; the first such option counts."""
    for name, value in found.options:
        if name in ("help", "usage"):
            from overspan.bridge.cli.slurm.sbatch_help import HELP, USAGE

            return HELP if name == "help" else USAGE
        if name == "version":
            from overspan.bridge.cli.service.version import slurm_version

            return slurm_version()
        if name == "gres" and value == "help":
            return "Valid gres options are:\ngpu[[:type]:count]\n"
    return None


def _show_options(found: SbatchWords) -> None:
    """Say what was asked for on the command line, as sbatch --verbose does."""
    if found.has("quiet"):
        raise InvalidRequest("don't specify both --verbose (-v) and --quiet (-Q)")
    rule = f"sbatch: {'-' * 20} {'-' * 20}"
    lines = ["sbatch: defined options", rule]
    for name in sorted({"verbose", *(name for name, _ in found.options)}):
        times = sum(key == name for key, _ in found.options)
        shown = str(times or 1) if name == "verbose" else found.last(name) or "set"
        lines.append(f"sbatch: {name:<20}: {shown}")
    print("\n".join([*lines, rule, "sbatch: end of defined options"]), file=sys.stderr)


def _report(call: Invocation, error: OverspanError, *, trial: bool = False) -> int:
    """Print an error in Slurm's form: its words first, then where and how to mend it."""
    sys.stdout.flush()
    for line in shown(error.message).splitlines() or ["the submission failed"]:
        if trial and line == TOO_MUCH_MEMORY:
            # Slurm looks at memory only when a job is really submitted.
            continue
        if trial and line.startswith(_FAILED):
            print(f"allocation failure: {line.removeprefix(_FAILED)}", file=sys.stderr)
            continue
        own = line.startswith(("sbatch: ", "Try ", "Invalid time specification"))
        print(line if own else f"sbatch: error: {line}", file=sys.stderr)
    place = f"{error.place}: " if error.place else ""
    for line in shown(place + error.remedy).rstrip(": ").splitlines():
        print(f"  {line}", file=sys.stderr)
    if isinstance(error.exit_code, ExitCode):
        code = call.environment.get("SLURM_EXIT_ERROR", "")
        return int(code) if code.isdigit() and int(code) < 256 else 1
    return int(error.exit_code)


def make_submission(call: Invocation, found: SbatchWords) -> Submission:
    """Read the script: the file named, else standard input; with --wrap the daemon has it in the words."""
    file = found.script
    _check_files(found)
    if found.has("wrap"):
        text = ""
    elif file in ("", "/dev/stdin"):
        if sys.stdin.isatty():
            print("sbatch: reading the script from the terminal, end with Ctrl-D", file=sys.stderr)
        text = decode_text(sys.stdin.buffer.read(), "stdin")
    else:
        text = "" if os.path.isdir(file) else _read_script(file, found)
    return Submission(
        kind="script",
        text=text,
        file=file,
        argv=_add_hosts(call.words, found),
        command=("sbatch", *call.words),
        test_only=found.has("test-only"),
    )


def _check_files(found: SbatchWords) -> None:
    """Refuse options that name a file which cannot be read."""
    for name, text in _FILE_OPTIONS.items():
        file = found.last(name)
        if file and not os.access(file, os.R_OK):
            raise InvalidRequest(text.format(file))


def _read_script(file: str, found: SbatchWords) -> str:
    """The script's text. A wrong value is reported before a missing script, as in `sbatch -t --wrap hostname`."""
    try:
        return read_text(file)
    except InvalidRequest:
        for name, parse in _VALUES.items():
            if found.has(name):
                try:
                    parse(found.last(name))
                except ValueError as error:
                    raise _BadValue(f"Invalid --{name} specification", remedy=str(error)) from None
        raise


def _add_hosts(words: tuple[str, ...], found: SbatchWords) -> tuple[str, ...]:
    """The words, with the host list in the file of --nodefile, or of a --nodelist with a slash in it, as the last."""
    listed = found.last("nodelist")
    file = found.last("nodefile") or (listed if "/" in listed else "")
    if not file:
        return words
    try:
        with open(file, encoding="utf-8") as stream:
            hosts = ",".join(stream.read(_MAX_HOSTS_FILE).split())
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InvalidRequest(f"slurm_allocate_resources error opening file {file}, {reason}") from None
    end = len(words) - len(found.args) - bool(found.script)
    if words[end - 1] == "--":
        end -= 1
    return (*words[:end], f"--nodelist={hosts}", *words[end:])


def submitted_line(accepted: Accepted, options: Mapping[str, object]) -> str:
    """What sbatch prints: the sentence, or the id alone with --parsable; the cluster only where -M was given."""
    cluster = accepted.cluster if options.get("clusters") else ""
    if options.get("quiet") and not options.get("parsable"):
        return ""
    if options.get("parsable"):
        return f"{accepted.id};{cluster}\n" if cluster else f"{accepted.id}\n"
    return f"Submitted batch job {accepted.id}" + (f" on cluster {cluster}\n" if cluster else "\n")


def exit_code(outcome: Outcome) -> int:
    """sbatch --wait's code: the job's, 1 where a signal or something else ended it."""
    if outcome.signal:
        return 1
    return outcome.exit_code or (0 if outcome.state == "COMPLETED" else 1)


def _answer(call: Invocation, client: Client, found: SbatchWords, accepted: Accepted) -> int:
    options: dict[str, object] = {name: found.has(name) for name in ("wait", "parsable", "quiet", "clusters")}
    options["wait"] = options["wait"] or "SBATCH_WAIT" in os.environ
    options.update(accepted.options)
    if not options["quiet"]:
        for note in accepted.notes:
            say(call, note)
    if found.has("test-only") or options.get("test_only"):
        say(call, accepted.text)
        return 0
    if call.json:
        write_json({"format": 1, "id": accepted.id, "task_ids": accepted.task_ids, "cluster": accepted.cluster})
    else:
        write(submitted_line(accepted, options))
    if not options["wait"]:
        return 0
    sys.stdout.flush()
    return exit_code(client.wait(str(accepted.id)))
