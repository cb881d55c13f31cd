"""What `span check` tries on a Slurm cluster. Each finding says what to do about it."""

from __future__ import annotations

import secrets
import time

from overspan.adapters.contract import Finding
from overspan.adapters.slurm.questions import Questions, Site, read_version
from overspan.adapters.slurm.settings import LOCAL, Settings
from overspan.bridge.model.errors import OverspanError

MAX_SKEW = 5.0
_OLDEST = (20, 11)
_OLDEST_PYTHON = (3, 9)
_PROBE = """\
echo host=$(uname -n)
echo python=$("$1" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null)
unshare --user true 2>/dev/null && echo userns=yes
command -v bwrap >/dev/null 2>&1 && bwrap --dev-bind / / true 2>/dev/null && echo bwrap=yes
for f in /usr/lib*/libnss_wrapper.so /usr/lib/*/libnss_wrapper.so; do [ -e "$f" ] && echo nss_wrapper=$f; done
[ -e "$2" ] && echo shared=yes
:
"""
_PROBE_SECONDS = 40.0


async def check_cluster(questions: Questions, settings: Settings, root: str) -> list[Finding]:
    """Try each thing that jobs need there; may take some ten seconds."""
    where = settings.host or "this machine"
    try:
        site = await questions.site()
        began = time.monotonic()
        await questions.transport.run(["true"], timeout=questions.timeout)
    except OverspanError as error:
        return [Finding("reach", False, f"{where}: {error.message}", error.remedy or _reach_remedy(settings))]
    seconds = time.monotonic() - began
    findings = [
        Finding(
            "reach", True, f"{where} by {settings.transport}, as {site.user}; a command takes {seconds * 1000:.0f} ms"
        ),
        _check_version(site),
        await _check_partitions(questions),
        await _check_accounting(questions, site),
        await _check_clock(questions),
    ]
    return findings + await _check_places(questions, settings, root)


def _reach_remedy(settings: Settings) -> str:
    if settings.transport == LOCAL:
        return "run the daemon where Slurm's commands work, set `path` to their folder, or `host` to reach them by ssh"
    return f"try `ssh {settings.host} scontrol ping`; `span login` opens a connection that asks for codes"


def _check_version(site: Site) -> Finding:
    works = site.version >= _OLDEST
    seen = ".".join(map(str, site.version)) or "not told"
    seen += f", cluster {site.config.get('ClusterName', '?')}, KillWait {site.config.get('KillWait', '?')}"
    return Finding("Slurm", works, seen, "" if works else "Slurm 20.11 or newer is needed")


async def _check_partitions(questions: Questions) -> Finding:
    try:
        nodes = await questions.nodes()
    except OverspanError as error:
        return Finding("nodes", False, error.message, "see `sinfo` there")
    names = list(dict.fromkeys(node.partition for node in nodes))
    up = len({node.name for node in nodes if node.state in ("idle", "mixed", "allocated", "completing")})
    seen = f"{up} of {len({node.name for node in nodes})} nodes work; partitions {', '.join(names)}"
    return Finding("nodes", up > 0, seen, "" if up else "no node is up: ask the site")


async def _check_accounting(questions: Questions, site: Site) -> Finding:
    if not site.accounting:
        remedy = "the ends of jobs are known for MinJobAge only: let the daemon run"
        return Finding("accounting", True, "none", remedy)
    try:
        await questions.runs([1])
    except OverspanError as error:
        return Finding("accounting", False, error.message, "the ends of jobs are told late until it answers")
    return Finding("accounting", True, "sacct answers")


async def _check_clock(questions: Questions) -> Finding:
    before = time.time()
    done = await questions.transport.run(["date", "+%s.%N"], timeout=questions.timeout)
    after = time.time()
    try:
        skew = float(done.text) - (before + after) / 2
    except ValueError:
        return Finding("clock", False, done.words.strip() or "date has no answer", "GNU date is needed there")
    works = abs(skew) <= MAX_SKEW + (after - before) / 2
    seen = f"{skew:+.1f} s against this machine"
    return Finding("clock", works, seen, "" if works else "let both machines set their clocks by NTP")


async def _check_places(questions: Questions, settings: Settings, root: str) -> list[Finding]:
    """Probe a compute node where one is free, else the login node."""
    marker = f"{root}/check-{secrets.token_hex(4)}"
    try:
        await questions.transport.write(marker, b"")
    except OverspanError as error:
        return [Finding("root", False, error.message, "set `root` to a folder of yours on that cluster")]
    words = ["/bin/sh", "-c", _PROBE, "probe", settings.python, marker]
    srun = ["srun", "--quiet", "--immediate=10", "--nodes=1", "--ntasks=1", "--time=1", "--mem=50M"]
    try:
        done = await questions.transport.run([*srun, "--job-name=span-check", *words], timeout=_PROBE_SECONDS)
        compute = done.rc == 0
        if not compute:
            done = await questions.transport.run(words, timeout=questions.timeout)
    finally:
        await questions.transport.run(["rm", "-f", marker], timeout=questions.timeout)
    found = dict(line.partition("=")[::2] for line in done.text.splitlines())
    return read_probe(found, compute, root)


def read_probe(found: dict[str, str], compute: bool, root: str) -> list[Finding]:
    """The findings of a probe: names and values that it printed, and whether it ran on a compute node."""
    where = f"on {found.get('host', '?')}" + ("" if compute else " (login node: no compute node was free)")
    python = read_version(found.get("python", ""))
    works = python >= _OLDEST_PYTHON
    seen = ".".join(map(str, python)) or "none"
    shared = "shared" in found
    return [
        Finding(
            "python", works, f"{seen} {where}", "" if works else "set `python` to a Python 3.9 or newer for groups"
        ),
        *(_read_method(name, key, found, where) for name, key in _METHODS),
        Finding(
            "shared root",
            shared or not compute,
            f"{root} {'is seen' if shared else 'is not seen'} {where}",
            "" if shared else "set `root` to a folder that all nodes share",
        ),
    ]


_METHODS = (("user namespaces", "userns"), ("bwrap", "bwrap"), ("nss_wrapper", "nss_wrapper"))
"""Ways to give members their names without root: what `span check` calls them, and what the probe does."""


def _read_method(name: str, key: str, found: dict[str, str], where: str) -> Finding:
    if key in found:
        return Finding(name, True, where)
    if any(other in found for _, other in _METHODS):
        return Finding(name, False, where, "not needed: another of user namespaces, bwrap and nss_wrapper works")
    return Finding(name, False, where, "names of members need user namespaces, bwrap or nss_wrapper: ask the site")
