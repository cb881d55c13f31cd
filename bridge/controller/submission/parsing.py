"""Parses a submission with the readers; the daemon passes it to the submitter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from overspan.bridge.controller.submission.submitter import ParsedSubmission
from overspan.bridge.model.options.sbatch import BY_NAME, Treatment
from overspan.bridge.readers.sbatch.arguments import parse_sbatch
from overspan.bridge.readers.sbatch.directives import scan_directives
from overspan.bridge.readers.submission import SCRIPT, Submission, read_submission


def read(submission: Submission, kinds: Mapping[str, str], now: float) -> ParsedSubmission:
    """Read a submission for these clusters (name to kind). Raises InvalidRequest with the place of the mistake."""
    spec = read_submission(submission, kinds, now)
    return ParsedSubmission(spec, _read_options(submission) if submission.kind == SCRIPT else {})


def _read_options(submission: Submission) -> Mapping[str, Any]:
    """The options that only sbatch itself acts on, from the command line, the environment and the script."""
    call = parse_sbatch(submission.argv, submission.environment)
    flags = set(call.flags)
    options = dict(call.options)
    if call.wrap is None:
        found = scan_directives(submission.text, submission.file or "stdin").components[0]
        flags |= {name for name in found if BY_NAME[name].treatment is Treatment.CLIENT}
        options = {**found, **options}
    clusters = options.get("clusters")
    return {
        "wait": "wait" in flags,
        "parsable": "parsable" in flags,
        "quiet": "quiet" in flags,
        "verbose": "verbose" in flags,
        "test_only": "test-only" in flags,
        "clusters": (clusters.value or "") if clusters is not None else "",
    }
