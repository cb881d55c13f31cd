"""The section `top` of the configuration files."""

from __future__ import annotations

from pathlib import Path

import pytest

from overspan.bridge.config.settings import load_settings
from overspan.bridge.config.top_settings import TopSettings, read_top_settings


def read(folder: Path, user: str = "", site: str = "") -> TopSettings:
    """Read two files of these texts."""
    (folder / "config.yaml").write_text(user)
    (folder / "site.yaml").write_text(site)
    return read_top_settings(str(folder / "config.yaml"), str(folder / "site.yaml"))


def test_everything_can_be_said(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        "top:\n  theme: light\n  filter: user:ana\n  columns: [id, name]\n  sort: -priority\n  read_only: true\n"
        "  ascii: true\n  mouse: false\n  keymap: {job.cancel: ctrl+k, list.up: [up, ctrl+p]}\n",
    )
    assert found.troubles == ()
    assert found.theme is not None and found.theme.text == "light" and str(found.theme.place).endswith(":2:10")
    assert (found.filter, found.read_only, found.ascii, found.mouse) == ("user:ana", True, True, False)
    assert [column.text for column in found.columns] == ["id", "name"]
    assert found.sort is not None and found.sort.text == "-priority"
    assert {name: keys.text for name, keys in found.keymap.items()} == {"job.cancel": "ctrl+k", "list.up": "up,ctrl+p"}


def test_without_files_nothing_is_said(tmp_path: Path) -> None:
    assert read_top_settings(str(tmp_path / "none"), str(tmp_path / "none")) == TopSettings()


def test_the_user_stands_above_the_site(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        "top: {theme: dark, keymap: {list.up: u}}",
        "top: {theme: light, mouse: false, keymap: {list.up: x, list.down: y}}",
    )
    assert found.theme is not None and found.theme.text == "dark" and not found.mouse
    assert {name: keys.text for name, keys in found.keymap.items()} == {"list.up": "u", "list.down": "y"}


def test_the_site_can_fix_a_key(tmp_path: Path) -> None:
    found = read(tmp_path, "top: {read_only: false, ascii: true}", "top: {read_only: true}\nfinal: [top.read_only]")
    assert found.read_only and found.ascii
    assert found.troubles == (
        f"{tmp_path}/config.yaml:1:7: top.read_only: this is fixed by the site; remove it from your file",
    )


@pytest.mark.parametrize(
    ("text", "trouble"),
    [
        ("top: 5", ":1:6: top: a mapping is wanted here, not 5"),
        ("top: {them: x, ascii: true}", ":1:7: top.them: there is no such key; did you mean 'theme'?"),
        ("top: {mouse: 3, ascii: true}", ":1:14: top.mouse: true or false is wanted here, not 3"),
        ("top: {theme: [a], ascii: true}", ":1:14: top.theme: text is wanted here, not a list"),
        ("top: {keymap: [a], ascii: true}", ":1:15: top.keymap: a mapping of actions to keys is wanted here"),
        ("top: {keymap: {a: {}}, ascii: true}", ":1:19: top.keymap.a: text is wanted here, not a mapping"),
        ("top: {", "; nothing of this file counts"),
    ],
)
def test_what_is_wrong_is_told_with_its_place_and_the_rest_counts(tmp_path: Path, text: str, trouble: str) -> None:
    found = read(tmp_path, text)
    assert len(found.troubles) == 1 and trouble in found.troubles[0], found.troubles
    assert found.troubles[0].startswith(f"{tmp_path}/config.yaml")
    assert found.ascii == ("ascii" in text)


def test_a_read_only_that_cannot_be_read_forbids(tmp_path: Path) -> None:
    found = read(tmp_path, "top: {read_only: yes}")
    assert found.read_only and len(found.troubles) == 1


def test_a_mistake_in_it_does_not_keep_the_daemon_from_starting(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("top: {theme: [1], nonsense: 3}\nretention: 14d\n")
    assert load_settings(str(tmp_path / "config.yaml"), str(tmp_path / "none")).retention == 14 * 86400
