"""The pictures of the docs: what is there is what the code makes, and nothing in them is loaded from elsewhere."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

import pytest
from tests.unit.docs.pages import ROOT

from overspan.tui.demo.pictures import DARK, PICTURES, THEMES, make_picture

FOLDER = ROOT / "docs" / "pictures"


def list_texts(svg: str) -> list[str]:
    """The texts of a picture, from the top to the bottom."""
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_a_picture_that_is_made_again_is_the_same_to_the_byte() -> None:
    made, kept = make_picture(PICTURES[0], DARK), (FOLDER / "top-queue-dark.svg").read_text()
    assert list_texts(made) == list_texts(kept), "the pictures are old: `make pictures`"
    # Another Textual may draw the same texts in another way.
    assert made == kept or f"<!-- Textual {version('textual')} -->" not in kept, "the pictures are old: `make pictures`"


def test_there_is_one_of_each_theme() -> None:
    files = {f"top-{picture.name}-{theme}.svg" for picture in PICTURES for theme in THEMES}
    assert {file.name for file in FOLDER.iterdir()} == files


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.svg")), ids=lambda file: str(file.name))
def test_a_picture_loads_nothing_and_runs_nothing(file: Path) -> None:
    text = file.read_text()
    assert not re.search(r"@font-face|url\(http|<script|<image|xlink:href", text)
    assert re.findall(r"https?://[^\s\"<]+", text).count("http://www.w3.org/2000/svg") == 1


def test_the_readme_shows_the_queue() -> None:
    readme = (ROOT / "README.md").read_text()
    assert readme.index("docs/pictures/top-queue-dark.svg") < readme.index("## On a fresh machine")
