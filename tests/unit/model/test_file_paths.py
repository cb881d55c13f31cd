"""Paths joined to a folder."""

from __future__ import annotations

import pytest

from overspan.bridge.model.file_paths import join_path


@pytest.mark.parametrize(
    ("folder", "path", "joined"),
    [
        ("/a/b", "x//y/./z/", "/a/b/x/y/z"),
        ("/a/b", "", "/a/b"),
        ("/a/b", ".", "/a/b"),
        ("/a/b", "../../../x", "/x"),
        ("/a/b/", "..", "/a"),
        ("/a/b", "/x//y", "/x/y"),
        ("/a/b", "/../x", "/x"),
        ("/a/b", "link/../o.txt", "/a/b/link/../o.txt"),
        ("/a/b", "/x/./link/../o", "/x/link/../o"),
        ("/a/link/..", "o", "/a/link/../o"),
    ],
)
def test_what_follows_a_name_is_left_to_the_file_system(folder: str, path: str, joined: str) -> None:
    assert join_path(folder, path) == joined
