"""What the lab's clusters would have been sent, and the variables of a job there. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from overspan.bridge.client.messages import SentForm, Variable
from overspan.tui.demo.machines import CLUSTERS, GIB
from overspan.tui.demo.records import DemoJob, JobWish, TaskWish

_KINDS = {cluster.name: cluster.kind for cluster in CLUSTERS}
_SOURCES = {
    "slurm": "as Slurm keeps it",
    "kubernetes": "rendered from the plan that the cluster keeps of the launch",
    "local": "the plan that its supervisor was given",
}


def make_sent_form(job: DemoJob) -> SentForm:
    """The native form of a job: a script, a manifest, or a plan."""
    kind, wish = _KINDS.get(job.wish.cluster, "local"), job.wish
    if kind == "kubernetes":
        text = "---\n".join(_write_pod(job.id, wish, task) for task in wish.tasks)
    elif kind == "slurm" and not wish.group:
        text = f"# sbatch --parsable --comment=overspan=lab-{job.id}-0\n{wish.text}"
    else:
        text = "\n".join(_write_plan(wish, slurm=kind == "slurm"))
    if job.started_at is None:
        return SentForm(text, False, "not sent yet: this would be sent now")
    return SentForm(text, True, _SOURCES[kind])


def _write_pod(number: int, wish: JobWish, task: TaskWish) -> str:
    gpus = f", nvidia.com/gpu: {task.gpus}" if task.gpus else ""
    return f"""\
apiVersion: v1
kind: Pod
metadata:
  name: {wish.name}-{number}-{task.name}-0
  labels: {{app.kubernetes.io/managed-by: overspan, overspan.io/task: {task.name}}}
spec:
  restartPolicy: Never
  containers:
    - name: task
      image: registry.example.org/lab:7
      command: [/bin/bash, -c, exec python -m lab.{task.output} --config {wish.name}.toml]
      resources: {{limits: {{cpu: {task.cpus}, memory: {task.memory // GIB}Gi{gpus}}}}}
"""


def _write_plan(wish: JobWish, *, slurm: bool) -> Iterator[str]:
    nodes = sum(task.nodes for task in wish.tasks)
    yield f"# one ordinary job, {nodes} nodes" if slurm else f"# {wish.name}: {nodes} nodes on this machine"
    for task in wish.tasks:
        yield f"[{task.name}] {'primary' if task.primary else 'auxiliary'}, {task.cpus} CPUs, {task.gpus} GPUs a node"
        yield f"    exec python -m lab.{task.output} --config {wish.name}.toml"


def list_demo_variables(job: DemoJob) -> list[Variable]:
    tasks = [task.name for task in job.wish.tasks] if job.wish.group else [""]
    own = [
        each
        for task in tasks
        for each in (
            Variable(task, "HF_TOKEN", "***", "secret", True),
            Variable(task, "OMP_NUM_THREADS", "8", "task"),
        )
    ]
    here = {"HOME": f"/home/{job.wish.user}", "LANG": "C.UTF-8", "WANDB_API_KEY": "***"}
    return own + [Variable("", name, value, "submission", value == "***") for name, value in here.items()]
