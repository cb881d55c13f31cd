"""A pod that is lost is made again elsewhere: everything that names nodes names the one where the task runs."""

from __future__ import annotations

import json

from tests.system.kubernetes.conftest import WAITS, KubeSpan


def test_the_node_that_is_shown_is_the_one_where_the_task_runs_after_a_loss(kube: KubeSpan) -> None:
    task = {"name": "moves", "resources": {"cpus": 0.01}, "grace_period": "1s", "run": WAITS}
    number = kube.submit(json.dumps(task))
    kube.until(number, "RUNNING", timeout=60)
    (pod,) = kube.pods().values()
    before = str(pod["spec"]["nodeName"])
    assert kube.rig.kubectl("cordon", before).rc == 0
    try:
        kube.kubectl("delete", "pod", pod["metadata"]["name"], "--wait=false")

        def moved() -> str:
            nodes = [each["spec"].get("nodeName", "") for each in kube.pods().values()]
            found = [node for node in nodes if node not in ("", before)]
            return found[0] if found and kube.job(number)["state"] == "RUNNING" else ""

        after = kube.wait_until(moved, 90, "another pod to run elsewhere")
        shown = {
            "squeue": ("squeue", "-h", "-j", str(number), "-o", "%N"),
            "scontrol": ("scontrol", "show", "job", str(number)),
            "sacct": ("sacct", "-n", "-X", "-P", "-j", str(number), "-o", "NodeList"),
            "show": ("show", str(number)),
            "of the node": ("squeue", "-h", "-w", after, "-o", "%i %N"),
        }
        kube.wait_until(lambda: after in kube.run(*shown["squeue"]).stdout, 10, "squeue to name the new node")
        for name, words in shown.items():
            text = kube.run(*words).stdout
            assert after in text and before not in text, (name, text)
    finally:
        assert kube.rig.kubectl("uncordon", before).rc == 0
    (name,) = [each for each, pod in kube.pods().items() if pod["spec"].get("nodeName") == after]
    kube.let_go(name)
    kube.until(number, "COMPLETED", timeout=60)
