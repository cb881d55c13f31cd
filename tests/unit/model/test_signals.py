"""Signals by name and number, as every command and every reader takes them."""

from __future__ import annotations

import signal

import pytest

from overspan.bridge.model.signals import signal_number


@pytest.mark.parametrize("text", ["USR1", "usr1", "SIGUSR1", "sigUSR1", "10", "010"])
def test_a_signal_has_a_name_and_a_number(text: str) -> None:
    assert signal_number(text) == signal.SIGUSR1


def test_second_names_and_signals_without_a_name() -> None:
    assert signal_number("CLD") == signal_number("CHLD") == signal.SIGCHLD
    assert signal_number("35") == 35
    assert signal_number(str(signal.NSIG - 1)) == signal.NSIG - 1


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "SIG", "NOPE", "SIG_DFL", "_IGN", " USR1", "²", "٣", str(signal.NSIG), "0010", "9" * 9999]
)
def test_other_words_are_no_signals(text: str) -> None:
    assert signal_number(text) == 0
