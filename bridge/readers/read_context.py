"""Context of a submission for the readers: where it was made, by whom, and which clusters exist."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from overspan.bridge.model.spec import Origin


@dataclass(frozen=True)
class ReadContext:
    """The surroundings of one submission.

    `directory` resolves relative paths; `environment` is the submitter's. `env` and `secrets` are the values given
    with --env and --secret, for every task. `files` are the texts of further files that the submission names, by path.
    `overrides` are the words of --set. `clusters` maps names to kinds
    (local, slurm, kubernetes); None when they are not known, and then names are not checked. `cluster` and `name`
    are --cluster and --name: they replace what the file says. `now` is in seconds since the epoch.
    """

    directory: str = "/"
    environment: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    overrides: tuple[str, ...] = ()
    origin: Origin = field(default_factory=Origin)
    clusters: Mapping[str, str] | None = None
    cluster: str = ""
    name: str = ""
    hold: bool = False
    now: float = 0.0
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def chosen(self) -> tuple[str, ...]:
        """The clusters that --cluster names, the first choice first."""
        return tuple(dict.fromkeys(filter(None, self.cluster.split(","))))

    def kind_of(self, cluster: str) -> str:
        """The kind of a cluster; empty where it is not known."""
        return (self.clusters or {}).get(cluster, "")
