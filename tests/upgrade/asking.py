"""What commands of any version answer about the corpus, without what differs from machine to machine."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Protocol


class Commands(Protocol):
    """The commands of one installation."""

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `span WORDS`."""


ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT")
COLUMNS = "JobID,JobName,Partition,State,ExitCode,Reason"


def read_accounts(span: Commands) -> list[str]:
    """A line for each job, element and task, by sacct."""
    words = ("sacct", "-X", "--parsable2", "--noheader", "-S", "2020-01-01", "-o", COLUMNS)
    # Who has cancelled is another number for each user.
    return [re.sub(r"CANCELLED by \d+", "CANCELLED", line) for line in span.run(*words).stdout.splitlines()]


def read_timeline(span: Commands, job: int) -> list[str]:
    """Each transition of a job but when it was."""
    rows = json.loads(span.run("timeline", str(job), "--json").stdout)["rows"]
    return [
        " ".join(f"{row['task']} {row['start']} > {row['end']} {row['reason']} {row['text']}".split()) for row in rows
    ]
