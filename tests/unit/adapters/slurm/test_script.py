from __future__ import annotations

import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.unit.adapters.slurm.samples import NOW, check_golden, read_file, read_script

from overspan.adapters.slurm.planning import render_submission
from overspan.adapters.slurm.rendering.script import (
    RenderContext,
    find_token,
    list_tokens,
    mark_comment,
    render_job,
    split_comment,
)
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.ids import IndexRange
from overspan.bridge.model.job import Array, Element, Job

SETTING = RenderContext(
    "7.0", gpu_kinds=("h100", "a100-80gb"), secrets_path="/root/runs/7/secrets", run_dir="/root/runs/7"
)

TASK = """
name: train
num_nodes: 2
workdir: /data/it's here
time: 90m
resources: {cpus: 4, memory: 16, accelerators: "H100:2"}
envs: {GREETING: "it's $HOME"}
secrets: {TOKEN: "s'ecret"}
slurm: {partition: gpu, qos: high, account: lab, reservation: "big one", constraint: "ib&a100", mem: 20G,
  exclusive: true}
setup: |
  pip install .
run: |
  python train.py --name "it's $GREETING"
"""


def test_golden_task_on_two_nodes() -> None:
    check_golden("task-two-nodes.txt", render_submission(render_job(read_file(TASK), SETTING)))


def test_golden_task_with_every_order() -> None:
    job = read_file(
        'name: sweep\narray: 0-9:3%2\npriority: 5\nneeds: ["afterok:12", "after:13+2"]\n'
        "begin: 2027-01-16T08:00:00\nresources: {cpus: 0.5, accelerators: 0.5}\n"
        "slurm: {comment: mine, requeue: true, gres: 'scratch:1'}\nrun: echo $SLURM_ARRAY_TASK_ID\n"
    )
    needs = {need: str(need.job + 1000) for need in job.dependency.needs}
    job = replace(job, begin=NOW + 60, nice=7)
    text = render_submission(render_job(job, replace(SETTING, native_ids=needs, held=True)))
    check_golden("task-orders.txt", text)


SCRIPT = "#!/bin/bash\n#SBATCH -N 2\n#SBATCH --array=0-99%5\n#SBATCH -d afterok:12 --begin=now+1hour\nsrun hostname\n"


def test_golden_batch_script() -> None:
    words = ["-p", "short", "--comment=try 2", "-x", "n[1-3]", "--parsable", "train.sh", "--epochs", "3 x"]
    job = read_script(SCRIPT, words, env={"SBATCH_QOS": "high"})
    needs = dict.fromkeys(job.dependency.needs, "1012")
    submission = render_job(job, RenderContext("8.0", native_ids=needs, script_path="/root/runs/8/train.sh"))
    check_golden("batch-script.txt", render_submission(submission))
    # sbatch reads its own variables: precedence is its business.
    assert submission.variables["SBATCH_QOS"] == "high"


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=200))
def test_a_batch_script_passes_through_untouched(body: str) -> None:
    text = f"#!/bin/sh\ntrue\n{body}"
    assert render_job(read_script(text), RenderContext("8.0")).script == text


def argv_of(job: Job) -> dict[str, str]:
    words = render_job(job, RenderContext("8.0")).argv[2:]
    return dict(word[2:].partition("=")[::2] for word in words if word.startswith("--"))


def test_a_plain_script_gets_only_the_name_directory_and_token() -> None:
    assert argv_of(read_script("#!/bin/sh\n#SBATCH -t 5 -o x.log\n")) == {
        "job-name": "train.sh",
        "chdir": "/home/ada",
        "comment": "overspan=8.0",
    }


