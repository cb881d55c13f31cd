"""One daemon of root's for all users of a login node: each job is its owner's in Slurm and on the disk."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.rigs.plugin import slurm_rig
from tests.rigs.slurm import Done, SlurmRig
from tests.system.slurm.groups import group
from tests.system.slurm.packages import PACKAGES, pack
from tests.waiting import WaitUntil

__all__ = ["slurm_rig"]

USERS = {"ada": 1101, "bob": 1102, "olga": 1103}
CALL_SECONDS = 60
SOCKET = "/run/overspan/span.sock"
CONFIG = {"clusters": {"rig": {"kind": "slurm", "tick": 0.5}}, "server": {"operators": ["olga"]}}
DENIED = "Access/permission denied"
STEADY = ("-ignore_readdir_race",)
"""For find: a file may go while it looks, as the daemon works on."""
RAW = """\
import json, socket, sys
body = json.dumps(json.loads(sys.argv[2])).encode()
connection = socket.socket(socket.AF_UNIX)
connection.connect("/run/overspan/span.sock")
head = f"POST {sys.argv[1]} HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\nContent-Length: {len(body)}\\r\\n"
connection.sendall((head + "Content-Type: application/json\\r\\n\\r\\n").encode() + body)
answer = b""
while part := connection.recv(65536):
    answer += part
print(answer.partition(b"\\r\\n\\r\\n")[2].decode())
"""

STOPPER = """\
import os, signal, sys
me, ready = os.getuid(), False
while True:
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                parent = file.read().rpartition(")")[2].split()[1]
            if parent == sys.argv[1] and os.stat(f"/proc/{name}").st_uid == me:
                os.kill(int(name), signal.SIGSTOP)
        except OSError:
            pass
    if not ready:
        open("/tmp/stopping", "w").close()
        ready = True
"""
# Stops whatever the daemon begins in the name of its user.


class Server:
    """The shared daemon in the rig, and the commands of its users."""

    def __init__(self, rig: SlurmRig, wait_until: WaitUntil) -> None:
        self.rig = rig
        self.wait_until = wait_until

    def run(self, user: str, *words: str, **variables: str) -> Done:
        """Run `span WORDS` as a user."""
        command = ["python3", "-m", "overspan.bridge.cli", *words]
        return self.rig.run(command, env={"PYTHONPATH": PACKAGES, **variables}, user=user)

    def ask(self, user: str, *words: str, **variables: str) -> str:
        """The output of a command that has to work."""
        done = self.run(user, *words, **variables)
        assert done.rc == 0, f"{user}: {words}: {done.stdout}{done.stderr}"
        return done.stdout

    def refuse(self, user: str, *words: str) -> str:
        """The complaint of a command that must not work."""
        done = self.run(user, *words)
        assert done.rc != 0, f"{user} may {words}: {done.stdout}"
        return done.stderr

    def post(self, user: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """What the daemon answers to a request that no command of ours would send."""
        done = self.rig.run(["python3", "-c", RAW, path, json.dumps({"format": 1, **body})], user=user)
        assert done.rc == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def submit(self, user: str, script: str, *options: str, **variables: str) -> str:
        """A small job; its id."""
        words = ("sbatch", "--parsable", "--mem=50", *options, "--wrap", script)
        return self.ask(user, *words, **variables).strip().partition(";")[0]

    def job(self, user: str, ref: str) -> dict[str, Any]:
        shown: dict[str, Any] = json.loads(self.ask(user, "show", ref, "--json"))
        found: dict[str, Any] = shown.get("job", shown)
        return found

    def until(self, user: str, ref: str, *states: str) -> dict[str, Any]:
        """Wait until a job is in one of the states."""
        self.wait_until(lambda: self.job(user, ref)["state"] in states, 30, f"{ref} to be {states}")
        return self.job(user, ref)

    def touch(self, user: str, path: str) -> None:
        """Make a file of a user's, for which a job waits."""
        assert self.rig.run(["touch", path], user=user).rc == 0

    def root(self, *words: str) -> str:
        """What a command says to root there."""
        done = self.rig.run(list(words), user="root")
        assert done.rc == 0, f"{words}: {done.stderr}"
        return done.stdout.strip()

    def start(self) -> None:
        """Start the daemon as a service of root's."""
        words = ["python3", "-m", "overspan.bridge.cli", "daemon", "--shared"]
        self.rig.containers["ctl"].exec_run(words, environment={"PYTHONPATH": PACKAGES}, detach=True)
        self.wait_until(lambda: self.run("ada", "ping").rc == 0, 30, "the daemon")

    def kill(self) -> None:
        """Kill the daemon as a crash does."""
        pid = json.loads(self.ask("ada", "ping", "--json"))["pid"]
        self.root("kill", "-9", str(pid))
        self.wait_until(lambda: self.run("ada", "ping").rc != 0, 10, "the daemon's end")


