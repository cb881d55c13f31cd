"""A launch as the command and the files that bring it to a cluster. Pure; refuses what Slurm is not given yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from overspan.adapters.contract import Launch
from overspan.adapters.slurm.logs import expect_paths
from overspan.adapters.slurm.questions import Site
from overspan.adapters.slurm.relocation import relocate
from overspan.adapters.slurm.script import Setting, Submission, render_job
from overspan.adapters.slurm.settings import Settings
from overspan.adapters.slurm.transports.channel import Call
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import JobSpec

DEFAULT_ROOT = "~/.overspan"
PLAN_TOKEN = "<token>"
_DEFAULTS = (("partition", "SBATCH_PARTITION"), ("account", "SBATCH_ACCOUNT"), ("qos", "SBATCH_QOS"))
"""Settings that count where the job says nothing: as variables they stand below the command line."""


class File(NamedTuple):
    """A file on the cluster that has to be there before; 0600."""

    path: str
    data: bytes


@dataclass(frozen=True)
class Rendered:
    """What brings a launch to the cluster; `release` asks for a release once it is there."""

    call: Call
    files: tuple[File, ...] = ()
    release: bool = False


@dataclass(frozen=True)
class Renderer:
    """Renders the launches of one cluster; `root` is where its run directories are."""

    settings: Settings
    root: str = ""

    def render(self, launch: Launch, site: Site, held: bool = False, test_only: bool = False) -> Rendered:
        """The command of a launch. Raises InvalidRequest for what this version does not carry out."""
        run_dir = f"{resolve_root(self.root, site.home)}/runs/{name_run(launch)}"
        submission, job = self._submit(launch, run_dir, held)
        argv = submission.argv
        if test_only:
            # Nothing is written for a trial: the script comes by standard input, and its arguments do not matter.
            end = argv.index(submission.script_path) if submission.script_path else len(argv)
            argv = (argv[0], "--test-only", *argv[1:end])
        script = submission.script.encode("utf-8", "surrogateescape")
        files = [File(f"{run_dir}/secrets", submission.secrets.encode("utf-8", "surrogateescape"))]
        files = files if submission.secrets else []
        if submission.script_path and not test_only:
            files.append(File(submission.script_path, script))
        outside = not self.settings.shared and not test_only
        call = Call(
            argv,
            stdin=b"" if submission.script_path and not test_only else script,
            environment=self._variables(job.spec, submission.variables, launch.environment),
            folder=run_dir if outside else "",
            umask=job.spec.origin.umask,
        )
        return Rendered(call, tuple(files), submission.release)

    def paths(self, launch: Launch, native: int, site: Site) -> tuple[str, str]:
        """Where the job will write its output and its error on the cluster."""
        run_dir = f"{resolve_root(self.root, site.home)}/runs/{name_run(launch)}"
        job = launch.job if self.settings.shared else relocate(launch.job, run_dir)
        return expect_paths(job, native, site.user)

    def plan(self, job: Job) -> Submission:
        """What would be submitted; the token, ids and folders are not known yet."""
        launch = Launch(PLAN_TOKEN, job)
        return self._submit(launch, f"{self.root or DEFAULT_ROOT}/runs/N", False)[0]

    def _submit(self, launch: Launch, run_dir: str, held: bool) -> tuple[Submission, Job]:
        refuse_unknown(launch.job)
        job = launch.job if self.settings.shared else relocate(launch.job, run_dir)
        task = job.spec.tasks[0]
        setting = Setting(
            token=launch.token,
            secrets_path=f"{run_dir}/secrets",
            script_path=f"{run_dir}/script" if task.args else "",
            run_dir="" if self.settings.shared else run_dir,
            held=held,
        )
        return render_job(job, setting), job

    def _variables(self, spec: JobSpec, own: Mapping[str, str], daemon: Mapping[str, str]) -> dict[str, str]:
        given = {"partition": spec.partition, "account": spec.account, "qos": spec.qos}
        defaults = {
            variable: getattr(self.settings, name)
            for name, variable in _DEFAULTS
            if getattr(self.settings, name) and not given[name]
        }
        # The daemon's own address is of use where its socket is seen.
        return {**defaults, **own, **(daemon if self.settings.shared else {})}


def refuse_unknown(job: Job) -> None:
    """Refuse what has no form on Slurm yet. Raises InvalidRequest."""
    if job.array is not None and job.element is None:
        raise InvalidRequest("arrays as a whole are not given to Slurm by this version; their elements are")
    if job.spec.group or len(job.spec.tasks) > 1:
        raise InvalidRequest(
            "groups on Slurm are not carried out by this version", remedy="send the group to another cluster with -M"
        )
    retry = job.spec.tasks[0].retry
    if retry.max_restarts_on_errors or retry.recover_on_exit_codes:
        raise InvalidRequest(
            "restarts after errors on Slurm are not carried out by this version",
            remedy="leave max_restarts_on_errors and recover_on_exit_codes out; --requeue and lost nodes are heeded",
        )


def name_run(launch: Launch) -> str:
    """The name of a job's run directory: two daemons' jobs of one number are told apart by their tokens."""
    head, dash, number = launch.token.rpartition("-")
    return head if dash and number == str(launch.job.launch) and "-" in head else f"{launch.token}-{launch.job.id}"


def resolve_root(root: str, home: str) -> str:
    """The folder of run directories as an absolute path on the cluster."""
    root = root or DEFAULT_ROOT
    return f"{home}{root[1:]}" if root.startswith("~/") else root


def without_array(job: Job) -> Job:
    """The job for a trial: an array is as good as its elements."""
    return replace(job, array=None)
