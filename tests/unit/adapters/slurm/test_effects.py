"""Orders as commands, trials as verdicts, settings, and jobs that are submitted from elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.adapters.slurm.samples import read_file, read_script

from overspan.adapters.abilities import Check, Plan
from overspan.adapters.contract import ClusterConfig, Launch, Node
from overspan.adapters.slurm import open_cluster
from overspan.adapters.slurm.commands.admission import is_unclear, read_trial, refuse_memory
from overspan.adapters.slurm.commands.queries import Site, read_config, read_seconds, read_version
from overspan.adapters.slurm.files.logs import expect_paths, read_paths
from overspan.adapters.slurm.handles import make_handle
from overspan.adapters.slurm.orders.command_lines import render_order
from overspan.adapters.slurm.rendering.renderer import Renderer, name_run, resolve_root
from overspan.adapters.slurm.settings import Settings, read_settings
from overspan.adapters.slurm.unshared.relocation import relocate
from overspan.bridge.model import events
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.events import Event

SITE = Site((22, 5), {}, "ada", "/home/ada")
HANDLE = make_handle(read_script("#!/bin/sh\ntrue\n"), 42)
FAILURE = "allocation failure: Requested node configuration is not available\n"


class TestOrders:
    @pytest.mark.parametrize(
        ("event", "words"),
        [
            (events.Hold(1), "scontrol hold 42"),
            (events.Release(1), "scontrol release 42"),
            (events.Requeue(1), "scontrol requeue Incomplete 42"),
            (events.Requeue(1, hold=True), "scontrol requeuehold Incomplete 42"),
            (events.Suspend(1), "scontrol suspend 42"),
            (events.Resume(1), "scontrol resume 42"),
            (events.Restart(1), "scontrol requeue Incomplete 42"),
            (events.SetTime(1, 3661), "scontrol update JobId=42 TimeLimit=01:01:01"),
            (events.SetTime(1, None), "scontrol update JobId=42 TimeLimit=UNLIMITED"),
            (events.SetPriority(1, 5), "scontrol update JobId=42 Priority=5"),
            (events.SetNice(1, -5), "scontrol update JobId=42 Nice=-5"),
            (events.SetBegin(1, None), "scontrol update JobId=42 StartTime=now"),
            (events.SetBegin(1, 99.5), "scontrol update JobId=42 StartTime=uts100"),
            (events.Signal(1, 10), "timeout 20 scancel --state=RUNNING --signal=10 --full 42"),
            (events.Signal(1, 10, batch_only=True), "timeout 20 scancel --state=RUNNING --signal=10 --batch 42"),
            (events.Cancel(1, grace=0), "timeout 20 scancel 42"),
        ],
    )
    def test_an_order_is_one_command(self, event: Event, words: str) -> None:
        assert render_order(HANDLE, event) == (tuple(words.split()),)

    def test_a_cancel_has_a_command_for_each_state(self) -> None:
        lines = [" ".join(words) for words in render_order(HANDLE, events.Cancel(1)) or ()]
        assert lines == [
            "timeout 20 scancel --state=PENDING 42",
            "timeout 20 scancel --state=RUNNING --signal=TERM --full 42",
            "timeout 20 scancel --state=SUSPENDED 42",
        ]
        assert render_order(HANDLE, events.Cancel(1), starting=True) == (("timeout", "20", "scancel", "42"),)

    def test_what_waits_is_put_off_before_it_is_taken_back(self) -> None:
        for event in (events.Expire(1, "deadline"), events.Expire(1, "failover", "local")):
            ((*_, script, name, native),) = render_order(HANDLE, event) or ()
            assert (name, native) == ("withdraw", "42")
            first, *others = script.splitlines()
            assert first == 'scontrol update JobId="$1" StartTime=now+1hour || exit $?'
            assert others[-1] == 'exec scancel --state=PENDING "$1"'

    def test_what_has_no_form_is_not_carried_out(self) -> None:
        assert render_order(HANDLE, events.SetDependency(1, {})) is None
        assert render_order(HANDLE, events.SetThrottle(1, 3)) is None


class TestTrial:
    def test_a_good_job(self) -> None:
        assert read_trial(0, "sbatch: Job 5 to start at 2027-01-01T00:00:00 using 1 processors\n") is None

    def test_a_rejection_in_sbatchs_words(self) -> None:
        refusal = read_trial(
            1,
            "sbatch: error: invalid partition specified: nope\nallocation failure: Invalid partition name specified\n",
        )
        assert refusal is not None
        assert refusal.message == (
            "invalid partition specified: nope\nBatch job submission failed: Invalid partition name specified"
        )

    def test_what_sbatch_lets_wait_is_taken(self) -> None:
        assert is_unclear(1, FAILURE)
        assert read_trial(1, FAILURE) is None

    def test_a_controller_that_is_busy_refuses_nothing(self) -> None:
        assert read_trial(1, "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying\n") is None

    def test_more_memory_than_any_node_has(self) -> None:
        nodes = [Node("n", "main", "idle", 4, 0, 4000, 0), Node("m", "big", "idle", 4, 0, 9000, 0, default=False)]
        small, large = (read_script(f"#!/bin/sh\n#SBATCH --mem={size}M\ntrue\n") for size in (4000, 4001))
        assert refuse_memory(small, nodes) is None
        refusal = refuse_memory(large, nodes)
        assert refusal is not None and refusal.message.startswith("Memory specification can not be satisfied\n")
        assert refuse_memory(read_script("#!/bin/sh\n#SBATCH --mem=4001M -p big\ntrue\n"), nodes) is None


class TestSettings:
    def test_defaults(self) -> None:
        assert read_settings(ClusterConfig("c", "slurm")) == Settings()

    def test_a_host_means_ssh_and_another_file_system(self) -> None:
        settings = read_settings(ClusterConfig("c", "slurm", {"host": "login"}))
        assert (settings.transport, settings.shared) == ("ssh", False)
        assert read_settings(ClusterConfig("c", "slurm", {"host": "login", "shared": True})).shared

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"hots": "x"}, "unknown key 'clusters.c.hots'\n  did you mean 'host'"),
            ({"transport": "rsh"}, "none of local, ssh, paramiko; did you mean 'ssh'"),
            ({"transport": "ssh"}, "needs a host"),
            ({"host": "-oProxyCommand=x"}, "is not a name"),
            ({"port": 0}, "port: 0 is out of range; it must be from 1 to 65535"),
            ({"tick": 0}, "tick: 0 is out of range; it must be from 0.2 to 3600"),
            ({"path": "bin"}, "not an absolute path"),
            ({"shared": "yes"}, "true or false is wanted here, not the text 'yes'"),
            ({"ssh_options": "-v"}, "a list is wanted here, .*\n  write ssh_options: "),
        ],
    )
    def test_mistakes_are_named(self, given: dict[str, Any], message: str) -> None:
        with pytest.raises(InvalidRequest, match=message):
            read_settings(ClusterConfig("c", "slurm", given))
        with pytest.raises(InvalidRequest, match="absolute path on the cluster"):
            read_settings(ClusterConfig("c", "slurm", {}, "runs"))


class TestElsewhere:
    def test_a_script_runs_in_its_run_directory_without_the_submitters_variables(self) -> None:
        job = read_script(
            "#!/bin/sh\ntrue\n", ("--export=ALL,WANTED", "--output=out.txt", "x.sh"), env={"WANTED": "1", "HOME": "/me"}
        )
        call = Renderer(Settings(shared=False)).render(Launch("inst-8-0", job), SITE).call
        assert call.folder == "/home/ada/.overspan/runs/inst-8"
        assert f"--chdir={call.folder}" in call.argv
        assert call.environment == {"WANTED": "1"}
        assert call.umask == 0o022

    def test_a_task_keeps_what_it_names(self) -> None:
        job = relocate(read_file("name: t\nenvs: {A: b}\nworkdir: /scratch/x\nrun: hostname\n"), "/r/runs/t")
        assert job.spec.tasks[0].env == {"A": "b"}
        assert job.spec.tasks[0].workdir == "/scratch/x"
        assert job.spec.environment == {}

    def test_on_a_shared_file_system_nothing_changes(self) -> None:
        job = read_script("#!/bin/sh\ntrue\n", env={"HOME": "/me"})
        call = Renderer(Settings()).render(Launch("inst-8-0", job, {"SPAN_X": "1"}), SITE).call
        assert call.environment == {"HOME": "/me", "SPAN_X": "1"}
        assert "--chdir=/home/ada" in call.argv
        assert call.folder == ""

    def test_settings_stand_below_what_the_job_says(self) -> None:
        renderer = Renderer(Settings(partition="gpu", account="lab"))
        job = read_script("#!/bin/sh\n#SBATCH -p main\ntrue\n")
        assert renderer.render(Launch("i-8-0", job), SITE).call.environment == {"SBATCH_ACCOUNT": "lab"}

    def test_a_trial_needs_no_file(self) -> None:
        job = read_script("#!/bin/sh\necho $1\n", ("x.sh", "an argument"))
        renderer = Renderer(Settings())
        rendered = renderer.render(Launch("i-8-0", job), SITE)
        assert [file.path for file in rendered.files] == ["/home/ada/.overspan/runs/i-8/script"]
        assert rendered.call.argv[-2:] == (rendered.files[0].path, "an argument")
        trial = renderer.render(Launch("i-8-0", job), SITE, test_only=True)
        assert trial.files == () and trial.call.stdin == b"#!/bin/sh\necho $1\n"
        assert "--test-only" in trial.call.argv and "an argument" not in trial.call.argv

    def test_names_of_run_directories(self) -> None:
        job = read_script("#!/bin/sh\ntrue\n")
        assert name_run(Launch("inst-8-0", job)) == "inst-8"
        assert name_run(Launch("odd", job)) == "odd-8"
        assert resolve_root("~/span", "/h") == "/h/span"
        assert resolve_root("/scratch", "/h") == "/scratch"

    def test_where_output_goes(self) -> None:
        job = read_script("#!/bin/sh\n#SBATCH -o /logs/%x-%j.txt -e e.txt\n", ("--job-name=n", "x.sh"))
        assert expect_paths(job, 42, "ada") == ("/logs/n-42.txt", "/home/ada/e.txt")
        assert expect_paths(read_script("#!/bin/sh\n"), 42, "ada") == ("/home/ada/slurm-42.out", "")
        assert expect_paths(read_script("#!/bin/sh\n#SBATCH -o %N.txt\n"), 42, "ada")[0] == ""
        assert read_paths({"StdOut": "/a"}) == ("/a", "/a")


class TestFacts:
    def test_what_a_cluster_says_of_itself(self) -> None:
        config = read_config(
            "Configuration data as of x\nMessageTimeout          = 10 sec\nSLURM_VERSION = 23.02.0-0rc1\n"
        )
        assert read_seconds(config["MessageTimeout"]) == 10
        assert read_version(config["SLURM_VERSION"]) == (23, 2, 0)
        assert read_version("") == ()
        assert not Site((), {"AccountingStorageType": "accounting_storage/none"}, "", "").accounting

    def test_the_adapter_has_its_abilities(self) -> None:
        cluster = open_cluster(ClusterConfig("c", "slurm"))
        assert isinstance(cluster, Check) and isinstance(cluster, Plan)
        plan = cluster.plan(read_script("#!/bin/sh\ntrue\n"))
        assert "overspan=<token>" in plan and plan.endswith("#!/bin/sh\ntrue\n")
        group = cluster.plan(read_file("name: g\nexecution: parallel\n---\nname: a\nrun: x\n---\nname: b\nrun: x\n"))
        assert "the cluster was not asked for its nodes" in group
        assert "--nodelist=<0.1>" in group and "exec python3 -I -S " in group
