"""Learns from what rollout workers play. It takes whichever workers there are, and misses none that has gone."""

import json
import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor

from game import LEVERS, ROOMS
from members import running

STEPS = int(os.environ.get("STEPS", "120"))
PAUSE = float(os.environ.get("PAUSE", "0.1"))
EPISODES, RATE, PORT = 64, 8.0, 7100


def roll_out(address, policy, seed):
    """What one worker plays; None where it has gone, or is about to."""
    wish = {"policy": policy, "episodes": EPISODES, "seed": seed}
    try:
        with socket.create_connection((address, PORT), timeout=10) as connection:
            connection.sendall(json.dumps(wish).encode() + b"\n")
            return json.loads(connection.makefile().readline())
    except (OSError, ValueError):
        return None


policy = [[0.0] * LEVERS for _ in range(ROOMS)]
step = 0
with ThreadPoolExecutor(16) as threads:
    while step < STEPS:
        workers = running("rollout")
        asked = [
            threads.submit(roll_out, address, policy, step * 100 + number)
            for number, (_, address) in enumerate(workers)
        ]
        played = [answer for answer in (one.result() for one in asked) if answer]
        if not played:
            time.sleep(0.2)
            continue
        for room in range(ROOMS):
            for lever in range(LEVERS):
                slope = sum(answer["better"][room][lever] for answer in played) / len(played)
                policy[room][lever] += RATE * slope
        reward = sum(answer["reward"] for answer in played) / len(played)
        print(f"step {step}: reward {reward:.2f} from {len(played)} workers", flush=True)
        step += 1
        time.sleep(PAUSE)
print(f"learned: reward {reward:.2f}", flush=True)
