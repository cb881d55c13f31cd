"""What is asked of a site once: an answer that says nothing is no answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from overspan.adapters.slurm.questions import Questions
from overspan.adapters.slurm.transports.channel import Call, Done
from overspan.adapters.slurm.transports.local import LocalTransport
from overspan.bridge.model.errors import Unreachable

CONFIG = Done(0, b"SLURM_VERSION = 22.05.8\n", b"")
USER, HOME = Done(0, b"ada\n", b""), Done(0, b"/home/ada\n", b"")


class Login(LocalTransport):
    """Answers the three questions in these words."""

    def __init__(self, *answers: Done) -> None:
        super().__init__("")
        self.answers = answers

    async def run_all(self, calls: Sequence[Call], timeout: float = 60.0) -> list[Done | None]:
        return [*self.answers]


@pytest.mark.parametrize(
    ("user", "home", "told"),
    [
        (Done(1, b"", b"id: cannot find name for user ID 7\n"), HOME, "who the user is"),
        (USER, Done(1, b"", b"sh: cd: can't cd to /home/ada\n"), "where the user's home is"),
        (USER, Done(0, b"\n", b""), "where the user's home is"),
    ],
)
def test_a_site_without_a_user_or_a_home_is_asked_again(user: Done, home: Done, told: str) -> None:
    async def story() -> None:
        login = Login(CONFIG, user, home)
        questions = Questions(login, 10)
        with pytest.raises(Unreachable, match=told):
            await questions.site()
        login.answers = (CONFIG, USER, HOME)
        site = await questions.site()
        assert (site.user, site.home) == ("ada", "/home/ada")

    asyncio.run(story())
