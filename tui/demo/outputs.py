"""What the work of the simulated lab prints: lines with their time, a pure function of a seed.

Each kind yields (seconds after the start, bytes) for ever; how much of it there is at a time is the log's size then.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Callable, Iterator
from random import Random

from overspan.tui.demo.records import Life

Printed = Iterator[tuple[float, bytes]]
LATE_SECONDS = 600.0
"""For how long each write has a time; of older ones some have."""
GREEN, YELLOW, CYAN, RED, DIM, OFF = "\x1b[32m", "\x1b[33m", "\x1b[36m", "\x1b[31m", "\x1b[2m", "\x1b[0m"


def _line(at: float, text: str) -> tuple[float, bytes]:
    return at, text.encode() + b"\n"


def _print_training(chance: Random) -> Printed:
    """Steps with their loss, and a checkpoint now and then."""
    yield _line(0.4, f"{DIM}torch 2.9.1  cuda 13.0  nccl 2.28{OFF}")
    yield _line(1.9, "world size 16  dp 4 x tp 4  bf16  global batch 512")
    yield from _print_bar(2.0, 12.0, "loading shards", 24)
    begin, noise = 15.0, chance.uniform(0.02, 0.05)
    for step in itertools.count(10, 10):
        at = begin + step * 0.45
        loss = 1.15 + 2.4 * math.exp(-step / 900) + chance.gauss(0, noise)
        rate = chance.gauss(182_400, 2_300)
        grad = abs(chance.gauss(0.8, 0.15))
        yield _line(at, f"step {step:>6}  loss {GREEN}{loss:.4f}{OFF}  grad {grad:.2f}  lr 3.0e-05  {rate:,.0f} tok/s")
        if chance.random() < 0.01:
            yield _line(at + 0.1, f"{YELLOW}warning: loss spike, {grad * 6:.1f} grad norm was clipped to 1.0{OFF}")
        if step % 500 == 0:
            yield from _print_bar(at + 0.2, 4.0, f"checkpoint {step}", 16)
            yield _line(at + 4.3, f"{CYAN}saved{OFF} ckpt/step-{step}  14.9 GiB")


def _print_bar(begin: float, seconds: float, title: str, total: int, leave: bool = True) -> Printed:
    """A progress bar that is written over and over, as tqdm does; what comes next is written over it without `leave`.

    What comes next has to begin with a carriage return then.
    """
    for done in range(total + 1):
        filled = "█" * (20 * done // total)
        text = f"\r{title}: {100 * done // total:>3}%|{filled:<20}| {done}/{total}"
        yield begin + seconds * done / total, (text + ("\n" if done == total and leave else "")).encode()


def _print_rollout(chance: Random) -> Printed:
    """Requests that a server answers."""
    yield _line(0.5, "INFO  vllm 0.14.0  model qwen3-8b  tensor parallel 4")
    yield from _print_bar(1.0, 18.0, "loading safetensors", 8)
    yield _line(20.0, f"INFO  {GREEN}listening on 0.0.0.0:8001{OFF}")
    at = 21.0
    for batch in itertools.count(1):
        at += chance.uniform(7.0, 16.0)
        tokens, hit = chance.randint(18_000, 64_000), chance.uniform(41, 78)
        yield _line(at, f"INFO  batch {batch:>5}  64 prompts  {tokens:>6} tokens  prefix cache {hit:.1f} %")
        if chance.random() < 0.03:
            yield _line(at + 0.2, f"{YELLOW}WARN  3 sequences were preempted, KV cache 97 % full{OFF}")


def _print_reward(chance: Random) -> Printed:
    """Scores of what the rollout has made."""
    yield _line(0.3, "reward model math-verify 1.4, 32 workers")
    at = 8.0
    for batch in itertools.count(1):
        at += chance.uniform(8.0, 16.0)
        mean = 0.78 - 0.55 * math.exp(-batch / 400) + chance.gauss(0, 0.02)
        yield _line(at, f"scored batch {batch:>5}  mean {mean:.3f}  correct {max(0, int(mean * 64)):>2}/64")


def _print_policy(chance: Random) -> Printed:
    """Steps of reinforcement learning."""
    yield _line(0.6, "GRPO  qwen3-8b  group size 8  kl 0.001")
    yield _line(22.0, f"{GREEN}rollout-0.rl-math:8001 and rollout-1.rl-math:8001 answer{OFF}")
    for step in itertools.count(1):
        at = 23.0 + step * 41.0
        reward = 0.78 - 0.55 * math.exp(-step / 120) + chance.gauss(0, 0.012)
        yield from _print_bar(at - 36.0, 30.0, f"step {step:>4}  rollouts", 12, leave=False)
        words = f"reward {GREEN}{reward:.3f}{OFF}  kl {abs(chance.gauss(0.021, 0.004)):.4f}"
        yield _line(at, f"\rstep {step:>4}  {words}  len {chance.gauss(1480, 60):.0f}  {chance.gauss(41, 1.2):.1f} s")
        if step % 25 == 0:
            yield _line(at + 2.0, f"{CYAN}eval{OFF}  gsm8k {reward + 0.12:.3f}  math500 {reward - 0.09:.3f}")


def _print_evaluation(chance: Random) -> Printed:
    """A bar for each task of a benchmark."""
    yield _line(0.5, "harness 0.9.2  5-shot  batch 64")
    at = 4.0
    for number in itertools.count():
        name = ("algebra", "anatomy", "astronomy", "chemistry", "econometrics", "law", "logic", "virology")[number % 8]
        seconds = chance.uniform(18, 40)
        yield from _print_bar(at, seconds, f"{name:<12}", 30)
        yield _line(at + seconds, f"{name:<12} acc {chance.uniform(0.52, 0.86):.3f}")
        at += seconds + 1.0


def _print_simulation(chance: Random) -> Printed:
    """The table of a molecular dynamics run."""
    yield _line(0.2, "Reading topology: 418,233 atoms, 4 MPI ranks x 16 OpenMP threads")
    yield _line(2.0, "           Step           Time    Temp (K)   Pressure (bar)    ns/day")
    for step in itertools.count(5000, 5000):
        words = f"{chance.gauss(300, 0.6):11.2f}{chance.gauss(1.0, 24):17.2f}{chance.gauss(88, 1.5):10.1f}"
        yield _line(2.0 + step / 700, f"{step:>15}{step * 0.002:>15.1f}{words}")


def _print_data(chance: Random) -> Printed:
    """Files that are read one after another."""
    at = 0.5
    for shard in itertools.count():
        at += chance.uniform(3.0, 9.0)
        kept = chance.randint(210_000, 260_000)
        yield _line(at, f"shard-{shard:05d}.jsonl.zst  {kept:,} documents kept, {chance.randint(8, 30)} % dropped")


KINDS: dict[str, Callable[[Random], Printed]] = {
    "training": _print_training,
    "policy": _print_policy,
    "rollout": _print_rollout,
    "reward": _print_reward,
    "evaluation": _print_evaluation,
    "simulation": _print_simulation,
    "data": _print_data,
}
_LAST_WORDS = {
    "exit": """Traceback (most recent call last):
  File "/home/ana/lab/train.py", line 214, in <module>
    main()
  File "/home/ana/lab/train.py", line 188, in main
    batch = next(loader)
  File "/home/ana/lab/data.py", line 77, in __next__
    raise ValueError(f"shard {self.shard}: expected 2048 tokens, found {len(row)}")
