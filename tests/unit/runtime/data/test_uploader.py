"""How long a flush waits for a store that refuses it, or that does not answer."""

from __future__ import annotations

from typing import Any

import pytest

from overspan.bridge.runtime.data.cached_folder import SeenFile
from overspan.bridge.runtime.data.object_store import ObjectStoreError, StoreTrouble
from overspan.bridge.runtime.data.requests import FLUSH, DataAnswer, DataRequest
from overspan.bridge.runtime.data.uploader import DENIAL_SECONDS, Uploader

REQUEST = DataRequest(FLUSH, "train", 0)


class Folder:
    """A folder with one file, whose store fails."""

    def __init__(self) -> None:
        self.trouble = StoreTrouble.DENIED
        self.sent = False

    def scan(self, *, ended: bool = False) -> dict[str, SeenFile]:
        return {"a": SeenFile(5, 1)}

    def list_unsent(self, seen: dict[str, SeenFile]) -> dict[str, SeenFile]:
        return {} if self.sent else seen

    def send(self, seen: dict[str, SeenFile], **_: object) -> None:
        if not self.sent:
            raise ObjectStoreError(self.trouble, "no")

    def remove_noted(self) -> None:
        pass


class Scene:
    """An uploader that looks when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.folder = Folder()
        self.answers: list[DataAnswer] = []
        folder: Any = self.folder
        self.uploader = Uploader(folder, self.answers.append, lambda text: None, clock=lambda: self.now)

    def look(self, seconds: float = 0.0) -> None:
        self.now += seconds
        self.uploader._look()


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_refusal_counts_from_the_flush(scene: Scene) -> None:
    """Credentials that had expired long before the end may be renewed within the time that a flush has for that."""
    scene.look()
    scene.look(3600)
    scene.uploader.flush(REQUEST)
    scene.look(1)
    scene.look(DENIAL_SECONDS - 1)
    assert scene.answers == []
    scene.folder.sent = True
    scene.look()
    assert scene.answers == [DataAnswer(REQUEST)]


def test_a_refusal_that_lasts_is_the_answer(scene: Scene) -> None:
    scene.uploader.flush(REQUEST)
    scene.look()
    scene.look(DENIAL_SECONDS)
    assert scene.answers == [DataAnswer(REQUEST, "no", 5)]


def test_a_store_that_does_not_answer_is_waited_for_also_after_it_has_refused(scene: Scene) -> None:
    scene.uploader.flush(REQUEST)
    scene.look()
    scene.folder.trouble = StoreTrouble.SILENT
    scene.look(2 * DENIAL_SECONDS)
    assert scene.answers == []
