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


def mount(span: Any, source: str, run: str) -> int:
    """A job with a link to a source in a folder that others use too."""
    text = (
        f"name: files\nworkdir: {span.folder}/work\nresources: {{cpus: 0.1}}\n"
        f"file_mounts: {{./in: {span.folder}/{source}}}\nvolumes: {{./kept: {source}-volume}}\nrun: {run}\n"
    )
    job: int = span.submit(text)
    return job


def test_links_of_a_job_that_is_over_are_removed_and_hold_nobody_back(span: Any) -> None:
    (span.folder / "work").mkdir()
    for name in ("one", "two"):
        (span.folder / name).write_text(f"{name}\n")
        job = mount(span, name, f"cat in; echo {name} > kept/file")
        assert span.run("wait", str(job)).returncode == 0
        assert span.log(job) == f"{name}\n"
        span.wait_until(lambda: not list((span.folder / "work").iterdir()), 10, "the links to go")
        assert (span.state / f"clusters/local/volumes/{name}-volume/file").read_text() == f"{name}\n"
    assert [path.name for path in (span.state / "clusters/local/mounts").iterdir()] == ["lock"]


def test_a_link_stays_as_long_as_a_job_uses_it(span: Any) -> None:
    (span.folder / "work").mkdir()
    for name in ("one", "two"):
        (span.folder / name).write_text(f"{name}\n")
    live = mount(span, "one", f"while [ ! -e {span.folder}/go ]; do sleep 0.05; done; cat in")
    span.until(live, "RUNNING")
    shared = mount(span, "one", "cat in")
    assert span.run("wait", str(shared)).returncode == 0
    other = mount(span, "two", "cat in")
    span.run("wait", str(other), check=False)
    assert any("there is something else" in row["text"] for row in span.timeline(other))
    (span.folder / "go").touch()
    assert span.run("wait", str(live)).returncode == 0 and span.log(live) == "one\n"


def test_what_was_there_before_a_job_stays(span: Any) -> None:
    (span.folder / "work").mkdir()
    (span.folder / "one").write_text("one\n")
    (span.folder / "work" / "in").symlink_to(span.folder / "one")
    job = mount(span, "one", "cat in")
    assert span.run("wait", str(job)).returncode == 0
    span.wait_until(lambda: not (span.folder / "work" / "kept").is_symlink(), 10, "the own link to go")
    assert (span.folder / "work" / "in").is_symlink()
