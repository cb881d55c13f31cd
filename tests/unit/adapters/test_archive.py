from __future__ import annotations

import ast
import importlib
import inspect
import json
import marshal
import subprocess
import sys
import zipfile
from importlib.util import MAGIC_NUMBER
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
    path, magic = build_archive(str(tmp_path)), MAGIC_NUMBER.hex()
    with zipfile.ZipFile(path) as built:
        names = set(built.namelist())
        index = marshal.loads(built.read(f"index.{magic}"))
    sources = {name for name in names if name.endswith(".py")}
    assert names - sources == {"__main__.pyc", f"compiled.{magic}", f"index.{magic}"}
    assert "overspan/bridge/runtime/local/supervisor.py" in sources
    assert "overspan/bridge/runtime/zip_application.py" not in sources
    whole = Path(path).read_bytes()
    files = {"__main__.py"}
    for name, (package, place, size) in index.items():
        file = f"{name.replace('.', '/')}{'/__init__' if package else ''}.py"
        assert marshal.loads(whole[place : place + size]).co_filename == file
        files.add(file)
    assert files == sources


RUN = """
import os, runpy, sys
end, starter = os._exit, os.getpid()

def leave(status):
    if os.getpid() == starter:
        sys.exit(status)
    end(status)

os._exit = leave
sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit:
    pass
"""
LATE = f"""
{RUN}
from overspan.bridge.runtime.local import supervisor
from overspan.bridge.runtime.slurm import agent
try:
    from overspan.bridge import nothing
except ImportError as error:
    print(error)
import traceback
try:
    supervisor.main([])
except IndexError:
    print(traceback.format_exc())
print(agent.main.__code__.co_filename)
"""


def test_later_imports_and_tracebacks_come_from_the_sources(tmp_path: Path) -> None:
    words = [sys.executable, "-I", "-S", "-c", LATE, build_archive(str(tmp_path)), str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "cannot import name 'nothing' from 'overspan.bridge'" in done.stdout
    assert "status = serve(words[0])" in done.stdout
    assert done.stdout.endswith("overspan/bridge/runtime/slurm/agent.py\n")


ONCE = f"""
import json, marshal
loads, names = marshal.loads, []

def note(data):
    value = loads(data)
    names.append(getattr(value, "co_filename", ""))
    return value

marshal.loads = note
{RUN}
print(json.dumps([name for name in names if name.startswith("overspan/")]))
"""


def test_a_start_reads_each_module_once(tmp_path: Path) -> None:
    words = [sys.executable, "-I", "-S", "-c", ONCE, build_archive(str(tmp_path)), str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    names = json.loads(done.stdout)
    assert "overspan/bridge/runtime/local/supervisor.py" in names
    assert len(names) == len(set(names))


def test_another_version_of_python_compiles_each_source_once(tmp_path: Path) -> None:
    whole = build_archive(str(tmp_path))
    path = str(tmp_path / "sources.pyz")
    with zipfile.ZipFile(whole) as built, zipfile.ZipFile(path, "w") as sources:
        for name in built.namelist():
            if name.endswith(".py"):
                sources.writestr(name, built.read(name))
    code = ONCE.replace("marshal.loads", "builtins.compile").replace("import json", "import builtins, json")
    code = code.replace("def note(data):\n    value = loads(data)", "def note(*a, **k):\n    value = loads(*a, **k)")
    words = [sys.executable, "-I", "-S", "-c", code, path, str(tmp_path)]
    names = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert "overspan/bridge/runtime/local/supervisor.py" in names
    assert len(names) == len(set(names))


COMPILES = f"""
import builtins
compile_text, texts = builtins.compile, []

def note(text, *words, **options):
    texts.append(text)
    return compile_text(text, *words, **options)

builtins.compile = note
{RUN}
print(texts, sorted({{"dataclasses", "inspect"}} & sys.modules.keys()))
"""


def test_a_start_compiles_no_annotation_and_needs_no_dataclasses(tmp_path: Path) -> None:
    words = [sys.executable, "-I", "-S", "-c", COMPILES, build_archive(str(tmp_path)), str(tmp_path)]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "[] []\n"


def test_its_classes_are_those_that_are_quick_to_define() -> None:
    slow = {("dataclasses", "dataclass"), ("dataclasses", "replace"), ("typing", "NamedTuple")}
    for path, source in read_sources().items():
        if path != "overspan/bridge/model/records.py":
            imports = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom))
            found = {(node.module, name.name) for node in imports for name in node.names}
            assert not found & slow, path


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
