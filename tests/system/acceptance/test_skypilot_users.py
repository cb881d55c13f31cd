"""What SkyPilot's users do, on the local cluster."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.shared_daemon


def test_a_bucket_mount_is_refused_with_its_line(span: Any) -> None:
    file = span.folder / "data.yaml"
    file.write_text(
        "name: d\nresources: {cpus: 0.1}\nfile_mounts:\n  /a: s3://one\n  /b: {source: gs://two}\nrun: 'true'\n"
    )
    done = span.run("submit", str(file), check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"span: error: {file}:4:7: no entry of `stores` in the configuration reaches s3://one",
        f"span: error: {file}:5:7: no entry of `stores` in the configuration reaches gs://two",
        "  add `stores: {s3: {endpoint: URL, credentials: {file: ~/.aws/credentials}}}`, or one to the"
        " `buckets` of one; `span config` shows the files",
    ]


def test_num_jobs_makes_an_array_whose_jobs_know_their_ranks(span: Any) -> None:
    file = span.folder / "sweep.yaml"
    file.write_text("name: sweep\nresources: {cpus: 0.1}\nrun: echo $WHAT $SKYPILOT_JOB_RANK of $SKYPILOT_NUM_JOBS\n")
    (span.folder / ".env").write_text("WHAT='rank'\n")
    words = ["submit", str(file), "-n", "ranks", "-y", "--num-jobs", "3", "--env-file", str(span.folder / ".env")]
    job = int(span.run(*words, "--parsable").stdout)
    assert span.run("wait", str(job)).returncode == 0
    said = [span.run("logs", f"{job}_{index}").stdout for index in range(3)]
    assert said == [f"rank {index} of 3\n" for index in range(3)]
    assert span.job(job)["name"] == "ranks"


BASHRC = """\
case $- in *i*) ;; *) return ;; esac
echo welcome; echo moved >&2; cd /
export PATH="/opt/made-up:$PATH" SEED=rc LEVEL=rc
rc_activate() { export ACTIVE=$1; }
"""


@pytest.mark.parametrize("login", [True, False])
def test_the_login_environment_is_there_where_it_is_asked_for(login: bool, span: Any) -> None:
    (span.folder / ".bashrc").write_text(BASHRC)
    file = span.folder / "login.yaml"
    file.write_text(
        f"name: login\nlogin: {str(login).lower()}\nresources: {{cpus: 0.1}}\nenvs: {{SEED: '7 \"x'}}\n"
        "setup: type rc_activate >/dev/null 2>&1 && echo setup\n"
        'run: |\n  rc_activate base 2>/dev/null\n  echo "${PATH%%:*} $SEED $LEVEL $ACTIVE $PWD"\n'
        if login
        else "name: login\nresources: {cpus: 0.1}\nrun: type rc_activate >/dev/null 2>&1 || echo none\n"
    )
    environment = {**span.environment, "HOME": str(span.folder)}
    job = int(span.run("submit", "--parsable", str(file), environment=environment).stdout)
    assert span.run("wait", str(job)).returncode == 0
    lines = span.log(job).splitlines()
    assert lines == (["setup", f'/opt/made-up 7 "x rc base {span.folder}'] if login else ["none"])
