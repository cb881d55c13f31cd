"""Opening: file modes, locks, fencing, schema versions, damage."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from overspan.bridge.model.errors import Conflict, InvalidRequest, OverspanError, StoreFailed
from overspan.bridge.model.job import Job
from overspan.bridge.store import schema, tables
from overspan.bridge.store.migrations import BEFORE, REVISIONS
from overspan.bridge.store.records import JobQuery, NewJob
from overspan.bridge.store.store import Store

MakeJob = Callable[..., Job]
StartOf = Callable[[Job], NewJob]
SCHEMAS = Path(__file__).parents[2] / "upgrade" / "schemas"
"""The tables as each version before the first release made them, in a file named by its head."""


def edit(path: Path, *statements: str) -> None:
    """Change a closed database behind the store's back."""
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def definitions(path: Path) -> set[str]:
    """Every table and index of a closed database, as text without its layout."""
    connection = sqlite3.connect(path)
    rows = connection.execute("select type, name, sql from sqlite_master").fetchall()
    connection.close()
    texts = ((kind, name, (sql or "").replace('"', "")) for kind, name, sql in rows)
    return {f"{kind} {name} {''.join(sql.split())}" for kind, name, sql in texts}


def make(path: Path) -> Path:
    """An empty store, closed."""
    Store.open(path).close()
    return path


def make_by_migrations(path: Path) -> Path:
    """The same, made by alembic from the first revision on."""
    edit(
        path, "create table alembic_version (version_num VARCHAR(32) NOT NULL, constraint x primary key (version_num))"
    )
    return make(path)


def test_file_and_folder_are_private(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "state" / "span.db")
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    files = {file.name: file.stat().st_mode & 0o777 for file in (tmp_path / "state").iterdir()}
    store.close()
    # No shared memory file: the WAL's index is in the process.
    assert files == {"span.db": 0o600, "span.db-wal": 0o600}


def test_file_that_others_can_read_is_closed_to_them(tmp_path: Path) -> None:
    path = make(tmp_path / "span.db")
    path.chmod(0o644)
    make(path)
    assert path.stat().st_mode & 0o777 == 0o600


def test_folder_that_others_can_write_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o770)
    with pytest.raises(StoreFailed, match="written by others") as caught:
        Store.open(folder / "span.db")
    assert "chmod 700" in caught.value.remedy
    assert list(folder.iterdir()) == []


def test_second_opener_is_refused(tmp_path: Path, make_job: MakeJob, start_of: StartOf) -> None:
    store = Store.open(tmp_path / "span.db")
    with pytest.raises(Conflict, match="in use by another process"):
        Store.open(tmp_path / "span.db", wait=0.05)
    with pytest.raises(Conflict, match="in use by another process"):
        Store.open(tmp_path / "span.db", exclusive=False, wait=0.05)
    asyncio.run(store.insert([start_of(make_job(1))]))
    store.close()


def test_writes_of_a_store_that_was_taken_over_are_rejected(
    tmp_path: Path, make_job: MakeJob, start_of: StartOf
) -> None:
    old = Store.open(tmp_path / "span.db", exclusive=False)
    asyncio.run(old.insert([start_of(make_job(1))]))
    new = Store.open(tmp_path / "span.db", exclusive=False)
    with pytest.raises(Conflict, match="taken over"):
        asyncio.run(old.insert([start_of(make_job(2))]))
    assert isinstance(old.trouble, Conflict)
    asyncio.run(new.insert([start_of(make_job(3))]))
    assert [stored.job.id for stored in asyncio.run(new.load_live())] == [1, 3]
    old.close()
    new.close()


def test_only_sqlite_is_supported() -> None:
    with pytest.raises(InvalidRequest, match="postgresql"):
        Store.open("postgresql://server/span")


def test_url_names_a_file(tmp_path: Path) -> None:
    Store.open(f"sqlite:///{tmp_path}/span.db").close()
    assert (tmp_path / "span.db").exists()


def test_migrations_make_the_same_tables_as_a_fresh_start(tmp_path: Path) -> None:
    fresh, migrated = make(tmp_path / "fresh.db"), make_by_migrations(tmp_path / "migrated.db")
    named = {text for text in definitions(migrated) if "alembic_version" not in text}
    assert {text for text in definitions(fresh) if "alembic_version" not in text} == named
    assert len(named) == 11 + 1 + 11  # tables, sqlite_sequence, indexes


