"""Turns a Slurm cluster's answers, and the errors of reaching it, into findings with remedies. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from overspan.adapters.abilities import Finding
from overspan.adapters.slurm.commands.admission import is_unclear, read_trial
from overspan.adapters.slurm.commands.queries import Site, read_seconds, read_version
from overspan.adapters.slurm.settings import LOCAL, SSH, Settings
from overspan.adapters.slurm.transports.transport import Done
from overspan.bridge.model.errors import OverspanError

OLDEST = (20, 2)
OLDEST_PYTHON = (3, 9)
_METHODS = (("user namespaces", "userns"), ("bwrap", "bwrap"), ("nss_wrapper", "nss_wrapper"))
"""Ways to give members their names without root: the names that `span check` shows, and the probe's keys."""


_UNSEEN = "set `root` to a folder that all nodes share; where there is none, `shared_root: false` lets jobs run"


def judge_version(site: Site) -> Finding:
    """Whether Slurm is new enough."""
    works = site.version >= OLDEST
    seen = ".".join(map(str, site.version)) or "not shown"
    seen += f", cluster {site.config.get('ClusterName', '?')}"
    return Finding("Slurm", works, seen, "" if works else "Slurm 20.11 or newer is needed")


def judge_hetjobs(site: Site) -> Finding:
    """Whether a group of unlike nodes can be one allocation (slurm.conf(5), SchedulerType, SchedulerParameters)."""
    scheduler = site.config.get("SchedulerType", "")
    if not site.hetjobs:
        remedy = "groups of unlike nodes are sets of single jobs here, but those that `share` nodes cannot run"
        return Finding("hetjobs", False, f"{scheduler} starts none", remedy)
    if "disable_hetjob_steps" in site.config.get("SchedulerParameters", ""):
        remedy = "groups start one step for each node, which works; a script's own srun cannot span components"
        return Finding("hetjobs", True, "steps over components are switched off (disable_hetjob_steps)", remedy)
    return Finding("hetjobs", True, scheduler or "the scheduler is not shown")


def judge_pace(site: Site, settings: Settings) -> Finding:
    """How often the cluster is polled, and its rate limit (slurm.conf(5), SlurmctldParameters=rl_enable)."""
    seen = f"one squeue each {settings.tick:g} s for all jobs"
    parameters = site.config.get("SlurmctldParameters", "")
    if "rl_enable" in parameters:
        limits = [word for word in parameters.split(",") if word.startswith("rl_")]
        seen += f"; Slurm limits the rate of questions ({', '.join(limits)})"
    return Finding("call budget", True, seen)


def judge_kill_wait(site: Site) -> Finding:
    """What a longer `grace_period` costs (slurm.conf(5), KillWait)."""
    seconds = read_seconds(site.config.get("KillWait", ""))
    if seconds is None:
        return Finding("KillWait", True, "not shown")
    return Finding("KillWait", True, f"{seconds} s; a longer grace_period is kept except at a time limit")


def judge_trial(done: Done, settings: Settings) -> Finding:
    """Whether the user may submit with the cluster's defaults."""
    chosen = [
        f"{name} {getattr(settings, name)}" for name in ("partition", "account", "qos") if getattr(settings, name)
    ]
    where = ", ".join(chosen) or "the default partition"
    refusal = read_trial(done.rc, done.words)
    if refusal is not None:
        remedy = "set `partition`, `account` or `qos` of the cluster to what `sacctmgr show assoc user=$USER` lists"
        return Finding("submit", False, f"{where}: {' '.join(refusal.message.splitlines())}", remedy)
    if done.rc != 0 and not is_unclear(done.rc, done.words):
        return Finding("submit", False, f"{where}: {done.words.strip()}", "try again later")
    return Finding("submit", True, f"sbatch --test-only takes a job for {where}")


def read_probe(text: str) -> dict[str, str]:
    """Names and values that a probe printed."""
    return dict(line.partition("=")[::2] for line in text.splitlines())


def judge_login(found: Mapping[str, str], root: str) -> list[Finding]:
    """The login node's findings: its Python, and `root`."""
    findings = [_judge_python("python (login)", found, f"on {found.get('host', '?')}")]
    free = found.get("free", "")
    if free.isdigit() and int(free) < 100:
        remedy = f"free space for {root}, or set `root` to another folder of yours"
        findings.append(Finding("root", False, f"{root} has {free} MiB left", remedy))
    else:
        findings.append(Finding("root", True, f"{root} can be written" + (f", {free} MiB left" if free else "")))
    return findings


def judge_compute(found: Mapping[str, str], root: str, wanted: bool = True, *, fuse: bool = False) -> list[Finding]:
    """A compute node's findings: its Python, the root, ways to give names. Empty `found` means that no node was free.

    `wanted` says that the node has to share the root, `fuse` that MOUNT may be read through the store.
    """
    if not found:
        seen = "no compute node was free at once; each group finds its own nodes' name method when it starts"
        return [Finding("compute node", True, seen)]
    where = f"on {found.get('host', '?')}"
    shared = "shared" in found
    if not wanted:
        seen = "is visible: `shared_root: false` can be removed" if shared else "is not visible: files are streamed"
        root_finding = Finding("shared root", True, f"{root} {seen}")
    else:
        seen = f"{root} {'is visible' if shared else 'is not visible'} {where}"
        root_finding = Finding("shared root", shared, seen, "" if shared else _UNSEEN)
    methods = (_judge_method(name, key, found, where) for name, key in _METHODS)
    mounts = [_judge_mounts(found, where)] if fuse else []
    return [_judge_python("python", found, where), *methods, root_finding, *mounts]


