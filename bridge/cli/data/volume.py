"""`span volume apply|ls|delete`: volumes that outlive jobs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from overspan.bridge.cli.arguments import Parser, make_parser
from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import say, write, write_json, write_table
from overspan.bridge.client.submission import read_text
from overspan.bridge.model.errors import InvalidRequest

_ABOUT = """\
Make, list and remove volumes, which jobs mount by `volumes: {/PATH: NAME}`.

  span volume apply NAME --size 100    have a volume be there, of 100 GB
  span volume apply FILE               the same, of a volume file (YAML)
  span volume ls                       the volumes of all clusters
  span volume delete NAME              remove one with all that is in it
"""
_EXAMPLES = """\
  span volume apply ckpts --size 100
  span volume apply shared --size 2T --class nfs --access-mode ReadWriteMany -M kube
  span volume delete ckpts -M kube
"""
_HEAD = ("NAME", "CLUSTER", "KIND", "SIZE", "CLASS", "ACCESS", "STATUS", "USED BY")
_FILES = (".yaml", ".yml")


def run(call: Invocation) -> int:
    """Do what the first word says."""
    verb, *words = call.words or ("",)
    work = _VERBS.get(verb)
    if work is None:
        parser = make_parser(call, _ABOUT, _EXAMPLES)
        parser.add_argument("verb", metavar="VERB", choices=list(_VERBS))
        parser.parse_args(call.words)
        raise InvalidRequest(f"there is no `span volume {verb}`", remedy="`span volume --help` lists the verbs")
    return work(call, words)


def _apply(call: Invocation, words: list[str]) -> int:
    parser = make_parser(call, "Have a volume be there; a larger size lets it grow.", _EXAMPLES)
    parser.add_argument("target", metavar="NAME|FILE", nargs="?", default="", help="its name, or a volume file (YAML)")
    parser.add_argument("-n", "--name", default="", metavar="NAME", help="its name; goes before the file's")
    parser.add_argument("--size", default="", metavar="SIZE", help="GB, or with a unit: 500M, 10Gi, 2T")
    parser.add_argument("--class", dest="storage_class", default="", metavar="CLASS", help="storage class (Kubernetes)")
    parser.add_argument(
        "--access-mode", default="", metavar="MODE", help="ReadWriteOnce (default), or ReadWriteMany for several nodes"
    )
    parser.add_argument("--type", default="", metavar="TYPE", help="k8s-pvc: on the Kubernetes cluster")
    parser.add_argument("--infra", default="", metavar="INFRA", help="k8s, k8s/NAME, slurm or local, as in job files")
    _add_cluster(parser, "the default one")
    parser.add_argument("-y", "--yes", action="store_true", help="no effect: nothing is asked")
    parser.add_argument("--json", action="store_true", help="print the volume as one JSON document")
    chosen = parser.parse_args(words)
    name, file = _split_target(chosen.target)
    if name and chosen.name and name != chosen.name:
        raise InvalidRequest(f"the volume has two names, {name} and {chosen.name}", remedy="write one of them")
    name = chosen.name or name
    if not name and not file:
        raise InvalidRequest("name the volume, or a volume file", remedy="span volume apply NAME --size 100")
    options = {key: getattr(chosen, key) for key in ("size", "storage_class", "access_mode", "type", "infra")}
    text = read_text(file) if file else ""
    with call.client() as client:
        answer = client.volumes.apply(name, **options, cluster=chosen.cluster, text=text, file=file)
    volume = answer["volume"]
    _tell(call, answer["notes"], [volume])
    if chosen.json:
        write_json({"format": 1, "volume": volume, "done": answer["done"]})
    else:
        size = f" ({volume['size']})" if volume["size"] else ""
        write(f"Volume {volume['name']}{size} on {volume['cluster']}: {answer['done']}\n")
    return 0


def _list(call: Invocation, words: list[str]) -> int:
    parser = make_parser(call, "List the volumes of the clusters.", _EXAMPLES)
    _add_cluster(parser, "all")
    parser.add_argument("--json", action="store_true", help="print them as one JSON document")
    chosen = parser.parse_args(words)
    with call.client() as client:
        answer = client.volumes.list(chosen.cluster)
    volumes = answer["volumes"]
    if chosen.json:
        write_json({"format": 1, "volumes": volumes})
    else:
        write_table([_HEAD, *map(_row, volumes)])
    _tell(call, answer["notes"], volumes)
    return 0


def _delete(call: Invocation, words: list[str]) -> int:
    parser = make_parser(call, "Remove a volume with all that is in it; refused while live jobs mount it.", _EXAMPLES)
    parser.add_argument("names", metavar="NAME", nargs="+", help="its name")
    _add_cluster(parser, "the default one")
    parser.add_argument("-y", "--yes", action="store_true", help="no effect: nothing is asked")
    chosen = parser.parse_args(words)
    with call.client() as client:
        for name in chosen.names:
            cluster = client.volumes.delete(name, chosen.cluster)
            write(f"Volume {name} on {cluster}: deleted\n")
    return 0


def _add_cluster(parser: Parser, default: str) -> None:
    parser.add_argument("-M", "--cluster", default="", metavar="CLUSTER", help=f"the cluster; {default} without it")


def _split_target(target: str) -> tuple[str, str]:
    """The name or the file that a word is: a file has a folder or an ending of YAML."""
    is_file = target.endswith(_FILES) or os.sep in target
    return ("", target) if is_file else (target, "")


def _tell(call: Invocation, notes: Sequence[str], volumes: Sequence[dict[str, Any]]) -> None:
    """Say what had no effect or is not known, and what keeps volumes from use."""
    for note in notes:
        say(call, note)
    for volume in volumes:
        if volume["message"]:
            say(call, f"{volume['name']} is {volume['status']}: {volume['message']}")


def _row(volume: dict[str, Any]) -> tuple[str, ...]:
    keys = ("name", "cluster", "kind", "size", "storage_class", "access", "status")
    return (*(str(volume[key]) or "-" for key in keys), ",".join(map(str, volume["used_by"])) or "-")


_VERBS = {"apply": _apply, "create": _apply, "ls": _list, "list": _list, "delete": _delete, "rm": _delete}
