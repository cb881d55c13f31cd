"""The environment that every task finds, on every cluster: Overspan's variables, Slurm's and SkyPilot's.

Pure, except for the group id of the user that runs the job.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from overspan.bridge.model.job import Element, Job, Placement
from overspan.bridge.model.names import dns_label, env_name, member_host, member_name
from overspan.bridge.model.records import NamedTuple, replace
from overspan.bridge.model.resources import MILLI
from overspan.bridge.model.slurm.hostlists import compress
from overspan.bridge.model.spec import Form, TaskSpec

_OWN_PREFIXES = ("OVERSPAN_", "SLURM_", "SLURMD_", "SKYPILOT_")

MEMBERS_FILE = "members.json"
"""The file in a run directory that says which members the group has now, where they come and go."""
SHIMS = "OVERSPAN_SHIMS"
"""The variable of a launch that names a folder with Slurm's commands; it comes first on the work's PATH."""


class NodeRunContext(NamedTuple):
    """One node run, and what the cluster adds for it."""

    task: str
    node: int
    attempt: int
    run: int
    run_dir: str
    cluster: str
    extra: Mapping[str, str]
    real_nodes: bool = False
    """Whether Slurm's variables name the cluster's nodes, and not members as their peers reach them."""


def domain_of(job: Job) -> str:
    """The domain of the members' names: the group's or job's name, or `job-N` where that cannot be one."""
    if job.spec.member is not None:
        return dns_label(job.spec.member.domain)
    try:
        return dns_label(job.spec.name)
    except ValueError:
        return f"job-{job.id}"


def list_members(job: Job) -> list[tuple[str, list[str]]]:
    """Address and names of each placed member, for the hosts file."""
    domain = domain_of(job)
    return [
        (place.address, [member_host(place.task, place.index, domain), member_name(place.task, place.index)])
        for place in list_places(job)
        if place.address
    ]


def list_places(job: Job) -> list[Placement]:
    """The places of all members of its group, under the indices that they have there: its own, then those elsewhere."""
    own = [replace(place, index=place.index + job.spec.first_index) for place in job.placements]
    known = {(place.task, place.index) for place in own}
    peers = [Placement(peer.task, peer.index, peer.node, peer.address) for peer in job.peers]
    return [*own, *(place for place in peers if (place.task, place.index) not in known)]


def list_names(job: Job) -> list[str]:
    """The tasks whose members the variables name: the job's own, and those of its group that are known."""
    return list(dict.fromkeys([*(task.name for task in job.spec.tasks), *(peer.task for peer in job.peers)]))


def build_environment(job: Job, place: NodeRunContext) -> dict[str, str]:
    """All variables of one node run, secrets included."""
    spec = job.spec_of(place.task)
    environment = {name: value for name, value in job.spec.environment.items() if not name.startswith(_OWN_PREFIXES)}
    environment.setdefault("PATH", "/usr/local/bin:/usr/bin:/bin")
    environment.update(spec.env)
    environment.update(spec.secrets)
    environment.update(_overspan(job, place))
    environment.update(_slurm(job, spec, place))
    environment.update(_skypilot(job, spec, place))
    environment.update(place.extra)
    if place.extra.get(SHIMS):
        environment["PATH"] = f"{place.extra[SHIMS]}:{environment['PATH']}"
    return environment


def _overspan(job: Job, place: NodeRunContext) -> dict[str, str]:
    domain = domain_of(job)
    own = _placement(job, place)
    index = place.node + job.spec.first_index
    variables = {
        "OVERSPAN_JOB_ID": str(job.id),
        "OVERSPAN_GROUP": group_of(job),
        "OVERSPAN_TASK": place.task,
        "OVERSPAN_NODE_INDEX": str(index),
        "OVERSPAN_NUM_NODES": str(count_members(job, place.task)),
        "OVERSPAN_ATTEMPT": str(place.attempt),
        "OVERSPAN_RUN_DIR": place.run_dir,
        "OVERSPAN_HOST": member_host(place.task, index, domain),
        "OVERSPAN_ADDR": own.address,
        "OVERSPAN_MEMBERS": ",".join(member_host(item.task, item.index, domain) for item in list_places(job)),
    }
    for task in list_names(job):
        members = _members(job, task)
        name = env_name(task)
        variables[f"OVERSPAN_{name}_HOSTS"] = ",".join(member_host(task, item.index, domain) for item in members)
        variables[f"OVERSPAN_{name}_ADDRS"] = ",".join(item.address for item in members)
    if job.spec.changes_size:
        variables["OVERSPAN_MEMBERS_FILE"] = f"{place.run_dir}/{MEMBERS_FILE}"
    return variables