@pytest.fixture(scope="module")
def server(slurm_rig: SlurmRig, wait_until: WaitUntil) -> Iterator[Server]:
    container = slurm_rig.containers["ctl"]
    container.put_archive("/", pack())
    server = Server(slurm_rig, wait_until)
    for name, uid in USERS.items():
        for on in slurm_rig.containers:
            words = ["useradd", "-u", str(uid), "-s", "/bin/bash", "-m" if on == "ctl" else "-M", name]
            done = slurm_rig.run(words, user="root", on=on)
            assert done.rc == 0, done.stderr
        server.root("chmod", "700", f"/home/{name}")
    server.root("mkdir", "-p", "/etc/overspan")
    slurm_rig.put("/etc/overspan/config.yaml", json.dumps(CONFIG))
    slurm_rig.put("/etc/overspan/server", f"{SOCKET}\n")
    server.start()
    yield server
    server.run("root", "shutdown")
    for name in USERS:
        slurm_rig.run(["scancel", f"--user={name}"], user="root")
        for on in slurm_rig.containers:
            slurm_rig.run(["userdel", "-r" if on == "ctl" else "-f", name], user="root", on=on)
    leftovers = ["rm", "-rf", "/etc/overspan", "/var/lib/overspan", "/run/overspan"]
    # The daemon may still be writing its last.
    wait_until(lambda: slurm_rig.run(leftovers, user="root").rc == 0, 20, "nothing to be left")


def test_each_job_is_its_owners_in_slurm_and_on_the_disk(server: Server) -> None:
    jobs = {user: server.submit(user, "id -un; umask; pwd; sleep 3600", "-J", f"of-{user}") for user in ("ada", "bob")}
    for user, job in jobs.items():
        native = server.until(user, job, "RUNNING")["native_id"]
        assert f"UserId={user}({USERS[user]})" in server.root("scontrol", "show", "job", str(native))
        home = f"/home/{user}"
        server.wait_until(lambda user=user, job=job: home_of(server, user, job), 20, "its log")  # type: ignore[misc]
        owners = server.root("find", home, *STEADY, "-newer", "/etc/overspan/server", "-printf", "%u\n")
        assert set(owners.split()) == {user}
    listed = server.ask("ada", "squeue", "-h", "-o", "%i %u")
    assert {f"{jobs['ada']} ada", f"{jobs['bob']} bob"} <= set(listed.splitlines())
    assert server.ask("bob", "squeue", "-h", "--me", "-o", "%i").split() == [jobs["bob"]]
    assert server.ask("bob", "squeue", "-h", "-u", "ada", "-o", "%i").split() == [jobs["ada"]]
    for user, job in jobs.items():
        server.ask(user, "scancel", job)
        assert server.until(user, job, "CANCELLED")


def home_of(server: Server, user: str, job: str) -> bool:
    """Whether the log says what the user's own login would."""
    said = server.ask(user, "logs", job).split()
    return said[:1] == [user] and said[2:3] == [f"/home/{user}"]


def test_nobody_but_owner_and_operator_orders_about_a_job(server: Server) -> None:
    job = server.submit("ada", "sleep 3600")
    server.until("ada", job, "RUNNING")
    for words in (
        ("scancel", job),
        ("scancel", "--signal=USR1", job),
        ("scancel", "-u", "ada"),
        ("hold", job),
        ("requeue", job),
        ("restart", job),
        ("scontrol", "update", f"JobId={job}", "TimeLimit=5"),
        ("scontrol", "suspend", job),
        ("scontrol", "write", "batch_script", job, "-"),
        ("timeline", job),
        ("shutdown",),
    ):
        assert DENIED in server.refuse("bob", *words), words
    # What names nobody means one's own.
    server.run("bob", "scancel", "--state=RUNNING")
    assert server.job("ada", job)["state"] == "RUNNING"
    assert server.ask("bob", "sacct", "-n", "-X", "-j", job).strip() == ""
    assert job in server.ask("ada", "sacct", "-n", "-X", "-j", job)
    assert job in server.ask("olga", "sacct", "-n", "-X", "-j", job)
    assert server.run("bob", "scancel", job).rc == 1
    server.ask("olga", "scancel", job)
    assert server.until("ada", job, "CANCELLED")
    # It is over and still in memory: its history is nobody else's.
    assert DENIED in server.refuse("bob", "timeline", job)


