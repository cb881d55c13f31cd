"""A Slurm cluster for several users: each user's calls by that user's own cluster, and nobody held up by another."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import pytest

from overspan.adapters import abilities
from overspan.adapters.abilities import Trace
from overspan.adapters.contract import (
    Accepted,
    Awaited,
    ClusterConfig,
    Launch,
    LogPart,
    LogRequest,
    Observation,
    Order,
    Refusal,
    Report,
    SomeUnanswered,
    Unmet,
)
from overspan.adapters.identities import KEPT_SECONDS, AccountDatabase, Identity, find_identity, name_owner
from overspan.adapters.installed import find_opener
from overspan.adapters.slurm.cluster import SlurmCluster
from overspan.adapters.slurm.opening import open_configured
from overspan.adapters.slurm.transports import processes
from overspan.adapters.slurm.transports.local import UserTransport
from overspan.adapters.slurm.transports.processes import feed_process
from overspan.adapters.slurm.users import concurrent_calls, observation
from overspan.adapters.slurm.users.cluster import SharedCluster
from overspan.adapters.slurm.users.handles import join_owner, split_owner
from overspan.adapters.traits import Traits
from overspan.bridge.config.settings import Settings
from overspan.bridge.controller.core.clusters import Clusters
from overspan.bridge.model import events
from overspan.bridge.model.errors import Denied, InvalidRequest, NotFound, OverspanError, Unreachable
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.model.spec import DependencyKind, JobNeed, JobSpec, Origin, TaskSpec

CONFIG = ClusterConfig("rig", "slurm", personal=True)
LONG = 60.0
"""Seconds that nobody needs for what is there at once."""


def make_job(number: int, user: str) -> Job:
    return new_job(number, JobSpec("x", (TaskSpec("x", run="true"),), origin=Origin(user=user)), 0.0)


def launch(number: int, user: str) -> Launch:
    return Launch(f"i-{number}-0", make_job(number, user))


@dataclass
class OneUser:
    """A user's cluster, which answers when its gate is open and fails when it is told to."""

    user: str
    given: list[str] = field(default_factory=list)
    ordered: list[str] = field(default_factory=list)
    looks: list[Mapping[str, str]] = field(default_factory=list)
    failing: bool = False
    in_doubt: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.news: asyncio.Queue[list[Report]] = asyncio.Queue()

    async def _pass(self) -> None:
        if self.failing:
            raise Unreachable(f"nothing for {self.user}")
        await self.gate.wait()

    async def submit(self, launches: Sequence[Launch]) -> list[Accepted | Refusal]:
        self.given += [each.token for each in launches]
        await self._pass()
        answers = [Accepted(each.token, f"s.{each.job.id}", str(each.job.id)) for each in launches]
        if self.in_doubt:
            raise SomeUnanswered({answer.token: answer for answer in answers if answer.token not in self.in_doubt})
        return list(answers)

    async def order(self, orders: Sequence[Order]) -> list[Refusal | None]:
        self.ordered += [each.handle for each in orders]
        await self._pass()
        return [None for _ in orders]

    async def observe(self, since: Mapping[str, str], timeout: float) -> Observation:
        self.looks.append(since)
        await self._pass()
        try:
            async with asyncio.timeout(timeout):
                return Observation(tuple(await self.news.get()), 0.0)
        except TimeoutError:
            return Observation((), 0.0)

    async def logs(self, request: LogRequest) -> LogPart:
        return LogPart(f"{self.user} {request.handle}".encode(), 0, 0)

    async def find_traces(self) -> list[Trace]:
        await self._pass()
        return [Trace(f"inst-{len(self.user)}-0", "s.1", "inst", len(self.user), 0, ("job 1 PENDING",))]

    async def remove_traces(self, traces: Sequence[Trace]) -> None:
        self.ordered += [f"end {trace.handle}" for trace in traces]

    async def close(self) -> None:
        pass


