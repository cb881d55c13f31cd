"""The scenario: two days in the lab before the first look, and what goes on while one looks."""

from __future__ import annotations

from overspan.tui.demo.evaluations import watch_checkpoints
from overspan.tui.demo.lab import DemoLab
from overspan.tui.demo.machines import GIB
from overspan.tui.demo.orders import resize
from overspan.tui.demo.people import ACCOUNTS, HOUR, draw_wish, make_life, write_script
from overspan.tui.demo.records import ME, JobWish, Life, TaskWish

SEED = 7
PAST_SECONDS = 36 * HOUR
"""How much of the past is played before the first look; the history has it."""
EVERY_SECONDS = 120.0
"""How often one of the people looks whether to submit something."""
BUSY = {"leo": 7, "alps": 4, "orbit": 3, "local": 1}
"""By cluster, how many jobs wait before no more are submitted."""

EAGERNESS = {"local": 0.03}


def open_lab(now: float, seed: int = SEED, me: str = ME) -> DemoLab:
    """The lab at `now`, in the middle of its work."""
    lab = DemoLab(seed, now - PAST_SECONDS, me)
    _go_on(lab)
    watch_checkpoints(lab)
    for hours, wishes in _STORY:
        lab.advance(now - hours * HOUR)
        for wish in wishes:
            lab.submit(write_script(wish))
        _grow(lab, "rl-math", "rollout", 4)
    _suspend(lab, "rna-fold")
    _submit_dependant(lab)
    lab.advance(now - 5)
    lab.submit(write_script(_single("smoke-test", "ben", _ORBIT, TaskWish("batch", 1, 2, 4 * GIB, 0, True, "data"))))
    lab.advance(now)
    return lab


def _go_on(lab: DemoLab) -> None:
    """Have a person submit something where little waits; then again, for ever."""
    for cluster, most in BUSY.items():
        waiting = sum(job.state == "PENDING" and job.wish.cluster == cluster for job in lab.live.values())
        if waiting < most and lab.random.random() < EAGERNESS.get(cluster, 1.0):
            wish = draw_wish(lab.random, cluster, {job.name for job in lab.live.values()})
            if wish is not None:
                lab.submit(wish)
    lab.plan(EVERY_SECONDS * lab.random.uniform(0.5, 1.5), lambda: _go_on(lab))


def _grow(lab: DemoLab, group: str, name: str, size: int) -> None:
    """An elastic task has more members as soon as it runs."""
    for job in [job for job in lab.live.values() if job.name == group and job.state == "RUNNING"]:
        for task in [task for task in job.tasks if task.wish.name == name and not task.members]:
            resize(lab, job, task, size, ME)


def _submit_dependant(lab: DemoLab) -> None:
    trainer = next(job for job in lab.live.values() if job.wish.name == "rl-math")
    task = TaskWish("batch", 1, 8, 64 * GIB, 1, True, "evaluation", (make_life(0.6 * HOUR),))
    wish = JobWish("eval-rl-math", ME, "leo", "gpu", (task,), 7200, account="rl", priority=1500, after=trainer.id)
    lab.submit(write_script(wish))


def _work(output: str, life: Life) -> TaskWish:
    return TaskWish("batch", 1, 4, 16 * GIB, 0, True, output, (life,))


def _suspend(lab: DemoLab, name: str) -> None:
    """An operator needs the machine for a moment."""
    job = next((job for job in lab.live.values() if job.name == name and job.state == "RUNNING"), None)
    if job is not None:
        lab.suspend_job(job, "root")


def _single(name: str, user: str, place: tuple[str, str], task: TaskWish, priority: int = 1500) -> JobWish:
    return JobWish(name, user, *place, (task,), 8 * 3600, account=ACCOUNTS[user], priority=priority)