@pytest.mark.parametrize("head", sorted(BEFORE))
def test_a_store_from_before_the_first_release_is_brought_forward(head: str, tmp_path: Path) -> None:
    fresh, old = make(tmp_path / "fresh.db"), tmp_path / "old.db"
    connection = sqlite3.connect(old)
    connection.executescript((SCHEMAS / f"{head}.sql").read_text())
    connection.execute("insert into crontab values ('me', '@daily true')" if head > "0002" else "select 1")
    connection.commit()
    connection.close()
    make(old)
    assert definitions(old) == definitions(fresh)
    with sqlite3.connect(old) as connection:
        assert connection.execute("select version_num from alembic_version").fetchall() == [(REVISIONS[-1],)]
        assert connection.execute("select count(*) from crontab").fetchone() == (int(head > "0002"),)
    connection.close()


def test_models_and_migrations_agree_in_alembics_eyes(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{make_by_migrations(tmp_path / 'span.db')}")
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), tables.metadata) == []
    engine.dispose()


def test_listed_revisions_are_alembics() -> None:
    config = Config()
    config.set_main_option("script_location", "overspan.bridge.store:migrations")
    scripts = ScriptDirectory.from_config(config).walk_revisions()
    assert tuple(script.revision for script in scripts)[::-1] == REVISIONS


def test_upgrade_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "span.db"
    edit(path, "create table alembic_version (version_num VARCHAR(32) NOT NULL)")
    before = definitions(path)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(schema, "_check_format", fail)  # the last step, after the migrations have run
    with pytest.raises(StoreFailed, match="No space left"):
        Store.open(path)
    assert definitions(path) == before


def test_ordinary_start_does_not_import_alembic(tmp_path: Path) -> None:
    program = (
        "import sys; from overspan.bridge.store.store import Store\n"
        "for _ in range(2): Store.open(sys.argv[1]).close()\n"
        "print('alembic' in sys.modules)"
    )
    words = [sys.executable, "-c", program, str(tmp_path / "span.db")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_lease_and_records_are_light() -> None:
    program = (
        "import sys; import overspan.bridge.store.lease, overspan.bridge.store.records\n"
        "print([name for name in ('sqlalchemy', 'sqlmodel', 'pydantic', 'alembic') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "statement",
    ["update alembic_version set version_num = '9999'", "update meta set value = '2' where key = 'format'"],
)
def test_newer_store_is_refused_and_not_touched(tmp_path: Path, statement: str) -> None:
    path = make(tmp_path / "span.db")
    edit(path, statement)
    before = path.read_bytes()
    with pytest.raises(StoreFailed, match="newer format"):
        Store.open(path)
    assert path.read_bytes() == before


def test_other_programs_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "span.db"
    edit(path, "create table recipes (name text)")
    with pytest.raises(StoreFailed, match="not Overspan's"):
        Store.open(path)


def test_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "span.db"
    path.write_bytes(b"not a database at all " * 500)
    with pytest.raises(StoreFailed, match="damaged") as caught:
        Store.open(path)
    assert ".recover" in caught.value.remedy


def test_damaged_pages_are_reported_and_stay_reported(tmp_path: Path, make_job: MakeJob, start_of: StartOf) -> None:
    path = tmp_path / "span.db"
    store = Store.open(path)
    asyncio.run(store.insert([start_of(make_job(n)) for n in range(1, 300)]))
    store.close()
    content = bytearray(path.read_bytes())
    content[4096 * 8 :] = b"\xa5" * (len(content) - 4096 * 8)
    path.write_bytes(content)

    async def use(store: Store) -> None:
        await store.load_live()
        await store.find(JobQuery(since=0.0))
        await store.insert([start_of(make_job(n)) for n in range(1000, 1300)])

    with pytest.raises(StoreFailed, match=r"damaged|cannot be read"):
        store = Store.open(path)
        try:
            asyncio.run(use(store))
        finally:
            store.close()


def test_job_whose_documents_make_no_sense_is_named(tmp_path: Path, make_job: MakeJob, start_of: StartOf) -> None:
    store = Store.open(tmp_path / "span.db")
    asyncio.run(store.insert([start_of(make_job(12))]))
    store.close()
    edit(tmp_path / "span.db", """update job set facts = '{"state": "DANCING"}'""")
    store = Store.open(tmp_path / "span.db")
    assert asyncio.run(store.load_live()) == [] and "job 12" in store.damages[0].text
    store.close()


@pytest.mark.parametrize(
    "damage",
    [
        """update job set facts = '{"state": "hush"}'""",
        """update job set facts = '{"version": 1} hush'""",
        """update job set facts = '["hush"]'""",
        """update spec set document = '{"tasks": {"hush": 1}}'""",
        """update spec set document = '{"name": "hush", "tasks": ["hush"]}'""",
        """update spec set document = '{"secrets": "hush'""",
        """update spec set document = cast(x'7b22736563726574223a202268757368ff227d' as text)""",
        """update spec set document = '{"name": "hushé", "tasks": []}'""",
        """update spec set document = x'00ff'""",
        f"""update spec set document = '{"[" * 100_000}hush'""",
    ],
)
def test_what_cannot_be_read_is_named_without_its_values(
    tmp_path: Path, make_job: MakeJob, start_of: StartOf, damage: str
) -> None:
    store = Store.open(tmp_path / "span.db")
    asyncio.run(store.insert([start_of(make_job(12))]))
    store.close()
    edit(tmp_path / "span.db", damage)
    store = Store.open(tmp_path / "span.db")
    assert asyncio.run(store.load_live()) == []
    (told,) = store.damages
    with pytest.raises(StoreFailed, match="job 12") as caught:
        asyncio.run(store.find(JobQuery(ids=(12,))))
    store.close()
    assert "job 12" in told.text and told.job_id == 12
    assert "hush" not in str(caught.value) + told.text


def test_a_schedule_that_cannot_be_read_is_named_without_its_values(tmp_path: Path) -> None:
    path = make(tmp_path / "span.db")
    columns = "insert into schedule (version, user, source, facts, request) values (1, 'ada', 'job_file',"
    edit(path, f"""{columns} '{{"schedule": "hush"}}', '{{"secrets": "hush"}}')""")
    store = Store.open(path)
    assert asyncio.run(store.schedules.load()) == []
    (told,) = store.damages
    store.close()
    assert "schedule c1" in told.text and "hush" not in told.text


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        ("update job set facts = 'hush' where id = 2", "the record of job 2"),
        ("update job set facts = json_set(facts, '$.tasks[0].name', 'hush') where id = 2", "the record of job 2"),
        ("update job set cluster = x'00ff' where id = 2", "the record of job 2"),
        ("update job set version = 'hush' where id = 2", "the record of job 2"),
        ("update job set ended_at = null, facts = json_set(facts, '$.state', 'FAILED') where id = 2", "job 2"),
        ("update spec set document = 'hush' where job_id = 2", "the spec of job 2"),
        ("delete from spec where job_id = 2", "the spec of job 2"),
        ("update outbox set payload = 'hush' where job_id = 2", "a call that is owed for job 2"),
        ("""update outbox set payload = '{"launch": "hush"}' where job_id = 2""", "a call that is owed for job 2"),
        ("update outbox set next_try_at = 'hush' where job_id = 2", "a call that is owed for job 2"),
    ],
)
def test_one_bad_row_is_set_aside_and_all_others_are_read(
    tmp_path: Path, make_job: MakeJob, start_of: StartOf, damage: str, what: str
) -> None:
    path = tmp_path / "span.db"
    store = Store.open(path)
    asyncio.run(store.insert([start_of(make_job(number)) for number in (1, 2, 3)]))
    store.close()
    edit(path, damage)
    store = Store.open(path)
    jobs, calls = asyncio.run(store.load_live()), asyncio.run(store.outbox())
    (told,) = store.damages
    store.close()
    assert {stored.job.id for stored in jobs} >= {1, 3} and {call.job_id for call in calls} >= {1, 3}
    assert len(jobs) + len(calls) == 5 and what in told.text and told.job_id == 2
    assert "hush" not in told.text


