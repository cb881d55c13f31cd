"""Where batch scripts work, read and write: in files of their pods, and in files of this machine."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.adapters.kubernetes.pods import ended, pod, running
from tests.unit.adapters.kubernetes.samples import configure, make_launch, read_script, render_job, variables_of

from overspan.adapters.contract import LogPart, LogRequest
from overspan.adapters.kubernetes.logs.logs import Logs
from overspan.adapters.kubernetes.logs.output_files import (
    OutputFiles,
    ScriptFiles,
    copy_log,
    note_unwritable,
    read_output,
)
from overspan.adapters.kubernetes.logs.outputs import Outputs, choose_outputs
from overspan.adapters.kubernetes.manifests.launch_plans import relocate
from overspan.adapters.kubernetes.manifests.scripts import LOG, PREPARE_SCRIPT
from overspan.adapters.kubernetes.observation.records import PodRecord
from overspan.adapters.kubernetes.planning import list_notes
from overspan.adapters.kubernetes.settings import Settings
from overspan.bridge.model.errors import NotFound, Unreachable
from overspan.bridge.model.job import Job

HOME = "/home/ada"
HOMES = {"homes": {"nfs": {"server": "nas", "path": "/home"}, "path": "/home", "shared": True}}
DATA = {"data": {"nfs": {"server": "nas", "path": "/data"}, "path": "/data", "shared": True, "read_only": True}}


def shared() -> Settings:
    return configure(volumes={**HOMES, **DATA})


def script(*options: str) -> Job:
    return read_script("#!/bin/sh\ntrue\n", [*options, "train.sh"], env={})


def outputs(*options: str, settings: Settings | None = None) -> Outputs:
    job = script(*options)
    return choose_outputs(job, job.spec.tasks[0], settings or shared())


def place(job: Job, settings: Settings) -> list[str]:
    (made,) = render_job(job, settings).pods
    args = made["spec"]["containers"][0]["args"]
    begin = args.index(PREPARE_SCRIPT.replace("$(", "$$(")) + 1
    found: list[str] = args[begin : begin + 6]
    return found


def test_a_script_works_in_its_folder_where_that_is_shared() -> None:
    (made,) = render_job(script(), shared()).pods
    assert variables_of(made)["SLURM_SUBMIT_DIR"] == HOME
    assert place(script(), shared())[:4] == [HOME, "022", "", f"{HOME}/slurm-8.out"]
    assert not [note for note in list_notes(script(), shared()) if "volume" in note]


def test_a_folder_that_is_not_shared_is_noted_once() -> None:
    (made,) = render_job(script()).pods
    assert variables_of(made)["SLURM_SUBMIT_DIR"] == "/overspan/run"
    assert place(script(), configure())[0] == "/overspan/run"
    (note,) = [note for note in list_notes(script(), configure()) if "volume" in note]
    assert note.startswith(f"batch: {HOME} is on no volume that pods and this machine share")


def test_a_named_folder_is_the_script_s_also_where_it_is_the_present_one() -> None:
    for folder in (HOME, "/app"):
        job = script("-D", folder)
        assert place(job, configure())[0] == folder
        assert not [note for note in list_notes(job, configure()) if "share" in note]
    assert relocate(script("-D", "/app"), shared()).spec.origin.directory == HOME


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), Outputs(output=f"{HOME}/slurm-8.out")),
        (("-o", "out/%x-%j-%N-%u-%t.log"), Outputs(output=f"{HOME}/out/train.sh-8-train-sh-8-ada-0.log")),
        (("-o", "a.out", "-e", "a.out"), Outputs(output=f"{HOME}/a.out")),
        (("-o", "a.out", "-e", "b.%j"), Outputs(output=f"{HOME}/a.out", error=f"{HOME}/b.8")),
        (("-o", "%j/a"), Outputs(output=f"{HOME}/8/a", awaits_folder=True)),
        (("-o", "/dev/null"), Outputs(output="/dev/null")),
        (("-o", "none", "-e", "b"), Outputs(output="/dev/null", error=f"{HOME}/b")),
        (("--open-mode=append",), Outputs(output=f"{HOME}/slurm-8.out", append=True)),
        (("-i", "/data/in"), Outputs(input="/data/in", output=f"{HOME}/slurm-8.out")),
        (("-i", "/elsewhere/in"), Outputs(output=f"{HOME}/slurm-8.out")),
        # A volume that cannot be written is as none; so is one that is not shared.
        (("-o", "/data/a"), Outputs(kept="/data/a")),
        (("-o", "/scratch/%j"), Outputs(kept="/scratch/8")),
        (("-e", "/scratch/e"), Outputs(output=f"{HOME}/slurm-8.out", error=LOG, kept="/scratch/e")),
        (("-o", "/scratch/o", "-e", "e"), Outputs(error=f"{HOME}/e", kept="/scratch/o")),
        (("-o", "/scratch/o", "-e", "/scratch/e"), Outputs(kept="/scratch/o", joined="/scratch/e")),
    ],
)
def test_the_pod_writes_what_is_shared_and_the_daemon_the_rest(options: tuple[str, ...], expected: Outputs) -> None:
    assert outputs(*options) == expected


def test_without_volumes_the_output_is_kept_where_slurm_would_have_it() -> None:
    assert outputs(settings=configure()) == Outputs(kept=f"{HOME}/slurm-8.out")
    element = read_script("#!/bin/sh\n#SBATCH -a 3\ntrue\n", ["train.sh"], env={})
    assert choose_outputs(element, element.spec.tasks[0], configure()).kept.startswith(f"{HOME}/slurm-8_")
    (note,) = [note for note in list_notes(script("-o", "a", "-e", "b"), configure()) if "in one" in note]
    assert f"{HOME}/a" in note


def test_only_the_component_with_the_script_has_files() -> None:
    text = "#!/bin/sh\n#SBATCH -n 1\n#SBATCH hetjob\n#SBATCH -n 1\ntrue\n"
    job = read_script(text, ["train.sh"], env={})
    first, second = (choose_outputs(job, task, shared()) for task in job.spec.tasks)
    assert first.output and second == Outputs()


# --- on this machine -------------------------------------------------------------------------------------------------


class Log:
    """A log that grows."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = data

    def read(self, offset: int, limit: int) -> LogPart:
        return LogPart(self.data[offset : offset + limit], offset, len(self.data))