def _judge_python(what: str, found: Mapping[str, str], where: str) -> Finding:
    python = read_version(found.get("python", ""))
    works = python >= OLDEST_PYTHON
    seen = ".".join(map(str, python)) or "none"
    remedy = "" if works else "set `python` to a Python 3.9 or newer for groups; single jobs need none"
    return Finding(what, works, f"{seen} {where}", remedy)


def _judge_mounts(found: Mapping[str, str], where: str) -> Finding:
    """Whether MOUNT reads through the store there; works in any case, since a copy is made where it does not."""
    missing = [
        name
        for name, key in (("user namespaces", "userns"), ("a /dev/fuse with mode 0666", "fuse"))
        if key not in found
    ]
    if not missing:
        return Finding("MOUNT", True, f"buckets are read through the store {where}")
    remedy = f"to read large ones without a copy, ask the site for {' and '.join(missing)}"
    return Finding("MOUNT", True, f"buckets are copied before the start {where}", remedy)


def _judge_method(name: str, key: str, found: Mapping[str, str], where: str) -> Finding:
    if key in found:
        return Finding(name, True, where)
    if any(other in found for _, other in _METHODS):
        return Finding(name, True, f"not {where}, and not needed: another way to give names works")
    return Finding(name, False, where, "names of members need user namespaces, bwrap or nss_wrapper: ask the site")


# --- a cluster that cannot be reached --------------------------------------------------------------------------------

_CAUSES: tuple[tuple[str, str], ...] = (
    (
        r"Can't open user config file|Bad configuration option|terminating, \d+ bad configuration|bad number of arg",
        "mend the file that `ssh_config` of the cluster names, or set it to another one",
    ),
    (
        r"Could not resolve|Name or service not known|Temporary failure in name resolution|nodename nor servname",
        "set `host` of the cluster to a name that ssh knows: a `Host` of the ssh configuration, or one in the DNS",
    ),
    (
        r"Host key|host key|not found in known_hosts|REMOTE HOST IDENTIFICATION",
        "run `{ssh} true` on a terminal, compare the host's key with the one that the site publishes, and accept it",
    ),
    (
        r"Permission denied|[Aa]uthentication|Too many authentication failures",
        "`{ssh} true` has to work: give it the right user and key; {login}",
    ),
    (
        r"Connection refused|timed out|No route to host|Network is unreachable|no answer within|reset by peer",
        "see with `{ssh} true` whether the host answers: its sshd, the port, a VPN or jump host on the way",
    ),
    (r"ssh cannot be started", "install the OpenSSH client, or set `transport: paramiko`"),
    (
        r"not found|No such file or directory|code 127",
        "set `path` of the cluster to the folder there that has Slurm's commands: `{ssh} command -v scontrol` shows it",
    ),
    (
        r"Unable to contact slurm|slurm_load|Slurm backup controller|configuration source",
        "Slurm's controller does not answer there: `{ssh} scontrol ping` shows which; ask the site",
    ),
)


def describe_unreachable(error: OverspanError, settings: Settings) -> tuple[str, str]:
    """The error as `host: message`, with the host only once, and the remedy for its cause."""
    where = settings.host or "this machine"
    seen = error.message if error.message.startswith(f"{where}: ") else f"{where}: {error.message}"
    return seen, _find_remedy(seen.removeprefix(f"{where}: "), settings) or error.remedy or _default_remedy(settings)


def _find_remedy(message: str, settings: Settings) -> str:
    remedy = next((remedy for cause, remedy in _CAUSES if re.search(cause, message)), "")
    if settings.transport == LOCAL:
        return "" if "{ssh} true" in remedy else remedy.replace("{ssh} ", "").replace(" of the cluster", "")
    login = "`span login` asks for passwords and codes" if settings.transport == SSH else "paramiko asks for no codes"
    return remedy.format(ssh=spell_ssh(settings), login=login)


def _default_remedy(settings: Settings) -> str:
    if settings.transport == LOCAL:
        return "run the daemon where Slurm's commands work, set `path` to their folder, or `host` to reach them by ssh"
    return f"try `{spell_ssh(settings)} scontrol ping`; `span login` opens a connection that asks for codes"


def spell_ssh(settings: Settings) -> str:
    """The ssh command that connects as the daemon does, with the cluster's own configuration, user and port."""
    words = ["ssh", *(["-F", settings.ssh_config] if settings.ssh_config else []), *settings.ssh_options]
    words += ["-l", settings.user] if settings.user else []
    words += ["-p", str(settings.port)] if settings.port else []
    # `~` stays unquoted, so that the user's shell expands it.
    return " ".join(
        word if re.fullmatch(r"~/[\w./-]+", word) else shlex.quote(word) for word in [*words, settings.host]
    )
