"""The start and the end of `span top` on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from overspan.bridge.config.paths import find_paths
from overspan.bridge.config.top_settings import read_top_settings
from overspan.tui.app import TopApp
from overspan.tui.configuration import configure
from overspan.tui.daemon.source import OpenSource
from overspan.tui.options import TopOptions
from overspan.tui.terminal.driver import BasicDriver, TerminalDriver
from overspan.tui.terminal.terminal import TerminalTraits, read_traits


def start(open_source: OpenSource, options: TopOptions, environment: Mapping[str, str]) -> int:
    """Show the queue until the user ends it; gives the exit code.

    What fails inside is raised here, when the terminal is as it was, so that it is told as every command's failure is.
    """
    traits = find_traits(environment)
    paths = find_paths(environment)
    chosen = configure(options, read_top_settings(paths.config, paths.site_config))
    chosen = chosen._replace(traits=traits, ascii=chosen.ascii or traits.ascii)
    # Another driver that the environment names, such as that of a browser, does without ours.
    own = None if environment.get("TEXTUAL_DRIVER") else BasicDriver if traits.basic else TerminalDriver
    app = TopApp(open_source, chosen, driver_class=own)
    app.run(mouse=chosen.mouse)
    if app.failure is not None:
        raise app.failure
    return app.return_code or 0


def find_traits(environment: Mapping[str, str]) -> TerminalTraits:
    """The traits of this process's terminal."""
    if environment.get("TEXTUAL_DRIVER"):
        return TerminalTraits()
    stream = sys.__stderr__
    return read_traits(environment, (stream.encoding or "ascii") if stream is not None else "ascii")
