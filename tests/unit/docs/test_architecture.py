"""The map of the adapters: which folder of which adapter has what."""

from __future__ import annotations

import re

from tests.unit.docs.pages import ROOT

ADAPTERS = ("local", "slurm", "kubernetes")


def test_the_map_has_each_folder_of_an_adapter_and_no_other() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    table = page.split("| folder | `local` | `slurm` | `kubernetes` |\n", 1)[1].split("\n\n", 1)[0]
    told: dict[str, set[str]] = {adapter: set() for adapter in ADAPTERS}
    for row in table.splitlines()[1:]:
        names, *cells = (cell.strip() for cell in row.strip("|").split("|"))
        for adapter, cell in zip(ADAPTERS, cells, strict=True):
            if cell and not cell.startswith("in `"):
                told[adapter].update(re.findall(r"`(\w+)`", names))
    for adapter in ADAPTERS:
        folders = {path.parent.name for path in (ROOT / "adapters" / adapter).glob("*/__init__.py")}
        assert folders <= told[adapter], f"docs/architecture.md does not tell of {folders - told[adapter]} of {adapter}"
    every = {path.parent.name for adapter in ADAPTERS for path in (ROOT / "adapters" / adapter).glob("*/__init__.py")}
    assert set().union(*told.values()) <= every
