"""Sanitizes foreign texts for a terminal: nothing in them moves its cursor, ends a line or colours it."""

from __future__ import annotations

import re
from typing import Any

UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control characters (C0, DEL, C1), and those that end lines or turn the direction of writing."""
SHOWN_AS = "?"
_SUSPECT = re.compile(rb"\\[nrtbfu]|\x7f|\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80|\xe2\x81")
_SENTENCES = frozenset({"text", "message", "remedy", "detail"})
"""Keys whose texts are Overspan's or a cluster's, of several lines now and then."""


def clean_text(text: str, keep: str = "") -> str:
    """The text with `?` for what a terminal would obey; the characters of `keep` stay."""
    return UNSAFE.sub(lambda match: match[0] if match[0] in keep else SHOWN_AS, text)


def may_need_cleaning(data: bytes) -> bool:
    """Whether a JSON document can hold what a terminal would obey: quick, and true too often."""
    return _SUSPECT.search(data) is not None


def clean_document(value: Any, key: str = "") -> Any:
    """The same of each text in a document; a line's end is a blank in sentences."""
    if isinstance(value, str):
        return clean_text(value.replace("\n", " ") if key in _SENTENCES else value)
    if isinstance(value, dict):
        return {name: clean_document(item, name) for name, item in value.items()}
    return [clean_document(item, key) for item in value] if isinstance(value, list) else value