def test_what_a_job_writes_is_its_owners_alone(server: Server) -> None:
    job = server.submit("ada", "echo $SECRET_WORD; sleep 3600", SECRET_WORD="plover")
    server.until("ada", job, "RUNNING")
    server.wait_until(lambda: "plover" in server.run("ada", "logs", job).stdout, 20, "its log")
    for user in ("bob", "olga"):
        assert DENIED in server.refuse(user, "logs", job)
        assert DENIED in server.refuse(user, "shell", job, "--", "true")
        assert "plover" not in server.ask(user, "show", job, "--json")
    assert "plover" in server.ask("root", "logs", job)
    server.ask("ada", "scancel", job)
    assert server.until("ada", job, "CANCELLED")


def test_the_daemon_reads_and_writes_nothing_for_a_user_that_the_user_may_not(server: Server) -> None:
    server.root("sh", "-c", "echo precious > /etc/precious; chmod 600 /etc/precious")
    # A log that is led elsewhere once the daemon knows its path.
    job = server.submit("ada", "echo mine; sleep 3600", "-o", "/home/ada/led")
    server.wait_until(lambda: server.run("ada", "logs", job).stdout == "mine\n", 30, "its log")
    server.rig.run(["ln", "-sf", "/etc/precious", "/home/ada/led"], user="ada")
    complaint = server.refuse("ada", "logs", job)
    assert "precious" not in complaint.replace("/etc/precious", "") and "may not be read" in complaint
    server.ask("ada", "scancel", job)
    assert server.until("ada", job, "CANCELLED")
    # Places of others for what a job writes, and for the daemon's own folder of the user.
    written = server.submit("ada", "echo here", "-o", "/home/bob/there", "-D", "/")
    server.until("ada", written, "FAILED", "COMPLETED", "CANCELLED")
    # The daemon may still write something there in ada's name.
    led = ["sh", "-c", "rm -rf ~/.overspan; ln -sT /home/bob ~/.overspan"]
    server.wait_until(lambda: server.rig.run(led, user="ada").rc == 0, 20, "ada's folder to be led elsewhere")
    server.rig.put("/home/ada/g.yaml", group({"a": {"run": "true"}, "b": {"run": "true"}}))
    refused = server.run("ada", "submit", "g.yaml", "--parsable")
    assert refused.rc != 0 or server.until("ada", refused.stdout.strip(), "FAILED", "PENDING")
    assert server.root("ls", "-A", "/home/bob").split().count("lib") == 0
    assert "there" not in server.root("ls", "-A", "/home/bob").split()
    server.run("ada", "scancel", "-u", "ada")
    server.rig.run(["rm", "-f", "/home/ada/.overspan"], user="ada")


def test_who_asks_is_told_by_the_kernel(server: Server) -> None:
    claim = {"kind": "script", "text": "#!/bin/sh\nsleep 600\n", "directory": "/tmp", "argv": ["--mem=50", "x.sh"]}
    done = server.post("ada", "/v1/jobs", {**claim, "user": "bob", "uid": USERS["bob"], "gid": USERS["bob"]})
    job = str(done["id"])
    native = server.until("ada", job, "RUNNING")["native_id"]
    assert f"UserId=ada({USERS['ada']})" in server.root("scontrol", "show", "job", str(native))
    answer = server.post("bob", "/v1/cancel", {"refs": [job]})
    assert answer["done"] == [] and answer["errors"][0]["error"]["code"] == "denied"
    server.ask("ada", "scancel", job)
    # Who has no name has no rights.
    body = json.dumps({"refs": ["1"]})
    words = ["setpriv", "--reuid=4242", "--clear-groups", "python3", "-c", RAW, "/v1/cancel", body]
    stranger = server.rig.run(words, user="root")
    assert json.loads(stranger.stdout)["error"]["code"] == "denied", stranger