class Many(SharedCluster):
    """The shared cluster over those."""

    def __init__(self) -> None:
        super().__init__(CONFIG)
        self.users: dict[str, OneUser] = {}

    def _open(self, config: ClusterConfig, user: str) -> Any:
        return self.users.setdefault(user, OneUser(user))

    def user(self, name: str) -> OneUser:
        self.as_user(name)
        return self.users[name]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrent_calls, "WAIT_SECONDS", 0.02)
    monkeypatch.setattr(concurrent_calls, "REST", 0.02)
    monkeypatch.setattr(observation, "REST", 0.02)


async def until(fact: Callable[[], bool]) -> None:
    """Wait until a fact is true."""
    async with asyncio.timeout(LONG):
        while not fact():
            await asyncio.sleep(0)


async def persist(many: Many, launches: Sequence[Launch]) -> list[Accepted | Refusal]:
    """Submit until there is an answer, as the daemon does."""
    async with asyncio.timeout(LONG):
        while True:
            try:
                return await many.submit(launches)
            except SomeUnanswered:
                await asyncio.sleep(0)


def test_each_launch_is_its_owners_and_its_handle_says_so() -> None:
    async def run() -> None:
        many = Many()
        answers = await many.submit([launch(1, "ada"), launch(2, "bob"), launch(3, "ada")])
        found = [answer.handle for answer in answers if isinstance(answer, Accepted)]
        assert found == ["ada/s.1", "bob/s.2", "ada/s.3"]
        assert many.users["ada"].given == ["i-1-0", "i-3-0"] and many.users["bob"].given == ["i-2-0"]
        assert await many.order([Order("o", "bob/s.2", events.Hold(0.0, "bob"))]) == [None]
        assert many.users["bob"].ordered == ["s.2"] and many.users["ada"].ordered == []
        assert (await many.logs(LogRequest("bob/s.2", "x"))).data == b"bob s.2"
        with pytest.raises(InvalidRequest, match="no owner"):
            await many.submit([launch(4, "")])
        await many.close()

    asyncio.run(run())


def test_names_of_users_may_have_any_letters() -> None:
    for user in ("ada", "ada.l", "dom\\ada", "a/b", "ü@x"):
        assert split_owner(join_owner(user, "s.1/2")) == (user, "s.1/2")
    for handle in ("s.1", "/s.1"):
        with pytest.raises(NotFound):
            split_owner(handle)


def test_one_users_cluster_that_takes_long_holds_up_nobody() -> None:
    async def run() -> None:
        many = Many()
        many.user("ada").gate.clear()
        both = [launch(1, "ada"), launch(2, "bob")]
        with pytest.raises(SomeUnanswered) as some:
            await many.submit(both)
        assert set(some.value.answers) == {"i-2-0"}
        # Asked again it is not made twice while it is under way, and answered once it is over.
        with pytest.raises(SomeUnanswered):
            await many.submit(both[:1])
        assert many.users["ada"].given == ["i-1-0"]
        many.users["ada"].gate.set()
        assert [answer.token for answer in await persist(many, both[:1])] == ["i-1-0"]
        assert many.users["ada"].given == ["i-1-0"]
        await many.close()

    asyncio.run(run())


def test_one_launch_in_doubt_keeps_no_answer_from_the_same_users_others() -> None:
    async def run() -> None:
        many = Many()
        many.user("ada").in_doubt = {"i-1-0"}
        both = [launch(1, "ada"), launch(2, "ada")]
        with pytest.raises(SomeUnanswered) as some:
            await many.submit(both)
        assert [answer.handle for answer in some.value.answers.values()] == ["ada/s.2"]
        many.users["ada"].in_doubt = set()
        assert [answer.token for answer in await many.submit(both[:1])] == ["i-1-0"]
        await many.close()

    asyncio.run(run())


def test_one_users_trouble_is_not_the_clusters() -> None:
    async def run() -> None:
        many = Many()
        many.user("ada").failing = True
        both = [launch(1, "ada"), launch(2, "bob")]
        with pytest.raises(SomeUnanswered) as some:
            await many.submit(both)
        assert set(some.value.answers) == {"i-2-0"}
        # That of everybody is.
        with pytest.raises(Unreachable, match="nothing for ada"):
            await many.submit(both[:1])
        many.users["ada"].failing = False
        await asyncio.sleep(0.03)
        assert [answer.token for answer in await many.submit(both[:1])] == ["i-1-0"]
        await many.close()

    asyncio.run(run())


