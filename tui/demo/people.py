"""The people of the simulated lab, and what they submit."""

from __future__ import annotations

from collections.abc import Container
from random import Random
from typing import NamedTuple

from overspan.tui.demo.machines import GIB
from overspan.tui.demo.records import JobWish, Life, TaskWish

UIDS = {"ana": 2001, "ben": 2002, "chen": 2003, "dana": 2004, "emil": 2005, "fatima": 2006, "jonas": 2007}
ACCOUNTS = {
    "ana": "rl", "ben": "rl", "chen": "vision", "dana": "speech", "emil": "md", "fatima": "climate", "jonas": "llm",
}  # fmt: skip
HOUR = 3600.0


class Habit(NamedTuple):
    """A kind of job that a person submits again and again; the runs last about `hours`, and some fail."""

    name: str
    user: str
    cluster: str
    partition: str
    task: TaskWish
    hours: float
    limit: int
    variants: tuple[str, ...] = ("",)
    failures: tuple[str, ...] = ()
    """Causes, of which one ends every fifth run."""


def _work(output: str, nodes: int = 1, gpus: int = 0, cpus: int = 8, memory: int = 64) -> TaskWish:
    return TaskWish("batch", nodes, cpus, memory * GIB, gpus, True, output)


HABITS = (
    Habit(
        "llama-sft",
        "jonas",
        "leo",
        "gpu",
        _work("training", 1, 8, 64, 512),
        6,
        28800,
        ("-8b", "-8b-v2", "-14b"),
        ("exit",),
    ),
    Habit(
        "dpo-math",
        "ana",
        "leo",
        "gpu",
        _work("training", 1, 8, 64, 512),
        3,
        14400,
        ("-7b", "-beta2", "-lora"),
        ("memory",),
    ),
    Habit(
        "eval-mmlu",
        "ana",
        "leo",
        "gpu",
        _work("evaluation", 1, 4, 32, 256),
        0.7,
        7200,
        ("-sft3", "-sft4", "-base", "-dpo"),
    ),
    Habit(
        "vit-ablate",
        "chen",
        "leo",
        "gpu",
        _work("training", 1, 4, 32, 256),
        2,
        10800,
        ("-p14", "-p16", "-reg4"),
        ("time",),
    ),
    Habit("tokenize", "jonas", "leo", "cpu", _work("data", 1, 0, 64, 128), 1.5, 14400, ("-fineweb", "-code", "-arxiv")),
    Habit("align-audio", "dana", "leo", "cpu", _work("data", 1, 0, 48), 2.5, 21600, ("", "-de", "-fr"), ("exit",)),
    Habit(
        "pretrain",
        "jonas",
        "alps",
        "normal",
        _work("training", 4, 4, 256, 700),
        9,
        43200,
        ("-3b", "-3b-moe"),
        ("node",),
    ),
    Habit(
        "md-lysozyme", "emil", "alps", "normal", _work("simulation", 3, 4, 256, 400), 5, 36000, ("", "-310k", "-ph5")
    ),
    Habit(
        "ocean-1km", "fatima", "alps", "normal", _work("simulation", 4, 4, 256, 700), 4, 28800, ("", "-spinup", "-ssp2")
    ),
    Habit("nccl-test", "ben", "alps", "debug", _work("evaluation", 2, 4, 64), 0.2, 1800, ("",), ("exit",)),
    Habit("judge", "ben", "orbit", "orbit", _work("rollout", 1, 4, 16, 128), 4, 28800, ("-72b", "-32b"), ("memory",)),
    Habit("whisper-ft", "dana", "orbit", "orbit", _work("training", 1, 4, 32, 256), 3, 21600, ("-large", "-de")),
    Habit("embed", "chen", "orbit", "orbit", _work("data", 1, 2, 16), 1.2, 10800, ("-laion", "-wiki"), ("signal",)),
    Habit("notebook", "ana", "local", "local", _work("evaluation", 1, 0, 2, 8), 0.5, 7200),
)
_DETAILS = {"node": "the node stopped answering", "memory": "killed by the kernel: 512 GiB used"}
_SIGNALS = {"memory": 9, "signal": 11}


