"""`span pool`: pools of warm workers."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from overspan.bridge.cli.arguments import Parser, make_parser
from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.jobs.job_file_options import add_file_options, hide_secrets, read_changes
from overspan.bridge.cli.jobs.submit import read_job
from overspan.bridge.cli.output import say, write, write_json, write_table
from overspan.bridge.client import Submission
from overspan.bridge.model.errors import InvalidRequest, NotFound, Unreachable

_ABOUT = """\
Make, show and change pools of warm workers.

  span pool apply -p NAME FILE         make a pool of a file, or change it
  span pool apply -p NAME --workers N  change the number of workers alone
  span pool ls                         every pool
  span pool show NAME, status NAME     a pool with its workers
  span pool resize NAME N              N workers, or MIN-MAX, --class CLASS of one class; those that there are stay
  span pool drain NAME [WORKER...]     no more jobs for these workers; others take their places
  span pool delete NAME, down NAME     end a pool: --cancel or --requeue its jobs
  span pool logs NAME [WORKER]         what the set-up of a worker has printed
"""
_EXAMPLES = """\
  span pool apply -p gpu pool.yaml
  span submit -p gpu --num-jobs 10 job.yaml
  span sbatch --pool gpu script.sh
"""
_HEAD = ("POOL", "STATE", "WORKERS", "READY", "SIZE", "WAITING", "RUNNING", "")
_CLASSES = ("CLASS", "WORKERS", "READY", "SIZE", "WEIGHT", "")
_WORKERS = ("WORKER", "CLASS", "STATE", "CLUSTER", "WAY", "NODE", "JOBS", "")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0


def run(call: Invocation) -> int:
    """Do what the first word says."""
    verb, *words = call.words or ("",)
    work = _VERBS.get(verb)
    if work is None:
        parser = make_parser(call, _ABOUT, _EXAMPLES)
        parser.add_argument("verb", metavar="VERB", choices=[name for name in _VERBS if name != "work"])
        parser.parse_args(call.words)
        raise InvalidRequest(f"there is no `span pool {verb}`", remedy="`span pool --help` lists the verbs")
    return work(call, words)


# --- changing ---------------------------------------------------------------------------------------------------------


def _apply(call: Invocation, words: list[str]) -> int:
    parser = make_parser(call, "Make a pool of a file, or change the one of that name.", _EXAMPLES)
    parser.add_argument("-p", "--pool", required=True, metavar="NAME", help="name of the pool")
    parser.add_argument("file", metavar="FILE", nargs="?", default="", help="pool file (YAML); - is standard input")
    parser.add_argument("--workers", type=int, metavar="N", help="change the number of workers alone")
    add_file_options(parser)
    parser.add_argument("--json", action="store_true", help="print the pool as one JSON document")
    chosen = parser.parse_args(words)
    if bool(chosen.file) == (chosen.workers is not None):
        raise InvalidRequest("give a file, or --workers N without one", remedy=f"span pool apply -p {chosen.pool} FILE")
    notes: tuple[str, ...] = ()
    with call.client() as client:
        if chosen.workers is not None:
            pool = client.resize_pool(chosen.pool, chosen.workers, chosen.workers)
        else:
            pool, notes = client.apply_pool(chosen.pool, _make_submission(call, chosen, words))
    for note in notes:
        say(call, note)
    if chosen.json:
        write_json({"format": 1, "pool": pool})
    else:
        _say_size(pool)
    return 0


def _make_submission(call: Invocation, chosen: argparse.Namespace, words: Sequence[str]) -> Submission:
    changes = read_changes(call, chosen)
    return Submission(
        kind="job_file",
        text=read_job(chosen.file),
        file="stdin" if chosen.file == "-" else chosen.file,
        command=("span", "pool", "apply", *hide_secrets(tuple(words))),
        name=chosen.name,
        overrides=changes.overrides,
        env=changes.env,
        secrets=changes.secrets,
    )


def _resize(call: Invocation, words: list[str]) -> int:
    parser = make_parser(call, "Change the number of workers; those that there are stay.", _EXAMPLES)
    _add_name(parser)
    parser.add_argument("size", metavar="N|MIN-MAX", help="number of workers, or the lowest and the highest")
    parser.add_argument("--class", dest="worker_class", default="", metavar="CLASS", help="of this class alone")
    chosen = parser.parse_args(words)
    low, dash, high = chosen.size.partition("-")
    if not low.isdigit() or (dash and not high.isdigit()):
        raise InvalidRequest(f"{chosen.size!r} is no number of workers", remedy="write 5, or 0-10")
    with call.client() as client:
        pool = client.resize_pool(chosen.name, int(low), int(high or low), chosen.worker_class)
    _say_size(pool)
    return 0


def _drain(call: Invocation, words: list[str]) -> int:
    parser = make_parser(call, "Give workers no more jobs; each ends when it holds none.", _EXAMPLES)
    _add_name(parser)
    parser.add_argument("workers", metavar="WORKER", nargs="*", help="a worker, or its job; all where none is named")
    chosen = parser.parse_args(words)
    with call.client() as client:
        pool = client.drain_pool(chosen.name, [_read_worker(chosen.name, word) for word in chosen.workers])
    _write_workers(pool)
    return 0


def _delete(call: Invocation, words: list[str]) -> int:
    parser = make_parser(call, "End a pool and its workers.", _EXAMPLES)
    _add_name(parser)
    ends = parser.add_mutually_exclusive_group()
    ends.add_argument("--cancel", action="store_true", help="cancel its jobs")
    ends.add_argument("--requeue", action="store_true", help="have its jobs wait for a pool of that name")
    parser.add_argument("-y", "--yes", action="store_true", help="no effect: nothing is asked")
    chosen = parser.parse_args(words)
    with call.client() as client:
        jobs = client.delete_pool(chosen.name, "cancel" if chosen.cancel else "requeue" if chosen.requeue else "")
    what = f"; its {jobs} jobs {'wait' if chosen.requeue else 'are cancelled'}" if jobs else ""
    write(f"Pool {chosen.name} ends{what}\n")
    return 0


# --- looking ----------------------------------------------------------------------------------------------------------


def _list(call: Invocation, words: list[str]) -> int:
    parser = make_parser(call, "List the pools.", _EXAMPLES)
    parser.add_argument("--json", action="store_true", help="print them as one JSON document")
    chosen = parser.parse_args(words)
    with call.client() as client:
        pools = client.pools()
    if chosen.json:
        write_json({"format": 1, "pools": pools})
    else:
        write_table([_HEAD, *map(_row, pools)])
    return 0


def _show(call: Invocation, words: list[str]) -> int:
    parser = make_parser(call, "Show a pool with its workers.", _EXAMPLES)
    parser.add_argument("name", metavar="NAME", nargs="?", default="", help="name of the pool; all where it is missing")
    parser.add_argument("-p", "--pool", default="", metavar="NAME", help="the same")
    parser.add_argument("--json", action="store_true", help="print it as one JSON document")
    chosen = parser.parse_args(words)
    with call.client() as client:
        pools = client.pools(chosen.name or chosen.pool)
    if chosen.json:
        write_json({"format": 1, "pools": pools})
        return 0
    for pool in pools:
        write_table([_HEAD, _row(pool)])
        _write_classes(pool)
        _write_workers(pool)
    return 0


def _logs(call: Invocation, words: list[str]) -> int:
    from overspan.bridge.cli.jobs import logs

    parser = make_parser(call, "Show what the set-up of a worker has printed.", _EXAMPLES)
    _add_name(parser)
    parser.add_argument("worker", metavar="WORKER", nargs="?", default="", help="a worker, or its job; the newest one")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until it ends")
    chosen = parser.parse_args(words)
    with call.client() as client:
        job = _read_worker(chosen.name, chosen.worker) if chosen.worker else _find_newest(client, chosen.name)
    return logs.run(call._replace(verb="logs", words=(*(("-f",) if chosen.follow else ()), str(job))))


def _find_newest(client: Any, name: str) -> int:
    """The newest worker of a pool, one that has ended where none is left. Raises NotFound."""
    from overspan.bridge.client import JobFilter

    client.pools(name)
    rows = client.history(JobFilter(names=(f"{name}-worker",))).rows
    if not rows:
        raise NotFound(f"the pool {name} has had no worker yet", remedy=f"`span pool show {name}` says why")
    return max(int(row.id) for row in rows)


# --- the worker itself ------------------------------------------------------------------------------------------------


def _work(call: Invocation, words: list[str]) -> int:
    """Fetch the worker's application from the daemon and become it; for the jobs that workers are."""
    client, pause = call.client(), _FIRST_PAUSE
    # A daemon that is away comes back: none is started from here.
    client.autostart = False
    while True:
        try:
            data = client.worker_program()
            break
        except Unreachable:
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
    access = call.environment.get("SPAN_JOB_ACCESS", "")
    place = ("access", access) if access else ("socket", client.paths.socket)
    client.close()
    # Without a name: the worker keeps its program where it is removed with the worker.
    file = tempfile.TemporaryFile()  # noqa: SIM115 (the worker has it)
    file.write(data)
    file.flush()
    os.set_inheritable(file.fileno(), True)
    sys.stdout.flush()
    program = f"/proc/self/fd/{file.fileno()}"
    os.execv(sys.executable, [sys.executable, "-I", "-S", program, "worker", *place])
    return 1


