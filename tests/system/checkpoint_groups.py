"""Groups whose trainer writes checkpoints, each of which is evaluated."""

from __future__ import annotations

WATCH = """\
name: train
execution: parallel
primary_tasks: [trainer]
on_checkpoint:
  name: quality
  path: ckpt
  pattern: "step_{step:int}"
  ready: {marker: DONE}
  result: {file: result.json, score: accuracy}
  %s
  task:
    resources: {cpus: 0.5}
    run: |
      echo "of {checkpoint} $OVERSPAN_EVALUATION $OVERSPAN_STEP" >> evaluated
      %s
      echo "{\\"accuracy\\": 0.{step}}" > "$OVERSPAN_RESULT"
%s
---
name: trainer
resources: {cpus: 0.5}
run: |
  %s
"""
SAVE = "save() { mkdir -p ckpt/step_$1; echo $1 > ckpt/step_$1/weights; touch ckpt/step_$1/DONE; }"


def write_watch(run: str, *, keys: str = "", evaluate: str = ":", header: str = "") -> str:
    """A group with a trainer that runs this, and an evaluation with further keys."""
    return WATCH % (keys, evaluate, header, f"{SAVE}; {run}")
