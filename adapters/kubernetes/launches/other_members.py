"""Gives members on other clusters names in a launch's domain: an EndpointSlice for each address family.

A headless Service answers with the host names of all slices that name it (Kubernetes, DNS specification 2.3), those
that its own controller makes and ours. The anchor owns ours, so they go with the launch.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

from overspan.adapters.kubernetes.api.answers import to_error
from overspan.adapters.kubernetes.api.calls import Calls
from overspan.adapters.kubernetes.manifests.names import label_launch, name_anchor, name_domain, name_host
from overspan.adapters.kubernetes.manifests.services import own
from overspan.bridge.model.errors import Rejected
from overspan.bridge.model.job import Job, Placement

_SERVICE = "kubernetes.io/service-name"
_MANAGED = "endpointslice.kubernetes.io/managed-by"
_MANAGER = "overspan"
_FAMILIES = {4: "IPv4", 6: "IPv6"}
_MOST = 1000
"""Endpoints of one slice (API, maxEndpoints)."""


def render_slices(job: Job, token: str, members: Sequence[Placement]) -> list[dict[str, Any]]:
    """The slices of these members. Raises Rejected for an address that is none of IP."""
    found: dict[str, list[dict[str, Any]]] = {}
    for member in members:
        try:
            family = _FAMILIES[ipaddress.ip_address(member.address).version]
        except ValueError:
            where = f"{member.task}-{member.index} is at {member.address or 'no known address'}"
            raise Rejected(f"{where}, and names of members on other clusters need an IP address") from None
        host = name_host(job, member.task, member.index)
        endpoint = {"addresses": [member.address], "hostname": host, "conditions": {"ready": True}}
        found.setdefault(family, []).append(endpoint)
    if any(len(endpoints) > _MOST for endpoints in found.values()):
        raise Rejected(f"more than {_MOST} members on other clusters get no names in pods")
    return [
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": f"{name_anchor(token)}-elsewhere-{family.lower()}",
                "labels": {**label_launch(token), _SERVICE: name_domain(job), _MANAGED: _MANAGER},
            },
            "addressType": family,
            "endpoints": endpoints,
            "ports": [],
        }
        for family, endpoints in found.items()
    ]


async def write_slices(calls: Calls, slices: Sequence[Mapping[str, Any]], anchor: str, uid: str) -> None:
    """Create or replace the slices. Raises Denied where a right is missing."""
    for document in slices:
        wanted = own(dict(document), anchor, uid)
        wanted["metadata"]["namespace"] = calls.namespace
        answer = await calls.create(wanted)
        if answer.status == 409:
            answer = await calls.merge(wanted)
        if not answer.works:
            raise to_error(answer, "naming members on other clusters (EndpointSlice)")
