#!/usr/bin/env bash
# Builds sdist and wheel, installs the wheel where nothing else is, and runs one job from it.
set -euo pipefail
python=$(realpath -s "$1")
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
export SPAN_STATE_DIR="$work/state" SPAN_CONFIG="$work/none.yaml"
unset SPAN_RUNTIME_DIR
trap '"$work/venv/bin/span" shutdown >/dev/null 2>&1 || true; rm -rf "$work"' EXIT

cd "$root"
"$python" -m build --outdir "$work/dist" . >"$work/build.log" 2>&1 || { tail -n 40 "$work/build.log" >&2; exit 1; }
"$python" -m zipfile --list "$work"/dist/*.whl | awk '{print $1}' | grep -E '^overspan/(bridge|adapters|tui)/__init__.py$' | sort -u | wc -l | grep -qx 3 ||
    { echo "the wheel lacks packages" >&2; exit 1; }
"$python" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check "$work"/dist/*.whl
count=$("$work/venv/bin/pip" list --disable-pip-version-check 2>/dev/null | tail -n +3 | grep -cvE '^(pip|setuptools) ')
echo "packages installed without extras: $count"
[ "$count" -lt 35 ] || { echo "the bar is under 35 packages" >&2; exit 1; }
cd "$work"
"$work/venv/bin/span" --version
"$work/venv/bin/span" sbatch --wait --output="$work/hello.out" --wrap 'echo hello from $SLURM_JOB_ID'
grep -qx 'hello from 1' "$work/hello.out"
echo "the wheel works"
