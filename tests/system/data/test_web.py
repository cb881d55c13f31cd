"""Files of web servers as sources of COPY: there before the start, and never written to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.system.conftest import Span
from tests.waiting import WaitUntil
from tests.web_site import Site, make_certificate, run_site


@pytest.fixture
def site(span: Span) -> Iterator[Site]:
    """A server whose certificate counts for the daemon and its jobs; `redirect` is its URL."""
    certificate = make_certificate(span.folder)
    span.environment["SSL_CERT_FILE"] = str(certificate)
    site = Site()
    with run_site(site, certificate) as host:
        site.host = host
        yield site


def test_a_file_is_there_before_the_start(span: Span, site: Site) -> None:
    site.data = b"hello"
    one, other = f"https://{site.host}/m/model.bin?sig=s3cret", f"https://{site.host}/b"
    mounts = f"{{./model.bin: '{one}', ./other: {{source: '{other}', mode: COPY}}}}"
    job = span.submit(f"file_mounts: {mounts}\nrun: cat model.bin other\n")
    span.until(job, "COMPLETED")
    assert span.log(job) == "hellohello"
    assert "s3cret" not in span.look("cache", "ls")


def test_what_cannot_be_fetched_fails_with_its_reason(span: Span, site: Site) -> None:
    job = span.submit(f"file_mounts: {{./x: 'https://{site.host}/missing?sig=s3cret'}}\nrun: ls\n")
    facts = span.until(job, "FAILED")
    assert facts["reason"] == "SetupFailed"
    shown = span.look("show", str(job))
    assert f"https://{site.host}/missing answers 404" in shown and "s3cret" not in shown.partition("answers")[0]


def test_a_server_that_is_away_costs_time_alone(span: Span, site: Site, wait_until: WaitUntil) -> None:
    site.status = 503
    job = span.submit(f"file_mounts: {{./x: 'https://{site.host}/x'}}\nrun: cat x\n")
    wait_until(lambda: len(site.asked) > 2, 30, "the file to be asked for again")
    site.status = 0
    span.until(job, "COMPLETED", timeout=60)


def test_nothing_is_written_there(span: Span) -> None:
    mount = "file_mounts:\n  ./x: {source: 'https://a/b', mode: MOUNT_CACHED}\nrun: ls\n"
    done = span.run("submit", "-", stdin=mount, check=False)
    assert done.returncode == 2 and "it has the mode COPY" in done.stderr and ":2:" in done.stderr