def draw_wish(chance: Random, cluster: str, taken: Container[str]) -> JobWish | None:
    """What a person submits to a cluster next; None where all that is usual there is on its way."""
    usual = [
        (habit, habit.name + variant) for habit in HABITS if habit.cluster == cluster for variant in habit.variants
    ]
    free = [choice for choice in usual if choice[1] not in taken]
    if not free:
        return None
    habit, name = chance.choice(free)
    seconds = habit.hours * HOUR * chance.uniform(0.3, 1.5)
    end = chance.choice(habit.failures) if habit.failures and chance.random() < 0.2 else "success"
    if end not in ("success", "time"):
        seconds *= chance.uniform(0.1, 0.6)
    life = make_life(seconds, end)
    tasks = (habit.task._replace(lives=(life,)),)
    account, priority = ACCOUNTS[habit.user], 1000 + chance.randrange(900)
    wish = JobWish(name, habit.user, cluster, habit.partition, tasks, habit.limit, account=account, priority=priority)
    return write_script(wish)


def make_life(seconds: float, end: str = "success") -> Life:
    """A run of so many seconds with that end."""
    if end == "time":
        seconds *= 20
    return Life(seconds, end, int(end == "exit"), _SIGNALS.get(end, 0), _DETAILS.get(end, ""))


def write_script(wish: JobWish) -> JobWish:
    """The wish with the batch script, or the job file, that it would have been submitted with."""
    if wish.group:
        return wish._replace(file=f"{wish.name}.yaml", text=_write_group(wish))
    if wish.cluster == "orbit":
        return wish._replace(file=f"{wish.name}.yaml", text=_write_job_file(wish))
    return wish._replace(file=f"{wish.name.partition('-')[0]}.sh", text=_write_batch(wish))


def _write_batch(wish: JobWish) -> str:
    task = wish.tasks[0]
    lines = [
        f"--job-name={wish.name}",
        f"--partition={wish.partition} --account={wish.account}",
        f"--nodes={task.nodes} --cpus-per-task={task.cpus} --mem={task.memory // GIB}G",
        *([f"--gpus-per-node={task.gpus}"] if task.gpus else []),
        *([f"--array={wish.array[0]}-{wish.array[-1]}%{wish.throttle}"] if wish.array else []),
        f"--time={_write_limit(wish.limit)}",
        "--output=%x-%j.out",
    ]
    head = "\n".join(f"#SBATCH {line}" for line in lines)
    return f"#!/bin/bash\n{head}\nset -euo pipefail\n\nsource .venv/bin/activate\n{_COMMANDS[task.output]}\n"


def _write_limit(seconds: int | None) -> str:
    return "UNLIMITED" if seconds is None else f"{seconds // 3600:02d}:{seconds % 3600 // 60:02d}:00"


_COMMANDS = {
    "training": 'srun python train.py --config configs/$SLURM_JOB_NAME.yaml --resume "ckpt/latest"',
    "evaluation": 'python -m harness --model "$MODEL" --tasks mmlu --shots 5',
    "data": "python -m pipeline --workers $SLURM_CPUS_PER_TASK shards/*.zst",
    "simulation": "srun gmx_mpi mdrun -deffnm run -maxh 11.5 -cpi run.cpt",
    "rollout": "vllm serve judge --port 8001",
}


def _write_job_file(wish: JobWish) -> str:
    return f"cluster: {wish.cluster}\n{_write_task(wish, wish.tasks[0], wish.name)}"


def _write_group(wish: JobWish) -> str:
    primaries = ", ".join(task.name for task in wish.tasks if task.primary)
    head = f"name: {wish.name}\ncluster: {wish.cluster}\nexecution: parallel\nprimary_tasks: [{primaries}]\n"
    return "---\n".join([head, *(_write_task(wish, task, task.name) for task in wish.tasks)])


def _write_task(wish: JobWish, task: TaskWish, name: str) -> str:
    kind = "H100" if wish.cluster == "leo" else "A100"
    lines = [
        f"name: {name}",
        *([f"num_nodes: {task.nodes}"] if task.nodes > 1 and not task.most else []),
        *([f"elastic: {{min: {task.nodes}, max: {task.most}, scale_up_after: never}}"] if task.most else []),
        f"resources: {{cpus: {task.cpus}, memory: {task.memory // GIB}GiB"
        + (f", accelerators: {{{kind}: {task.gpus}}}}}" if task.gpus else "}"),
        *([f"needs: {{{task.waits_for}: ready}}"] if task.waits_for else []),
        f"time: {_write_limit(wish.limit)}",
        "run: |",
        f"  exec python -m lab.{task.output} --config {wish.name}.toml",
    ]
    return "\n".join(lines) + "\n"
