"""The lines of the daemon's log: one object each, with what it is about as fields."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from overspan.bridge.api import log_records
from overspan.bridge.api.log_records import JSON, TEXT, JsonFormatter, TextFormatter, start_records


def make_record(**fields: object) -> logging.LogRecord:
    record = logging.makeLogRecord({"name": "overspan.x", "levelno": logging.WARNING, "levelname": "WARNING"})
    record.msg, record.args = "job %d: %s", (7, 'it is "so"\nthere')
    record.__dict__.update(fields)
    return record


def test_a_line_is_one_object_with_the_fields_that_were_given() -> None:
    line = JsonFormatter().format(make_record(job=7, cluster="rig", token="", user=None, secret="x"))
    document = json.loads(line)
    assert "\n" not in line
    assert document.pop("at") > 0
    assert document == {
        "level": "warning",
        "logger": "overspan.x",
        "message": 'job 7: it is "so"\nthere',
        "job": 7,
        "cluster": "rig",
    }


def test_people_see_the_fields_behind_the_message() -> None:
    record = make_record(job=7, cluster="rig", secret="x")
    record.msg, record.args = "a call failed", ()
    assert TextFormatter().format(record) == "span daemon: WARNING: a call failed [job=7 cluster=rig]"


def test_the_file_is_renamed_when_it_is_full(tmp_path: Path) -> None:
    path = tmp_path / "daemon.log"
    handler = log_records.SizedFileHandler(path, maxBytes=100, backupCount=1)
    for number in range(4):
        handler.emit(logging.makeLogRecord({"msg": f"{number}" * 60}))
    handler.close()
    assert (path.read_text()[:1], (tmp_path / "daemon.log.1").read_text()[0]) == ("2", "0")


@pytest.mark.parametrize("form", [JSON, TEXT, ""])
def test_stderr_has_the_format_that_was_asked_for_and_the_file_is_json(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = logging.Logger("root")
    monkeypatch.setattr(logging, "root", root)
    monkeypatch.setattr(logging, "captureWarnings", lambda capture: None)
    monkeypatch.setattr(log_records, "_QUIET", ())
    start_records(str(tmp_path / "daemon.log"), form)
    root.info("it listens", extra={"cluster": "rig"})
    for handler in root.handlers:
        handler.close()
    assert json.loads((tmp_path / "daemon.log").read_text())["cluster"] == "rig"
    said = capsys.readouterr().err
    if form == JSON:
        assert json.loads(said)["message"] == "it listens"
    else:
        assert said == ("span daemon: INFO: it listens [cluster=rig]\n" if form else "")