def test_a_group_and_an_import_are_the_users(server: Server) -> None:
    tasks = {name: {"run": f"id -un; getent ahostsv4 {name}-0.g"} for name in ("a", "b")}
    server.rig.put("/home/bob/g.yaml", group(tasks))
    job = server.ask("bob", "submit", "g.yaml", "--parsable").strip()
    assert server.until("bob", job, "COMPLETED", "FAILED")["state"] == "COMPLETED"
    assert server.ask("bob", "logs", job, "a").startswith("bob\n")
    assert set(server.root("find", "/home/bob/.overspan", *STEADY, "-printf", "%u\n").split()) == {"bob"}
    done = server.rig.run(["sbatch", "--parsable", "--mem=50", "--wrap", "sleep 3600"], user="bob", cwd="/home/bob")
    native = done.stdout.strip()
    assert "bob" in server.refuse("ada", "import", f"rig:{native}")
    imported = server.ask("bob", "import", f"rig:{native}").strip()
    assert server.job("bob", imported)["native_id"] == native
    server.rig.run(["scancel", native], user="bob")


def test_arrays_and_needs_over_users(server: Server) -> None:
    first = server.submit("bob", "until [ -e ~/over ]; do sleep 0.1; done")
    array = server.submit("ada", "id -un", "--array=0-2%1", f"--dependency=afterok:{first}", "-o", "/home/ada/part-%a")
    server.wait_until(lambda: server.job("ada", array)["reason"] == "Dependency", 20, "its reason")
    server.touch("bob", "/home/bob/over")
    server.until("bob", first, "COMPLETED")
    server.until("ada", array, "COMPLETED")
    written = server.root("sh", "-c", "stat -c '%U %n' /home/ada/part-*; cat /home/ada/part-*").split()
    assert written.count("ada") == 6
    assert DENIED in server.refuse("ada", "scontrol", "release", first)
    # What is asked without a job is asked as whoever asks.
    assert "nothing to log in to" in "".join(server.run("ada", "login", "rig")[1:])
    assert server.run("ada", "check", "rig").rc in (0, 1)
    assert not server.root("find", "/root", "-maxdepth", "1", "-name", ".overspan")


def test_work_goes_on_without_the_daemon(server: Server) -> None:
    script = "until [ -e ~/go ]; do sleep 0.1; done; exit 3"
    jobs = {user: server.submit(user, script) for user in ("ada", "bob")}
    natives = [str(server.until(user, job, "RUNNING")["native_id"]) for user, job in jobs.items()]
    server.kill()
    complaint = server.refuse("ada", "squeue")
    assert "the shared daemon does not run" in complaint
    for user in jobs:
        server.touch(user, f"/home/{user}/go")
    states = ("squeue", "-ht", "all", "-j", ",".join(natives), "-o", "%T")
    server.wait_until(lambda: server.root(*states).split() == ["FAILED"] * 2, 20, "their ends")
    server.start()
    for user, job in jobs.items():
        found = server.until(user, job, "FAILED")
        assert (found["state"], found["exit_code"]) == ("FAILED", 3)


def test_one_user_who_stops_the_daemons_work_for_him_stops_nobody_else(server: Server) -> None:
    # Commands in ada's name are ada's processes, which she may stop.
    daemon = json.loads(server.ask("ada", "ping", "--json"))["pid"]
    container = server.rig.containers["ctl"]
    container.exec_run(["python3", "-c", STOPPER, str(daemon)], user="ada", detach=True)
    server.wait_until(lambda: server.root("ls", "/tmp").split().count("stopping"), 20, "ada to begin")
    body = {"kind": "script", "text": "#!/bin/sh\ntrue\n", "directory": "/tmp", "argv": ["--mem=50", "x.sh"]}
    stuck = str(server.post("ada", "/v1/jobs", body)["id"])
    for _ in range(2):
        began = time.monotonic()
        job = server.submit("bob", "true")
        server.until("bob", job, "COMPLETED")
        # Less than a call of ada's is waited for.
        assert time.monotonic() - began < CALL_SECONDS
    assert server.job("bob", stuck)["state"] == "PENDING"
    server.rig.run(["pkill", "-KILL", "-u", "ada"], user="root")
    server.wait_until(lambda: server.job("ada", stuck)["state"] == "COMPLETED", 60, "ada's job to go on")


def test_only_root_serves_others(server: Server) -> None:
    done = server.run("ada", "daemon", "--shared")
    assert done.rc == 1 and "only root" in done.stderr
