"""A task's image on a Slurm cluster: the words that run a program in it by Pyxis or Apptainer. Pure.

An image needs only /bin/sh. Nothing is installed in it, and once it is on the cluster no network is needed. Sources:
Pyxis' `srun --help`, enroot-import(1) for the names of images, apptainer-exec(1).
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from overspan.adapters.slurm.commands.options import native_options
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import TaskSpec
from overspan.bridge.runtime.slurm import images as marks

PYXIS, APPTAINER, NONE = "pyxis", "apptainer", "none"
RUNTIMES = (PYXIS, APPTAINER, NONE)

HOME = marks.HOME
"""Placeholder for the home on the nodes; the script's shell, or the member's agent, replaces it."""
HOSTS = marks.HOSTS
"""Placeholder for a member's hosts file; the agent on its node replaces it."""
FOLDER = marks.FOLDER
"""Placeholder for the run directory if the nodes share no folder: each node has its own."""
_HOSTS = "/etc/hosts"
_PREFIXES = ("container-", "no-container-")
_NOT_PYXIS = ("container-id", "container-image")
_SHARED = ("container-mounts", "container-workdir", "container-mount-home", "no-container-mount-home")
"""Options of Pyxis that Apptainer has too."""
_OVERLAP = (20, 11)
"""The first version of Slurm with --overlap; before, all steps overlapped (srun(1))."""
_AMD = re.compile(r"mi\d", re.IGNORECASE)
Value = TypeVar("Value")


@dataclass(frozen=True)
class Container:
    """How one task's programs run in an image; `image` is in the runtime's own syntax, paths are absolute.

    `mounts` are pairs of a path outside and one inside, `written` mounts in the user's own words (SRC:DST[:FLAGS]),
    `more` other options of Pyxis, without dashes. `gpus` is Apptainer's option for the node's GPUs.
    """

    runtime: str
    image: str
    mounts: tuple[tuple[str, str], ...] = ()
    written: tuple[str, ...] = ()
    workdir: str = ""
    home: bool = False
    gpus: str = ""
    more: tuple[str, ...] = ()


class ImagePlace(NamedTuple):
    """Where images run: the cluster's runtime, the task's directory, its run directory, and the home on the nodes.

    `hosts` is the group's hosts file on the node. Empty texts where there is none.
    """

    runtime: str = ""
    directory: str = ""
    run_dir: str = ""
    home: str = HOME
    hosts: str = ""


def _check_image(task: TaskSpec, runtime: str) -> None:
    what = f"the task {task.name!r} has the image {task.image}"
    if not runtime:
        raise InvalidRequest(
            f"{what}, and the cluster does not say how it runs images",
            remedy="set `containers` of the cluster to pyxis or apptainer, or take `image_id` out",
        )
    if runtime == NONE:
        raise InvalidRequest(
            f"{what}, and the cluster runs none (`containers: none`)",
            remedy="take `image_id` out, or set `containers` to pyxis or apptainer once the site has it",
        )
    if runtime == PYXIS and task.image.endswith(".sif"):
        raise InvalidRequest(
            f"{what}, which Pyxis cannot read", remedy="name the image of a registry, or a file made by enroot (.sqsh)"
        )
    if task.image.startswith("-") or not task.image.isprintable() or " " in task.image:
        raise InvalidRequest(f"{what}, which is not the name of an image", remedy="write docker:NAME:TAG, or a path")


def split_options(options: Mapping[str, Value]) -> tuple[dict[str, Value], dict[str, Value]]:
    """Split native options into those about a task's container (Pyxis' names) and the others."""
    about = {name: value for name, value in options.items() if name.startswith(_PREFIXES) and name not in _NOT_PYXIS}
    return about, {name: value for name, value in options.items() if name not in about}


def make_container(task: TaskSpec, about: Mapping[str, str], place: ImagePlace) -> Container | None:
    """How the task runs in its image; None for a task without one. `about` are its options about the container.

    Raises InvalidRequest for an image or an option that the cluster's runtime cannot use.
    """
    if not task.image:
        return None
    _check_image(task, place.runtime)
    unknown = [name for name in about if name not in _SHARED] if place.runtime == APPTAINER else []
    if unknown:
        raise InvalidRequest(
            f"the option {unknown[0]} of `slurm:` is one of Pyxis', and the cluster runs images with Apptainer",
            remedy=f"take it out; {', '.join(_SHARED[:3])} work with both",
        )
    directory = "" if place.directory in ("", "/") else place.directory
    return Container(
        place.runtime,
        _spell_image(task.image, place.runtime, directory),
        _list_mounts(task, place, directory),
        tuple(filter(None, about.get("container-mounts", "").split(","))),
        about.get("container-workdir", "") or directory,
        "container-mount-home" in about,
        _ask_gpus(task),
        tuple(f"{name}={value}" if value else name for name, value in about.items() if name not in _SHARED),
    )