_LEO, _CPU, _ALPS, _ORBIT = ("leo", "gpu"), ("leo", "cpu"), ("alps", "normal"), ("orbit", "orbit")
_LOST = Life(1.4 * HOUR, "node", detail="no heartbeat for 60 s")
_RL_MATH = JobWish(
    "rl-math",
    ME,
    *_LEO,
    (
        TaskWish("trainer", 1, 64, 512 * GIB, 8, True, "policy", (make_life(19 * HOUR),), 30, "rollout"),
        TaskWish("rollout", 2, 16, 128 * GIB, 4, False, "rollout", (_LOST, make_life(99 * HOUR)), 20, most=6),
        TaskWish("reward", 1, 16, 64 * GIB, 0, False, "reward", (make_life(99 * HOUR),), 8),
    ),
    24 * 3600,
    group=True,
    account="rl",
    qos="high",
    priority=9000,
)
_RL_CODE = JobWish(
    "rl-code",
    "ben",
    *_ORBIT,
    (
        TaskWish("trainer", 1, 32, 256 * GIB, 4, True, "policy", (make_life(11 * HOUR),), 30, "rollout"),
        TaskWish("rollout", 2, 8, 64 * GIB, 2, False, "rollout", (make_life(99 * HOUR),), 20),
        TaskWish("sandbox", 2, 8, 32 * GIB, 0, False, "reward", (make_life(99 * HOUR),), 8),
    ),
    12 * 3600,
    group=True,
    account="rl",
    priority=9000,
)
_SWEEP = JobWish(
    "sweep-lr",
    ME,
    *_LEO,
    (TaskWish("batch", 1, 8, 64 * GIB, 1, True, "training", (make_life(900),)),),
    3600,
    array=tuple(range(64)),
    throttle=6,
    account="rl",
    priority=6000,
)
_DOCK = JobWish(
    "dock-ligands",
    "emil",
    *_CPU,
    (TaskWish("batch", 1, 8, 16 * GIB, 0, True, "simulation", (make_life(240),)),),
    1800,
    array=tuple(range(400)),
    throttle=10,
    account="md",
    priority=6000,
)
_STORY: tuple[tuple[float, tuple[JobWish, ...]], ...] = (
    (14.0, (_RL_MATH,)),
    (9.0, (_RL_CODE,)),
    (
        3.1,
        (
            _single(
                "rna-fold",
                "emil",
                _CPU,
                TaskWish("batch", 1, 24, 96 * GIB, 0, True, "simulation", (make_life(6 * HOUR),)),
                7000,
            ),
        ),
    ),
    (2.2, (_SWEEP,)),
    (1.5, (_DOCK,)),
    (
        0.4,
        (
            _single(
                "pretrain-7b", "jonas", _ALPS, TaskWish("batch", 12, 256, 700 * GIB, 4, True, "training"), 2400
            )._replace(blocked="AssocGrpGRES", blocked_for=5 * HOUR),
            _single("llama-sft-70b", "jonas", _LEO, TaskWish("batch", 4, 64, 512 * GIB, 8, True, "training"), 2200),
            _single("report-weekly", "fatima", _CPU, TaskWish("batch", 1, 4, 16 * GIB, 0, True, "data"))._replace(
                begin_in=5.5 * HOUR
            ),
            _single("grid-probe", "chen", _LEO, TaskWish("batch", 1, 16, 64 * GIB, 2, True, "training"))._replace(
                held=True
            ),
        ),
    ),
    (
        0.3,
        (
            _single("ablate-kl", ME, _CPU, _work("evaluation", make_life(1050, "exit")), 8000),
            _single("clip-crops", "chen", _CPU, _work("data", make_life(1040, "node")), 8000),
            _single("bpe-vocab", "jonas", _CPU, _work("data", make_life(1060, "memory")), 8000),
        ),
    ),
    (0.02, (_single("nb-figures", ME, ("local", "local"), TaskWish("batch", 1, 4, 8 * GIB, 1, True, "evaluation")),)),
)
"""What is submitted how many hours before the first look, on top of the daily traffic."""
