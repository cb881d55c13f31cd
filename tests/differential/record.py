"""Records the golden files again: `python -m tests.differential.record [cases] [formats]`, with nothing: both.

Needs the Slurm rig. What changed is then read in the diff of `recorded/`.
"""

from __future__ import annotations

import sys

from tests.differential.formats import record_formats
from tests.differential.suite import ONE_NODE, RECORDED, all_cases, play_slurm, write_golden
from tests.rigs.slurm import Variant, open_rig


def main() -> None:
    """Record what was asked for."""
    wanted = sys.argv[1:] or ["cases", "formats"]
    if "cases" in wanted:
        with open_rig(ONE_NODE) as rig:
            cases = all_cases()
            write_golden(play_slurm(rig, cases), cases)
    if "formats" in wanted:
        with open_rig(Variant()) as rig:
            record_formats(lambda argv: rig.run(argv, cwd="/home/researcher"), RECORDED / "formats")


if __name__ == "__main__":
    main()
