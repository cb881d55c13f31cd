"""`resources` to what one node needs, where it may run, and the rest that SkyPilot keeps there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from overspan.bridge.model.resources import Cpus, Gpus, Resources
from overspan.bridge.model.sizes import Memory
from overspan.bridge.readers.context import ReadContext
from overspan.bridge.readers.findings import Findings
from overspan.bridge.readers.nodes import Table, place_in
from overspan.bridge.readers.placement import Target, resolve_infra
from overspan.bridge.readers.resource_fields import alternative_nodes
from overspan.bridge.readers.shapes import attempt

Values = dict[str, Any]
IMAGE_PREFIX = "docker:"


@dataclass(frozen=True)
class Wanted:
    """Everything that `resources` says. `infra` keeps the texts, for a note where --cluster replaces them."""

    resources: Resources = field(default_factory=Resources)
    targets: tuple[Target, ...] = ()
    infra: tuple[str, ...] = ()
    image: str = ""
    ports: tuple[str, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    recovery: Values = field(default_factory=dict)
    priority: int | None = None
    priority_class: str = ""


def map_resources(values: Values, node: Table, context: ReadContext, found: Findings) -> Wanted:
    """Map the values of `resources`; its alternatives are laid over its other keys, one after another."""
    tables = alternative_nodes(node)
    base = _unalias(values, node, found)
    listed = [key for key in ("any_of", "ordered") if base.get(key)]
    if len(listed) > 1:
        found.add("any_of and ordered exclude each other", place_in(node, "ordered"))
    written = base.get(listed[0], ()) if listed else ()
    alternatives = [
        {**base, **_unalias(part, table, found)} for part, table in zip(written, tables[1:], strict=False)
    ] or [base]
    alternatives = _alike(alternatives, node, found)
    first = alternatives[0]
    return Wanted(
        resources=_node_need(alternatives, node, found),
        targets=_targets(alternatives, node, context, found),
        infra=tuple(dict.fromkeys(part["infra"] for part in alternatives if part.get("infra"))),
        image=_image(first.get("image_id"), node, found),
        ports=first.get("ports", ()),
        labels=first.get("labels", {}),
        recovery=_recovery(first.get("job_recovery"), node, found),
        priority=first.get("priority"),
        priority_class=first.get("priority_class", ""),
    )


def _unalias(values: Values, node: Table, found: Findings) -> Values:
    """Bring `gpus`, and `cloud`, `region`, `zone`, under their present names."""
    values = dict(values)
    if "gpus" in values:
        if "accelerators" in values:
            found.add("gpus and accelerators are the same key", place_in(node, "gpus"), "keep one of them")
        values["accelerators"] = values.pop("gpus")
    older = [str(values.pop(key, "")) for key in ("cloud", "region", "zone")]
    if any(older):
        if "infra" in values:
            found.add("infra says what cloud, region and zone say", place_in(node, "infra"), "keep infra")
        else:
            values["infra"] = "/".join(part or "*" for part in older)
    return values


def _alike(alternatives: list[Values], node: Table, found: Findings) -> list[Values]:
    """Keep the alternatives that ask for CPUs and memory as the first does: any of them is enough for the user."""

    def key(part: Values) -> tuple[Any, ...]:
        return part.get("cpus"), part.get("memory"), bool(part.get("accelerators"))

    kept = [part for part in alternatives if key(part) == key(alternatives[0])]
    if len(kept) < len(alternatives):
        place = place_in(node, "any_of" if node.get("any_of") else "ordered")
        found.note(f"{place}: alternatives with other CPUs, memory or no GPUs are left out; the first counts")
    return kept


def _node_need(alternatives: list[Values], node: Table, found: Findings) -> Resources:
    first = alternatives[0]
    cpus: Cpus | None = first.get("cpus")
    memory: Memory = first.get("memory") or Memory()
    gpus: list[Gpus] = [choice for part in alternatives for choice in part.get("accelerators", ())]
    count: float | None = None if cpus is None else cpus[0]
    with found.collecting():
        need: Resources = attempt(
            lambda: Resources(
                cpus=count,
                cpus_at_least=bool(cpus and cpus.at_least),
                memory_mib=memory.mib,
                memory_mib_per_cpu=memory.mib_per_cpu,
                memory_at_least=memory.at_least,
                gpus=tuple(dict.fromkeys(gpus)),
            ),
            node,
        )
        return need
    return Resources()


def _targets(alternatives: list[Values], node: Table, context: ReadContext, found: Findings) -> tuple[Target, ...]:
    # Not even looked at under --cluster, so that a file for another cloud runs as it is.
    if context.cluster:
        return ()
    targets = []
    for part in alternatives:
        if part.get("infra"):
            with found.collecting():
                targets.append(resolve_infra(part["infra"], place_in(node, "infra"), context))
    return tuple(dict.fromkeys(target for target in targets if target is not None))


_IMAGE_PATHS = ("/", "./", "~/")
_IMAGE_ENDINGS = (".sif", ".sqsh")


def _image(value: Any, node: Table, found: Findings) -> str:
    """The container image; a mapping has one for each region, which have to agree here."""
    if not value:
        return ""
    place = place_in(node, "image_id")
    images = list(dict.fromkeys(value.values())) if isinstance(value, dict) else [value]
    if len(images) > 1:
        found.add("image_id names several images", place, "write one, as docker:IMAGE")
    image = str(images[0])
    if image.startswith(IMAGE_PREFIX):
        return image.removeprefix(IMAGE_PREFIX)
    if image.startswith(_IMAGE_PATHS) or image.endswith(_IMAGE_ENDINGS):
        return image
    found.note(f"{place}: image_id has no effect: {image} is an image of cloud machines; write docker:IMAGE or a path")
    return ""


def _recovery(value: Any, node: Table, found: Findings) -> Values:
    if isinstance(value, str):
        found.note(f"{place_in(node, 'job_recovery')}: the strategy {value} has no effect here")
        return {}
    return dict(value or {})
