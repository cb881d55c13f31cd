from __future__ import annotations

import ast
import importlib
import inspect
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from overspan.bridge.runtime import zip_application
from overspan.bridge.runtime.zip_application import build_archive, hash_sources, read_sources


def test_it_is_built_once(tmp_path: Path) -> None:
    path = build_archive(str(tmp_path))
    before = Path(path).stat()
    assert build_archive(str(tmp_path)) == path
    assert Path(path).stat() == before
    assert list(tmp_path.iterdir()) == [Path(path)]


def test_it_is_the_same_each_time(tmp_path: Path) -> None:
    first, second = build_archive(str(tmp_path / "a")), build_archive(str(tmp_path / "b"))
    assert Path(first).name == Path(second).name
    assert Path(first).read_bytes() == Path(second).read_bytes()


def test_another_content_has_another_name() -> None:
    sources = read_sources()
    changed = {**sources, "__main__.py": b"pass"}
    assert hash_sources(sources) != hash_sources(changed)


def test_it_holds_each_module_as_source_and_compiled(tmp_path: Path) -> None:
    with zipfile.ZipFile(build_archive(str(tmp_path))) as built:
        names = set(built.namelist())
    sources = {name for name in names if name.endswith(".py")}
    assert {f"{name}c" for name in sources} == names - sources
    assert "overspan/bridge/runtime/local/supervisor.py" in sources
    assert "overspan/bridge/runtime/zip_application.py" not in sources


def test_its_modules_come_from_the_compiled_files(tmp_path: Path) -> None:
    code = (
        "import sys, json; sys.path.insert(0, sys.argv[1]);"
        "import overspan.bridge.runtime.local.supervisor as host; from overspan.bridge.model import states;"
        "print(json.dumps([host.__file__, host.__cached__, states.__file__, 'inspect' in sys.modules]))"
    )
    path = build_archive(str(tmp_path))
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code, path], capture_output=True, text=True, check=True)
    host, _, states, _ = json.loads(done.stdout)
    assert host == f"{path}/overspan/bridge/runtime/local/supervisor.pyc"
    assert states == f"{path}/overspan/bridge/model/states.pyc"


ONCE = """
import json, marshal, runpy, sys
loads, names = marshal.loads, []

def note(data):
    code = loads(data)
    names.append(code.co_filename)
    return code

marshal.loads = note
sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit:
    pass
print(json.dumps([name for name in names if name.startswith("overspan/")]))
"""


def test_a_start_reads_each_module_once(tmp_path: Path) -> None:
    words = [sys.executable, "-I", "-S", "-c", ONCE, build_archive(str(tmp_path)), str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    names = json.loads(done.stdout)
    assert "overspan/bridge/runtime/local/supervisor.py" in names
    assert len(names) == len(set(names))


def test_it_starts_and_says_when_another_serves(tmp_path: Path) -> None:
    import fcntl

    path = build_archive(str(tmp_path))
    host = tmp_path / "host"
    host.mkdir()
    with open(host / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run([sys.executable, "-I", "-S", path, str(host)], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")


def test_nothing_is_left_of_a_build_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str, source: bytes) -> bytes:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(zip_application, "compile_source", fail)
    with pytest.raises(OSError, match="No space"):
        build_archive(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_every_entry_is_a_program_of_the_application() -> None:
    source = read_sources()["__main__.py"].decode()
    table = next(node for node in ast.parse(source).body if isinstance(node, ast.AnnAssign))
    assert table.value is not None
    entries = ast.literal_eval(table.value)
    assert {"forkserver", "node", "slurm", "srun", "stepd"} <= set(entries)
    for module in (*entries.values(), "local.supervisor"):
        main = importlib.import_module(f"overspan.bridge.runtime.{module}").main
        inspect.signature(main).bind(["word"])