def keep(tmp_path: Path, *, append: bool = False, name: str = "slurm-8.out") -> ScriptFiles:
    return ScriptFiles("batch", Outputs(kept=str(tmp_path / name), append=append), 0o027)


def test_a_log_is_copied_as_it_grows(tmp_path: Path) -> None:
    files, log, path = keep(tmp_path), Log(), str(tmp_path / "log")
    target = Path(files.outputs.kept)
    copy_log(path, files, log.read)
    # As in Slurm it is there from the start.
    assert target.read_bytes() == b"" and target.stat().st_mode & 0o777 == 0o640
    for more in (b"one\n", b"", b"two\n" * 300_000):
        log.data += more
        copy_log(path, files, log.read)
        assert target.read_bytes() == log.data


@pytest.mark.parametrize(("append", "expected"), [(False, b"new\n"), (True, b"old\nnew\n")])
def test_a_file_that_is_there_is_emptied_unless_it_is_to_be_added_to(
    append: bool, expected: bytes, tmp_path: Path
) -> None:
    files = keep(tmp_path, append=append)
    Path(files.outputs.kept).write_bytes(b"old\n")
    for _ in range(2):
        copy_log(str(tmp_path / "log"), files, Log(b"new\n").read)
    assert Path(files.outputs.kept).read_bytes() == expected


@pytest.mark.parametrize("written", [0, 3, 8])
def test_a_daemon_that_dies_while_it_copies_repeats_and_loses_nothing(
    written: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, path = keep(tmp_path, append=True), str(tmp_path / "log")
    Path(files.outputs.kept).write_bytes(b"old\n")
    copy_log(path, files, Log(b"a\n").read)
    write = os.write

    def die(fd: int, data: Any) -> int:
        write(fd, bytes(data)[:written])
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "write", die)
    with pytest.raises(KeyboardInterrupt):
        copy_log(path, files, Log(b"a\n12345678").read)
    monkeypatch.undo()
    copy_log(path, files, Log(b"a\n12345678!").read)
    assert Path(files.outputs.kept).read_bytes() == b"old\na\n12345678!"


def test_what_a_log_lost_is_left_out(tmp_path: Path) -> None:
    files, path = keep(tmp_path), str(tmp_path / "log")
    parts = iter([LogPart(b"later", 100, 105, gap=100), LogPart(b"", 105, 105)])
    copy_log(path, files, lambda offset, limit: next(parts))
    assert Path(files.outputs.kept).read_bytes() == b"later"


