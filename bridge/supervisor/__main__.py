"""`python -m overspan.bridge.supervisor`: HOST_DIRECTORY, or an entry (its own, of `steps`, `remote`) and its words."""

import sys

from overspan.bridge.supervisor.remote import entry as remote
from overspan.bridge.supervisor.steps import entry as steps


def _serve_host() -> int:
    from overspan.bridge.supervisor.host import main

    return main()


if sys.argv[1] == "forkserver":
    from overspan.bridge.supervisor.forkserver import main as _fork

    sys.exit(_fork())
if sys.argv[1] == "shell":
    from overspan.bridge.supervisor.entering import main as _enter

    sys.exit(_enter(sys.argv[2:]))
for _entry in (remote, steps):
    if sys.argv[1] in _entry.ENTRIES:
        sys.exit(_entry.main(sys.argv[1:]))
sys.exit(_serve_host())