def group_of(job: Job) -> str:
    """The name of the group that a job is, or is a member of; empty for others."""
    if job.spec.member is not None:
        return job.spec.member.domain
    return job.spec.name if job.spec.group else ""


def count_members(job: Job, task: str) -> int:
    """How many members a task has: by its spec, or, where members come and go, as far as they are known."""
    own = job.spec_of(task).num_nodes
    return max(own, len(_members(job, task))) if job.spec.changes_size else own


def _skypilot(job: Job, spec: TaskSpec, place: NodeRunContext) -> dict[str, str]:
    addresses = "\n".join(item.address for item in _members(job, place.task))
    variables = {
        "SKYPILOT_NODE_RANK": str(place.node + job.spec.first_index),
        "SKYPILOT_NODE_IPS": addresses,
        "SKYPILOT_NUM_NODES": str(count_members(job, place.task)),
        "SKYPILOT_NUM_GPUS_PER_NODE": str(len(_placement(job, place).gpus)),
        "SKYPILOT_TASK_ID": f"overspan-{job.id}-{place.task}",
        "SKYPILOT_TASK_IDS": "\n".join(f"overspan-{job.id}-{task.name}" for task in job.spec.tasks),
        "SKYPILOT_MANAGED_JOB_ID": str(job.id),
        "SKYPILOT_ROOT_JOB_ID": str(job.id),
        **rank_job(job),
    }
    if group_of(job):
        variables["SKYPILOT_JOBGROUP_NAME"] = group_of(job)
    return variables


def rank_job(job: Job) -> dict[str, str]:
    """Which of the jobs of one submission this is, and how many they are: those of an array are its elements."""
    array, element = job.spec.array, job.element
    if array is None:
        return {"SKYPILOT_JOB_RANK": "0", "SKYPILOT_NUM_JOBS": "1"}
    rank = array.rank(element.index) if element is not None else 0
    return {"SKYPILOT_JOB_RANK": str(rank), "SKYPILOT_NUM_JOBS": str(array.size())}


def _slurm(job: Job, spec: TaskSpec, place: NodeRunContext) -> dict[str, str]:
    origin = job.spec.origin
    own_name = _node_names(job, [_placement(job, place)], place.real_nodes)[0]
    variables = {
        "ENVIRONMENT": "BATCH",
        "SLURM_JOB_ID": str(job.id),
        "SLURM_JOBID": str(job.id),
        "SLURM_CLUSTER_NAME": place.cluster,
        "SLURM_JOB_PARTITION": job.spec.partition or place.cluster,
        "SLURM_JOB_USER": origin.user,
        "SLURM_JOB_UID": str(origin.uid),
        "SLURM_JOB_GID": str(os.getgid()),
        "SLURM_SUBMIT_DIR": origin.directory,
        "SLURM_SUBMIT_HOST": origin.host,
        "SLURM_NODEID": str(place.node),
        "SLURM_PROCID": str(place.node if spec.form is Form.RUN else 0),
        "SLURM_LOCALID": "0",
        "SLURM_GTIDS": str(place.node if spec.form is Form.RUN else 0),
        "SLURM_PRIO_PROCESS": "0",
        "SLURM_JOB_QOS": job.spec.qos or "normal",
        "SLURM_TOPOLOGY_ADDR": own_name,
        "SLURM_TOPOLOGY_ADDR_PATTERN": "node",
        "SLURMD_NODENAME": own_name,
        **_slurm_shape(job, spec, place.real_nodes),
    }
    gpus = _placement(job, place).gpus
    if gpus:
        listed = ",".join(map(str, gpus))
        variables.update(SLURM_JOB_GPUS=listed, SLURM_GPUS_ON_NODE=str(len(gpus)), CUDA_VISIBLE_DEVICES=listed)
    if spec.form is Form.BATCH:
        variables["HOSTNAME"] = own_name
    if job.spec.account:
        variables["SLURM_JOB_ACCOUNT"] = job.spec.account
    if job.restarts:
        variables["SLURM_RESTART_COUNT"] = str(job.restarts)
    if job.element is not None:
        variables.update(_array(job, job.element))
    if len(job.spec.tasks) > 1:
        variables.update(_slurm_components(job, place))
    return variables


