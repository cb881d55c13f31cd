"""sbatch's options: which values are taken, which refused, and what becomes of them (reference: sbatch(1))."""

from __future__ import annotations

from tests.differential.case import HELD, WRAP, Case, case, lists, shown, step, table

LISTS = lists(__file__)
CASES: list[Case] = [
    *table("sbatch/time", "%l", LISTS["times"]),
    *table("sbatch/memory", "%m", LISTS["memory"]),
    *table("sbatch/array", "%i %K %t", LISTS["arrays"]),
    *table("sbatch/count", "%D %C %c", LISTS["counts"]),
    *table("sbatch/gpu", "%b %C", LISTS["gpus"]),
    *table("sbatch/place", "%P %a %q %R", LISTS["places"]),
    *table("sbatch/plain", "%j|%k|%y|%r", LISTS["plain"]),
    *table("sbatch/signal", "%i", LISTS["signals"]),
    *table("sbatch/begin", "%S %r", LISTS["begins"]),
    *table("sbatch/begin-word", "%t", LISTS["begin-words"]),
    *table("sbatch/deadline", "%t", LISTS["deadlines"]),
    *table("sbatch/prefix", "%j %l %C %D", LISTS["prefixes"]),
    # Slurm looks at whether a job can ever run only if it is not held.
    *(case(f"sbatch/impossible/{text}", f"sbatch {text} {WRAP}") for text in LISTS["impossible"]),
    case("sbatch/hold-release", f"{HELD} {WRAP}", shown("%t %r"), "scontrol release {1}", "scontrol hold {1}"),
    case("sbatch/quiet", f"sbatch -Q -J quiet --hold {WRAP}", "squeue -h -n quiet -o %j", "scancel -n quiet"),
    case("sbatch/parsable", f"sbatch --parsable --hold {WRAP}"),
    case("sbatch/version", "sbatch --version"),
    case("sbatch/version-letter", "sbatch -V"),
    case("sbatch/help", "sbatch --help"),
    case("sbatch/usage", "sbatch --usage"),
    case("sbatch/no-shell-for-wrap", "sbatch --hold --wrap ''"),
    case("sbatch/test-only", f"sbatch --test-only -n 2 {WRAP}"),
    case("sbatch/test-only-impossible", f"sbatch --test-only --mem=1T {WRAP}"),
    case("sbatch/test-only-partition", f"sbatch --test-only -p nowhere {WRAP}"),
    case("sbatch/het", f"sbatch --hold -n1 : -n2 {WRAP}", shown("%i %j %C")),
    case("sbatch/het-array", f"sbatch --hold -a 1-2 : -n2 {WRAP}"),
    case("sbatch/stdin-null", step("sbatch --hold", stdin="")),
]
