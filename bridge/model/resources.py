"""What one node of a task needs: CPUs, memory, GPUs and other generic resources (gres).

No future import here: documents of these classes are read by their annotations at run time.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Optional, Union

from overspan.bridge.model.records import NamedTuple, dataclass

MILLI = 1000
"""Fractions are counted in thousandths, as integers, so that a release gives back exactly what was taken."""

# A letter is required, so that a kind is never taken for a count.
_KIND = r"(?=[0-9_.+-]*[A-Za-z])[A-Za-z0-9][A-Za-z0-9_.+-]*"
_COUNT = r"[0-9]{1,9}(?:\.[0-9]{1,9})?"
_MULTIPLES = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4, "p": 1024**5}


def to_milli(count: float) -> int:
    """Give a count in thousandths."""
    return round(count * MILLI)


@dataclass(frozen=True)
class Gpus:
    """GPUs of one kind on one node; no kind means any. Fractions are kept to a thousandth."""

    count: float
    kind: str = ""

    def __post_init__(self) -> None:
        """Round to thousandths; ValueError for a count that is not positive."""
        if not 0 < self.count < 10**9 or to_milli(self.count) == 0:
            raise ValueError(f"{self.count} is not a number of GPUs; it must be at least 0.001")
        object.__setattr__(self, "count", to_milli(self.count) / MILLI)

    @property
    def milli(self) -> int:
        """The count in thousandths."""
        return to_milli(self.count)

    def __str__(self) -> str:
        """As a job file has it: `H100:8`, or the count alone."""
        return f"{self.kind}:{self.count:.10g}" if self.kind else f"{self.count:.10g}"


class Gres(NamedTuple):
    """One entry of Slurm's --gres: a name, perhaps a type, and a whole count."""

    name: str
    kind: str = ""
    amount: int = 1

    def __str__(self) -> str:
        """As --gres takes it."""
        return f"{self.name}:{self.kind}:{self.amount}" if self.kind else f"{self.name}:{self.amount}"


class NodeNeed(NamedTuple):
    """Amounts to reserve on one node: thousandths of CPUs and GPUs, MiB (0: all of the node's, None: not given)."""

    cpu_milli: int
    memory_mib: Optional[int] = None
    gpu_milli: int = 0
    gpu_kind: str = ""
    gres: tuple[Gres, ...] = ()


class Cpus(NamedTuple):
    """A number of CPUs; `at_least` allows more."""

    amount: float
    at_least: bool = False


@dataclass(frozen=True)
class GpuDefaults:
    """What a node with GPUs gets where its task names no CPUs or no memory: SkyPilot's rule, or the site's numbers.

    0 asks for nothing. `memory_mib_per_gpu` is the most memory that is asked for without being named.
    """

    cpus_per_gpu: float = 4.0
    memory_mib_per_cpu: int = 4096
    memory_mib_per_gpu: Optional[int] = None

    def bounded(self, cpus: float, memory_mib: int) -> "GpuDefaults":
        """At most so much for each GPU: amounts that no user asked for must not keep a task off a node."""
        most = memory_mib if self.memory_mib_per_gpu is None else min(memory_mib, self.memory_mib_per_gpu)
        return GpuDefaults(min(self.cpus_per_gpu, cpus), self.memory_mib_per_cpu, most)

    def scaled(self, factor: float) -> "GpuDefaults":
        """The defaults times a factor."""
        most = self.memory_mib_per_gpu
        scaled = None if most is None else int(most * factor)
        return GpuDefaults(self.cpus_per_gpu * factor, int(self.memory_mib_per_cpu * bool(factor)), scaled)


