"""What Slurm itself lists of a job."""

from __future__ import annotations

from tests.system.slurm.conftest import Site


def list_all(site: Site) -> set[str]:
    """All native jobs; Slurm forgets old ones at any moment."""
    return set(site.slurm("squeue", "-ht", "all", "-o", "%A").split())
