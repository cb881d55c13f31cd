"""Renders a launch as the sbatch command and the files that it needs on the cluster, by the job's form. Pure."""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from overspan.adapters.contract import Launch, Node
from overspan.adapters.gpu_defaults import bound_gpu_defaults
from overspan.adapters.slurm.access.allocations import check_terminal
from overspan.adapters.slurm.commands.queries import Site
from overspan.adapters.slurm.files.logs import expect_paths
from overspan.adapters.slurm.groups.parts import PartLaunch, list_parts
from overspan.adapters.slurm.groups.placement import list_kinds
from overspan.adapters.slurm.groups.rendering import (
    GroupPlace,
    agent_words,
    inline_path,
    render_launch,
    supervisor_words,
)
from overspan.adapters.slurm.planning import render_placement, render_submission
from overspan.adapters.slurm.rendering.forms import is_group, refuse_unknown
from overspan.adapters.slurm.rendering.node_resources import count_gpus
from overspan.adapters.slurm.rendering.script import BatchSubmission, RenderContext, render_job
from overspan.adapters.slurm.rendering.volumes import place_volumes
from overspan.adapters.slurm.settings import Settings
from overspan.adapters.slurm.submission.arrays import identify, is_element
from overspan.adapters.slurm.submission.dependencies import name_needs
from overspan.adapters.slurm.transports.transport import Call
from overspan.adapters.slurm.unshared.groups import FOLDER, carry_group
from overspan.adapters.slurm.unshared.inline_files import SECRETS, InlineFiles, check_size
from overspan.adapters.slurm.unshared.jobs import refuse_unshared
from overspan.adapters.slurm.unshared.relocation import relocate_single
from overspan.bridge.lifecycle.stages import list_deferred
from overspan.bridge.model.allocations import is_allocation
from overspan.bridge.model.errors import OverspanError, Rejected
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import JobSpec
from overspan.bridge.runtime.core.job_access import ACCESS, ACCESS_FILE, COMMANDS, render_command

DEFAULT_ROOT = "~/.overspan"
PLAN_TOKEN = "<token>"
_DEFAULTS = (("partition", "SBATCH_PARTITION"), ("account", "SBATCH_ACCOUNT"), ("qos", "SBATCH_QOS"))
"""The cluster's defaults, as sbatch's variables: command line and job options take precedence over these."""


class File(NamedTuple):
    """A file that is written to the cluster before the command runs."""

    path: str
    data: bytes
    mode: int = 0o600


@dataclass(frozen=True)
class Rendered:
    """The command and the files of a launch; `release` says that the job has to be released after its submission."""

    call: Call
    files: tuple[File, ...] = ()
    release: bool = False


@dataclass(frozen=True)
class ClusterFacts:
    """The facts that rendering depends on: the cluster's own, and its nodes if a group has to be placed.

    `elements` are those of the native array that the launch stands for: job ids by index. `inline` are files that
    travel in its script.
    """

    site: Site
    nodes: Sequence[Node] = ()
    elements: Mapping[int, int] | None = None
    inline: InlineFiles | None = None


