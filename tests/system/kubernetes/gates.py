"""A file on the nodes that programs wait for and a test makes."""

from __future__ import annotations

from pathlib import Path

from tests.system.kubernetes.conftest import KubeSpan


class Gate:
    """A file on a volume of the nodes that programs wait for; each tells there that it has started."""

    def __init__(self, kube: KubeSpan) -> None:
        self.folder = Path(kube.folder) / "gate"
        self.folder.mkdir()
        self.volume = {"gate": {"hostPath": {"path": str(self.folder)}, "path": "/gate"}}
        self.run = "echo $OVERSPAN_JOB_ID >> /gate/starts; until [ -e /gate/open ]; do sleep 0.1; done; echo done"

    def open(self) -> None:
        """Let them go on."""
        (self.folder / "open").touch()

    def starts(self) -> list[int]:
        """The jobs that have started, once for each start."""
        file = self.folder / "starts"
        return sorted(map(int, file.read_text().split())) if file.exists() else []
