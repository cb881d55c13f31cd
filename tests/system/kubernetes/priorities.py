"""Priority classes of the rig."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tests.system.kubernetes.conftest import KubeSpan


@contextlib.contextmanager
def priority_class(kube: KubeSpan, value: int) -> Iterator[str]:
    """A PriorityClass of this test alone."""
    name, path = f"class-{value}-{kube.namespace}", "/apis/scheduling.k8s.io/v1/priorityclasses"
    made = kube.rig.call("POST", path, {"metadata": {"name": name}, "value": value})
    assert made.status == 201, made
    try:
        yield name
    finally:
        kube.rig.call("DELETE", f"{path}/{name}")
