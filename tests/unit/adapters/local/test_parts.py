"""The small pure parts of the local adapter: settings, capacity, addresses, admission, plan, checks."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from overspan.adapters.contract import ClusterConfig
from overspan.adapters.local import open_cluster
from overspan.adapters.local.checking import find_file_system
from overspan.adapters.local.planning import render_plan
from overspan.adapters.local.queue import capacity
from overspan.adapters.local.queue.addresses import Addresses
from overspan.adapters.local.queue.admission import (
    MEMORY_NEVER_FITS,
    NEVER_FITS,
    describe_misfit,
    find_refusal,
    name_machine,
)
from overspan.adapters.local.queue.capacity import Capacity, parse_gpu_names, parse_meminfo, parse_quota
from overspan.adapters.local.queue.partition_limits import list_limits
from overspan.adapters.local.settings import Settings, read_settings
from overspan.bridge.lifecycle.reduction import reduce
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.events import SetTime
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.model.resources import Gpus, Gres, Resources
from overspan.bridge.model.slurm.words import BAD_GRES, BAD_NODE, BAD_PARTITION, BAD_RESERVATION, TOO_LONG
from overspan.bridge.model.spec import Form, JobSpec, Need, NeedKind, TaskSpec

MACHINE = Capacity(2000, 4096, ("A100",))


def settings(**given_: Any) -> Settings:
    return read_settings(ClusterConfig("here", "local", given_, "/nowhere"))


def job(*tasks: TaskSpec, **changes: Any) -> Job:
    return new_job(1, JobSpec("j", tasks, **changes), 0.0)


def test_settings_are_read() -> None:
    read = settings(
        cpus=1.5, memory="2G", gpus={"A100": 2}, partitions={"short": {"time": "1h"}, "long": None}, names="env"
    )
    assert (read.cpus, read.memory, read.gpus, read.names) == (1.5, 2048, ("A100", "A100"), "env")
    assert [*read.partitions] == ["short", "long"]
    assert [(one.name, one.time_limit) for one in read.partitions.values()] == [("short", 3600), ("long", None)]
    assert read.partition("") == read.partitions["short"]
    assert read.partition("none") is None
    assert settings(gpus=0).gpus == ()
    assert settings() == Settings()


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        ({"cpu": 4}, "unknown key 'clusters.here.cpu'\n  did you mean 'cpus'"),
        ({"cpus": 0}, "here.cpus: 0 is not a number"),
        ({"cpus": True}, "here.cpus"),
        ({"memory": "much"}, "here.memory"),
        ({"memory": 0}, "here.memory"),
        ({"gpus": "A100:0.5"}, "whole number"),
        ({"partitions": []}, "here.partitions"),
        ({"partitions": {"a": {"nodes": 1}}}, "unknown key .*a.nodes'\n  known keys: time$"),
        ({"partitions": {"a": {"name": "b"}}}, "here.partitions.a.name: 'name' is not a key here"),
        ({"partitions": 3}, "a mapping is wanted here, not 3\n  write partitions: {short"),
        ({"python": ""}, "here.python"),
        ({"names": "dns"}, "none of auto, namespace"),
    ],
)
def test_wrong_settings_are_named(given_: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        settings(**given_)


def test_a_cluster_needs_a_root() -> None:
    with pytest.raises(InvalidRequest, match="root"):
        open_cluster(ClusterConfig("here", "local"))


def test_what_the_machine_says_is_read() -> None:
    assert parse_quota("150000 100000\n") == 1500
    assert parse_quota("max 100000\n") is None
    assert parse_quota("") is None
    assert parse_meminfo("MemFree: 1 kB\nMemTotal:  2048 kB\n") == 2
    assert parse_meminfo("") == 0
    assert parse_gpu_names("NVIDIA A100-SXM4-80GB\nTesla T4\n") == ("A100-SXM4-80GB", "Tesla-T4")


@pytest.mark.parametrize(
    ("does", "found"),
    [("echo Tesla T4", ("Tesla-T4",)), ("echo No devices were found; exit 6", ()), ("sleep 600", None)],
)
def test_gpus_are_asked_for_and_a_driver_that_hangs_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str, found: tuple[str, ...] | None
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\nexec 2>&1\n{does.replace('sleep', 'exec sleep')}\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    hung: list[subprocess.Popen[str]] = []
    # As one that waits inside the driver: no signal ends it.
    monkeypatch.setattr(subprocess.Popen, "kill", lambda process: hung.append(process))
    monkeypatch.setattr(capacity, "_NVIDIA_TIMEOUT", 0.2 if "sleep" in does else 60)
    kinds: list[tuple[str, ...] | None] = []
    asking = threading.Thread(target=lambda: kinds.append(capacity.list_gpus()))
    asking.start()
    try:
        asking.join(30)
        assert kinds == [found]
    finally:
        for process in hung:
            process.send_signal(signal.SIGKILL)
        for thread in threading.enumerate():
            if thread is asking or thread.name == "nvidia-smi":
                thread.join(30)


@given(st.lists(st.tuples(st.integers(1, 99), st.sampled_from("ab"), st.integers(0, 9)), max_size=40))
def test_no_two_live_members_have_one_address(members: list[tuple[int, str, int]]) -> None:
    addresses = Addresses()
    drawn = [addresses.draw(*member) for member in members]
    assert len(set(drawn)) == len(drawn) == len(addresses)
    for address in map(IPv4Address, drawn):
        assert address in IPv4Network("127.0.0.0/8")
        assert address not in IPv4Network("127.0.0.0/16")
        assert address.packed[3] not in (0, 255)
    addresses.release(drawn)
    assert len(addresses) == 0


def test_a_job_keeps_its_address_where_it_can() -> None:
    addresses = Addresses()
    first = addresses.draw(7, "t", 0)
    addresses.release([first])
    assert addresses.draw(7, "t", 0) == first
    assert addresses.draw(7, "t", 0) != first
    assert addresses.draw(7, "t", 0, salt=1) not in (first, "")


def test_what_never_fits_is_refused() -> None:
    assert find_refusal(job(TaskSpec("t", resources=Resources(cpus=2))), Settings(), MACHINE) == ""
    assert (
        find_refusal(job(TaskSpec("t", resources=Resources(memory_mib=4097))), Settings(), MACHINE) == MEMORY_NEVER_FITS
    )
    for resources in (Resources(cpus=2.5), Resources(cpus=2.5, memory_mib=1), Resources(gpus=(Gpus(2),))):
        assert find_refusal(job(TaskSpec("t", resources=resources)), Settings(), MACHINE) == NEVER_FITS
    pair = TaskSpec("t", num_nodes=2, resources=Resources(cpus=1.5))
    assert find_refusal(job(pair), Settings(), MACHINE) == NEVER_FITS
    assert "none" in find_refusal(job(TaskSpec("t"), partition="none"), Settings(), MACHINE)
    short = settings(partitions={"short": {"time": "60s"}})
    assert find_refusal(job(TaskSpec("t", time=61)), short, MACHINE) == TOO_LONG
    assert find_refusal(job(TaskSpec("t", time=60)), short, MACHINE) == ""


def test_a_partition_gives_its_limit_to_tasks_that_name_none() -> None:
    short = settings(partitions={"short": {"time": "60s"}, "long": None})

    def list_times(found: Job, name: str) -> list[tuple[str, int | None]]:
        return [(event.task, event.time) for _, event in list_limits(found, short.partition(name), 5.0)]

    pair = job(TaskSpec("a"), TaskSpec("b", time=30), TaskSpec("c", time=0))
    assert list_times(pair, "") == list_times(pair, "short") == [("a", 60), ("c", 60)]
    assert list_times(pair, "long") == list_times(pair, "gone") == []
    # Somebody has taken the limit away, or the daemon keeps it.
    assert list_times(reduce(pair, SetTime(1.0, None)), "short") == []
    elsewhere = TaskSpec("b", cluster="leo")
    assert list_times(job(TaskSpec("a", cluster="here"), elsewhere, group=True), "short") == []
    plan = render_plan(pair, short, MACHINE)
    assert "[a] primary, time limit 1:00," in plan and "[b] primary, time limit 0:30," in plan


@pytest.mark.parametrize(
    ("resources", "nodes", "words"),
    [
        (Resources(cpus=2.5), 1, ["2.5 CPUs are wanted, {} has 2"]),
        (Resources(cpus=1.5), 2, ["3 CPUs are wanted, {} has 2"]),
        (Resources(memory_mib=4097), 1, ["4097 MiB of memory are wanted, {} has 4096"]),
        (Resources(cpus=64, memory_mib=4097), 1, ["64 CPUs are wanted, {} has 2", "4097 MiB of memory are wanted"]),
        (Resources(gpus=(Gpus(2),)), 1, ["2 GPUs are wanted, {} has"]),
        (Resources(gpus=(Gpus(1, "H100"),)), 1, ["1 H100 GPU is wanted, {} has none"]),
        (Resources(cpus=2), 1, []),
    ],
)
def test_what_is_wanted_and_what_there_is(resources: Resources, nodes: int, words: list[str]) -> None:
    told = describe_misfit(job(TaskSpec("t", num_nodes=nodes, resources=resources)), MACHINE)
    assert [part for part in words if part.format(name_machine()) not in told] == []
    assert len(told.split("; ")) == max(1, len(words)) and bool(told) is bool(words)


def test_hosts_of_a_batch_script_are_this_machine() -> None:
    def refusal(options: dict[str, str], form: Form = Form.BATCH) -> str:
        return find_refusal(job(TaskSpec("t", form=form, native={"slurm": options})), Settings(), MACHINE)

    own = name_machine()
    goods: list[dict[str, str]] = [{}, {"nodelist": own}, {"nodelist": "localhost"}, {"exclude": ""}]
    for good in goods:
        assert refusal(good) == ""
    for bad in (
        {"nodelist": "other"},
        {"nodelist": f"{own},other"},
        {"exclude": "o[1-2]"},
        {"nodelist": "n[1-99999999]"},
    ):
        assert refusal(bad) == BAD_NODE
    assert refusal({"exclude": own}) == NEVER_FITS
    # What a job file says to Slurm clusters is nothing to this machine.
    assert refusal({"nodelist": "other"}, Form.RUN) == ""


def test_one_of_several_partitions_is_enough() -> None:
    several = settings(partitions={"short": {"time": "60s"}, "long": None})
    assert find_refusal(job(TaskSpec("t", time=61), partition="short,long"), several, MACHINE) == ""
    assert find_refusal(job(TaskSpec("t", time=61), partition="short,short"), several, MACHINE) == TOO_LONG
    assert find_refusal(job(TaskSpec("t"), partition="long,none"), several, MACHINE) == f"{BAD_PARTITION}: none"


def test_the_only_generic_resource_is_the_gpu() -> None:
    assert find_refusal(job(TaskSpec("t", resources=Resources(gres=(Gres("foo"),)))), Settings(), MACHINE) == BAD_GRES


def test_a_plan_shows_what_would_run() -> None:
    tasks = (
        TaskSpec("trainer", run="python train.py\n", setup="pip list", num_nodes=2, resources=Resources(cpus=0.5)),
        TaskSpec("data", run="serve", primary=False, time=60, needs=(Need("trainer", NeedKind.READY),)),
    )
    assert render_plan(job(*tasks, group=True), Settings(), MACHINE) == (
        "# j: 3 nodes on this machine, booked together\n"
        "\n"
        "[trainer] primary, time limit UNLIMITED, grace 30 s\n"
        "  trainer-0.j: 0.5 CPU\n"
        "  trainer-1.j: 0.5 CPU\n"
        "  setup:\n"
        "    pip list\n"
        "  run on every node:\n"
        "    python train.py\n"
        "\n"
        "[data] auxiliary, time limit 1:00, grace 30 s\n"
        "  after: trainer (ready)\n"
        "  data-0.j: 1 CPU\n"
        "  run on every node:\n"
        "    serve\n"
    )
    assert NEVER_FITS in render_plan(job(TaskSpec("x.sh", resources=Resources(cpus=9))), Settings(), MACHINE)


def test_the_file_system_of_a_path_is_the_innermost_mount() -> None:
    mounts = "/dev/a / ext4 rw 0 0\nserver:/h /home nfs4 rw 0 0\n/dev/b /home/a\\040b xfs rw 0 0\n"
    assert find_file_system("/var/x", mounts) == "ext4"
    assert find_file_system("/home/x", mounts) == "nfs4"
    assert find_file_system("/homes", mounts) == "ext4"
    assert find_file_system("/home/a b/c", mounts) == "xfs"
    assert find_file_system("/x", "") == ""


@pytest.mark.parametrize(
    ("form", "name", "refusal"),
    [(Form.BATCH, "no-such", BAD_RESERVATION), (Form.BATCH, "", ""), (Form.RUN, "of-slurm", "")],
)
def test_a_machine_has_no_reservations(form: Form, name: str, refusal: str) -> None:
    task = TaskSpec("t", form=form, native={"slurm": {"reservation": name}})
    assert find_refusal(job(task), settings(), MACHINE) == refusal
