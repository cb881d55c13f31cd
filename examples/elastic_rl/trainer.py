"""Learns from what rollout workers play. It takes whichever workers there are, and misses none that has gone."""

from __future__ import annotations

import json
import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from game import LEVERS, ROOMS, Table, make_table
from members import list_running

STEPS = int(os.environ.get("STEPS", "200"))
PAUSE = float(os.environ.get("PAUSE", "0.1"))
EPISODES, RATE, PORT = 64, 8.0, 7100


def roll_out(address: str, policy: Table, seed: int) -> dict[str, Any] | None:
    """What one worker plays; None where it has gone, or is about to."""
    wish = {"policy": policy, "episodes": EPISODES, "seed": seed}
    try:
        with socket.create_connection((address, PORT), timeout=10) as connection:
            connection.sendall(json.dumps(wish).encode() + b"\n")
            answer: dict[str, Any] = json.loads(connection.makefile().readline())
    except (OSError, ValueError):
        return None
    return answer


def improve(policy: Table, played: list[dict[str, Any]]) -> None:
    """Move the policy along the mean slope."""
    for room in range(ROOMS):
        for lever in range(LEVERS):
            policy[room][lever] += RATE * sum(answer["slope"][room][lever] for answer in played) / len(played)


def main() -> None:
    """Train for some steps."""
    policy, step, reward = make_table(), 0, 0.0
    with ThreadPoolExecutor(16) as threads:
        while step < STEPS:
            asked = [
                threads.submit(roll_out, address, policy, step * 100 + number)
                for number, (_, address) in enumerate(list_running("rollout"))
            ]
            played = [answer for answer in (one.result() for one in asked) if answer]
            if not played:
                time.sleep(0.2)
                continue
            improve(policy, played)
            reward = sum(answer["reward"] for answer in played) / len(played)
            print(f"step {step}: reward {reward:.2f} from {len(played)} workers", flush=True)
            step += 1
            time.sleep(PAUSE)
    print(f"learned: reward {reward:.2f}", flush=True)


if __name__ == "__main__":
    main()
