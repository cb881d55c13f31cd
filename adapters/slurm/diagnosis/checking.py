"""The probes of `span check` on a Slurm cluster."""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable

from overspan.adapters.abilities import Finding
from overspan.adapters.slurm.commands.queries import Queries, Site
from overspan.adapters.slurm.diagnosis.findings import (
    describe_unreachable,
    judge_compute,
    judge_hetjobs,
    judge_kill_wait,
    judge_login,
    judge_pace,
    judge_trial,
    judge_version,
    read_probe,
)
from overspan.adapters.slurm.settings import Settings
from overspan.bridge.model.errors import OverspanError

MAX_SKEW = 5.0
"""Seconds by which the cluster's clock may differ without a finding."""
_PROBE = """\
echo host=$(uname -n)
echo python=$("$1" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null)
unshare --user --map-root-user true 2>/dev/null && echo userns=yes
[ -r /dev/fuse ] && [ -w /dev/fuse ] && echo fuse=yes
command -v bwrap >/dev/null 2>&1 && bwrap --dev-bind / / true 2>/dev/null && echo bwrap=yes
for f in /usr/lib*/libnss_wrapper.so /usr/lib/*/libnss_wrapper.so; do [ -e "$f" ] && echo nss_wrapper=$f; done
[ -e "$2" ] && echo shared=yes
echo free=$(df -Pm "${2%/*}" 2>/dev/null | awk 'NR == 2 { print $4 }')
:
"""
_PROBE_SECONDS = 40.0
"""Seconds for the probe on a compute node: srun waits up to 10 s for a node (--immediate), and then starts the step."""


async def check_cluster(queries: Queries, settings: Settings, root: str) -> list[Finding]:
    """Probe everything that jobs need on the cluster. May take tens of seconds."""
    where = settings.host or "this machine"
    try:
        site = await queries.site()
        began = time.monotonic()
        await queries.transport.run(["true"], timeout=queries.timeout)
    except OverspanError as error:
        return [Finding("reach", False, *describe_unreachable(error, settings))]
    taken = (time.monotonic() - began) * 1000
    reach = f"{where} by {settings.transport}, as {site.user}; a command takes {taken:.0f} ms"
    findings = [Finding("reach", True, reach), judge_version(site)]
    findings += await _try("nodes", "see `sinfo` there", lambda: _check_nodes(queries))
    findings += await _try("submit", "see `sbatch --test-only` there", lambda: _check_trial(queries, settings))
    findings += await _check_accounting(queries, site)
    findings += await _try("clock", "GNU date is needed there", lambda: _check_clock(queries))
    findings += [judge_hetjobs(site), judge_kill_wait(site), judge_pace(site, settings)]
    return findings + await _check_places(queries, settings, root)


async def _try(what: str, remedy: str, check: Callable[[], Awaitable[Finding]]) -> list[Finding]:
    """Run one check; its failure becomes a finding."""
    try:
        return [await check()]
    except OverspanError as error:
        return [Finding(what, False, error.message, error.remedy or remedy)]


async def _check_nodes(queries: Queries) -> Finding:
    nodes = await queries.nodes()
    names = list(dict.fromkeys(node.partition for node in nodes))
    up = len({node.name for node in nodes if node.state in ("idle", "mixed", "allocated", "completing")})
    seen = f"{up} of {len({node.name for node in nodes})} nodes work; partitions {', '.join(names)}"
    return Finding("nodes", up > 0, seen, "" if up else "no node is up: ask the site")


async def _check_trial(queries: Queries, settings: Settings) -> Finding:
    words = ["sbatch", "--test-only", "--time=1", *_choices(settings, "account", "qos"), "--wrap=true"]
    return judge_trial(await queries.transport.run(words, timeout=queries.timeout), settings)


def _choices(settings: Settings, *names: str) -> list[str]:
    """The cluster's defaults as options."""
    chosen = {name: getattr(settings, name) for name in ("partition", *names)}
    return [f"--{name}={value}" for name, value in chosen.items() if value]


async def _check_accounting(queries: Queries, site: Site) -> list[Finding]:
    if not site.accounting:
        seen = f"none: ends of jobs are known for {site.config.get('MinJobAge', 'MinJobAge')} only, with a daemon"
        return [Finding("accounting", True, seen)]
    try:
        await queries.runs(["1"])
    except OverspanError as error:
        return [Finding("accounting", False, error.message, "the ends of jobs are reported late until it answers")]
    return [Finding("accounting", True, "sacct answers")]


async def _check_clock(queries: Queries) -> Finding:
    before = time.time()
    done = await queries.transport.run(["date", "+%s.%N"], timeout=queries.timeout)
    after = time.time()
    try:
        skew = float(done.text) - (before + after) / 2
    except ValueError:
        return Finding("clock", False, done.words.strip() or "date has no answer", "GNU date is needed there")
    works = abs(skew) <= MAX_SKEW + (after - before) / 2
    remedy = "times that are shown are the cluster's; let both machines set their clocks by NTP"
    return Finding("clock", works, f"{skew:+.1f} s against this machine", "" if works else remedy)


async def _check_places(queries: Queries, settings: Settings, root: str) -> list[Finding]:
    """Probe the login node, and a compute node if one is free now."""
    marker = f"{root}/check-{secrets.token_hex(4)}"
    try:
        await queries.transport.write(marker, b"")
    except OverspanError as error:
        return [Finding("root", False, error.message, "set `root` to a folder of yours on that cluster")]
    words = ["/bin/sh", "-c", _PROBE, "probe", settings.python, marker]
    srun = ["srun", "--quiet", "--immediate=10", "--nodes=1", "--ntasks=1", "--time=1", "--mem=50M"]
    srun += [*_choices(settings, "account", "qos"), "--job-name=span-check"]
    try:
        login = await queries.transport.run(words, timeout=queries.timeout)
        compute = await queries.transport.run([*srun, *words], timeout=_PROBE_SECONDS)
    except OverspanError as error:
        return [Finding("root", False, error.message, "try again; the cluster stopped answering")]
    finally:
        await queries.transport.run(["rm", "-f", marker], timeout=queries.timeout)
    found = read_probe(compute.text) if compute.rc == 0 else {}
    nodes = judge_compute(found, root, settings.shared_root, fuse=settings.shared_root and settings.data_fuse)
    return [*judge_login(read_probe(login.text), root), *nodes]