def test_news_come_by_user_and_a_call_goes_on_while_its_cursors_stay() -> None:
    async def run() -> None:
        many = Many()
        since = {"ada/s.1": "", "bob/s.2": "", "foreign": ""}
        looking = asyncio.ensure_future(many.observe(since, LONG))
        ada, bob = many.user("ada"), many.user("bob")
        # A report about another user's launch is nobody's.
        ada.news.put_nowait([Report("s.1", (), "c1"), Report("s.2", (), "forged")])
        found = await looking
        assert [(report.handle, report.cursor) for report in found.reports] == [("ada/s.1", "c1")]
        looking = asyncio.ensure_future(many.observe({**since, "ada/s.1": "c1"}, LONG))
        await until(lambda: len(ada.looks) == 2 and bool(bob.looks))
        assert ada.looks == [{"s.1": ""}, {"s.1": "c1"}] and bob.looks == [{"s.2": ""}]
        bob.news.put_nowait([Report("s.2", (), "c2")])
        assert [report.handle for report in (await looking).reports] == ["bob/s.2"]
        assert (await many.observe({"bob/s.2": "c2"}, 0.02)).reports == ()
        await many.close()

    asyncio.run(run())


def test_who_cannot_be_seen_hides_nobody_else() -> None:
    async def run() -> None:
        many = Many()
        many.user("ada").failing = True
        many.user("bob").news.put_nowait([Report("s.2", (), "c")])
        since = {"ada/s.1": "", "bob/s.2": ""}
        assert [report.handle for report in (await many.observe(since, LONG)).reports] == ["bob/s.2"]
        assert (await many.observe(since, 0.02)).reports == ()
        with pytest.raises(Unreachable, match="nothing for ada"):
            await many.observe({"ada/s.1": ""}, LONG)
        many.users["ada"].failing = False
        many.users["ada"].news.put_nowait([Report("s.1", (), "c")])
        assert [report.handle for report in (await many.observe(since, LONG)).reports] == ["ada/s.1"]
        await many.close()

    asyncio.run(run())


def test_for_another_users_job_the_daemon_waits() -> None:
    async def run() -> None:
        many = SharedCluster(CONFIG)
        job = make_job(9, "ada")

        def need(handle: str) -> tuple[Unmet, ...]:
            return (Unmet(JobNeed(DependencyKind.AFTEROK, 1), (Awaited(make_job(1, "x"), handle),)),)

        assert not many.waits_for(job, need("bob/s.1.0.1.0.0.1.30.x||"))
        answer = (await many.submit([replace(launch(9, "ada"), needs=need("bob/s.1.0.1.0.0.1.30.x||"))]))[0]
        assert isinstance(answer, Refusal) and answer.transient and answer.reason == "Dependency"
        await many.close()

    asyncio.run(run())


def test_what_launches_have_left_is_found_and_ended_as_their_owner() -> None:
    async def run() -> None:
        many = Many()
        for name in ("ada", "grace"):
            many.user(name)
        traces = await many.find_traces()
        assert [(trace.handle, trace.job) for trace in traces] == [("ada/s.1", 3), ("grace/s.1", 5)]
        await many.remove_traces(traces[1:])
        assert (many.users["ada"].ordered, many.users["grace"].ordered) == ([], ["end s.1"])
        many.user("ada").failing = True
        with pytest.raises(Unreachable):
            await many.find_traces()
        await many.close()

    asyncio.run(run())


