#!/usr/bin/env bash
# Runs examples/rlhf on the local cluster with a daemon of its own, and shows what came of it.
set -euo pipefail
bin=$(realpath -s "$1")
cd "$(dirname "$0")/rlhf"
export PATH="$bin:$PATH" PYTHON="$bin/python3"
if [ -z "${SPAN_STATE_DIR:-}" ]; then
    SPAN_STATE_DIR=$(mktemp -d)
    made=$SPAN_STATE_DIR
fi
export SPAN_STATE_DIR
trap 'span shutdown >/dev/null 2>&1 || true; rm -rf "${made:-}"' EXIT

job=$(span submit rlhf.yaml -M local --parsable)
echo "job $job: data server, two rollout servers, reward server, replay buffer, trainer"
for _ in $(seq 50); do
    [ -n "$(span squeue -h -j "$job" -t R)" ] && break
    sleep 0.1
done
span squeue
span logs "$job" ppo-trainer -f
code=0
span wait "$job" || code=$?
span sacct -j "$job" -X -o JobID,JobName%16,State,ExitCode,Elapsed
exit "$code"