def test_what_an_operator_changed_overrides_the_script() -> None:
    job = read_script("#!/bin/sh\n#SBATCH -t 5 --nice=3 --hold --begin=now+1hour\n#SBATCH --deadline=now+2hours\n")
    changed = replace(job, nice=9, priority=4, begin=None, held=False, tasks=(replace(job.tasks[0], time=600),))
    words = argv_of(changed)
    assert (words["nice"], words["priority"], words["begin"], words["time"]) == ("9", "4", "now", "00:10:00")
    assert words["deadline"] == f"uts{int(NOW) + 7200}"
    assert "hold" not in words and render_job(changed, RenderContext("8.0")).release
    assert argv_of(job)["begin"] == f"uts{int(NOW) + 3600}"
    assert "hold" in argv_of(job) and not render_job(job, RenderContext("8.0")).release


def test_a_hold_that_was_typed_and_has_ended() -> None:
    job = read_script("#!/bin/sh\n", ["-H", "train.sh"])
    assert "hold" in argv_of(job)
    assert "hold" not in argv_of(replace(job, held=False))


def test_a_dependency_that_overspan_waited_for_is_taken_away() -> None:
    assert argv_of(read_script("#!/bin/sh\n#SBATCH -d afterok:12\n"))["dependency"] == ""


def test_a_script_with_arguments_needs_a_file() -> None:
    job = read_script("#!/bin/sh\n", ["train.sh", "a b"])
    with pytest.raises(InvalidRequest, match="needs a place"):
        render_job(job, RenderContext("8.0"))
    submission = render_job(job, RenderContext("8.0", script_path="/r/8/script"))
    assert submission.argv[-2:] == ("/r/8/script", "a b") and submission.script_path == "/r/8/script"


def test_the_rest_of_an_array_and_one_element() -> None:
    job = read_script("#!/bin/sh\n#SBATCH -a 0-9%2\n")
    assert "array" not in argv_of(job)
    rest = replace(job, array=Array((IndexRange(4, 9),), throttle=3))
    assert argv_of(rest)["array"] == "4-9%3"
    assert argv_of(replace(job, array=None, element=Element(8, 5)))["array"] == "5"


def test_components_of_a_hetjob_keep_their_words() -> None:
    job = read_script("#!/bin/sh\n#SBATCH hetjob\nsrun : x\n", ["-N1", "-t", "3", ":", "-N2", "-p", "gpu", "train.sh"])
    words = render_job(job, RenderContext("8.0")).argv
    assert words[words.index(":") :] == (":", "--nodes=2", "--partition=gpu")


def test_secrets_are_in_neither_script_nor_words() -> None:
    submission = render_job(read_file(TASK), SETTING)
    assert "ecret" not in submission.script.replace("/root/runs/7/secrets", "")
    assert not any("ecret" in word for word in submission.argv)
    assert submission.secrets == "export TOKEN='s'\"'\"'ecret'\n"


def test_conflicts_are_told_and_native_options_win() -> None:
    submission = render_job(read_file(TASK), SETTING)
    assert any("--mem=20G" in note and "--mem=16384M" in note for note in submission.notes)
    assert "#SBATCH --mem=20G" in submission.script and "16384M" not in submission.script


def test_needs_and_a_native_dependency_are_joined() -> None:
    job = read_file("name: x\nneeds: afterok:12\nslurm: {dependency: 'afterany:99'}\nrun: x\n")
    needs = dict.fromkeys(job.dependency.needs, "1012")
    assert "--dependency=afterok:1012,afterany:99" in render_job(job, RenderContext("7.0", needs)).script
    job = read_file("name: x\nneeds: afterok:12\nslurm: {dependency: 'afterany:99?afterok:3'}\nrun: x\n")
    with pytest.raises(InvalidRequest, match="joined"):
        render_job(job, RenderContext("7.0", dict.fromkeys(job.dependency.needs, "1012")))


