"""Wrong words, ids, options and files, for every command: what is wrong on stderr, the code of docs/commands.md."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

# Words after `span`, exit code, and something that the message has to say. Job 1 is held.
WRONG: tuple[tuple[str, int, str], ...] = (
    ("nosuch", 2, "no command 'nosuch'"),
    ("help nosuch", 2, "no command 'nosuch'"),
    ("show", 2, "JOB"),
    ("show 999", 4, "no job 999"),
    ("show nosuch", 4, "no job nosuch"),
    ("show 1+9", 4, "no task 9"),
    ("show 1 --bogus", 2, "--bogus"),
    ("show local:99", 4, "no job local:99"),
    ("logs", 2, "JOB"),
    ("logs 999", 4, "no job 999"),
    ("logs 1 nosuch", 4, "has no task 'nosuch'"),
    ("logs 1 --node 99", 4, "has not started"),
    ("logs 1 -n -1", 2, "--lines"),
    ("logs 1 --node x", 2, "--node"),
    ("logs 1 --stream nosuch", 2, "--stream"),
    ("wait", 2, "JOB"),
    ("wait 999", 4, "no job 999"),
    ("wait 1.nosuch", 4, "no task 'nosuch'"),
    ("wait 1 --timeout 0", 124, "not over"),
    ("wait 1 --timeout soon", 2, "--timeout"),
    ("timeline", 2, "JOB"),
    ("timeline 999", 4, "no job 999"),
    ("hold", 2, "JOB"),
    ("hold 999", 4, "no job 999"),
    ("hold nosuch", 4, "no job nosuch"),
    ("release 999", 4, "no job 999"),
    ("requeue 999", 4, "no job 999"),
    ("requeue 1", 1, "pending"),
    ("restart 999", 4, "no job 999"),
    ("restart 1", 1, "pending"),
    ("restart 1 nosuch", 4, "no task 'nosuch'"),
    ("submit", 2, "FILE"),
    ("submit nofile.yaml", 2, "nofile.yaml"),
    ("submit /", 2, "Is a directory"),
    ("submit /dev/null", 2, "is empty"),
    ("submit good.yaml --set a", 2, "PATH=VALUE"),
    ("submit good.yaml --set nosuch=1", 2, "nosuch"),
    ("submit good.yaml --env UNSET_HERE", 2, "UNSET_HERE"),
    ("submit good.yaml --secret UNSET_HERE", 2, "UNSET_HERE"),
    ("submit good.yaml -M nosuch", 2, "nosuch"),
    ("submit wrong.yaml", 2, "wrong.yaml:2:1"),
    ("submit torn.yaml", 2, "torn.yaml:3:1"),
    ("plan", 2, "FILE"),
    ("plan nofile.yaml", 2, "nofile.yaml"),
    ("plan wrong.yaml", 2, "wrong.yaml:2:1"),
    ("check", 2, "CLUSTER"),
    ("check nosuch", 4, "no cluster 'nosuch'"),
    ("completion", 2, "shell"),
    ("completion tcsh", 2, "tcsh"),
    ("ping x", 2, "x"),
    ("shutdown x", 2, "x"),
    ("clusters x", 2, "x"),
    ("config x", 2, "x"),
    ("schema x", 2, "x"),
    ("daemon --bogus", 2, "--bogus"),
    ("sbatch --bogus", 255, "unrecognized option '--bogus'"),
    ("sbatch nofile.sh", 1, "Unable to open file nofile.sh"),
    ("sbatch empty.sh", 1, "Batch script is empty"),
    ("sbatch nohash.sh", 1, "This does not look like a batch script"),
    ("sbatch --time=never --wrap true", 255, "Invalid --time specification"),
    ("sbatch -N 2-1 --wrap true", 255, "Maximum node count 1 is less"),
    ("sbatch -M nosuch --wrap true", 1, "nosuch"),
    ("sbatch -p nosuch --wrap true", 1, "Invalid partition name specified"),
    ("squeue --bogus", 1, "unrecognized option '--bogus'"),
    ("squeue -j 999", 1, "Invalid job id specified"),
    ("squeue -j x", 1, "Invalid job id: x"),
    ("squeue -t NOSUCH", 1, "Invalid job state specified: NOSUCH"),
    ("sacct -j x", 1, "Bad job/step specified: x"),
    ("sacct -S never", 1, "Invalid time specification"),
    ("sacct -o nosuch", 1, 'Invalid field requested: "nosuch"'),
    ("sacct --bogus", 1, "--bogus"),
    ("sinfo --bogus", 1, "--bogus"),
    ("sinfo -M nosuch", 1, "nosuch"),
    ("scancel", 1, "No job identification provided"),
    ("scancel x", 1, "Invalid job id x"),
    ("scancel -s NOSUCH 1", 1, "NOSUCH"),
    ("scancel -s TERM 999", 1, "Invalid job id specified"),
    ("scancel --bogus 1", 1, "--bogus"),
    ("scontrol nosuch", 1, "invalid keyword: nosuch"),
    ("scontrol show job 999", 1, "Invalid job id specified"),
    ("scontrol hold 999", 1, "Invalid job id specified"),
    ("scontrol update jobid=999 timelimit=1", 1, "Invalid job id specified"),
    ("scontrol update jobid=1 nosuch=1", 1, "nosuch"),
    ("scontrol update jobid=1 timelimit=never", 1, "Invalid TimeLimit value"),
)

FILES = {
    "good.yaml": "name: good\nrun: 'true'\n",
    "wrong.yaml": "name: wrong\nrunn: 'true'\n",
    "torn.yaml": "name: torn\nrun: 'true\n",
    "empty.sh": "",
    "nohash.sh": "echo no interpreter\n",
}


def test_every_wrong_command_line_is_told_and_changes_nothing(span: Any) -> None:
    for name, text in FILES.items():
        (span.folder / name).write_text(text)
    assert span.wrap("true", "--hold") == 1
    before = span.job(1)
    failures = []
    for words, code, told in WRONG:
        done = span.run(*words.split(), check=False)
        if done.returncode != code or told not in done.stderr or done.stdout.strip() or len(done.stderr) > 2000:
            failures.append(f"span {words}: {done.returncode}\n{done.stdout}{done.stderr}")
    assert not failures, "\n".join(failures)
    after = span.job(1)
    assert {**after, "now": 0} == {**before, "now": 0}
    assert len(json.loads(span.run("squeue", "--json").stdout)["jobs"]) == 1


def test_errors_are_json_where_the_answer_would_be(span: Any) -> None:
    for words, code in ((("show", "999", "--json"), "not_found"), (("submit", "nofile", "--json"), "invalid")):
        done = span.run(*words, check=False)
        assert json.loads(done.stderr)["error"]["code"] == code
        assert done.stdout == ""


def test_job_file_that_is_too_long_or_large_enough(span: Any) -> None:
    file: Path = span.folder / "large.yaml"
    filler = f"# {'x' * 98}\n"
    file.write_text("name: large\n" + filler * 30_000 + "run: echo large\n")
    assert file.stat().st_size > 3_000_000
    job = int(span.run("submit", str(file), "--parsable").stdout)
    span.run("wait", str(job))
    assert span.log(job) == "large\n"
    file.write_text("name: large\n" + filler * 60_000 + "run: echo large\n")
    done = span.run("submit", str(file), check=False)
    assert done.returncode == 2 and "MiB" in done.stderr, done.stderr
    # Six bytes of JSON for each letter: the daemon refuses what the command could not foresee.
    file.write_text("name: large\nrun: 'true'\n# " + "é" * 1_900_000 + "\n")
    done = span.run("submit", str(file), check=False)
    assert done.returncode == 2 and "a request has at most 8 MiB" in done.stderr, done.stderr


def test_binary_file_is_refused_in_every_place(span: Any) -> None:
    chance = random.Random(5)
    for name, data in {
        "elf": b"\x7fELF\x02\x01\x01" + chance.randbytes(5000),
        "nul": b"#!/bin/sh\necho a\0b\n",
        "latin": "#!/bin/sh\necho gr\xfc\xdfe\n".encode("latin-1"),
    }.items():
        file = span.folder / name
        file.write_bytes(data)
        for verb, codes in (("sbatch", (1,)), ("submit", (2,)), ("plan", (1, 2))):
            done = span.run(verb, str(file), check=False)
            assert done.returncode in codes, f"{verb} {name}: {done.returncode} {done.stderr}"
            assert done.stdout == "" and len(done.stderr) < 500, done.stderr
    assert span.run("squeue", "--noheader", "-t", "all").stdout == ""


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x, x]\n" + "".join(f"k{n}: &{chr(98 + n)} [*{chr(97 + n)}, *{chr(97 + n)}]\n" for n in range(20)),
        "name: x\nrun: 'true'\nenvs: {A: &a b" + "".join(f", K{n}: *a" for n in range(100_000)) + "}\n",
        "name: x\nrun: " + "[" * 100_000 + "\n",
        "name: x\nrun: " + "{a: " * 50_000 + "\n",
        "name: &a *a\n",
        "name: &a {b: *a}\nrun: 'true'\n",
        "---\n" * 50_000,
        "name: " + "x" * 2_000_000 + "\nrun: 'true'\n",
        "".join(f"key{n}: 1\n" for n in range(50_000)),
        "name: x\nnum_nodes: 1" + "0" * 100_000 + "\nrun: 'true'\n",
        "? " * 50_000 + "\n",
        "!!python/object/apply:os.system ['touch owned']\n",
    ],
    ids=[
        "laughs", "aliases", "deep", "deeper", "self", "cycle", "documents", "name", "keys", "number", "question",
        "tag",
    ],
)  # fmt: skip
def test_hostile_yaml_is_refused_quickly(span: Any, text: str) -> None:
    file = span.folder / "hostile.yaml"
    file.write_text(text)
    done = span.run("submit", str(file), "--hold", check=False, timeout=120)
    told = done.stderr[:500]
    assert done.returncode == 2, f"{done.returncode} {told}"
    assert "hostile.yaml" in done.stderr and len(done.stderr) < 2000, told
    assert "internal" not in done.stderr and "incident" not in done.stderr, told
    assert not (span.folder / "owned").exists()
    # The daemon has not noticed: it answers at once.
    assert span.run("ping", timeout=120).returncode == 0


def test_submitting_from_a_folder_that_is_gone(span: Any) -> None:
    gone = span.folder / "gone"
    gone.mkdir()
    script = f"cd {gone} && rmdir {gone} && exec span sbatch --wrap true"
    done = subprocess.run(["sh", "-c", script], env=span.environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "current directory" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
