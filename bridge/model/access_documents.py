"""The document by which commands inside a job reach the daemon: what it says, and whose token it has. Pure.

One job's has `token`. That of elements that were submitted together has `tokens`, by index: they share one environment,
so the file that it names is the same for all. Each token is of one element alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

INDEX = "SLURM_ARRAY_TASK_ID"
"""The variable by which Slurm tells an element its index (sbatch(1))."""
MAX_BYTES = 4 << 20
"""A native array has 5000 elements at most (`MOST`), at some 90 bytes each."""


def join_access(documents: Mapping[int, str]) -> str:
    """One document for elements: `documents` are their own ones by index. Empty where one of them has none."""
    if not documents or not all(documents.values()):
        return ""
    read = {index: json.loads(text) for index, text in documents.items()}
    shared = next(iter(read.values()))
    tokens = {str(index): document["token"] for index, document in read.items()}
    rest = {name: value for name, value in shared.items() if name != "token"}
    return json.dumps({**rest, "tokens": tokens}, separators=(",", ":"))


def find_token(document: Mapping[str, Any], environment: Mapping[str, str]) -> str:
    """The token of the job that has this environment. Raises ValueError with the reason, LookupError, TypeError."""
    if "tokens" not in document:
        return str(document["token"])
    index = environment.get(INDEX, "")
    if index not in document["tokens"]:
        told = f"{INDEX} is {index}" if index else f"{INDEX} is not set"
        raise ValueError(f"it is for elements of an array, and none of them runs here: {told}")
    return str(document["tokens"][index])
