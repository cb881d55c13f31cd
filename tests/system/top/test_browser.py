"""`span top --web` in headless Chromium: a person opens the link, sees the queue, and types."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.system.top.chromium import find_chromium, open_tab
from tests.system.top.web_pages import open_web

pytestmark = pytest.mark.skipif(not find_chromium(), reason="Chromium is not installed")

FULL = 60_000
"""Bytes of a picture that is full of text."""
SCREEN = "document.querySelector('.textual-terminal canvas') !== null && document.body.className"


def test_the_link_shows_the_queue_in_a_browser_that_types(tmp_path: Path, wait_until: Callable[..., Any]) -> None:
    environment = {**os.environ, "SPAN_STATE_DIR": str(tmp_path / "state")}
    with open_web(environment, "--demo") as web, open_tab(tmp_path, wait_until) as tab:
        tab.open(web.link)
        invitation = web.invitation
        wait_until(lambda: "-first-byte" in str(tab.read(SCREEN)), 30)
        assert tab.read("location.href") == f"{web.origin}/"
        assert tab.read("document.cookie") == ""
        assert tab.read("document.fonts.check('15px \"Roboto Mono\"')") is True
        wait_until(lambda: len(tab.take_picture(tmp_path / "queue.png")) > FULL, 20)
        # A key that comes before the first focus is lost; once the box takes letters no job matches, and what is left
        # is a head and the box.
        wait_until(lambda: len(tab.press("/").press("z").take_picture(tmp_path / "filtered.png")) < FULL / 2, 10)
        asked = tab.list_requests()
        assert asked and all(url.startswith((f"{web.origin}/", "data:")) for url in asked), asked
        assert not [url for url in asked[1:] if invitation in url]
        assert not tab.list_complaints()
        # Another link in the same browser: its invitation is spent, and leaves the address.
        web.read_link()
        spent = web.invitation
        tab.read("window.before = true")
        tab.call("Page.navigate", url=web.link)
        wait_until(lambda: tab.read("location.href") == f"{web.origin}/", 10)
        web.read_link()
        assert web.invitation != spent
        # The page is opened anew.
        wait_until(lambda: not tab.read("window.before") and "-first-byte" in str(tab.read(SCREEN)), 30)
        web.process.terminate()
        wait_until(lambda: "-closed" in str(tab.read("document.body.className")), 20)