@dataclass(frozen=True)
class Resources:
    """What one node of a task needs; None is the cluster's default.

    `memory_mib` of 0 is all memory of the node. `gpus` are alternatives, the preferred one first; `gres` is
    needed besides each of them.
    """

    cpus: Optional[float] = None
    cpus_at_least: bool = False
    memory_mib: Optional[int] = None
    memory_mib_per_cpu: Optional[int] = None
    memory_at_least: bool = False
    gpus: tuple[Gpus, ...] = ()
    gres: tuple[Gres, ...] = ()
    gpu_defaults: Optional[GpuDefaults] = None
    """CPUs and memory that come with GPUs where the user names none; None leaves it to the cluster."""

    def __post_init__(self) -> None:
        """ValueError for what no node can have, or for memory given twice."""
        if self.cpus is not None and to_milli(self.cpus) <= 0:
            raise ValueError(f"{self.cpus} is not a number of CPUs; it must be at least 0.001")
        if self.memory_mib is not None and self.memory_mib_per_cpu is not None:
            raise ValueError("memory is given for the node and for each CPU; give one of them")
        if (self.memory_mib or 0) < 0 or (self.memory_mib_per_cpu or 0) < 0:
            raise ValueError("an amount of memory is negative")

    def need(self, choice: int = 0, default_cpus: float = 1) -> NodeNeed:
        """Give the need of one node with the GPU alternative of that place; IndexError when there is none there."""
        gpus = None if choice == 0 and not self.gpus else self.gpus[choice]
        cpus = default_cpus if self.cpus is None else self.cpus
        if self.cpus is None and gpus is not None and self.gpu_defaults is not None:
            cpus = self.gpu_defaults.cpus_per_gpu * gpus.count or default_cpus
        cpu_milli = to_milli(cpus)
        memory = self.memory_mib
        if self.memory_mib_per_cpu is not None:
            memory = -(-self.memory_mib_per_cpu * cpu_milli // MILLI)
        if gpus is None:
            return NodeNeed(cpu_milli, memory, gres=self.gres)
        if memory is None:
            memory = self._default_memory(cpu_milli, gpus)
        return NodeNeed(cpu_milli, memory, gpus.milli, gpus.kind, self.gres)

    def _default_memory(self, cpu_milli: int, gpus: Gpus) -> Optional[int]:
        """MiB that go with the GPUs' CPUs; None where that is nothing."""
        if self.gpu_defaults is None:
            return None
        memory = self.gpu_defaults.memory_mib_per_cpu * cpu_milli // MILLI
        if self.gpu_defaults.memory_mib_per_gpu is not None:
            memory = min(memory, self.gpu_defaults.memory_mib_per_gpu * gpus.milli // MILLI)
        return memory or None

    def needs(self, default_cpus: float = 1) -> tuple[NodeNeed, ...]:
        """Give the need of one node for every alternative, the preferred one first; always at least one."""
        return tuple(self.need(choice, default_cpus) for choice in range(max(1, len(self.gpus))))


def parse_cpus(value: Union[str, int, float]) -> Cpus:
    """Read a job file's `cpus`: a number, or a number with `+` for at least. Raises ValueError."""
    if not isinstance(value, bool) and isinstance(value, (str, int, float)):
        match = re.fullmatch(rf"({_COUNT})(\+)?", str(value).strip())
        if match and to_milli(float(match[1])) > 0:
            return Cpus(to_milli(float(match[1])) / MILLI, match[2] is not None)
    raise ValueError(f"{value!r} is not a number of CPUs; write one such as 4, 0.5, or 4+ for at least 4")


def parse_accelerators(value: object) -> tuple[Gpus, ...]:
    """Read a job file's `accelerators` or `gpus`: alternatives, the preferred one first; None gives none.

    Forms: `H100`, `H100:8`, `H100:0.5`, a mapping {H100: 8}, and lists, sets and mappings of several. A bare
    number, or the kind `gpu`, means GPUs of any kind. Raises ValueError.
    """
    if value is None:
        return ()
    if isinstance(value, Mapping):
        # A YAML set such as {H100:8, A100:8} arrives as a mapping to nothing.
        found = [_one_accelerator(kind if count is None else f"{kind}:{count}") for kind, count in value.items()]
    elif isinstance(value, (set, frozenset)):
        found = [_one_accelerator(item) for item in sorted(value, key=str)]
    elif isinstance(value, (list, tuple)):
        found = [gpus for item in value for gpus in _list_item(item)]
    else:
        found = [_one_accelerator(value)]
    if not found:
        raise ValueError("the list of accelerators is empty; leave it out, or name one such as H100:8")
    return tuple(dict.fromkeys(found))


def _list_item(item: object) -> tuple[Gpus, ...]:
    """Read one item of a list; `- H100: 8` is a mapping there."""
    return parse_accelerators(item) if isinstance(item, Mapping) else (_one_accelerator(item),)


def _one_accelerator(item: object) -> Gpus:
    """Read one accelerator: a kind, a kind and a count, or a count alone."""
    if not isinstance(item, bool) and isinstance(item, (str, int, float)):
        text = str(item).strip()
        if re.fullmatch(_COUNT, text):
            return Gpus(float(text))
        match = re.fullmatch(rf"({_KIND})(?::({_COUNT}))?", text)
        if match:
            kind = "" if match[1].lower() == "gpu" else match[1]
            return Gpus(float(match[2] or 1), kind)
    raise ValueError(f"{item!r} is not an accelerator; write KIND or KIND:COUNT, such as H100:8")


def parse_gres(text: str) -> tuple[Gres, ...]:
    """Read a --gres value, name[[:type]:count],...; the count is 1 unless given, `none` and a count of 0 give nothing.

    A count may end in K, M, G, T or P (powers of 1024). Raises ValueError.
    """
    if text.lower() == "none":
        return ()
    entries = [_one_gres(item) for item in text.split(",")]
    return tuple(entry for entry in entries if entry.amount)


def _one_gres(item: str) -> Gres:
    name, *rest = item.split(":")
    count, unit = 1, ""
    match = re.fullmatch(r"([0-9]{1,15})([kmgtp])?", rest[-1], re.IGNORECASE) if rest else None
    if match:
        count, unit = int(match[1]), (match[2] or "").lower()
        rest.pop()
    if len(rest) > 1 or not all(re.fullmatch(_KIND, part) for part in (name, *rest)):
        raise ValueError(f"{item!r} is not a generic resource; write NAME, NAME:COUNT or NAME:TYPE:COUNT")
    return Gres(name, rest[0] if rest else "", count * _MULTIPLES[unit])


def parse_gpu_counts(text: str) -> tuple[Gpus, ...]:
    """Read a --gpus, --gpus-per-node or --gpus-per-task value, [type:]n,...; all entries are needed together.

    A type alone counts 1, a count of 0 gives nothing. Raises ValueError.
    """
    found = []
    for item in text.split(","):
        match = re.fullmatch(rf"(?:({_KIND}):)?([0-9]{{1,9}})|({_KIND})", item)
        if not match:
            raise ValueError(f"{item!r} is not a number of GPUs; write N or TYPE:N")
        count = int(match[2]) if match[2] else 1
        if count:
            found.append(Gpus(count, match[1] or match[3] or ""))
    return tuple(found)


def gres_gpus(entries: Iterable[Gres]) -> tuple[tuple[Gpus, ...], tuple[Gres, ...]]:
    """Part the GPUs of a --gres list, all needed together, from everything else."""
    entries = tuple(entries)
    gpus = tuple(Gpus(entry.amount, entry.kind) for entry in entries if entry.name == "gpu")
    return gpus, tuple(entry for entry in entries if entry.name != "gpu")