# --- what is printed --------------------------------------------------------------------------------------------------


def _add_name(parser: Parser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the pool")


def _read_worker(pool: str, word: str) -> int:
    """The job of a worker that is named by it, or as a node of its pool. Raises InvalidRequest."""
    number = word[len(pool) + 1 :] if word.startswith(f"{pool}-") else word
    if not number.isdigit():
        raise InvalidRequest(f"{word!r} is no worker", remedy=f"`span pool show {pool}` lists them")
    return int(number)


def _word_size(pool: dict[str, Any]) -> str:
    low, high = pool["min_workers"], pool["max_workers"]
    return str(low) if low == high else f"{low}-{high}"


def _row(pool: dict[str, Any]) -> tuple[str, ...]:
    ready = sum(worker["state"] == "READY" for worker in pool["workers"])
    counts = (len(pool["workers"]), ready, _word_size(pool), pool["waiting"], pool["running"])
    return (pool["name"], pool["state"], *map(str, counts), pool["message"])


def _say_size(pool: dict[str, Any]) -> None:
    classes = ", ".join(f"{each['name']} {_word_size(each)}" for each in pool["classes"])
    write(f"Pool {pool['name']}: {_word_size(pool)} workers{f' ({classes})' if classes else ''}\n")


def _write_classes(pool: dict[str, Any]) -> None:
    rows = [
        (
            each["name"],
            str(each["workers"]),
            str(each["ready"]),
            _word_size(each),
            f"{each['weight']:g}",
            each["message"] or ("its cluster gives no workers now" if each["barred"] else ""),
        )
        for each in pool["classes"]
    ]
    if rows:
        write_table([_CLASSES, *rows])


def _write_workers(pool: dict[str, Any]) -> None:
    rows = [
        (
            worker["name"],
            worker["class"],
            worker["state"],
            worker["cluster"],
            worker.get("way", ""),
            worker["node"],
            ",".join(map(str, worker["jobs"])),
            worker["reason"] if worker["reason"] not in ("", "None") else "",
        )
        for worker in pool["workers"]
    ]
    if rows and not pool["classes"]:
        write_table([(head, *rest) for head, _, *rest in [_WORKERS, *rows]])
    elif rows:
        write_table([_WORKERS, *rows])


_VERBS = {
    "apply": _apply,
    "ls": _list,
    "list": _list,
    "show": _show,
    "status": _show,
    "resize": _resize,
    "drain": _drain,
    "delete": _delete,
    "down": _delete,
    "logs": _logs,
    "work": _work,
}
