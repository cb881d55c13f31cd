"""Files that a job names: mounts and volumes on the local cluster."""

from __future__ import annotations

from typing import Any


def test_file_mounts_and_volumes_are_where_the_job_wants_them(span: Any) -> None:
    (span.folder / "data.txt").write_text("from the submitter\n")
    (span.folder / "work").mkdir()
    text = (
        f"name: files\nworkdir: {span.folder}/work\nresources: {{cpus: 0.1}}\n"
        f"file_mounts:\n  ./in/data: {span.folder}/data.txt\n"
        f"volumes:\n  {span.folder}/ckpt: my-volume\n"
        f"run: cat in/data; echo saved > {span.folder}/ckpt/model\n"
    )
    for _ in range(2):
        job = span.submit(text)
        assert span.run("wait", str(job)).returncode == 0
        assert span.log(job) == "from the submitter\n"
    assert (span.state / "clusters/local/volumes/my-volume/model").read_text() == "saved\n"


def test_a_mount_that_cannot_be_made_fails_the_job_with_a_sentence(span: Any) -> None:
    (span.folder / "taken").write_text("mine")
    job = span.submit(
        f"name: files\nresources: {{cpus: 0.1}}\nfile_mounts:\n  {span.folder}/taken: /etc/hosts\nrun: 'true'\n"
    )
    span.run("wait", str(job), check=False)
    shown = span.job(job)
    assert (shown["state"], shown["reason"]) == ("FAILED", "JobLaunchFailure")
    assert any("there is something else" in row["text"] for row in span.timeline(job))
    assert (span.folder / "taken").read_text() == "mine"


def test_what_has_no_effect_here_is_said_at_submission(span: Any) -> None:
    file = span.folder / "image.yaml"
    file.write_text(
        "name: note\nresources: {cpus: 0.1, image_id: 'docker:python:3.12'}\nrun: 'true'\nfailover_after: 10s\n"
    )
    done = span.run("submit", str(file))
    assert "image" in done.stderr and "failover_after has no effect" in done.stderr
