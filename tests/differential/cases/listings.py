"""squeue, sacct and sinfo: filters, formats, unknown ids and wrong options (reference: their man pages)."""

from __future__ import annotations

from tests.differential.case import HELD, WRAP, Case, case, lists, over, step

LISTS = lists(__file__)
# {1} is a held job named `first` of 2 tasks and 90 minutes, {2} a held array 0-4%2 named `second`, {3} begins later.
THREE = (
    f"{HELD} -J first -n 2 -t 90 --mem=100 --comment=note {WRAP}", f"{HELD} -J second -a 0-4%2 -t 1-2 {WRAP}",
    f"sbatch -J third-with-a-long-name --begin=2031-05-06T07:08:09 -t 5 -c 2 --gres=gpu:1 {WRAP}",
)  # fmt: skip


def _verb(line: str) -> str:
    verb, _, words = line.partition(" ")
    return f"{verb}/{words}"


def _three(line: str) -> Case:
    known = step("sacct -n -X -j {1},{2} -o JobID", until=r"\d.*\n.*\d")
    waits = (known,) if line.startswith("sacct") else ()
    return case(f"{_verb(line)}/of-three", *THREE, *waits, line)


def _ran(line: str, code: int) -> Case:
    settled = step("sacct -n -X -P -j {1} -o State", until="^(COMPLETED|FAILED)")
    return case(
        f"{_verb(line)}/ended-{code}", f"sbatch -J ended --mem=10 -o o --wrap 'exit {code}'", over(), settled, line
    )


CASES: list[Case] = [
    *(case(f"squeue/{words}", f"squeue {words}") for words in LISTS["squeue"]),
    *(case(f"sacct/{words}", f"sacct {words}") for words in LISTS["sacct"]),
    *(case(f"sinfo/{words}", f"sinfo {words}") for words in LISTS["sinfo"]),
    *(_three(line) for line in LISTS["of-three"]),
    *(_ran(line, code) for line in LISTS["ran"] for code in (0, 3)),
    case("squeue/variable/format", *THREE, step("squeue -h -j {1}", SQUEUE_FORMAT="%i %j")),
    case("squeue/variable/format2", *THREE, step("squeue -h -j {1}", SQUEUE_FORMAT2="JobID:5,Name")),
    case("squeue/variable/format-and-option", *THREE, step("squeue -h -j {1} -o %t", SQUEUE_FORMAT="%i %j")),
    case("squeue/variable/states", *THREE, step("squeue -h -j {1}", SQUEUE_STATES="R")),
    case("squeue/variable/bad-states", step("squeue -h", SQUEUE_STATES="nonsense")),
    case("squeue/variable/sort", *THREE, step("squeue -h -j {1},{2} -o %j", SQUEUE_SORT="-j")),
    case("squeue/variable/users", step("squeue -h -n none", SQUEUE_USERS="no-such-user")),
    case("squeue/variable/partition", step("squeue -h", SQUEUE_PARTITION="nowhere")),
    case("squeue/variable/time-format", *THREE, step("squeue -h -j {3} -o %S", SLURM_TIME_FORMAT="%Y")),
    case("squeue/variable/bits", f"{HELD} -a 0-100:7 {WRAP}", step("squeue -h -j {1} -o %i", SLURM_BITSTR_LEN="8")),
    case(
        "squeue/array-long",
        f"{HELD} -a 0-100:7 {WRAP}",
        "squeue -h -j {1} -o %i",
        "squeue -h -j {1} -o %.30i",
        "squeue -h -j {1} -O JobArrayID:60,ArrayTaskID:60",
    ),
    case("sacct/variable/format", step("sacct -X -j 999999", SACCT_FORMAT="jobid,state")),
    case("sinfo/variable/format", step("sinfo -h", SINFO_FORMAT="%P")),
]
