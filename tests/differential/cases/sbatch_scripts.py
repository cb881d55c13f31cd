"""Scripts and their directives, variables, precedence, dependencies, and what a running job sees."""

from __future__ import annotations

from tests.differential.case import HELD, WRAP, Case, case, lists, over, script, shown, step

LISTS = lists(__file__)
DIRECTIVES = {**LISTS["directives"], "long-line": f"#SBATCH -J x --comment={'y' * 5000}\n"}
SH = "#!/bin/sh\n"
BODIES = {
    "no-shebang": "true\n",
    "empty": "",
    "newline": "\n",
    "shebang-only": "#!/bin/sh\n",
    "shebang-blank": "#! /bin/sh\ntrue\n",
    "shebang-no-newline": "#!/bin/sh",
    "shebang-later": "\n#!/bin/sh\n",
    "dos": "#!/bin/sh\r\ntrue\r\n",
    "dos-one-line": "#!/bin/sh\necho a\r\n",
    "zero": "#!/bin/sh\necho \0\n",
    "not-utf8": "#!/bin/sh\necho \udcff\n",
}
PRECEDENCE = (
    ("name", "-J", "SBATCH_JOB_NAME", "%j", "a", "b", "c"),
    ("time", "-t", "SBATCH_TIMELIMIT", "%l", "5", "6", "7"),
    ("partition", "-p", "SBATCH_PARTITION", "%P", "local", "nowhere", "local"),
    ("array", "-a", "SBATCH_ARRAY_INX", "%K", "1", "2", "3"),
    ("account", "-A", "SBATCH_ACCOUNT", "%a", "x", "y", "z"),
    ("memory", "--mem", "SBATCH_MEM_PER_NODE", "%m", "10", "20", "30"),
    ("gres", "--gres", "SBATCH_GRES", "%b", "gpu:1", "gpu:2", "gpu:3"),
)
# {1} is a held job, {2} a held array, {3} the dependent one.
ECHO = f"{SH}echo out; echo err >&2\n"
# What one site has and another has not: names, ids and times.
SITE = "SUBMIT_HOST|CONF|TASK_PID|TOPOLOGY|JOB_(UID|GID|USER|GROUP|(START|END)_TIME)|WORKING_CLUSTER|GTIDS|NODE_ALIASES"
ENVIRONMENT = f"env | grep -E '^(SLURM|SBATCH|ENVIRONMENT)' | grep -vE '^SLURM_({SITE})' | sort"


def ran(name: str, options: str, body: str, **env: str) -> Case:
    """A job that runs to its end: sbatch's answer, the job's state and exit code, and the output."""
    ended = "^(COMPLETED|FAILED|CANCELLED|TIMEOUT)"
    return case(
        name,
        step(f"sbatch -J ran {options} -o out.txt job.sh", **env),
        over(),
        "cat out.txt",
        step("sacct -n -X -P -j {1} -o State", until=ended),
        "sacct -n -X -P -j {1} -o State,ExitCode",
        files={"job.sh": f"{SH}{body}\n"},
    )


