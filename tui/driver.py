"""The terminal's driver: Textual's, with a mouse that counts in cells, and ends that leave the terminal clean."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

from textual._xterm_parser import XTermParser
from textual.drivers import linux_driver

LAST_RESORT_SECONDS = 2.0
"""A terminal that is gone may never take what is left to write."""


class CellParser(XTermParser):
    """Reads the mouse's place in cells, whatever sizes a terminal reports.

    Textual turns to pixels at any report of a window's size in pixels; multiplexers send those unasked, and cells.
    """

    @property
    def mouse_pixels(self) -> bool:
        """Never."""
        return False

    @mouse_pixels.setter
    def mouse_pixels(self, value: bool) -> None:
        del value


class TerminalDriver(linux_driver.LinuxDriver):
    """Textual's driver, which ends in order on SIGTERM, on SIGHUP and when its terminal is gone."""

    def start_application_mode(self) -> None:
        """Take the terminal."""
        # The thread that reads keys makes its parser by this name.
        vars(linux_driver)["XTermParser"] = CellParser
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self.end, 128 + number)
        super().start_application_mode()  # type: ignore[no-untyped-call]

    def end(self, code: int) -> None:
        """End the application with an exit code; the process itself, if that takes too long."""
        last_resort = threading.Timer(LAST_RESORT_SECONDS, os._exit, (code,))
        last_resort.daemon = True
        last_resort.start()
        self._app.exit(return_code=code)

    def _run_input_thread(self) -> None:
        """Read keys; the end of the terminal is an end like SIGHUP."""
        try:
            self.run_input_thread()
        except OSError:
            self._app.call_later(self.end, 128 + signal.SIGHUP)

    def _query_in_band_window_resize(self) -> None:
        """SIGWINCH tells sizes, everywhere and in cells."""

    def _enable_mouse_pixels(self) -> None:
        """Cells are enough."""


class BasicDriver(TerminalDriver):
    """For terminals that would print the questions what they can do."""

    def _request_terminal_sync_mode_support(self) -> None:
        """Not asked."""
