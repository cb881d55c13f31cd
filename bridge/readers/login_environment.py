"""The login environment of a task's shell texts: what the user's ~/.bashrc makes, as SkyPilot's tasks have it."""

from __future__ import annotations

from collections.abc import Iterable

# An interactive shell reads ~/.bashrc past its guards; what it prints is no part of what it exports. It is asked, and
# not become: interactive shells take no TERM.
_PRELUDE = """\
if [ -n "$BASH_VERSION" ]; then
overspan_own=$(declare -p {names} 2>/dev/null)
eval "$({{ bash -ic '{{ export -p; declare -f; }} >&3' </dev/null >/dev/null 2>&1; }} 3>&1)"
eval "$overspan_own"
unset overspan_own
fi
"""
_KEPT = ("PWD", "OLDPWD", "SHLVL")


def add_login(text: str, names: Iterable[str]) -> str:
    """The text behind one that takes over the login's variables and functions; variables of `names` keep their values.

    An empty text stays empty.
    """
    return _PRELUDE.format(names=" ".join((*_KEPT, *names))) + text if text.strip() else text
