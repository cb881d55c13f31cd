"""The manifests of a launch, rendered from the plan that its anchor keeps."""

from __future__ import annotations

import yaml
from tests.unit.adapters.kubernetes.samples import configure, make_launch, read_file, render_job

from overspan.adapters.kubernetes.launches.gang import GangBackend
from overspan.adapters.kubernetes.launches.launches import parse_anchor
from overspan.adapters.kubernetes.manifests.rendering import plan_launch
from overspan.adapters.kubernetes.planning import render_kept

FILE = """\
name: fit
envs: {HF_TOKEN: hf_abc, EPOCHS: "3"}
secrets: {KEYED: geheim}
run: 'true'
"""


def test_the_kept_plan_gives_the_manifests_that_were_sent_without_secrets() -> None:
    job, settings = read_file(FILE, 42), configure()
    sent = render_job(job, settings)
    text = render_kept(parse_anchor(sent.anchor), settings)
    assert "hf_abc" not in text and "geheim" not in text
    shown = {item["kind"]: item for item in yaml.safe_load_all(text) if item}
    assert shown["Pod"]["metadata"]["name"] == sent.pods[0]["metadata"]["name"]
    variables = {each["name"]: each.get("value") for each in shown["Pod"]["spec"]["containers"][0]["env"]}
    assert (variables["HF_TOKEN"], variables["EPOCHS"]) == ("***", "3")
    assert plan_launch(make_launch(job), settings, GangBackend.SOFT).token in text