CASES: list[Case] = [
    *(script(f"sbatch/directive/{name}", f"{SH}{text}", "%j|%l|%C|%K") for name, text in DIRECTIVES.items()),
    *(
        case(f"sbatch/body/{name}", f"{HELD} job.sh", shown("%j %t"), files={"job.sh": text})
        for name, text in BODIES.items()
    ),
    *(case(f"sbatch/body-stdin/{name}", step(HELD, stdin=text), shown("%j %t")) for name, text in BODIES.items()),
    case("sbatch/stdin", step(HELD, stdin=f"{SH}#SBATCH -t 7\ntrue\n"), shown("%j %l")),
    case("sbatch/dev-stdin", step(f"{HELD} /dev/stdin", stdin=f"{SH}true\n"), shown("%j")),
    case("sbatch/missing-script", f"{HELD} missing.sh"),
    case("sbatch/folder", f"{HELD} .", shown("%j")),
    case("sbatch/script-in-folder", f"{HELD} a/b.job", shown("%j"), files={"a/b.job": SH}),
    case("sbatch/wrap-and-arguments", f"{HELD} {WRAP} word"),
    case("sbatch/wrap-name", f"{HELD} {WRAP}", shown("%j")),
    case("sbatch/arguments-like-options", f"{HELD} job.sh -t 5 --nope", shown("%l"), files={"job.sh": SH}),
    case("sbatch/dash-dash", f"{HELD} -- job.sh -t 5", shown("%j %l"), files={"job.sh": SH}),
    *(
        case(
            f"sbatch/precedence/{name}/{kind}",
            step(f"{HELD} {words} job.sh", **env),
            shown(look),
            files={"job.sh": f"{SH}{line}"},
        )
        for name, option, variable, look, first, second, third in PRECEDENCE
        for kind, words, env, line in (
            ("environment", "", {variable: second}, f"#SBATCH {option} {third}\n"),
            ("command-line", f"{option} {first}", {variable: second}, f"#SBATCH {option} {third}\n"),
        )
    ),
    *(
        case(
            f"sbatch/variable/{name}={value}",
            step(f"{HELD} {WRAP}", **{name: value}),
            shown("%j|%l|%m|%b|%C|%D|%P|%a|%K"),
        )
        for name, values in LISTS["variables"].items()
        for value in values
    ),
    case("sbatch/variable/bad-with-exit-code", step(f"{HELD} -p nowhere {WRAP}", SLURM_EXIT_ERROR="9")),
    *(
        case(
            f"sbatch/dependency/{text or 'nothing'}",
            # A name of its own for each case: `singleton` looks at all jobs of a name.
            f"{HELD} -J dependent{place} {WRAP}",
            f"{HELD} -a 1-3 {WRAP}",
            f"sbatch -J dependent{place} -d '{text}' --begin=now+1hour {WRAP}",
            shown("%E|%r|%t", "{3}"),
        )
        for place, text in enumerate(LISTS["dependencies"])
    ),
    *(
        case(
            f"sbatch/pattern/{text}",
            step(f"sbatch -J ran -o '{text}' job.sh"),
            over(),
            step("sh -c 'ls | grep -v job.sh | sed s/$(hostname)/HOST/'"),
            shown("%t %r"),
            files={"job.sh": ECHO},
        )
        for text in LISTS["patterns"]
    ),
    case("sbatch/output/default", "sbatch job.sh", over(), "ls", files={"job.sh": ECHO}),
    case(
        "sbatch/output/array",
        "sbatch -a 1-2 job.sh",
        step("squeue -h -t all -j {1} -o %t", until="^CD\nCD$"),
        "ls",
        files={"job.sh": ECHO},
    ),
    case("sbatch/output/error-apart", "sbatch -o o -e e job.sh", over(), "cat o", "cat e", files={"job.sh": ECHO}),
    case("sbatch/output/none", "sbatch -o none job.sh", over(), "ls", files={"job.sh": ECHO}),
    case(
        "sbatch/output/input",
        "sbatch -i in -o o job.sh",
        over(),
        "cat o",
        files={"job.sh": f"{SH}cat\n", "in": "text\n"},
    ),
    case(
        "sbatch/output/append",
        "sbatch --open-mode=append -o o job.sh",
        over(),
        "cat o",
        files={"job.sh": ECHO, "o": "before\n"},
    ),
    case("sbatch/output/truncate", "sbatch -o o job.sh", over(), "cat o", files={"job.sh": ECHO, "o": "before\n"}),
    case(
        "sbatch/output/chdir",
        "sbatch -D sub -o o job.sh",
        over(),
        "ls sub",
        shown("%t %r"),
        files={"job.sh": ECHO, "sub/x": ""},
    ),
    case(
        "sbatch/output/missing-folder",
        "sbatch -o no/o job.sh",
        over(),
        shown("%t %r"),
        step("sacct -n -X -P -j {1} -o State", until="FAILED"),
        "sacct -n -X -P -j {1} -o State,ExitCode",
        files={"job.sh": ECHO},
    ),
    case("sbatch/wait/ok", f"sbatch --wait -o o {WRAP}"),
    case("sbatch/wait/code", "sbatch --wait -o o --wrap 'exit 3'"),
    case("sbatch/wait/signal", "sbatch --wait -o o --wrap 'kill -9 $$'"),
    case("sbatch/wait/array", "sbatch --wait -a 1-3 -o o --wrap 'exit $SLURM_ARRAY_TASK_ID'"),
    case("sbatch/wait/variable", step("sbatch -o o --wrap 'exit 4'", SBATCH_WAIT="1")),
    case("sbatch/wait/parsable", "sbatch --wait --parsable -o o --wrap 'exit 2'"),
    ran("sbatch/run/ok", "", "echo hello"),
    ran("sbatch/run/code", "", "exit 3"),
    ran("sbatch/run/code-255", "", "exit 255"),
    ran("sbatch/run/signal", "", "kill -TERM $$"),
    ran("sbatch/run/missing-program", "", "no-such-program"),
    ran("sbatch/run/arguments", "", 'echo "$#"'),
    ran("sbatch/run/environment", "", ENVIRONMENT),
    ran("sbatch/run/environment-sizes", "-n 2 -c 2 --mem=100 --gres=gpu:1 -t 10 --comment=x -A a", ENVIRONMENT),
    ran("sbatch/run/environment-mem-per-cpu", "-N1 --ntasks-per-node=2 --mem-per-cpu=50", ENVIRONMENT),
    case(
        "sbatch/run/environment-array",
        "sbatch -a 3-9:3%2 -o o-%a job.sh",
        step("squeue -h -r -t all -j {1} -o %t", until="^CD\nCD\nCD$"),
        "sh -c 'cat o-6 | grep -E \"ARRAY|JOB_NAME\"'",
        "squeue -h -r -t all -j {1} -S i -o '%i %F %K %j %t'",
        files={"job.sh": f"{SH}{ENVIRONMENT}\n"},
    ),
    *(
        ran(
            f"sbatch/export/{value}",
            f"--export={value}" if value != "default" else "",
            'echo "$MARK|$OTHER|$SLURM_EXPORT_ENV|$SLURM_GET_USER_ENV|${HOME:+home}"',
            MARK="mark",
            OTHER="other",
        )
        for value in (
            "default",
            "ALL",
            "NONE",
            "NIL",
            "MARK",
            "MARK,NEW=1",
            "MARK=changed",
            "ALL,MARK=changed",
            "MARK='a b'",
            "MARK=a=b",
            "NOTHERE",
            "none",
            "ALL,OTHER",
            "MARK=",
        )
    ),
    ran("sbatch/run/wrap-shell", "", "echo $0 | grep -c slurm_script"),
    ran("sbatch/run/umask", "", "umask"),
    case(
        "sbatch/run/kill-on-invalid",
        "sbatch -o o --wrap 'exit 1'",
        over(),
        f"sbatch -o o -d afterok:{{1}} --kill-on-invalid-dep=yes {WRAP}",
        step("squeue -h -t all -j {2} -o %t", until="CA"),
        shown("%t %r", "{2}"),
    ),
    case(
        "sbatch/run/never-satisfied",
        "sbatch -o o --wrap 'exit 1'",
        over(),
        f"sbatch -o o -d afterok:{{1}} {WRAP}",
        step("squeue -h -j {2} -o %r", until="Never"),
        shown("%t %r %E", "{2}"),
    ),
    case(
        "sbatch/run/after-ok",
        "sbatch -o o --wrap true",
        over(),
        f"sbatch -o o -d afterok:{{1}} {WRAP}",
        over("{2}"),
        shown("%t", "{2}"),
    ),
]
