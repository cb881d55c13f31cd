"""The Python executor: calls as jobs."""

from __future__ import annotations

import math
import os
from typing import Any

import pytest

from overspan import JobExecutor
from overspan.bridge.model.errors import OverspanError

JOB = {"resources": {"cpus": 0.1}}


def test_calls_become_jobs_and_futures_have_their_results(span: Any) -> None:
    with JobExecutor(job=JOB, environment=span.environment) as executor:
        assert list(executor.map(math.factorial, range(5))) == [1, 1, 2, 6, 24]
        with pytest.raises(ValueError, match="domain"):
            executor.submit(math.sqrt, -1).result(timeout=300)
    assert "factorial" in span.run("sacct", "-X", "-n", "-o", "JobName").stdout


def test_a_job_that_ends_without_a_result_is_an_error(span: Any) -> None:
    with JobExecutor(job=JOB, environment=span.environment) as executor:
        future = executor.submit(os._exit, 3)
        with pytest.raises(OverspanError, match=r"FAILED \(NonZeroExitCode\) without a result"):
            future.result(timeout=300)


def test_what_has_not_started_can_be_cancelled(span: Any) -> None:
    executor = JobExecutor(job={**JOB, "hold": True}, environment=span.environment)
    future = executor.submit(math.sqrt, 4)
    executor.shutdown(cancel_futures=True)
    assert future.cancelled()
    assert span.run("squeue", "--noheader").stdout == ""