def test_it_can_what_the_cluster_of_one_user_can() -> None:
    shared, single = SharedCluster(CONFIG), SlurmCluster(ClusterConfig("rig", "slurm"))
    # The first are asked of `as_user`; a copy that lost a race could not be taken back for certain; no storage.
    others = {"Check", "OtherMembers", "StartGates", "DataRescue"}
    kinds = {name: kind for name, kind in vars(abilities).items() if getattr(kind, "_is_runtime_protocol", False)}
    assert "Throttle" in kinds
    missing = {name for name, kind in kinds.items() if isinstance(single, kind) and not isinstance(shared, kind)}
    assert missing <= others
    stated = {field.name for field in fields(Traits) if getattr(single.traits, field.name) != field.default}
    both = {name for name in stated if getattr(shared.traits, name) != getattr(Traits(), name)}
    assert "arrays" in both and stated - both == {"login", "find_end", "find_job", "mount_modes"}
    assert shared.traits.as_user == shared.as_user and isinstance(shared.as_user("ada"), SlurmCluster)


@pytest.mark.parametrize(
    ("settings", "root", "key"),
    [
        ({"host": "login"}, "", "transport: ssh"),
        ({"host": "login", "transport": "paramiko"}, "", "transport: paramiko"),
        ({"shared": False}, "", "shared: false"),
        ({"reader": "pyslurm"}, "", "reader: pyslurm"),
        ({}, "/scratch/span", "root: /scratch/span"),
    ],
)
def test_what_would_be_one_account_for_all_is_refused(settings: dict[str, Any], root: str, key: str) -> None:
    with pytest.raises(InvalidRequest, match=f"clusters.rig.{key} cannot be used by a shared daemon") as raised:
        open_configured(replace(CONFIG, settings=settings, root=root))
    assert raised.value.remedy


def test_a_root_can_be_a_folder_of_each_users() -> None:
    cluster = open_configured(replace(CONFIG, root="/scratch/{user}/span"))
    assert isinstance(cluster, SharedCluster)
    assert "/scratch/ada/span" in cluster.as_user("ada").place()
    assert isinstance(open_configured(replace(CONFIG, personal=False)), SlurmCluster)


def test_what_a_crash_left_is_looked_for_as_each_user(tmp_path: Path) -> None:
    released: list[tuple[str, tuple[str, ...]]] = []

    class Releasing(OneUser):
        async def release(self, installation: str, handles: Sequence[str], tokens: Sequence[str]) -> None:
            if self.failing:
                raise Unreachable(f"nothing for {self.user}")
            released.append((self.user, tuple(handles)))

    class Many2(Many):
        def __init__(self) -> None:
            SharedCluster.__init__(self, replace(CONFIG, state=str(tmp_path / "rig")))
            self.users = {}

        def _open(self, config: ClusterConfig, user: str) -> Any:
            return self.users.setdefault(user, Releasing(user, failing=user == "eve"))

    async def run() -> None:
        many = Many2()
        await many.submit([launch(1, "ada"), launch(2, "bob")])
        with pytest.raises(Unreachable):
            await many.submit([launch(3, "eve")])
        await many.close()
        # The next daemon knows of all of them, and one in trouble hides nobody.
        later = Many2()
        with pytest.raises(Unreachable, match="nothing for eve"):
            await later.release("i", ["ada/s.1"], ())
        assert sorted(released) == [("ada", ("s.1",)), ("bob", ())]
        assert (tmp_path / "rig" / "users").read_text() == "ada\neve\n"
        await later.close()

    asyncio.run(run())


class TestClusters:
    def test_a_shared_daemon_has_no_local_cluster_and_uses_no_other_kind(self) -> None:
        settings = Settings.model_validate({"clusters": {"kube": {"kind": "kubernetes"}, "here": {"kind": "local"}}})
        clusters = Clusters(replace_default(settings, "here"), "/state", find_opener, personal=True)
        assert sorted(cluster.name for cluster in clusters) == ["here", "kube"]
        clusters.open_local()
        for name in ("here", "kube"):
            with pytest.raises(InvalidRequest, match=f"shared daemon cannot use the cluster {name}") as raised:
                _ = clusters.get(name).adapter
            assert "SPAN_SERVER=" in raised.value.remedy

    def test_the_only_cluster_is_the_default(self) -> None:
        settings = Settings.model_validate({"clusters": {"rig": {"kind": "slurm"}}})
        clusters = Clusters(settings, "/state", find_opener, personal=True)
        assert clusters.default == "rig"
        assert isinstance(clusters.get("").adapter, SharedCluster)
        assert isinstance(clusters.get("").adapter_for("ada"), SlurmCluster)


