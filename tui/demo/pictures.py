"""Pictures of the terminal UI, as SVG, of the simulated lab: `make pictures`.

Time stands still in them, so that the same code gives the same bytes. `python -m overspan.tui.demo.pictures FOLDER`.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from textual.app import App
from textual.pilot import Pilot

from overspan.tui.app import TopApp, TopOptions
from overspan.tui.demo.source import DemoSource

NOW = 1_799_836_200.0
"""A Wednesday in the middle of January 2027, half past ten in UTC."""
SETTLE_SECONDS = 30.0
QUIET_SECONDS = 0.4
"""A screen that stays the same for so long is done."""
FONTS = "Fira Code, ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace"
_GENERATED = "<!-- Generated with Rich https://www.textualize.io -->"
_FONT_FACE = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


class Picture(NamedTuple):
    """A picture: its file, the size of its terminal, the keys that lead to what it shows, and a word that is there."""

    name: str
    size: tuple[int, int]
    keys: tuple[str, ...]
    word: str


DARK, LIGHT = "dark", "light"
THEMES = {DARK: "overspan-dark", LIGHT: "overspan-light"}
_LIGHT_FRAME = (('<rect fill="#292929"', '<rect fill="#f4f4f4"'), ('-title" fill="#c5c8c6"', '-title" fill="#505050"'))
"""The frame and its title."""
_TO_THE_GROUP = ("slash", *"rl-math", "enter", "right")
PICTURES = (
    Picture("queue", (120, 36), ("down", "right"), "rl-math"),
    Picture("details", (120, 36), (*_TO_THE_GROUP, "d"), "rl-math"),
    Picture("logs", (120, 36), (*_TO_THE_GROUP, "o"), "rl-math"),
    Picture("evaluations", (120, 36), ("2", "slash", *"gsm8k", "enter", "down", "down"), "gsm8k of rl-math"),
    Picture("nodes", (120, 36), ("4",), ""),
)


def make_picture(picture: Picture, theme: str) -> str:
    """The SVG of a picture."""
    with _stand_still():
        return asyncio.run(_play(picture, theme))


def write_pictures(folder: Path) -> list[Path]:
    """Write them all; gives their files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for picture in PICTURES:
        for theme in THEMES:
            file = folder / f"top-{picture.name}-{theme}.svg"
            file.write_text(make_picture(picture, theme))
            files.append(file)
    return files


async def _play(picture: Picture, theme: str) -> str:
    app = TopApp(DemoSource(lambda: NOW), TopOptions())
    async with app.run_test(size=picture.size) as pilot:
        app.theme = THEMES[theme]
        await _settle(app, pilot)
        for key in picture.keys:
            await pilot.press(key)
            # What a key asks for, and where it puts the focus, comes before the next one.
            await _settle(app, pilot, 0.05)
        svg = await _settle(app, pilot)
        if picture.word not in svg.replace("&#160;", " "):
            raise AssertionError(f"the picture {picture.name} does not show {picture.word}")
        return paint_frame(use_own_fonts(svg), theme)


async def _settle(app: App[int], pilot: Pilot[int], quiet: float = QUIET_SECONDS) -> str:
    """Wait until the screen stays the same; gives its SVG."""
    shown, since, end = "", time.monotonic(), time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < end:
        await pilot.pause(0.02)
        now = app.export_screenshot(title="span top")
        if now != shown:
            shown, since = now, time.monotonic()
        elif time.monotonic() - since >= quiet:
            return shown
    raise AssertionError("the screen does not come to rest")


def use_own_fonts(svg: str) -> str:
    """The SVG with the reader's own fonts: nothing is loaded from elsewhere. It says which Textual drew it."""
    bare = _FONT_FACE.sub("", svg).replace(_GENERATED, f"<!-- Textual {version('textual')} -->")
    return re.sub(r"font-family: Fira Code, monospace", f"font-family: {FONTS}", bare)


def paint_frame(svg: str, theme: str) -> str:
    """The SVG with a window's frame that goes with its theme: Rich has a dark one alone."""
    for dark, light in _LIGHT_FRAME if theme == LIGHT else ():
        svg = svg.replace(dark, light)
    return svg


@contextmanager
def _stand_still() -> Iterator[None]:
    """Have every clock of the application show the same moment, in UTC."""
    zone, clock = os.environ.get("TZ"), time.time
    os.environ["TZ"] = "UTC"
    time.tzset()
    try:
        time.time = lambda: NOW
        yield
    finally:
        time.time = clock
        if zone is None:
            del os.environ["TZ"]
        else:
            os.environ["TZ"] = zone
        time.tzset()


if __name__ == "__main__":
    for written in write_pictures(Path(sys.argv[1])):
        print(written)
