"""sbatch's --export in pods: what of a script's environment travels, and how."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.adapters.kubernetes.samples import configure, main_of, read_script, render_job

from overspan.adapters.kubernetes.launches.gang import GangBackend
from overspan.adapters.kubernetes.manifests.exporting import CLUSTER, MACHINE, SESSION, choose_exported
from overspan.adapters.kubernetes.manifests.rendering import Objects
from overspan.adapters.kubernetes.planning import list_notes, render_plan
from overspan.adapters.kubernetes.settings import Settings
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.job import Job

HERE = {"SEED": "7", "USER": "ada", "HOME": "/home/ada", "PATH": "/opt/cuda/bin", "DISPLAY": ":0"}
HOMES = {"homes": {"nfs": {"server": "nas", "path": "/home"}, "path": "/home", "shared": True}}


def script(*options: str, text: str = "#!/bin/sh\ntrue\n", **env: str) -> Job:
    return read_script(text, [*options, "train.sh"], env={**HERE, **env})


def chosen(job: Job, settings: Settings | None = None) -> dict[str, str]:
    return dict(choose_exported(job.spec.tasks[0], job.spec, settings or configure()).values)


def secret_of(objects: Objects) -> dict[str, str]:
    (secret,) = objects.exported
    return {name: base64.b64decode(value).decode() for name, value in secret["data"].items()}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), {"SEED": "7", "USER": "ada"}),
        (("--export=ALL",), {"SEED": "7", "USER": "ada"}),
        (("--export=ALL,MODE=fast",), {"SEED": "7", "USER": "ada", "MODE": "fast"}),
        (("--export=SEED,MODE=fast",), {"SEED": "7", "USER": "ada", "MODE": "fast"}),
        (("--export=ALL,PATH=/opt/bin",), {"SEED": "7", "USER": "ada", "PATH": "/opt/bin"}),
        (("--export=DISPLAY",), {"USER": "ada", "DISPLAY": ":0"}),
        (("--export=NONE",), {"USER": "ada"}),
    ],
)
def test_export_chooses_as_in_slurm_but_for_what_describes_the_machine(
    options: tuple[str, ...], expected: dict[str, str]
) -> None:
    found = chosen(script(*options))
    told = {name: value for name, value in found.items() if not name.startswith("SLURM_")}
    assert told == expected
    # Steps are told what was asked for, as in Slurm.
    asked = options[0].removeprefix("--export=") if options else "ALL"
    assert found.get("SLURM_EXPORT_ENV") == (None if asked == "ALL" else asked)


def test_a_cluster_can_take_what_describes_the_machine_too() -> None:
    found = chosen(
        script(CUDA_VISIBLE_DEVICES="3", SPAN_STATE_DIR="/s", LD_PRELOAD="x.so"), configure(environment="full")
    )
    assert found == {**HERE, "LD_PRELOAD": "x.so"}


def test_a_home_on_a_shared_volume_travels() -> None:
    assert chosen(script(), configure(volumes=HOMES))["HOME"] == "/home/ada"
    assert "HOME" not in chosen(script(HOME="/homes/ada"), configure(volumes=HOMES))


@pytest.mark.parametrize("pattern", [*MACHINE, *SESSION, *CLUSTER])
def test_nothing_of_the_machine_the_session_or_the_cluster_travels(pattern: str) -> None:
    name = pattern.replace("*", "ANY")
    assert name not in chosen(script(**{name: "x"}))
    assert name in chosen(script(f"--export=ALL,{name}", **{name: "x"}))


def test_values_are_in_a_secret_and_nowhere_else() -> None:
    job = script("--export=ALL,KEY=named-value", TOKEN="all-value")
    objects = render_job(job)
    assert {"TOKEN": "all-value", "KEY": "named-value"}.items() <= secret_of(objects).items()
    rest = repr([objects.anchor, objects.configs, objects.secret, objects.service, objects.pods])
    assert "all-value" not in rest and "named-value" not in rest and "TOKEN" not in rest
    (pod,) = objects.pods
    assert main_of(pod)["envFrom"] == [{"secretRef": {"name": objects.exported[0]["metadata"]["name"]}}]
    # It goes with the launch.
    assert objects.exported[0]["metadata"]["ownerReferences"][0]["name"] == objects.anchor["metadata"]["name"]
    plan = render_plan(job, configure(), GangBackend.SOFT)
    assert "TOKEN: <hidden>" in plan and "all-value" not in plan and "named-value" not in plan


def test_a_wide_script_takes_its_environment_below_what_its_pods_have_in_common() -> None:
    objects = render_job(script("-N", "17", TOKEN="all-value"))
    assert [next(iter(source)) for source in main_of(objects.pods[0])["envFrom"]] == ["secretRef", "configMapRef"]
    assert "all-value" not in repr([objects.anchor, objects.configs, objects.pods])


def test_an_environment_that_is_too_large_is_refused_with_its_largest_variables() -> None:
    large = {f"LARGE_{number}": "x" * (90 << 10) for number in range(6)}
    with pytest.raises(InvalidRequest, match=r"540 KiB, and 512 KiB travel.*LARGE_0 \(90 KiB\)") as caught:
        render_job(script(**large))
    assert "x" * 100 not in str(caught.value) and "--export" in caught.value.remedy


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"BASH_FUNC_module%%": "() { :; }"}, ""),
        ({"LATIN": "caf\udce9"}, "LATIN"),
        ({"LONG": "x" * (101 << 10)}, "LONG"),
    ],
)
def test_what_no_pod_can_have_stays_and_is_told_unless_it_is_the_shell_s(variables: dict[str, str], told: str) -> None:
    job = script(**variables)
    assert chosen(job) == {"SEED": "7", "USER": "ada"}
    render_job(job)
    notes = [note for note in list_notes(job, configure()) if "variables" in note]
    assert len(notes) == bool(told) and all(told in note for note in notes)


def test_a_named_variable_that_no_pod_can_have_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="the variable LATIN is not UTF-8"):
        render_job(script("--export=LATIN", LATIN="caf\udce9"))


def test_a_job_file_names_its_variables_itself() -> None:
    job: Any = script()
    task = replace(job.spec.tasks[0], form="run")
    assert choose_exported(task, job.spec, configure()).values == {}
