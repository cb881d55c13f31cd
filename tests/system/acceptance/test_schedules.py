"""Recurring jobs as users have them: `cron` in a job file, `span cron`, a daemon that was not there."""

from __future__ import annotations

import json
import sqlite3
import stat
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.system.conftest import Span

YEAR = 366 * 86400
# Half a year from now, so that it is not due while a test runs, and as often in so many years at any date.
FAR = f"0 0 1 {(datetime.now(UTC).month + 5) % 12 + 1} *"
JOB = f"""\
name: yearly-{{id}}
cron: {{schedule: "{FAR}", timezone: UTC}}
secrets: {{KEY: hush}}
run: echo "$KEY" > "$OUT/$SLURM_JOB_ID"
"""


def listed(span: Span, number: int = 1) -> dict[str, Any]:
    rows = json.loads(span.run("cron", "list", "--json").stdout)["schedules"]
    found: dict[str, Any] = next(row for row in rows if row["id"] == number)
    return found


def rewind(span: Span, seconds: float) -> None:
    """Let the schedules of a daemon that has ended believe that nobody looked at them for a time."""
    connection = sqlite3.connect(span.state / "overspan.db")
    ago = time.time() - seconds
    connection.execute("update schedule set facts = json_set(facts, '$.last_due', ?)", (ago,))
    connection.commit()
    connection.close()


def test_a_file_with_cron_runs_again_and_again_whatever_happens_to_the_daemon(span: Span, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (tmp_path / "job.yaml").write_text(JOB)
    done = span.run("submit", "job.yaml", "--parsable", environment={"OUT": str(out)})
    assert done.stdout == "c1\n" and "c1 (yearly-{id}) runs next at " in done.stderr
    assert span.run("squeue", "--noheader").stdout == ""
    assert span.run("cron", "run", "c1").stdout == "Submitted job 1\n"
    assert span.until(1, "COMPLETED")["name"] == "yearly-1"
    span.kill_daemon()
    rewind(span, 3 * YEAR)
    row = span.wait_until(lambda: (found := listed(span))["runs"] == 2 and found, 20, "the missed run")
    assert (row["missed_runs"], row["last_job"], row["owed_runs"]) == (3, 2, 0)
    span.until(2, "COMPLETED")
    span.kill_daemon()
    assert listed(span)["runs"] == 2
    assert sorted(file.name for file in out.iterdir()) == ["1", "2"]
    assert (out / "2").read_text() == "hush\n"
    text = span.run("cron", "list").stdout
    assert "3 runs were missed" in text and "missed=once,overlap=skip" in text and "hush" not in text
    # Out of the list, and the jobs are still known.
    span.run("cron", "delete", "c1")
    assert span.run("cron", "run", "c1", check=False).returncode == 4
    assert span.job(2)["state"] == "COMPLETED"


def test_a_crontab_is_edited_installed_listed_and_removed(span: Span, tmp_path: Path) -> None:
    none = span.run("cron", "-l", check=False)
    assert none.returncode == 4 and "no crontab for" in none.stderr
    home = tmp_path / "home"
    home.mkdir()
    editor = tmp_path / "editor"
    crontab = "#SCRON --comment=hi -t 5\n@yearly echo $A \\\n  done\n"
    (tmp_path / "wanted").write_text(crontab)
    editor.write_text(f'#!/bin/sh\ncp {tmp_path}/wanted "$1"\n')
    editor.chmod(editor.stat().st_mode | stat.S_IXUSR)
    words = {"EDITOR": str(editor), "VISUAL": "", "HOME": str(home)}
    assert "1 entries: c1" in span.run("cron", environment=words).stderr
    text = span.run("cron", "-l").stdout
    assert text == crontab
    wrong = span.run("cron", "-", stdin=text + "61 * * * * x\n", check=False)
    assert wrong.returncode == 2 and "stdin:4:1: '61' is no minute" in wrong.stderr
    assert "2 entries: c2, c3" in span.run("cron", "-", stdin=f"A=all\n{FAR} true\n" + text, environment=words).stderr
    refused = span.run("cron", "-", stdin="#SCRON --no-such\n@daily x\n", check=False)
    assert refused.returncode == 2 and "stdin:1: " in refused.stderr and "unrecognized option" in refused.stderr
    assert span.run("cron", "run", "c3").stdout == "Submitted job 1\n"
    job = span.until(1, "COMPLETED")
    assert (job["name"], job["work_dir"], span.log(1)) == ("echo", str(home), "all done\n")
    span.run("cron", "pause", "c3")
    assert "#DISABLED: @yearly" in span.run("cron", "-l").stdout
    span.run("cron", "-r")
    assert json.loads(span.run("cron", "list", "--json").stdout)["schedules"] == []
