"""What is said beside a listing, on stderr: old rows, and columns that are missing."""

from __future__ import annotations

import time

from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import say
from overspan.bridge.client import Listing


def tell_stale(call: Invocation, listing: Listing) -> None:
    """Tell of clusters that do not answer, or not all of it."""
    for stale in listing.stale:
        since = time.strftime("%H:%M:%S", time.localtime(stale.since))
        why = f": {stale.message}" if stale.message else ""
        if stale.partial:
            say(call, f"cluster {stale.cluster}, since {since}{why}")
            continue
        say(call, f"cluster {stale.cluster} has not answered since {since}; its jobs are shown as they were{why}")


def tell_missing(call: Invocation, listing: Listing) -> None:
    """Tell of what a daemon of another version does not send: it is shown as if jobs had none."""
    if not listing.missing:
        return
    from overspan import __version__

    say(
        call,
        f"the daemon is of another version than this command ({__version__}) and does not tell"
        f" {', '.join(listing.missing)}\n"
        "  end it with `span shutdown` (jobs go on); the next command starts the installed one",
    )
