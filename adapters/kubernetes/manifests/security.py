"""What a namespace of the Pod Security Standard `restricted` wants of a pod (kubernetes.io, Pod Security Standards)."""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]


def restrict_pod(pod: Document) -> Document:
    """The pod with the defaults that `restricted` requires; what the user has written stays."""
    spec = pod["spec"]
    restricted = {**spec, "securityContext": _restrict(spec.get("securityContext"), _POD)}
    for kind in ("initContainers", "containers"):
        if spec.get(kind):
            restricted[kind] = [
                {**container, "securityContext": _restrict(container.get("securityContext"), _CONTAINER)}
                for container in spec[kind]
            ]
    return {**pod, "spec": restricted}


def _restrict(written: Document | None, wanted: Document) -> Document:
    return {**wanted, **(written or {})}


_POD: Document = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
_CONTAINER: Document = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