def _array(job: Job, element: Element) -> dict[str, str]:
    """What an element of an array finds; SLURM_JOB_ID is its own id."""
    variables = {"SLURM_ARRAY_JOB_ID": str(element.array), "SLURM_ARRAY_TASK_ID": str(element.index)}
    if job.spec.array is not None:
        ranges = job.spec.array.ranges
        variables.update(
            SLURM_ARRAY_TASK_COUNT=str(sum(len(part.values()) for part in ranges)),
            SLURM_ARRAY_TASK_MIN=str(min(part.first for part in ranges)),
            SLURM_ARRAY_TASK_MAX=str(max(part.values()[-1] for part in ranges)),
            SLURM_ARRAY_TASK_STEP=str(ranges[0].step),
        )
    return variables


def _slurm_shape(job: Job, spec: TaskSpec, real_nodes: bool) -> dict[str, str]:
    """What Slurm says of the size of an allocation: here, of one task's nodes."""
    members = [item for item in job.placements if item.task == spec.name]
    count = max(1, len(members))
    ntasks = spec.ntasks or (spec.ntasks_per_node or 1) * spec.num_nodes
    each = -(-ntasks // count)
    cpus = _count_cpus(spec, each)
    nodes = compress(_node_names(job, members, real_nodes))
    variables = {
        "SLURM_JOB_NAME": job.spec.name,
        "SLURM_JOB_NODELIST": nodes,
        "SLURM_NODELIST": nodes,
        "SLURM_JOB_NUM_NODES": str(count),
        "SLURM_NNODES": str(count),
        "SLURM_CPUS_ON_NODE": str(cpus),
        "SLURM_JOB_CPUS_PER_NODE": _repeat(cpus, count),
        "SLURM_TASKS_PER_NODE": _repeat(each, count),
    }
    if spec.form is Form.RUN or spec.ntasks or spec.ntasks_per_node:
        # sbatch tells a number of tasks only where one was asked for; every node of a task is one.
        variables.update(SLURM_NTASKS=str(ntasks), SLURM_NPROCS=str(ntasks))
    memory = spec.resources.need().memory_mib
    if spec.resources.memory_mib_per_cpu is not None:
        variables["SLURM_MEM_PER_CPU"] = str(spec.resources.memory_mib_per_cpu)
    elif memory:
        variables["SLURM_MEM_PER_NODE"] = str(memory)
    if spec.ntasks_per_node:
        variables["SLURM_NTASKS_PER_NODE"] = str(spec.ntasks_per_node)
    if spec.cpus_per_task:
        variables["SLURM_CPUS_PER_TASK"] = str(spec.cpus_per_task)
    return variables


def _count_cpus(spec: TaskSpec, tasks: int) -> int:
    """CPUs of a node: by number, or those of its Slurm tasks."""
    if spec.resources.cpus is None and (spec.ntasks or spec.ntasks_per_node or spec.cpus_per_task):
        return (spec.ntasks_per_node or tasks) * (spec.cpus_per_task or 1)
    return max(1, -(-spec.resources.need().cpu_milli // MILLI))


def _slurm_components(job: Job, place: NodeRunContext) -> dict[str, str]:
    """A group as a heterogeneous job: the shape of each task with its component's number."""
    variables = {"SLURM_HET_SIZE": str(len(job.spec.tasks))}
    for number, task in enumerate(job.spec.tasks):
        shape = _slurm_shape(job, task, place.real_nodes)
        shape["SLURM_JOB_ID"] = str(job.id + number)
        shape["SLURM_JOB_PARTITION"] = job.spec.partition or place.cluster
        for name, value in shape.items():
            variables[f"{name}_HET_GROUP_{number}"] = value
    return variables


def _repeat(value: int, count: int) -> str:
    return str(value) if count == 1 else f"{value}(x{count})"


def _members(job: Job, task: str) -> list[Placement]:
    return sorted((item for item in list_places(job) if item.task == task), key=lambda item: item.index)


def _placement(job: Job, place: NodeRunContext) -> Placement:
    for item in job.placements:
        if item.task == place.task and item.index == place.node:
            return item
    return Placement(place.task, place.node)


def _node_names(job: Job, members: Sequence[Placement], real: bool = False) -> list[str]:
    """The nodes' names as peers reach them: the members' own, or the machine's for an ordinary single-node job."""
    if real or not has_names(job):
        return [item.node or "localhost" for item in members] or ["localhost"]
    return [member_name(item.task, item.index + job.spec.first_index) for item in members]


def name_members(job: Job) -> dict[tuple[str, int], str]:
    """The names of all placed members' nodes, by task and index."""
    return dict(zip([(item.task, item.index) for item in job.placements], _node_names(job, job.placements)))


def has_names(job: Job) -> bool:
    """Whether members get names of their own: groups and tasks of several nodes, unless they asked for no network."""
    return job.spec.inter_connection and (bool(group_of(job)) or len(job.placements) > 1)