def test_single_values_that_are_damaged_are_counted_anew(tmp_path: Path, make_job: MakeJob, start_of: StartOf) -> None:
    path = tmp_path / "span.db"
    store = Store.open(path)
    asyncio.run(store.insert([start_of(make_job(7))]))
    store.close()
    for key in ("next_id", "last_seq", "epoch"):
        edit(path, f"update meta set value = 'hush' where key = '{key}'")
    store = Store.open(path)
    assert asyncio.run(store.next_ids(1)) >= 8 and store.last_seq > 0
    store.close()


def test_truncated_wal_gives_whole_transactions(tmp_path: Path, make_job: MakeJob, start_of: StartOf) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    store = Store.open(whole / "span.db")
    for n in range(1, 12, 2):
        asyncio.run(store.insert([start_of(make_job(n)), start_of(make_job(n + 1))]))
    shutil.copytree(whole, cut)  # as a crash would leave it
    store.close()
    wal = (cut / "span.db-wal").read_bytes()
    seen = set()
    for part in range(0, 101, 10):
        again = tmp_path / f"cut{part}"
        shutil.copytree(cut, again)
        (again / "span.db-wal").write_bytes(wal[: len(wal) * part // 100])
        try:
            store = Store.open(again / "span.db")
        except OverspanError as error:
            pytest.fail(f"{part} %: {error}")
        count = len(asyncio.run(store.load_live()))
        assert count % 2 == 0
        assert [row.job_id for row in asyncio.run(store.outbox())] == list(range(1, count + 1))
        assert [row.job_id for row in asyncio.run(store.events(0))] == list(range(1, count + 1))
        assert asyncio.run(store.next_ids(1)) == count + 1
        store.close()
        seen.add(count)
    assert len(seen) > 2 and max(seen) == 12
