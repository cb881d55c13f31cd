from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.adapters.slurm.samples import EXAMPLES, check_golden, read_file

from overspan.adapters.slurm.groups.packing import NodeSize
from overspan.adapters.slurm.groups.placement import plan_group
from overspan.adapters.slurm.groups.script import SupervisorHost, render_group, render_sruns
from overspan.adapters.slurm.planning import render_placement, render_submission
from overspan.adapters.slurm.rendering.script import RenderContext
from overspan.bridge.lifecycle.stages import split_stages
from overspan.bridge.model.job import Job

HOST = SupervisorHost(
    ("/usr/bin/python3", "-I", "-S", "/shared/overspan/lib/supervisor-1.pyz", "slurm", "/shared/overspan/runs/42", "0"),
    "/shared/overspan/runs/42/supervisor.0.log",
    "/shared/overspan/runs/42",
)
SMALL = NodeSize("", 32, 64_000, count=8)
LARGE = NodeSize("", 64, 256_000, 8, "h100", count=4)
HEADER = "name: learn\nexecution: parallel\nprimary_tasks: [trainer]\ntermination_delay: 20s\n"
TRAINER = (
    "---\nname: trainer\nnum_nodes: 2\ntime: 2h\nresources: {cpus: 60, memory: 200, accelerators: 'H100:8'}\nrun: t\n"
)


def render(job: Job, *sizes: NodeSize) -> str:
    plan = plan_group(job, sizes, ("h100",))
    return render_placement(plan, ("python3", "node")) + render_submission(
        render_group(job, plan, RenderContext("42.0"), HOST)
    )


def test_golden_demo_group_on_big_nodes() -> None:
    demo = read_file((EXAMPLES / "rlhf" / "rlhf.yaml").read_text(), 42)
    check_golden("group-demo.txt", render(demo, NodeSize("", 64, 256_000, count=3)))


def test_golden_two_shapes_are_a_hetjob() -> None:
    text = "---\nname: rollout\nnum_nodes: 3\ntime: 2h\nresources: {cpus: 32, memory: 60}\n"
    text += "slurm: {partition: cpu}\nrun: r\n"
    job = read_file(HEADER + text + TRAINER, 42)
    check_golden("group-hetjob.txt", render(job, LARGE, replace(SMALL, partition="cpu")))


def test_golden_share() -> None:
    text = "---\nname: data\ntime: 2h\nshare: trainer\nresources: {cpus: 2, memory: 8}\nrun: d\n"
    check_golden("group-share.txt", render(read_file(HEADER + text + TRAINER, 42), LARGE, SMALL))


def test_golden_spread() -> None:
    text = "---\nname: quiet\ntime: 1h\nspread: true\nresources: {cpus: 2}\nrun: q\n---\nname: log\ntime: 1h\nrun: l\n"
    job = read_file(HEADER + text + "---\nname: trainer\ntime: 2h\nrun: t\n", 42)
    check_golden("group-spread.txt", render(job, SMALL))


def test_a_group_is_never_requeued_and_its_orders_are_kept() -> None:
    job = read_file(
        "name: g\nexecution: parallel\nslurm: {requeue: true, mem: 1G, constraint: ib}\n"
        "---\nname: a\nrun: a\n---\nname: b\nrun: b\n"
    )
    job = replace(job, begin=1_900_000_000.0, nice=3, priority=2, held=True)
    submission = render_group(job, plan_group(job, (SMALL,)), RenderContext("42.0"), HOST)
    lines = submission.script.splitlines()
    for line in ("--no-requeue", "--begin=uts1900000000", "--nice=3", "--priority=2", "--hold", "--constraint=ib"):
        assert f"#SBATCH {line}" in lines
    assert "#SBATCH --requeue" not in lines and "#SBATCH --mem=1G" not in lines
    assert {"--requeue of `slurm:` has no effect in a group", "--mem of `slurm:` has no effect in a group"} <= set(
        submission.notes
    )


def test_a_group_waits_natively_for_the_ids_it_is_given() -> None:
    text = "name: g\nexecution: parallel\nneeds: afterok:12\n---\nname: a\nrun: a\n---\nname: b\nrun: b\n"
    job = read_file(text)
    plan = plan_group(job, (SMALL,))
    setting = RenderContext("42.0", dict.fromkeys(job.dependency.needs, "1012"))
    assert "#SBATCH --dependency=afterok:1012\n" in render_group(job, plan, setting, HOST).script
    assert "--dependency" not in render_group(job, plan, RenderContext("42.0"), HOST).script


def test_each_stage_of_a_group_asks_for_its_own_nodes_and_time() -> None:
    """A preparation of ten minutes on one CPU, then two hours of two whole nodes: no allocation holds both."""
    prepare = "---\nname: prepare\ntime: 10m\nresources: {cpus: 1}\nrun: p\n"
    job = read_file(HEADER + prepare + TRAINER.replace("run: t", "needs: ok:prepare\nrun: t"))
    first, second = (render(stage, LARGE, SMALL) for stage in split_stages(job))
    # With 30 s of grace and a minute of margin.
    assert "#SBATCH --time=00:11:30\n" in first and "#SBATCH --time=02:01:30\n" in second
    assert "#SBATCH --nodes=1\n" in first and "#SBATCH --nodes=2\n" in second
    assert "h100" not in first and "--gres=gpu:h100:8" in second
    whole = replace(job, stage=None)
    assert "--gres=gpu:h100:8" in render(whole, LARGE, SMALL)


@pytest.mark.parametrize("shared", [True, False])
def test_steps_name_their_nodes_memory_and_gpus(shared: bool) -> None:
    rest = "share: trainer\n" if shared else "slurm: {partition: cpu}\n"
    text = f"---\nname: data\ntime: 2h\nresources: {{cpus: 2, memory: 8}}\nrun: d\n{rest}"
    plan = plan_group(read_file(HEADER + TRAINER + text), (LARGE, replace(SMALL, partition="cpu")), ("h100",))
    (trainer,) = [step for step in plan.steps if step.task == "trainer"][:1]
    sruns = render_sruns(plan, trainer, ["wrapper", "x"])
    assert [words[-2:] for words in sruns] == [("wrapper", "x")] * 2
    assert [word for words in sruns for word in words if "nodelist" in word] == [
        "--nodelist=<0.0>",
        "--nodelist=<0.1>",
    ]
    for words in sruns:
        assert {"--exact", "--gres=gpu:h100:8", "--mem=204800M", "--cpus-per-task=60"} <= set(words)
        assert ("--het-group=0" in words) is plan.hetjob
