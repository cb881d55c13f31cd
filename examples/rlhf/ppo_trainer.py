"""PPO trainer: gathers experience from the other components, improves the policy and sends it back.

Starts from the newest complete checkpoint. On SIGTERM it saves one and ends with exit code 143.
Ends with 0 when the policy reached the target accuracy on held-out prompts, else with 1.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from checkpoints import load_newest_checkpoint, save_checkpoint
from policy import Adam, Experience, Weights, compute_gradient, make_weights, run_policy
from wire import Arrays, Peer, RefusedError, UnreachableError


@dataclass(frozen=True)
class TrainerState:
    """Everything a checkpoint holds. `accuracy_before` is that of the untrained policy."""

    step: int
    weights: Weights
    adam: Adam
    accuracy_before: float

    def to_arrays(self) -> Arrays:
        arrays: Arrays = {
            "step": np.array(self.step),
            "updates": np.array(self.adam.updates),
            "accuracy_before": np.array(self.accuracy_before),
        }
        parts = {"weights": self.weights, "mean": self.adam.mean, "square": self.adam.square}
        return arrays | {f"{part}.{name}": value for part, values in parts.items() for name, value in values.items()}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> TrainerState:
        def part(prefix: str) -> Weights:
            return {key.removeprefix(prefix): value for key, value in arrays.items() if key.startswith(prefix)}

        adam = Adam(int(arrays["updates"]), part("mean."), part("square."))
        return cls(int(arrays["step"]), part("weights."), adam, float(arrays["accuracy_before"]))


class Trainer:
    """One policy and the services that help to train it."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.stopping = False
        self.data = self.reach(args.data_server)
        self.rollouts = [self.reach(address) for address in args.rollout_servers]
        self.reward = self.reach(args.reward_server)
        self.replay = self.reach(args.replay_buffer)
        self.threads = ThreadPoolExecutor(len(self.rollouts))
        self.state: TrainerState | None = None

    def reach(self, address: str) -> Peer:
        return Peer(address, self.args.patience, lambda: self.stopping)

    def stop(self, *_: object) -> None:
        """Signal handler: the step in hand is the last."""
        self.stopping = True

    def restore(self) -> TrainerState:
        """Return the newest checkpoint's state, or that of a new policy."""
        saved = load_newest_checkpoint(self.args.checkpoint_dir)
        if saved is not None:
            state = TrainerState.from_arrays(saved)
            print(f"resumed from step {state.step}", flush=True)
            return state
        weights = make_weights(np.random.default_rng(self.args.seed))
        return TrainerState(0, weights, Adam.start(weights), self.measure(weights))

    def measure(self, weights: Weights) -> float:
        """Return the accuracy on the held-out prompts, each answered with the likeliest answer."""
        held_out = self.data.call("/held-out", {})
        _, log_probs = run_policy(weights, held_out["images"])
        answers = log_probs.argmax(axis=1, keepdims=True)
        scores = self.reward.call("/score", {"ids": held_out["ids"], "answers": answers})
        return float(scores["rewards"].mean())

    def publish(self, state: TrainerState) -> None:
        """Send the policy to every rollout server."""
        list(self.threads.map(lambda peer: self.send_policy(peer, state), self.rollouts))

    def send_policy(self, peer: Peer, state: TrainerState) -> None:
        """Send the policy to one rollout server; its version is the step."""
        peer.call("/weights", {"version": np.array(state.step), **state.weights})

    def generate(self, peer: Peer, state: TrainerState, images: Arrays) -> Arrays:
        """Have one rollout server answer; one that was restarted gets the policy first."""
        request = {"version": np.array(state.step), "samples": np.array(self.args.samples), **images}
        try:
            return peer.call("/generate", request)
        except RefusedError:
            self.send_policy(peer, state)
            return peer.call("/generate", request)

    def collect(self, state: TrainerState) -> float:
        """Turn new prompts into experience in the replay buffer; return the mean reward."""
        prompts = self.data.call("/prompts", {"count": np.array(self.args.prompts)})
        shares = [{"images": share} for share in np.array_split(prompts["images"], len(self.rollouts))]
        replies = list(self.threads.map(lambda peer, share: self.generate(peer, state, share), self.rollouts, shares))
        answers = np.concatenate([reply["answers"] for reply in replies])
        log_probs = np.concatenate([reply["log_probs"] for reply in replies])
        rewards = self.reward.call("/score", {"ids": prompts["ids"], "answers": answers})["rewards"]
        # A call repeated after a lost answer adds the same experience twice, which does no harm.
        experience = {"images": prompts["images"], "answers": answers, "log_probs": log_probs, "rewards": rewards}
        self.replay.call("/add", experience)
        return float(rewards.mean())

    def improve(self, state: TrainerState) -> TrainerState:
        """Return the state after a few gradient steps on replayed experience."""
        batch = Experience(**self.replay.call("/sample", {"count": np.array(self.args.batch)}))
        weights, adam = state.weights, state.adam
        for _ in range(self.args.epochs):
            gradient = compute_gradient(weights, batch, self.args.clip)
            weights, adam = adam.ascend(weights, gradient, self.args.learning_rate)
        return TrainerState(state.step + 1, weights, adam, state.accuracy_before)

    def save(self) -> None:
        """Write a checkpoint of the newest state, if there is one."""
        if self.state is not None:
            save_checkpoint(self.args.checkpoint_dir, self.state.step, self.state.to_arrays())

    def run(self) -> float | None:
        """Train to the last step; return the final accuracy, or None when stopped by a signal."""
        self.state = state = self.restore()
        started, rewards = time.monotonic(), []
        accuracy = self.measure(state.weights)
        print(f"step {state.step:4d}  held-out accuracy {accuracy:.3f}", flush=True)
        self.publish(state)
        while state.step < self.args.steps:
            if self.stopping:
                return None
            rewards.append(self.collect(state))
            self.state = state = self.improve(state)
            self.publish(state)
            if state.step % self.args.report_every == 0 or state.step == self.args.steps:
                accuracy = self.measure(state.weights)
                line = f"step {state.step:4d}  held-out accuracy {accuracy:.3f}  mean reward {np.mean(rewards):.3f}"
                print(f"{line}  {time.monotonic() - started:.1f} s", flush=True)
                rewards.clear()
                self.save()
        return accuracy