def test_typed_gpus_are_spelled_as_the_cluster_does() -> None:
    job = read_file("name: x\nresources: {accelerators: 'A100:2'}\nrun: x\n")
    assert "--gres=gpu:a100-80gb:2" in render_job(job, SETTING).script
    assert "--gres=gpu:A100:2" in render_job(job, RenderContext("7.0")).script
    job = read_file("name: x\nresources: {accelerators: ['V100:2', 'H100:1']}\nrun: x\n")
    assert "--gres=gpu:h100:1" in render_job(job, SETTING).script


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("signal: USR1@90", "--signal=B:USR1@90"),
        ("signal: 'B:USR1@90'", "--signal=B:USR1@90"),
        ("signal: USR1@90\nnum_nodes: 2", "--signal=USR1@90"),
        ("signal: USR1@90\nresources: {image_id: 'docker:a'}", "--signal=USR1@90"),
        ("signal: 'B:USR1@90'\nnum_nodes: 2", "--signal=B:USR1@90"),
    ],
)
def test_a_signal_before_the_limit_reaches_the_program(keys: str, words: str) -> None:
    job = read_file(f"name: x\ntime: 5\n{keys}\nrun: x\n")
    assert f"#SBATCH {words}\n" in render_job(job, replace(SETTING, containers="pyxis")).script


def test_a_text_that_is_too_long_is_refused() -> None:
    job = read_file(f"name: x\nrun: {'x' * 130_000}\n")
    with pytest.raises(InvalidRequest, match="longer than 120 KiB"):
        render_job(job, SETTING)


def run_script(job_text: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    secrets = tmp_path / "secrets"
    submission = render_job(read_file(job_text), RenderContext("7.0", secrets_path=str(secrets), run_dir=str(tmp_path)))
    secrets.write_text(submission.secrets)
    return subprocess.run(["bash", "-s"], input=submission.script, capture_output=True, text=True, timeout=60)


def test_the_script_of_a_task_runs_as_bash_reads_it(tmp_path: Path) -> None:
    text = (
        "name: x\nenvs: {A: \"a'b $x\"}\nsecrets: {B: 'c\"d `e`'}\nsetup: echo 'set up' $A\n"
        'run: |\n  echo "$A|$B|$0|$overspan_run"\n  exit 3\n'
    )
    done = run_script(text, tmp_path)
    assert (done.returncode, done.stdout) == (3, "set up a'b $x\na'b $x|c\"d `e`|run|\n")


def test_a_failed_set_up_is_marked(tmp_path: Path) -> None:
    done = run_script("name: x\nsetup: exit 4\nrun: echo no\n", tmp_path)
    assert (done.returncode, done.stdout) == (4, "")
    assert (tmp_path / "setup-failed").exists()


def test_a_run_text_with_an_interpreter_of_its_own(tmp_path: Path) -> None:
    done = run_script("name: x\nrun: |\n  #!/usr/bin/env python3\n  import sys\n  sys.exit(5)\n", tmp_path)
    assert done.returncode == 5


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60))
@settings(deadline=None)
def test_user_text_is_one_word_of_the_script(text: str) -> None:
    job = read_file("name: x\nrun: x\n")
    task = replace(job.spec.tasks[0], run=text, env={"V": text})
    script = render_job(replace(job, spec=replace(job.spec, tasks=(task,))), SETTING).script
    assert f"export overspan_run={shlex.quote(text)}\n" in script
    assert f"export V={shlex.quote(text)}\n" in script


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20), st.integers(1, 10**9))
def test_the_token_is_found_in_any_comment(comment: str, number: int) -> None:
    token = f"{number}.0"
    assert find_token(mark_comment(comment, token)) == token
    assert token in list_tokens(f"sbatch --comment={mark_comment(comment, token)} -N 1 overspan=9")
    assert token in list_tokens(f"sbatch '--comment={mark_comment('', token)}'")
    assert token not in list_tokens(f"sbatch --comment=overspan={token}1")


def test_a_comment_without_token() -> None:
    assert find_token("try 2") == ""
    assert split_comment(mark_comment("try 2", "8.0")) == "try 2"
