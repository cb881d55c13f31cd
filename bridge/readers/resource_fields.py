"""The keys of `resources`: their types, and what each means here."""

from __future__ import annotations

import re
from typing import Any

from overspan.bridge.model.resources import parse_accelerators, parse_cpus
from overspan.bridge.model.sizes import parse_skypilot_memory
from overspan.bridge.readers.field_types import (
    Effect,
    FieldType,
    Record,
    TableKey,
    anything,
    attempt,
    by_form,
    checked,
    integer,
    list_of,
    mapping_of,
    text,
)
from overspan.bridge.validation.diagnostics import Diagnostics
from overspan.bridge.validation.yaml_nodes import Node, Table, plain

AMOUNT = {"type": ["number", "string"]}
MAX_PORT = 65535
MAX_RETRIES = 10_000


def accelerators() -> FieldType:
    """GPUs: a text, a count, or a list or mapping of alternatives."""

    def read(node: Node, found: Diagnostics) -> Any:
        return attempt(lambda: parse_accelerators(plain(node)), node)

    return FieldType(read, {"type": ["string", "number", "array", "object"]})


def parse_port(value: Any) -> str:
    """Read a port, or a range of ports such as 8000-8010. Raises ValueError."""
    match = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", str(value))
    if isinstance(value, bool) or not match:
        raise ValueError(f"{value!r} is not a port; write a number such as 8000, or a range such as 8000-8010")
    first, last = int(match[1]), int(match[2] or match[1])
    if not 1 <= first <= last <= MAX_PORT:
        raise ValueError(f"{value!r} is not a port; ports go from 1 to {MAX_PORT}")
    return str(value)


def ports() -> FieldType:
    """One port or range, or a list of them."""
    return list_of(checked(parse_port, AMOUNT), single=True)


def exit_codes() -> FieldType:
    """One exit code, or a list of them."""
    return list_of(integer(0, 255), single=True)


def _noted(value_type: FieldType, doc: str, advice: str) -> TableKey:
    return TableKey(value_type, doc, Effect.NOTED, advice)


JOB_RECOVERY = Record(
    "job_recovery",
    {
        "strategy": _noted(text(), "A recovery strategy.", "a lost task starts again on its own cluster"),
        "max_restarts_on_errors": TableKey(integer(0, MAX_RETRIES), "Restarts after errors of the program itself."),
        "recover_on_exit_codes": TableKey(exit_codes(), "Exit codes after which the task always starts again."),
    },
)

_CLOUD = "it belongs to cloud machines"

_PLAIN: dict[str, TableKey] = {
    "cpus": TableKey(checked(parse_cpus, AMOUNT), "CPUs of each node: 4, 0.5, or 4+ for at least 4."),
    "memory": TableKey(checked(parse_skypilot_memory, AMOUNT), "Memory of each node in GB: 16, 16+, or 2x the CPUs."),
    "accelerators": TableKey(accelerators(), "GPUs of each node: H100, H100:8, or alternatives."),
    "gpus": TableKey(accelerators(), "The same as accelerators."),
    "infra": TableKey(
        text(), "Where to run: kubernetes, kubernetes/CONTEXT, slurm/CLUSTER/PARTITION, or a cluster's name."
    ),
    "cloud": TableKey(text(), "Older spelling of infra's first part."),
    "region": TableKey(text(), "Older spelling of infra's second part."),
    "zone": TableKey(text(), "Older spelling of infra's third part."),
    "image_id": TableKey(by_form(scalar=text(), table=mapping_of(text())), "Container image: docker:IMAGE."),
    "ports": TableKey(ports(), "Ports that the task listens on."),
    "labels": TableKey(mapping_of(text()), "Labels of the task."),
    "job_recovery": TableKey(
        by_form(scalar=text(), table=JOB_RECOVERY.as_type()), "Budgets of restarts; the task's own keys say the same."
    ),
    "priority": TableKey(integer(-1000, 1000), "Priority among waiting jobs; higher starts first."),
    "priority_class": TableKey(text(253), "Priority class on Kubernetes."),
    "autostop": _noted(anything(), "When to stop an idle machine.", "a task's resources are given back at its end"),
    "use_spot": _noted(anything(), "Spot instances.", _CLOUD),
    "spot_recovery": _noted(anything(), "Recovery of spot instances.", _CLOUD),
    "instance_type": _noted(anything(), "A cloud's machine type.", _CLOUD),
    "disk_size": _noted(anything(), "Size of a cloud disk.", _CLOUD),
    "disk_tier": _noted(anything(), "Tier of a cloud disk.", _CLOUD),
    "network_tier": _noted(anything(), "Tier of a cloud network.", _CLOUD),
    "local_disk": _noted(anything(), "Local disk of a cloud machine.", _CLOUD),
    "max_hourly_cost": _noted(anything(), "Highest price of a cloud machine.", _CLOUD),
    "accelerator_args": _noted(anything(), "Options of cloud accelerators.", _CLOUD),
    "ephemeral_storage": _noted(anything(), "Ephemeral storage.", _CLOUD),
    "volumes": _noted(anything(), "Cloud volumes.", "name volumes under the task's own key `volumes`"),
}

ALTERNATIVE = Record("an alternative of resources", _PLAIN)
_ALTERNATIVES = list_of(ALTERNATIVE.as_type())

RESOURCES = Record(
    "resources",
    {
        **_PLAIN,
        "any_of": TableKey(_ALTERNATIVES, "Alternatives, each laid over the other keys; the first that fits is taken."),
        "ordered": TableKey(_ALTERNATIVES, "Alternatives in order of preference."),
    },
)


def alternative_nodes(resources: Table | None) -> list[Table]:
    """The mappings where `resources` and its alternatives stand, for positions."""
    if resources is None:
        return []
    found = [resources]
    for key in ("any_of", "ordered"):
        listed = resources.get(key)
        found += [item for item in getattr(listed, "items", ()) if isinstance(item, Table)] if listed else []
    return found