def test_a_later_daemon_knows_the_files_of_a_launch(tmp_path: Path) -> None:
    launch = make_launch(script("-o", "a", "-e", "/scratch/b"))
    OutputFiles(str(tmp_path)).note(launch, shared())
    files = OutputFiles(str(tmp_path)).find(launch.token)
    assert files is not None and files.has("batch", 0) and not files.has("batch", 1)
    assert (files.find("output"), files.find("error"), files.outputs.kept) == (f"{HOME}/a", "", "/scratch/b")
    assert OutputFiles(str(tmp_path)).find("another-1-0") is None
    (tmp_path / launch.token / "outputs.json").write_text("{damaged")
    assert OutputFiles(str(tmp_path)).find(launch.token) is None


def test_a_disk_without_room_has_the_submission_tried_again(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("no folder")
    with pytest.raises(Unreachable, match=r"outputs.json cannot be written"):
        OutputFiles(str(tmp_path / "logs")).note(make_launch(script()), shared())


def test_a_part_of_a_shared_file_is_read_here(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"0123456789")
    part = read_output(str(path), LogRequest("", "batch", offset=2, limit=3))
    assert part is not None and (part.data, part.offset, part.size) == (b"234", 2, 10)
    part = read_output(str(path), LogRequest("", "batch", offset=-4))
    assert part is not None and part.data == b"6789"
    os.mkfifo(tmp_path / "pipe")
    assert read_output(str(tmp_path / "pipe"), LogRequest("", "batch")) is None
    assert read_output(str(tmp_path / "none"), LogRequest("", "batch")) is None


def test_an_output_that_cannot_be_written_here_is_told(tmp_path: Path) -> None:
    (note,) = note_unwritable(script("-o", "/nonexistent/folder/%j"), configure())
    assert "/nonexistent/folder" in note and "span logs" in note
    assert note_unwritable(script("-o", f"{tmp_path}/%j"), configure()) == ()
    assert note_unwritable(script("-o", "/nonexistent/%j/out"), configure()) == ()


def test_a_log_is_read_from_the_file_that_its_pod_writes(tmp_path: Path) -> None:
    async def story() -> None:
        connection: Any = SimpleNamespace(read=lambda path, query: b"2026-01-01T00:00:01.000000000Z refused\n")
        live: Any = SimpleNamespace(goes_on=lambda uid: False, is_whole=lambda uid: False)
        files = OutputFiles(str(tmp_path / "logs"))
        volume = {"hostPath": {"path": str(tmp_path)}, "path": str(tmp_path), "shared": True}
        launch = make_launch(script("-o", f"{tmp_path}/out"))
        files.note(launch, configure(volumes={"lab": volume}))
        logs = Logs(connection, str(tmp_path / "logs"), live, files)
        request = LogRequest("", "batch")

        async def read(*pods: PodRecord) -> bytes:
            return (await logs.read(request, launch.token, pods)).data

        # It says why it could not write its file.
        assert await read(running("batch", token=launch.token)) == b"refused\n"
        (tmp_path / "out").write_text("of an earlier job\n")
        # Nor has it begun: what is there is another's.
        with pytest.raises(NotFound):
            await logs.read(LogRequest("", "batch", attempt=1), launch.token, [pod("batch", attempt=1)])
        (tmp_path / "out").write_text("its own\n")
        assert await read(running("batch", token=launch.token)) == await read() == b"its own\n"

    asyncio.run(story())


def test_what_is_taken_of_a_log_is_in_the_file_that_the_submitter_looks_for(tmp_path: Path) -> None:
    async def story() -> None:
        lines = [b"2026-01-01T00:00:01.000000000Z one\n"]
        connection: Any = SimpleNamespace(read=lambda path, query: b"".join(lines))
        live: Any = SimpleNamespace(goes_on=lambda uid: False, is_whole=lambda uid: False, forget=lambda uid: None)
        launch = make_launch(script("-o", f"{tmp_path}/out"))
        files = OutputFiles(str(tmp_path / "logs"))
        files.note(launch, configure())
        logs = Logs(connection, str(tmp_path / "logs"), live, files)
        assert not await logs.capture(running("batch", token=launch.token))
        assert (tmp_path / "out").read_bytes() == b"one\n"
        lines.append(b"2026-01-01T00:00:02.000000000Z two\n")
        assert await logs.capture(ended("batch", token=launch.token))
        assert (tmp_path / "out").read_bytes() == b"one\ntwo\n"

    asyncio.run(story())
