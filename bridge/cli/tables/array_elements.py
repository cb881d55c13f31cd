"""Splits the one row of an array's pending elements into a row for each element. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from overspan.bridge.listings.rows import JobRow


def split_elements(rows: Iterable[JobRow]) -> list[JobRow]:
    """Replace each row that stands for several elements by one row each; these have no id of their own yet."""
    result = []
    for row in rows:
        if row.array_waiting:
            result += [row._replace(array_index=index, array_waiting="") for index in read_indices(row.array_waiting)]
        else:
            result.append(row)
    return result


def name_elements(rows: Iterable[JobRow]) -> list[JobRow]:
    """Rows for elements requested by index: a single one is shown under its own id, several without the throttle."""
    result: list[JobRow] = []
    for row in rows:
        indices = row.array_waiting.partition("%")[0]
        if indices and not set(indices) & set(",-"):
            result += split_elements([row])
        else:
            result.append(row._replace(array_waiting=indices))
    return result


def read_indices(text: str) -> Iterator[int]:
    """The indices of a text such as `0-3,7%2`."""
    for part in text.partition("%")[0].split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)
