"""The sh program that runs beside a step's srun and passes signals on, for clusters where that is somewhere else."""

from __future__ import annotations


def render_guard(tell: str) -> str:
    """The program: `tell`, a function of sh, sends a signal by its name to what the step's folder, $1, says runs.

    It passes on the signals whose names it reads, one a line. At the end of its input it ends a step that still runs:
    then the user's command has gone, or the connection.
    """
    return f"""\
cd "$1" || exit 1
{tell}
while read -r name; do
    tell "$name"
done
tell TERM
for try in 1 2 3 4 5 6 7 8 9 10; do
    tell 0 || break
    sleep 1
done
tell KILL
cd /
rm -rf "$1"
"""
