"""Compares now and writes the differences: `python -m tests.differential.report FILE.md [--pending]`.

The file has a heading for each verb. With --pending the differences that accepted.yaml does not accept become its
`pending` list, which is to become empty.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import yaml
from tests.differential.comparison import ACCEPTED, Difference, Entry, compare, read_entries, read_rules, unexplained
from tests.differential.suite import all_cases, play_span, read_golden
from tests.system.conftest import Span
from tests.waiting import wait_until


def find_differences() -> list[Difference]:
    """All differences, accepted ones too."""
    folder = Path(tempfile.mkdtemp(prefix="span-differential-"))
    span = Span(folder, wait_until)
    try:
        answers = play_span(span, all_cases())
    finally:
        span.close()
        shutil.rmtree(folder)
    golden, rules = read_golden(), read_rules()
    return [found for name in golden for found in compare(golden[name], answers.get(name, []), rules)]


def to_markdown(differences: Iterable[Difference], accepted: Iterable[Entry]) -> str:
    """The differences by verb: first what is to be done, then what may stand."""
    found, entries = list(differences), list(accepted)
    open_ones = unexplained(found, entries)
    total = len(all_cases())
    lines = [
        "# Differences from Slurm",
        "",
        f"{total} cases; {_cases(open_ones)} differ and are to do, {_cases(found)} differ at all.",
        "",
    ]
    for verb in sorted({one.case.partition("/")[0] for one in found}):
        mine = [one for one in open_ones if one.case.startswith(f"{verb}/")]
        total = sum(case.verb == verb for case in all_cases())
        lines += [f"## {verb}: {_cases(mine)} of {total} cases to do", ""]
        for name in dict.fromkeys(one.case for one in mine):
            lines += [f"### {name}", ""]
            for one in (each for each in mine if each.case == name):
                lines += [f"`{one.command}` {one.field}", f"- Slurm: `{one.expected!r}`", f"- ours: `{one.got!r}`", ""]
    accepted_ones = [one for one in found if one not in open_ones]
    lines += ["## Accepted", "", *(f"- {one.case} ({one.field})" for one in accepted_ones), ""]
    return "\n".join(lines)


def write_pending(differences: Iterable[Difference], file: Path = ACCEPTED) -> None:
    """Replace the `pending` list; what is accepted, and the comment above it, stays."""
    accepted, _ = read_entries(file)
    fields: dict[str, list[str]] = {}
    for one in unexplained(differences, accepted):
        fields.setdefault(one.case, [])
        if one.field not in fields[one.case]:
            fields[one.case].append(one.field)
    head = file.read_text(encoding="utf-8").partition("\npending:")[0]
    rows = [{"case": name, "differs": differs} for name, differs in sorted(fields.items())]
    text = yaml.safe_dump({"pending": rows}, allow_unicode=True, sort_keys=False, width=1000, default_flow_style=None)
    file.write_text(f"{head}\n{text}", encoding="utf-8")


def _cases(differences: Iterable[Difference]) -> int:
    return len({one.case for one in differences})


def main() -> None:
    """Write the report, and the pending list if asked."""
    differences = find_differences()
    accepted, _ = read_entries()
    Path(sys.argv[1]).write_text(to_markdown(differences, accepted), encoding="utf-8")
    if "--pending" in sys.argv[2:]:
        write_pending(differences)


if __name__ == "__main__":
    main()
