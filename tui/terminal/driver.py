"""The terminal's driver: Textual's, with a mouse that counts in cells, and ends that leave the terminal clean."""

from __future__ import annotations

import codecs
import contextlib
import os
import select
import signal
import termios
import threading
from types import FrameType
from typing import Any

from textual import constants
from textual._xterm_parser import XTermParser
from textual.drivers import linux_driver
from textual.drivers._writer_thread import WriterThread
from textual.events import Resize
from textual.geometry import Size

LAST_RESORT_SECONDS = 2.0
"""A terminal that is gone, or that takes nothing, may never take what is left to write."""
FAREWELL_SECONDS = 0.2
"""How long such a terminal may take for the few bytes that put it right."""
FAREWELL = (
    b"\x1b[m\x1b[?2004l\x1b[?7h\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[<u\x1b[?1049l\x1b[?25h\x1b[?1004l"
)
"""What ends all that the driver has switched on."""
_OUTPUT = 2
"""Textual writes to stderr."""
_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class CellParser(XTermParser):
    """Reads the mouse's place in cells, also where a terminal reports sizes in pixels.

    Textual turns to pixels at any report of a window's size in pixels; multiplexers send those unasked, and cells.
    """

    @property
    def mouse_pixels(self) -> bool:
        """Never."""
        return False

    @mouse_pixels.setter
    def mouse_pixels(self, value: bool) -> None:
        del value


class TerminalWriter(WriterThread):
    """Textual's thread that writes. It outlives a terminal that is gone: what is left to write then is dropped."""

    def run(self) -> None:
        """Write until the end."""
        try:
            super().run()
        except OSError:
            # What is still buffered must not fail again when the interpreter ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._file.fileno())
            while self._queue.get() is not None:
                pass


class TerminalDriver(linux_driver.LinuxDriver):
    """Textual's driver, which ends in order on a signal and when its terminal is gone, and sleeps until a key comes."""

    def __init__(self, *words: Any, **named: Any) -> None:
        super().__init__(*words, **named)
        self._suspended = False
        self._former: dict[int, Any] = {}
        """The signals' handlers before ours."""
        self._awake = self._waker = -1
        """A pipe: a byte in it ends the thread that reads keys."""

    # --- beginning and end --------------------------------------------------------------------------------------------

    def start_application_mode(self) -> None:
        """Take the terminal."""
        # Textual makes its writer by this name.
        vars(linux_driver)["WriterThread"] = TerminalWriter
        self._suspended = False
        if self._waker < 0:
            self._awake, self._waker = os.pipe()
        for number in _ENDING:
            # Not those of the event loop, which may be waiting for a terminal that takes nothing.
            former = signal.signal(number, self._end_by_signal)
            self._former.setdefault(number, former)
        super().start_application_mode()  # type: ignore[no-untyped-call]

    def suspend_application_mode(self) -> None:
        """Lend the terminal to another program, or to the shell."""
        self._suspended = True
        super().suspend_application_mode()

    def close(self) -> None:
        """Write what is left, and restore the former signal handlers."""
        super().close()
        if not self._suspended:
            while self._former:
                signal.signal(*self._former.popitem())

    def _end_by_signal(self, number: int, frame: FrameType | None) -> None:
        del frame
        if not self._suspended:
            # A program that has borrowed the terminal ends first.
            self._limit_end(128 + number)
        # The loop may have ended just now.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.end, 128 + number)

    def end(self, code: int) -> None:
        """End the application with an exit code; the process itself, if that takes too long."""
        self._limit_end(code)
        self._app.exit(return_code=code)

    def _limit_end(self, code: int) -> None:
        last_resort = threading.Timer(LAST_RESORT_SECONDS, self._end_process, (code,))
        last_resort.daemon = True
        last_resort.start()

    def _end_process(self, code: int) -> None:
        """End at once. The terminal is put right as far as it takes that."""
        if self.attrs_before is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self.fileno, termios.TCSANOW, self.attrs_before)
        farewell = threading.Thread(target=self._write_farewell, daemon=True)
        farewell.start()
        farewell.join(FAREWELL_SECONDS)
        os._exit(code)

    def _write_farewell(self) -> None:
        with contextlib.suppress(OSError):
            os.write(_OUTPUT, FAREWELL)

    def _get_terminal_size(self) -> tuple[int, int]:
        """The terminal's own size: COLUMNS and LINES, which Textual reads first, may be of another moment."""
        try:
            size = os.get_terminal_size(self.fileno)
        except OSError:
            return super()._get_terminal_size()
        return size.columns, size.lines

    def check_size(self) -> None:
        """Take the terminal's size where it is another one than what is shown: no signal may have told it.

        A terminal that is not the controlling one sends none.
        """
        # At the end the screens go first.
        screens = [] if self._suspended else self._app.screen_stack
        size = Size(*self._get_terminal_size())
        if screens and size != screens[-1].outer_size:
            self._app._size = size
            screens[-1].post_message(Resize(size, size))

    # --- keys ---------------------------------------------------------------------------------------------------------

    def disable_input(self) -> None:
        """Read no more keys."""
        if self._waker >= 0:
            os.write(self._waker, b"\0")
        super().disable_input()
        if self._waker >= 0:
            os.close(self._waker)
            os.close(self._awake)
            self._awake = self._waker = -1

    def _run_input_thread(self) -> None:
        """Read keys; the end of the terminal is an end like SIGHUP."""
        try:
            if not self._read_keys():
                self._app.call_later(self.end, 128 + signal.SIGHUP)
        except Exception as error:
            self._app.call_later(self._app._handle_exception, error)

    def _read_keys(self) -> bool:
        """Read until it is to end; False where the terminal is gone before."""
        parser = CellParser(self._debug)
        # What is no UTF-8 is no key; it must not end the thread.
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        poll = select.poll()
        for descriptor in (self.fileno, self._awake):
            poll.register(descriptor, select.POLLIN)
        pending = False
        while True:
            # An escape that nothing follows is a key, once its time is over; else there is nothing to wake up for.
            ready = [descriptor for descriptor, _ in poll.poll(constants.ESCAPE_DELAY * 1000 if pending else None)]
            if self._awake in ready:
                return True
            data = self._read_bytes() if ready else None
            if data == b"":
                return False
            # A part of a character is nothing yet, and nothing is the end to the parser.
            text = decode(data or b"")
            for message in (*(parser.feed(text) if text else ()), *parser.tick()):
                self.process_message(message)
            pending = parser._timeout_time is not None

    def _read_bytes(self) -> bytes:
        """What was typed; nothing where the terminal is gone."""
        try:
            return os.read(self.fileno, 4096)
        except OSError:
            return b""

    # --- what the terminal is not asked -------------------------------------------------------------------------------

    def _query_in_band_window_resize(self) -> None:
        """SIGWINCH tells sizes, everywhere and in cells."""

    def _enable_mouse_pixels(self) -> None:
        """Cells are enough."""


class BasicDriver(TerminalDriver):
    """For terminals that would print the questions what they can do."""

    def _request_terminal_sync_mode_support(self) -> None:
        """Not asked."""