@dataclass(frozen=True)
class Renderer:
    """Renders the launches of one cluster; `root` is where its run directories are."""

    settings: Settings
    root: str = ""
    cluster: str = ""

    def render(
        self, launch: Launch, facts: ClusterFacts | Site, held: bool = False, test_only: bool = False
    ) -> Rendered:
        """The command of a launch; with `elements` in the facts, of the native array that the launch is part of.

        Raises InvalidRequest for a job that Slurm cannot run, Rejected for one that fits on no nodes.
        """
        facts = facts if isinstance(facts, ClusterFacts) else ClusterFacts(facts)
        self._refuse(launch.job)
        run_dir = self.folder(launch, facts.site)
        if is_group(launch.job):
            return self._render_group(launch, facts, held, test_only)
        submission, job = self._submit(launch, run_dir, held, facts)
        argv = submission.argv
        if test_only:
            # A trial writes no files: the script comes by standard input, and its arguments make no difference.
            end = argv.index(submission.script_path) if submission.script_path else len(argv)
            argv = (argv[0], "--test-only", *argv[1:end])
        script = submission.script.encode("utf-8", "surrogateescape")
        if facts.inline is not None:
            check_size(script, facts.site.config)
        # Secrets make no difference to a trial, so they are not sent.
        own = {name: value for name, value in submission.variables.items() if not (test_only and name == SECRETS)}
        files = [File(f"{run_dir}/secrets", submission.secrets.encode("utf-8", "surrogateescape"))]
        files = files if submission.secrets else []
        if submission.script_path and not test_only:
            files.append(File(submission.script_path, script))
        variables = self._variables(job.spec, own, launch.environment)
        if self.gives_access(launch) and not test_only:
            files += self._render_access(launch, facts.site)
            variables[ACCESS] = self.access_path(launch, facts.site)
        outside = not self.settings.shared and not test_only
        call = Call(
            argv,
            stdin=b"" if submission.script_path and not test_only else script,
            environment=variables,
            folder=run_dir if outside else "",
            path=f"{run_dir}/{COMMANDS}" if ACCESS in variables else "",
            umask=job.spec.origin.umask,
        )
        return Rendered(call, tuple(files), submission.release)

    def gives_access(self, launch: Launch) -> bool:
        """Whether a single job has `span` by files of its own, where its node sees the run directory.

        What holds an allocation calls nothing; its steps have files of their own.
        """
        job = launch.job
        alone = job.array is None and not is_allocation(job.spec.tasks[0])
        return bool(launch.access) and self.settings.shared_root and alone and not is_group(job)

    def needs_application(self, launch: Launch) -> bool:
        """Whether something of the launch starts the runtime application there: a supervisor, or `span`."""
        return is_group(launch.job) or (bool(launch.access) and self.settings.shared_root)

    def access_path(self, launch: Launch, site: Site) -> str:
        """Where the launch's access is; empty for one that has none there. That of a group its supervisors write.

        Native arrays of one array share a run directory. So the name follows from which elements the file is for: it is
        never written anew with others, of which some may run.
        """
        run_dir = self.folder(launch, site)
        by_supervisor = bool(launch.access) and self.settings.shared_root and is_group(launch.job)
        if not (by_supervisor or self.gives_access(launch)):
            return ""
        if not is_element(launch):
            return f"{run_dir}/{ACCESS_FILE}"
        return f"{run_dir}/access/{hashlib.sha256(launch.access.encode()).hexdigest()[:16]}.json"

    def _render_access(self, launch: Launch, site: Site) -> list[File]:
        root, run_dir = resolve_root(self.root, site.home), self.folder(launch, site)
        command = render_command(supervisor_words(self.settings, root), run_dir)
        return [
            File(self.access_path(launch, site), launch.access.encode()),
            File(f"{run_dir}/{COMMANDS}/span", command.encode(), 0o700),
        ]

    def _render_group(self, launch: Launch, facts: ClusterFacts, held: bool, test_only: bool) -> Rendered:
        root, folder = resolve_root(self.root, facts.site.home), self.folder(launch, facts.site)
        place = GroupPlace(self.cluster, root, folder, facts.nodes, facts.site.version)
        found = render_launch(launch, self.settings, place, held)
        submission = found.submission
        if not (self.settings.shared_root or test_only):
            submission = carry_group(submission, found.files, facts.inline)
            check_size(submission.script.encode("utf-8", "surrogateescape"), facts.site.config)
        argv = submission.argv
        call = Call(
            (argv[0], "--test-only", *argv[1:]) if test_only else argv,
            stdin=submission.script.encode("utf-8", "surrogateescape"),
            environment=submission.variables,
            umask=launch.job.spec.origin.umask,
        )
        files = {} if test_only else {**found.files, **found.kept}
        if isinstance(launch, PartLaunch) and not (test_only or launch.order is not None or facts.inline is None):
            files[inline_path(launch.task, launch.job.launch)] = facts.inline.data
        return Rendered(call, tuple(File(f"{folder}/{name}", data) for name, data in files.items()))

    def folder(self, launch: Launch, site: Site) -> str:
        """The job's run directory on the cluster."""
        return f"{resolve_root(self.root, site.home)}/runs/{name_run(launch)}"

    def _refuse(self, job: Job) -> None:
        refuse_unknown(job)
        if is_allocation(job.spec.tasks[0]):
            check_terminal(self.settings)
        if not self.settings.shared_root:
            refuse_unshared(job)

    def _find_place(self, run_dir: str) -> str:
        """The working folder of a job that does not see the submitter's files."""
        return run_dir if self.settings.shared_root else FOLDER

    def paths(self, launch: Launch, native: int, site: Site) -> tuple[str, str]:
        """The paths on the cluster of the job's output and error."""
        run_dir = self.folder(launch, site)
        job = launch.job if self.settings.shared else relocate_single(launch.job, self._find_place(run_dir))
        return expect_paths(job, native, site.user)

    def work_dir(self, launch: Launch, site: Site) -> str:
        """A single job's working directory; empty if the cluster sees the submitter's own."""
        if self.settings.shared:
            return ""
        job = self.move(launch, site)
        return job.spec.tasks[0].workdir or job.spec.origin.directory

    def plan(
        self, job: Job, nodes: Sequence[Node] = (), as_set: bool = False, inline: InlineFiles | None = None
    ) -> str:
        """What would be submitted, for `span plan`, with placeholders for token, ids and folders."""
        self._refuse(job)
        launch, root = Launch(PLAN_TOKEN, job), self.root or DEFAULT_ROOT
        if not is_group(job):
            head = f"# {job.spec.name}: task {job.spec.tasks[0].name}, one Slurm job\n"
            facts = ClusterFacts(Site((), {}, "", ""), nodes, inline=inline)
            return head + render_submission(self._submit(launch, f"{root}/runs/N", False, facts)[0])
        place = GroupPlace(self.cluster, root, f"{root}/runs/N", nodes)
        agent = agent_words(self.settings, root)
        unknown = "" if nodes else "# the cluster was not asked for its nodes: each member has one of its own here\n"
        parts: Sequence[Launch] = list_parts(launch) if as_set else [launch]
        texts, deferred = [unknown], list_deferred(job)
        if as_set:
            first = len(parts) - len(deferred)
            texts.append(f"# {job.spec.name}: a set of {first} jobs, submitted held and released together\n")
        for part in parts:
            found = render_launch(part, self.settings, place, False)
            if isinstance(part, PartLaunch):
                turn = ", submitted at its turn" if part.task in deferred else ""
                texts.append(f"\n# task {part.task}{turn}:\n")
            texts += [render_placement(found.plan, agent), render_submission(found.submission)]
        return "".join(texts)

    def move(self, launch: Launch, site: Site) -> Job:
        """The job with the paths of its folders and volumes on the cluster."""
        return self._move(launch.job, self.folder(launch, site))

    def _move(self, job: Job, run_dir: str) -> Job:
        moved = job if self.settings.shared else relocate_single(job, self._find_place(run_dir))
        return place_volumes(moved, posixpath.dirname(posixpath.dirname(run_dir)))

    def _submit(self, launch: Launch, run_dir: str, held: bool, facts: ClusterFacts) -> tuple[BatchSubmission, Job]:
        job = bound_gpu_defaults(self._move(launch.job, run_dir), facts.nodes)
        task = job.spec.tasks[0]
        setting = RenderContext(
            token=identify(launch).token,
            native_ids=name_needs(launch.needs),
            secrets_path=f"{run_dir}/secrets" if self.settings.shared_root else "",
            script_path=f"{run_dir}/script" if task.args else "",
            run_dir="" if self.settings.shared or not self.settings.shared_root else run_dir,
            held=held,
            elements=facts.elements,
            throttle=launch.throttle,
            containers=self.settings.containers,
            gpu_kinds=tuple(list_kinds(facts.nodes)),
            gpu_counts=count_gpus(facts.nodes),
            inline=facts.inline,
        )
        return render_job(job, setting), job

    def _variables(self, spec: JobSpec, own: Mapping[str, str], daemon: Mapping[str, str]) -> dict[str, str]:
        given = {"partition": spec.partition, "account": spec.account, "qos": spec.qos}
        defaults = {
            variable: getattr(self.settings, name)
            for name, variable in _DEFAULTS
            if getattr(self.settings, name) and not given[name]
        }
        # The daemon's address is of use only if the job sees the daemon's socket.
        return {**defaults, **own, **(daemon if self.settings.shared else {})}


def explain(error: OverspanError) -> str:
    """The error's message; for a placement that is impossible also the reason."""
    return f"{error.message}\n{error.remedy}" if error.remedy and isinstance(error, Rejected) else error.message


def name_run(launch: Launch) -> str:
    """The name of a job's run directory, from its token: several daemons may use the same job ids.

    Elements of a native array share the array's, as they share its working directory.
    """
    if is_element(launch):
        return identify(launch).token.rpartition("-")[0]
    token = launch.whole if isinstance(launch, PartLaunch) else launch.token
    head, dash, number = token.rpartition("-")
    return head if dash and number == str(launch.job.launch) and "-" in head else f"{token}-{launch.job.id}"


def resolve_root(root: str, home: str) -> str:
    """The folder of run directories as an absolute path on the cluster."""
    root = root or DEFAULT_ROOT
    return f"{home}{root[1:]}" if root.startswith("~/") else root


def without_array(job: Job) -> Job:
    """The job for a trial: one element is tried in place of the array."""
    return replace(job, array=None)
