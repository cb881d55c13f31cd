"""Results of evaluations, read from the end of their output, and the jobs that are made of templates."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from overspan.bridge.controller.features.evaluations.results import has_result, read_result
from overspan.bridge.controller.features.evaluations.templates import RESULT_MARK, CheckpointValues, make_evaluation_job
from overspan.bridge.model.documents import encode
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.evaluations import EvaluationOf, EvaluationSpec, ResultKind, ResultSource
from overspan.bridge.model.spec import JobSpec, TaskSpec

LINE = ResultSource(score="accuracy")
FILE = ResultSource(ResultKind.FILE, score="accuracy")


@pytest.mark.parametrize(
    ("source", "log", "score", "trouble"),
    [
        (LINE, 'a\nRESULT {"accuracy": 0.5}\nRESULT {"accuracy": 0.75}\nb\n', 0.75, ""),
        (ResultSource(), "RESULT 0.5\n", 0.5, ""),
        (ResultSource(), "nothing\n", None, ""),
        (ResultSource(), 'RESULT {"loss": 2, "name": "x"}\n', 2.0, ""),
        (ResultSource(), 'RESULT {"a": 1, "b": 2}\n', None, ""),
        (LINE, "nothing\n", None, "it left no line that begins with 'RESULT '"),
        (FILE, "nothing\n", None, "it left no file result.json"),
        (FILE, "OVERSPAN-RESULT {\n", None, "result.json is neither JSON nor a number: {"),
        (FILE, "OVERSPAN-RESULT [1]\n", None, "result.json is neither an object nor a number: [1]"),
        (FILE, 'OVERSPAN-RESULT {"acc": 1}\n', None, "its result has no number 'accuracy'; it has acc"),
        (FILE, 'OVERSPAN-RESULT {"accuracy": NaN}\n', None, "its result has no number 'accuracy'; it has accuracy"),
        (FILE, 'OVERSPAN-RESULT {"accuracy": true}\n', None, "its result has no number 'accuracy'; it has accuracy"),
        (ResultSource(ResultKind.FILE, score="m.acc"), 'OVERSPAN-RESULT {"m": {"acc": 3}}\n', 3.0, ""),
    ],
)
def test_results(source: ResultSource, log: str, score: float | None, trouble: str) -> None:
    result = read_result(source, log, 0, succeeded=True)
    assert (result.score, result.trouble) == (score, trouble)


def test_the_exit_code_is_a_result() -> None:
    source = ResultSource(ResultKind.EXIT)
    assert read_result(source, "", 0, succeeded=True).score == 1.0
    assert read_result(source, "", 3, succeeded=False).score == 0.0


def test_of_a_failed_evaluation_nothing_is_missed() -> None:
    assert read_result(FILE, "", 1, succeeded=False).trouble == ""


def make(run: str, *, name: str = "step_7", path: str = "/c/step_7", **spec: object) -> JobSpec:
    """The job of an evaluation whose task runs this."""
    task = TaskSpec("t", run=run, env={"A": "of {step}"}, workdir="/w/{step}")
    watch = EvaluationSpec("quality", "/c", "step_{step:int}", template=encode(JobSpec("t", (task,))), **spec)  # type: ignore[arg-type]
    of = EvaluationOf(1, 2, 3, "quality", name, path, 7.0)
    return make_evaluation_job(watch, of, CheckpointValues(name, path, {"step": 7}, 7.0), 1)


def test_fields_are_filled_and_braces_of_other_kinds_stay() -> None:
    job = make("echo {checkpoint} {step} ${HOME} {other} '{print $1}'")
    (task,) = job.tasks
    assert task.run == "echo /c/step_7 7 ${HOME} {other} '{print $1}'"
    assert (task.env["A"], task.workdir) == ("of 7", "/w/7")
    names = ("OVERSPAN_CHECKPOINT", "OVERSPAN_STEP", "OVERSPAN_EVALUATION", "OVERSPAN_FIELD_STEP")
    assert [task.env[key] for key in names] == ["/c/step_7", "7", "quality", "7"]
    assert (job.name, job.parent, job.evaluation and job.evaluation.checkpoint) == ("quality-7", 1, "step_7")


def test_a_name_that_a_shell_would_take_apart_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="characters that a shell takes") as caught:
        make("echo {checkpoint}", path="/c/$(reboot)")
    assert '"$OVERSPAN_CHECKPOINT"' in caught.value.remedy
    assert (
        make('echo "$OVERSPAN_CHECKPOINT"', path="/c/$(reboot)").tasks[0].env["OVERSPAN_CHECKPOINT"] == "/c/$(reboot)"
    )


def test_job_names() -> None:
    assert make("x", job_name="eval-{step}-of").name == "eval-7-of"
    assert len(make("x", job_name="e" * 80).name) == 50


@pytest.mark.parametrize(("code", "text"), [(0, '{"a":\n 1}'), (3, "1")])
def test_a_result_file_comes_back_in_the_output(tmp_path: Path, code: int, text: str) -> None:
    """By the shell that runs the task, whatever its exit code, which stays."""
    run = make(f"printf '%s' '{text}' > \"$OVERSPAN_RESULT\"\nexit {code}", result=FILE).tasks[0].run
    done = subprocess.run(
        ["sh", "-c", run], env={"OVERSPAN_RUN_DIR": str(tmp_path), "PATH": "/usr/bin:/bin"}, capture_output=True
    )
    assert done.returncode == code and done.stderr == b""
    assert done.stdout.decode().splitlines()[-1] == "OVERSPAN-RESULT " + text.replace("\n", " ")


def test_whether_the_result_is_there() -> None:
    """A log whose last lines are not shown yet is looked at again."""
    assert has_result(FILE, f'a\n{RESULT_MARK}{{"accuracy": 1}}\nb\n')
    assert not has_result(FILE, '{"accuracy": 1}\n')
    assert has_result(LINE, "RESULT 1\n") and not has_result(LINE, "a RESULT 1\n")