def parse_arguments() -> argparse.Namespace:
    run_dir = Path(os.environ.get("OVERSPAN_RUN_DIR", "."))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--data-server", default="127.0.0.1:8000", metavar="HOST:PORT")
    parser.add_argument("--rollout-servers", default=["127.0.0.1:8001"], nargs="+", metavar="HOST:PORT")
    parser.add_argument("--reward-server", default="127.0.0.1:8002", metavar="HOST:PORT")
    parser.add_argument("--replay-buffer", default="127.0.0.1:8003", metavar="HOST:PORT")
    parser.add_argument("--checkpoint-dir", type=Path, default=run_dir / "checkpoints")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--report-every", type=int, default=50, help="steps between measurements, with a checkpoint")
    parser.add_argument("--prompts", type=int, default=32, help="new prompts a step")
    parser.add_argument("--samples", type=int, default=4, help="answers a prompt")
    parser.add_argument("--batch", type=int, default=64, help="replayed prompts a step")
    parser.add_argument("--epochs", type=int, default=2, help="gradient steps on each batch")
    parser.add_argument("--clip", type=float, default=0.2, help="how far a probability may move on one batch")
    parser.add_argument("--learning-rate", type=float, default=0.001)
    parser.add_argument("--target-accuracy", type=float, default=0.8)
    parser.add_argument("--patience", type=float, default=30.0, help="seconds to wait for a component that is away")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> int:
    args = parse_arguments()
    trainer = Trainer(args)
    signal.signal(signal.SIGTERM, trainer.stop)
    try:
        accuracy = trainer.run()
    except (UnreachableError, RefusedError) as error:
        trainer.save()
        print(f"ppo_trainer: {error}", file=sys.stderr)
        return 143 if trainer.stopping else 1
    if accuracy is None or trainer.state is None:
        trainer.save()
        print("stopped by SIGTERM, checkpoint saved", flush=True)
        return 143
    print(f"accuracy before {trainer.state.accuracy_before:.2f} after {accuracy:.2f}", flush=True)
    return 0 if accuracy >= args.target_accuracy else 1


if __name__ == "__main__":
    sys.exit(main())
