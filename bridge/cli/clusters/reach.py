"""`span check --across A B`: trials of the ways between two clusters, by tasks' own addresses, then their nodes'."""

from __future__ import annotations

import argparse
import contextlib
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from overspan.bridge.cli.clusters.finding_table import print_findings
from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.jobs.exit_status import explain_end
from overspan.bridge.cli.output import say, write, write_json
from overspan.bridge.client import CancelOrder, Client, Outcome
from overspan.bridge.client.submission import make_submission
from overspan.bridge.model.errors import ExitCode, InvalidRequest, Rejected

SECONDS = 300
_NO_PROGRAM = 127
"""What a shell exits with where a program is not there (POSIX, 2.8.2)."""
_NO_PYTHON = "both sides need python3; --image IMAGE names an image for pods"
_MOST_PORTS = 32
_HOST_NETWORK = "`kubernetes: {host_network: true}`"


def check_reach(call: Invocation, chosen: argparse.Namespace) -> int:
    """Try the ways, print what is found; 0 where some network has both."""
    options = {
        "ports": parse_ports(chosen.ports or ""),
        "image": chosen.image or "",
        "seconds": chosen.timeout or SECONDS,
    }
    trials: list[dict[str, Any]] = []
    with call.client() as client, _interrupted_by_signals():
        for host_network in (False, True):
            try:
                trial = run_trial(client, chosen.across, {**options, "host_network": host_network})
            except Rejected as error:
                if not host_network:
                    raise
                # Where pods may not be on the host network, what the first trial found still holds.
                trial = {**trials[0], "host_network": True, "works": False, "findings": [], "gaps": [error.line]}
            trials.append(trial)
            if not chosen.json:
                _print_trial(call, trial)
            known = any(finding["host_network"] for finding in trial["findings"])
            if trial["works"] or known or not trial["has_host_network"]:
                break
    works = bool(trials[-1]["works"])
    if chosen.json:
        shown = [{key: trial[key] for key in ("host_network", "job", "works", "findings", "gaps")} for trial in trials]
        write_json({"format": 1, "clusters": chosen.across, "works": works, "trials": shown})
    else:
        write(_conclude(chosen.across, trials) + "\n")
    return ExitCode.OK if works else ExitCode.FAILED


def parse_ports(text: str) -> list[int]:
    """Read `8000,8010-8012`. Raises InvalidRequest."""
    ports: list[int] = []
    for word in filter(None, text.split(",")):
        match = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", word.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 1 <= first <= last <= 65535:
            raise InvalidRequest(f"--ports {text}: {word.strip()!r} is not a port", remedy="write 8000 or 8000-8010")
        if len(ports) + last - first >= _MOST_PORTS:
            raise InvalidRequest(f"--ports {text}: more than {_MOST_PORTS} ports", remedy="name some of them")
        ports += range(first, last + 1)
    return ports


def run_trial(client: Client, clusters: Sequence[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """Run one trial: its findings and gaps, its job, and whether both ways work on all ports.

    The job is cancelled where this does not see its end. Raises Rejected where it failed or came to no end, and as a
    submission does.
    """
    prepared = client.reach.prepare(clusters, **options)
    accepted = client.send(make_submission(prepared["text"], {}))
    ref = str(accepted.id)
    outcome: Outcome | None = None
    try:
        outcome = client.wait(ref, float(options["seconds"]))
    finally:
        if outcome is None or not outcome.over:
            # An interrupted wait may leave half an answer on its connection.
            client.close()
            late = _explain_wait(client, ref, options["seconds"])
            client.cancel(CancelOrder(refs=(ref,)))
    if not outcome.over:
        raise Rejected(late, remedy="--timeout waits longer; the trial is cancelled")
    found = client.reach.conclude(ref)
    if outcome.state != "COMPLETED":
        remedy = _NO_PYTHON if outcome.exit_code == _NO_PROGRAM else ""
        raise Rejected(f"the trial failed: {explain_end(client, ref, outcome)}", remedy=remedy)
    works = bool(found["findings"]) and not found["gaps"] and all(each["works"] for each in found["findings"])
    return {
        "host_network": options["host_network"],
        "has_host_network": prepared["has_host_network"],
        "job": accepted.id,
        "works": works,
        "findings": found["findings"],
        "gaps": found["gaps"],
    }


def _explain_wait(client: Client, ref: str, seconds: float) -> str:
    job = client.show(ref)
    reason = job.get("reason") or "None"
    return f"the trial, job {ref}, is {job.get('state')} after {seconds:g} s ({reason})"


@contextlib.contextmanager
def _interrupted_by_signals() -> Iterator[None]:
    """TERM and HUP end what is under way as ^C does, so that its job is cancelled."""
    known = {number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in known.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _print_trial(call: Invocation, trial: Mapping[str, Any]) -> None:
    if trial["host_network"]:
        write("With the nodes' addresses for pods (host network):\n")
    rows = [
        {
            "what": f"{each['source']} to {each['target']}, port {each['port']}",
            "works": each["works"],
            "seen": each["detail"],
        }
        for each in trial["findings"]
    ]
    print_findings(call, rows)
    for gap in trial["gaps"]:
        say(call, gap)


def _conclude(clusters: Sequence[str], trials: Sequence[Mapping[str, Any]]) -> str:
    """What a group over the two clusters has to do, in a sentence."""
    both, last = " and ".join(clusters), trials[-1]
    if last["works"] and not last["host_network"]:
        return f"Groups over {both} reach each other as they are."
    if last["works"]:
        return f"Groups over {both} reach each other with {_HOST_NETWORK} in their tasks in pods."
    if not any(trial["findings"] for trial in trials) or trials[0]["gaps"]:
        return f"Not all is known of {both}: try again, or other ports (--ports)."
    return f"Groups over {both} do not reach each other both ways: have the network opened."
