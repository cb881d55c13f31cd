"""A small group and where its files are."""

from __future__ import annotations

from overspan.adapters.contract import Node
from overspan.adapters.slurm.groups.rendering import GroupPlace

HEAD = "name: g\nexecution: parallel\nprimary_tasks: [trainer]\ntermination_delay: 10s\n"


TRAINER = "---\nname: trainer\nnum_nodes: 2\ntime: 1h\ngrace_period: 20s\nresources: {cpus: 2, memory: 1}\nrun: t\n"


SERVER = "---\nname: server\ntime: 2h\nresources: {cpus: 1, memory: 1}\nsecrets: {KEY: hidden}\nrun: s\n"


NODES = tuple(Node(f"n{number}", "main", "idle", 4, 0, 8000, 0) for number in range(4))


PLACE = GroupPlace("rig", "/r", "/r/runs/inst-7", NODES)