def _spell_image(image: str, runtime: str, directory: str) -> str:
    """The name in the runtime's syntax: a path, a URI, or the name of an image in a registry (Docker's rule)."""
    if directory and image.startswith("./"):
        return posixpath.join(directory, image[2:])
    if image.startswith("~/"):
        return HOME + image[1:]
    if image.startswith(("/", "./")) or "://" in image:
        return image
    if runtime == APPTAINER:
        return f"docker://{image.replace('#', '/', 1)}"
    registry, slash, rest = image.partition("/")
    remote = slash and "#" not in image and ("." in registry or ":" in registry or registry == "localhost")
    return f"{registry}#{rest}" if remote else image


def _list_mounts(task: TaskSpec, place: ImagePlace, directory: str) -> tuple[tuple[str, str], ...]:
    def resolve(path: str) -> str:
        if path == "~" or path.startswith("~/"):
            return place.home + path[1:]
        return path if path.startswith(("/", f"{FOLDER}/")) else posixpath.join(directory or "/", path)

    pairs = [(path, path) for path in (directory, place.run_dir) if path]
    mounts = {**task.file_mounts, **task.volumes}
    pairs += [(resolve(source), resolve(target)) for target, source in mounts.items()]
    if place.hosts:
        pairs.append((place.hosts, _HOSTS))
    for path in (path for pair in pairs for path in pair):
        if re.search("[:,]", path):
            raise InvalidRequest(
                f"{path.replace(HOME, '~')} has ':' or ',' in it, and cannot be shown in the image of {task.name!r}",
                remedy="give the folder another name, or reach it by a link",
            )
    return tuple(dict.fromkeys(pairs))


def _ask_gpus(task: TaskSpec) -> str:
    kinds = [gpus.kind for gpus in task.resources.gpus if gpus.count]
    if not kinds:
        return ""
    return "--rocm" if _AMD.match(kinds[0]) else "--nv"


def pyxis_options(container: Container) -> tuple[str, ...]:
    """The options of the task's srun."""
    mounts = [*(f"{source}:{target}" for source, target in container.mounts), *container.written]
    words = [f"--container-image={container.image}"]
    words += [f"--container-mounts={','.join(mounts)}"] if mounts else []
    words += [f"--container-workdir={container.workdir}"] if container.workdir else []
    words.append("--container-mount-home" if container.home else "--no-container-mount-home")
    return (*words, *(f"--{option}" for option in container.more))


def apptainer_words(container: Container) -> tuple[str, ...]:
    """The words before the program's own."""
    mounts = [*(f"{source}:{target}" for source, target in container.mounts), *container.written]
    words = ["apptainer", "exec", *([] if container.home else ["--no-home"])]
    words += [f"--bind={mount}" for mount in mounts]
    words += [f"--pwd={container.workdir}"] if container.workdir else []
    return (*words, *([container.gpus] if container.gpus else []), container.image)


def member_words(
    job: Job, task: TaskSpec, runtime: str, run_dir: str, version: tuple[int, ...] = ()
) -> tuple[str, ...]:
    """The words that run a group's member in its image, with the placeholders above; empty without an image.

    For Apptainer they come before the program, which an agent starts on the node. Pyxis is part of srun, and would run
    the agent itself in the image: so they are options of a second step, which holds the container beside the agent's.
    Raises InvalidRequest.
    """
    if not task.image:
        return ()
    about, _ = split_options(native_options(job.spec, task).options)
    place = ImagePlace(runtime, task.workdir or job.spec.origin.directory, run_dir, HOME, HOSTS)
    container = make_container(task, about, place)
    if container is None:
        return ()
    if container.runtime == APPTAINER:
        return apptainer_words(container)
    overlap = () if version and version < _OVERLAP else ("--overlap",)
    # --mem=0: unpacking an image may use the memory of the whole job.
    return (*overlap, "--mem=0", *pyxis_options(container))


def without_images(job: Job) -> Job:
    """The group without images, as its supervisor gets it: the placement file has the words that run them.

    Paths that are mounted into an image need no link on the node; folders of volumes are still made.
    """
    if not any(task.image for task in job.spec.tasks):
        return job
    tasks = tuple(_without_image(task) if task.image else task for task in job.spec.tasks)
    return replace(job, spec=replace(job.spec, tasks=tasks, native=_without_options(job.spec.native)))


def _without_image(task: TaskSpec) -> TaskSpec:
    folders = {folder: folder for folder in task.volumes.values()}
    return replace(task, file_mounts={}, volumes=folders, native=_without_options(task.native))


def _without_options(native: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    return {kind: split_options(options)[1] if kind == "slurm" else options for kind, options in native.items()}


def quote_words(words: Sequence[str]) -> str:
    """Quote words for a script, with $HOME in place of its placeholder."""
    return " ".join(_quote_word(word) for word in words)


def _quote_word(word: str) -> str:
    if HOME not in word:
        return shlex.quote(word)
    return '"$HOME"'.join(shlex.quote(part) if part else "" for part in word.split(HOME))
