"""What is asked of a site once: an answer that says nothing is no answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fakes.slurm_world import SlurmWorld

from overspan.adapters.slurm.commands.queries import Queries
from overspan.adapters.slurm.transports.transport import Done
from overspan.bridge.model.errors import Unreachable


@pytest.mark.parametrize(
    ("command", "said", "told"),
    [
        ("id", Done(1, b"", b"id: cannot find name for user ID 7\n"), "who the user is"),
        ("/bin/sh", Done(1, b"", b"sh: cd: can't cd to /home/ada\n"), "where the user's home is"),
        ("/bin/sh", Done(0, b"\n", b""), "where the user's home is"),
    ],
)
def test_a_site_without_a_user_or_a_home_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, said: Done, told: str
) -> None:
    world = SlurmWorld(tmp_path, monkeypatch)
    world.transport.fail(command, said, 1)

    async def story() -> None:
        queries = Queries(world.transport, 10)
        with pytest.raises(Unreachable, match=told):
            await queries.site()
        site = await queries.site()
        assert (site.user, site.home) == ("ada", str(world.transport.home))

    world.play(story())
