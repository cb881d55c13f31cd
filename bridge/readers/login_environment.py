"""Login environment: gives a task's shell text what the user's ~/.bashrc sets, as SkyPilot does."""

from __future__ import annotations

from collections.abc import Iterable

# Only an interactive shell reads ~/.bashrc past its guards; what it prints is kept apart from what it exports. A child
# shell is asked for its variables, because the task itself must not run in an interactive shell: these ignore TERM.
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
    """Prefix the text with a prelude that imports the login's variables and functions; `names` keep their values.

    An empty text stays empty.
    """
    return _PRELUDE.format(names=" ".join((*_KEPT, *names))) + text if text.strip() else text
