"""Values of options are taken and refused as by sbatch 22.05.8, whose answers are recorded in data/."""

from __future__ import annotations

from pathlib import Path

import pytest

from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.readers.read_context import ReadContext
from overspan.bridge.readers.sbatch.arguments import parse_sbatch
from overspan.bridge.readers.sbatch.batch_script import read_batch_script

RECORDED = Path(__file__).parent / "data" / "sbatch_decisions.tsv"
ROWS = [line.split("\t") for line in RECORDED.read_text().splitlines() if not line.startswith("#")]

STRICTER = {
    ("nodes", "2m"): "more nodes than any cluster has",
    ("nodes", "99999999"): "more nodes than any cluster has",
    ("ntasks", "99999999999"): "more tasks than any cluster has",
    ("ntasks", "10000001"): "more tasks than any cluster has",
    ("partition", ""): "the controller refuses it",
    ("time", "-5"): "sbatch reads it as no limit",
    ("time", "99999999999"): "longer than a limit can be",
    ("gpus", "-1"): "the controller refuses it",
    ("gpus", "1.5"): "the controller refuses it",
    ("gpus-per-node", "-1"): "the controller refuses it",
    ("gpus", "a:1,b:2"): "one type of GPU at a time",
    ("gpus-per-node", "a:1,b:2"): "one type of GPU at a time",
    ("signal", "65"): "there is no such signal",
    ("signal", "99"): "there is no such signal",
    ("nice", "x"): "sbatch reads it as 0, which nobody meant",
    ("nice", "-5"): "the controller refuses it",
    ("priority", "x"): "sbatch reads it as 0, which holds the job",
    ("deadline", "2001-01-01"): "the controller refuses it",
    ("nodelist", "n[1-"): "the controller refuses it",
    ("exclude", "n[1-"): "the controller refuses it",
    ("licenses", "a:x"): "the controller refuses it",
    ("constraint", "[a"): "the controller refuses it",
    ("constraint", "a&"): "the controller refuses it",
}
"""Accepted by sbatch, refused here."""
WIDER = {
    ("exclusive", "topo"): "newer than 22.05",
    ("gres", "x:1"): "which resources there are is for the cluster to say",
    ("begin", "elevenses"): "newer than 22.05",
}
"""Refused by sbatch 22.05, accepted here."""
OTHER_WORDS = {("nodes", "1-4:2"), ("mem-per-gpu", "1G")}


@pytest.mark.parametrize(("name", "value", "code", "words"), ROWS, ids=[f"{row[0]}={row[1]}" for row in ROWS])
def test_decisions(name: str, value: str, code: str, words: str) -> None:
    context = ReadContext(directory="/w", now=1_800_000_000.0)
    try:
        call = parse_sbatch([f"--{name}={value}", "--wrap=hi"], {})
        read_batch_script("", "", call=call, context=context)
        refused, said = 0, ""
    except InvalidRequest as error:
        refused, said = int(error.exit_code), error.message
    if (name, value) in STRICTER:
        assert (int(code), bool(refused)) == (0, True)
    elif (name, value) in WIDER:
        assert (bool(int(code)), refused) == (True, 0)
    else:
        assert refused == int(code), said
        if refused and (name, value) not in OTHER_WORDS:
            first = [line for line in said.splitlines() if not line.startswith(("Try ", "Invalid time"))]
            assert " | ".join(first) == words


@pytest.mark.parametrize(
    ("text", "at"),
    [
        *(("x", 0), ("25:00", 0), ("1pm", 1), ("12AM", 2), ("1", 1), ("2031", 0), ("now+x", 3), ("now+1x", 4)),
        *(("2031-13-01", 5), ("2031-1-1", 0), ("12:30:60", 6)),
    ],
)
def test_where_a_time_is_wrong(text: str, at: int) -> None:
    call = parse_sbatch([f"--begin={text}", "--wrap=hi"], {})
    with pytest.raises(InvalidRequest) as caught:
        read_batch_script("", "", call=call, context=ReadContext(directory="/w"))
    words = f"Invalid time specification (pos={at}): {text}\nsbatch: error: Invalid --begin specification"
    assert caught.value.message == words