def replace_default(settings: Settings, name: str) -> Settings:
    return settings.model_copy(update={"default_cluster": name})


class TestIdentities:
    def test_an_account_has_its_groups_and_home(self) -> None:
        found = find_identity("root")
        assert (found.uid, found.home) == (0, "/root") and found.gid in found.groups
        assert name_owner(0) == "root"
        with pytest.raises(Denied, match="no account 'no-such'"):
            find_identity("no-such")
        with pytest.raises(Denied, match="4000000000"):
            name_owner(4_000_000_000)

    def test_answers_of_the_database_age(self) -> None:
        now = [0.0]
        asked: list[str] = []

        def find(name: str) -> Identity:
            asked.append(name)
            if name == "gone":
                raise Denied("no account")
            return Identity(name, 1, 1, (1,), "/", "/bin/sh")

        async def run() -> None:
            accounts = AccountDatabase(find, lambda uid: f"u{uid}", lambda: now[0])
            for _ in range(3):
                assert (await accounts.find("ada")).name == "ada"
                assert await accounts.name(7) == "u7"
            now[0] += KEPT_SECONDS + 1
            await accounts.find("ada")
            assert asked == ["ada", "ada"]
            with pytest.raises(Unreachable, match="no account"):
                await UserTransport("gone", accounts).carry(b"true", 1.0)

        asyncio.run(run())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes as others")
class TestProcesses:
    NOBODY = Identity("nobody", 65534, 65534, (65534,), "/nonexistent", "/bin/sh")

    def test_a_process_of_a_user_has_nothing_of_the_daemons(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/0")
        monkeypatch.setenv("SPAN_SECRET", "x")
        transport = UserTransport("nobody", AccountDatabase(lambda name: self.NOBODY))

        async def run() -> list[str]:
            raw = await transport.carry(b"id -u; id -G; pwd; echo $HOME; env; ls /proc/self/fd | wc -l", LONG)
            return raw.out.decode().splitlines()

        uid, groups, folder, home, *rest = asyncio.run(run())
        assert (uid, groups, folder, home) == ("65534", "65534", "/", "/nonexistent")
        names = {line.partition("=")[0] for line in rest if "=" in line}
        assert not names & {"XDG_RUNTIME_DIR", "SPAN_SECRET", "KRB5CCNAME"} and {"HOME", "USER"} <= names

    def test_files_are_read_and_written_as_the_user(self, tmp_path: Any) -> None:
        secret = tmp_path / "secret"
        secret.write_text("precious")
        secret.chmod(0o600)
        for folder in (tmp_path, *tmp_path.parents):
            if folder.stat().st_uid == os.getuid() and str(folder).startswith("/tmp/"):
                folder.chmod(0o755)
        transport = UserTransport("nobody", AccountDatabase(lambda name: self.NOBODY))

        async def run() -> None:
            with pytest.raises(Denied):
                await transport.read(str(secret), 0, 100)
            with pytest.raises(OverspanError, match="cannot be written"):
                await transport.write(str(tmp_path / "new"), b"x")

        asyncio.run(run())
        assert not (tmp_path / "new").exists()

    def test_an_answer_without_end_is_cut(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(processes, "MOST", 1 << 20)
        ended = asyncio.run(feed_process(["/bin/sh", "-c", "yes"], b"", LONG, {"PATH": "/usr/bin:/bin"}, self.NOBODY))
        assert ended.code is None and len(ended.out) < 4 << 20


def test_the_first_answer_after_a_trouble_of_all_is_told_although_nothing_has_happened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(observation, "REST", 0.0)

    async def run() -> None:
        many = Many()
        many.user("ada").failing = True
        with pytest.raises(Unreachable, match="nothing for ada"):
            await many.observe({"ada/s.1": ""}, LONG)
        many.users["ada"].failing = False
        many.users["ada"].news.put_nowait([])
        async with asyncio.timeout(60):
            assert (await many.observe({"ada/s.1": ""}, 3600)).reports == ()
        await many.close()

    asyncio.run(run())