\x1b[31mValueError: shard 118: expected 2048 tokens, found 1967\x1b[0m
""",
    "memory": """torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has 79.1 GiB
slurmstepd: error: Detected 1 oom_kill event. Some of the step tasks have been OOM Killed.
""",
    "signal": "Fatal Python error: Segmentation fault\n",
    "node": "NCCL WARN NET/IB : Got completion from peer with status=12 opcode=0 len=0 vendor err 129\n",
    "time": "slurmstepd: error: *** STEP CANCELLED DUE TO TIME LIMIT ***\n",
    "cancel": "received SIGTERM, writing a last checkpoint\n",
    "success": "\x1b[32mdone\x1b[0m\n",
}


def last_words(life: Life) -> bytes:
    """What is printed at the end."""
    return _LAST_WORDS.get(life.end, "").encode()


class GrowingLog:
    """A log as it was at any time so far; it is made as far as it is asked for."""

    def __init__(self, kind: str, seed: str) -> None:
        self._printed = KINDS[kind](Random(seed))
        self._data = bytearray()
        self._ends: list[tuple[float, int]] = []
        """When it had how many bytes."""
        self._next = next(self._printed)

    def size_after(self, seconds: float) -> int:
        """How many bytes were printed in the first so many seconds."""
        while self._next[0] <= seconds:
            at, data = self._next
            self._data += data
            self._ends.append((at, len(self._data)))
            self._next = next(self._printed)
        count = bisect_right(self._ends, seconds, key=lambda end: end[0])
        return self._ends[count - 1][1] if count else 0

    def read(self, seconds: float) -> bytes:
        """What was printed in the first so many seconds."""
        return bytes(self._data[: self.size_after(seconds)])

    def list_marks(self, seconds: float) -> list[tuple[float, int]]:
        """When it had how many bytes: each write of the last minutes, before that about every half a minute."""
        self.size_after(seconds)
        marks: list[tuple[float, int]] = []
        for at, size in self._ends:
            late = at > seconds - LATE_SECONDS
            if at <= seconds and (late or not marks or at - marks[-1][0] >= 30):
                marks.append((at, size))
        return marks
