"""Ids of jobs, tasks, array elements and steps, and the indices of arrays, as Slurm writes them.

No future import here: documents of these classes are read by their annotations at run time.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Optional

from overspan.bridge.model.records import NamedTuple

MAX_ARRAY_INDEX = 1_000_000
"""Highest index of an array: MaxArraySize less one. Slurm's own is 1000 unless a site says otherwise."""

# The highest MaxArraySize that Slurm takes, less one: the bound where no site's own is known.
_HIGHEST_INDEX = 4_000_000
# Interleaved steps are the one form that has to be counted out.
_MAX_UNTANGLED = 1_000_000

_ID = r"([0-9]{1,18})(?:\+([0-9]{1,9})|_([0-9]{1,9})|_\[([^\]]*)\])?(?:\.([A-Za-z0-9]+))?"
_ITEM = r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?"
_WRITTEN = "N, N+K, N_I, N_[A-B], N.STEP or CLUSTER:ID"


class IndexRange(NamedTuple):
    """Array indices from `first` to `last`, both included and both hit, `step` apart."""

    first: int
    last: int
    step: int = 1

    def values(self) -> range:
        """The indices, one by one."""
        return range(self.first, self.last + 1, self.step)


class ArraySpec(NamedTuple):
    """The indices of an array, rising and without duplicates, and how many may run at once (None: all)."""

    ranges: tuple[IndexRange, ...]
    throttle: Optional[int] = None

    def size(self) -> int:
        """How many elements there are."""
        return sum(len(part.values()) for part in self.ranges)

    def indices(self) -> Iterator[int]:
        """Every index, lowest first."""
        for part in self.ranges:
            yield from part.values()

    def rank(self, index: int) -> int:
        """How many elements have a lower index: SKYPILOT_JOB_RANK."""
        return sum(len(range(part.first, min(index, part.last + 1), part.step)) for part in self.ranges)

    def has(self, index: int) -> bool:
        """Whether an element of that index exists."""
        return any(index in part.values() for part in self.ranges)

    def lowest(self) -> int:
        """The first index: SLURM_ARRAY_TASK_MIN."""
        return self.ranges[0].first

    def highest(self) -> int:
        """The last index: SLURM_ARRAY_TASK_MAX."""
        return max(part.last for part in self.ranges)


class JobRef(NamedTuple):
    """What an id names: a job N, or its task N+k, its element N_i, some elements N_[..], a step N.s.

    With a cluster, `native` is the id as that cluster writes it; the other fields are filled where it has
    Slurm's form, else `job` is 0 (a pod's uid).
    """

    job: int
    task: Optional[int] = None
    element: Optional[int] = None
    elements: Optional[tuple[IndexRange, ...]] = None
    throttle: Optional[int] = None
    step: Optional[str] = None
    cluster: Optional[str] = None
    native: Optional[str] = None


def parse_job_ref(text: str) -> JobRef:
    """Read an id as a user writes it. Raises ValueError.

    A cluster's name ends at the last colon, since names of Kubernetes contexts may have colons in them.
    """
    if text.isdigit() and text.isascii() and len(text) <= 18:
        return JobRef(_positive(text, text))
    head, bracket, tail = text.partition("[")
    cluster, colon, local = head.rpartition(":")
    if not colon:
        return _parse_local(text)
    native = local + bracket + tail
    if not cluster or not native or re.search(r"\s", text):
        raise ValueError(f"{text!r} is not an id; write {_WRITTEN}")
    if re.fullmatch(_ID, native):
        return _parse_local(native)._replace(cluster=cluster, native=native)
    return JobRef(0, cluster=cluster, native=native)


def _parse_local(text: str) -> JobRef:
    match = re.fullmatch(_ID, text)
    if not match:
        raise ValueError(f"{text!r} is not a job id; write {_WRITTEN}")
    job, task, element, listed, step = match.groups()
    spec = None if listed is None else parse_array(listed, max_index=_HIGHEST_INDEX)
    return JobRef(
        _positive(job, text),
        task=None if task is None else int(task),
        element=None if element is None else int(element),
        elements=None if spec is None else spec.ranges,
        throttle=None if spec is None else spec.throttle,
        step=step,
    )


def _positive(digits: str, text: str) -> int:
    number = int(digits)
    if number == 0:
        raise ValueError(f"{text!r} is not a job id; ids begin at 1")
    return number


def parse_array(text: str, max_index: int = MAX_ARRAY_INDEX) -> ArraySpec:
    """Read an --array value: indices, ranges a-b, steps a-b:s, lists, brackets around them, %n at the end.

    Duplicates are merged, zero padding means nothing, empty items are skipped, %0 is no throttle. `3-1`,
    `1-2-3` and an index above `max_index` raise ValueError (sbatch(1), measured on 22.05).
    """
    match = re.fullmatch(r"(\[)?([^\[\]%]*)(\])?(?:%([0-9]{1,9}))?(\])?", text)
    if not match or bool(match[1]) != bool(match[3] or match[5]) or (match[3] and match[5]):
        raise ValueError(f"{text!r} is not an array; write indices such as 0-9, 1,3,7 or 0-100:5%10")
    parts = [_parse_item(item, max_index) for item in match[2].split(",") if item]
    if not parts:
        raise ValueError(f"the array {text!r} has no index; write indices such as 0-9")
    return ArraySpec(tuple(_merge(parts)), int(match[4] or 0) or None)


def _parse_item(item: str, max_index: int) -> IndexRange:
    match = re.fullmatch(_ITEM, item)
    if not match:
        raise ValueError(f"{item!r} in the array is not an index, a range a-b or a range with a step a-b:s")
    first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
    if last < first:
        raise ValueError(f"the range {item!r} in the array runs backwards")
    if last > max_index:
        raise ValueError(f"the array index {last} is too high; the highest allowed is {max_index}")
    if step == 0:
        raise ValueError(f"the range {item!r} in the array has a step of 0")
    # `last` becomes an index that the steps reach; one index alone has step 1.
    last -= (last - first) % step
    return IndexRange(first, last, step if last > first else 1)


def collapse(indices: Iterable[int]) -> tuple[IndexRange, ...]:
    """Write any indices as the fewest ranges of step 1."""
    runs: list[IndexRange] = []
    for index in sorted(set(indices)):
        if runs and index == runs[-1].last + 1:
            runs[-1] = IndexRange(runs[-1].first, index)
        else:
            runs.append(IndexRange(index, index))
    return tuple(runs)


def take_indices(ranges: Iterable[IndexRange], count: int) -> tuple[tuple[IndexRange, ...], tuple[IndexRange, ...]]:
    """Split ranges into their first `count` indices and the rest."""
    taken: list[IndexRange] = []
    left: list[IndexRange] = []
    for part in ranges:
        size = len(part.values())
        here = min(count, size)
        count -= here
        if here:
            taken.append(_slice(part, 0, here))
        if here < size:
            left.append(_slice(part, here, size))
    return tuple(taken), tuple(left)


def without_indices(ranges: Iterable[IndexRange], removed: Iterable[IndexRange]) -> tuple[IndexRange, ...]:
    """The ranges less the removed indices; quick where they are the front of the first range."""
    left = list(ranges)
    for gone in removed:
        first = left[0] if left else None
        if first is not None and gone.first == first.first and (gone.step == first.step or gone.first == gone.last):
            size = len(gone.values())
            if size <= len(first.values()):
                left[:1] = [_slice(first, size, len(first.values()))] if size < len(first.values()) else []
                continue
        unwanted = set(gone.values())
        kept: list[IndexRange] = []
        for part in left:
            values = part.values()
            hit = any(index in unwanted for index in values)
            kept.extend(collapse(set(values) - unwanted) if hit else (part,))
        left = kept
    return tuple(left)


def common_indices(ranges: Iterable[IndexRange], wanted: Iterable[IndexRange]) -> tuple[IndexRange, ...]:
    """The indices that are in both."""
    chosen = [part.values() for part in wanted]
    return collapse(index for part in ranges for index in part.values() if any(index in values for values in chosen))


def _slice(part: IndexRange, start: int, end: int) -> IndexRange:
    values = part.values()[start:end]
    return IndexRange(values[0], values[-1], part.step if len(values) > 1 else 1)


def _merge(parts: list[IndexRange]) -> list[IndexRange]:
    """Sort ranges and merge those that overlap or touch, keeping them as ranges."""
    merged: list[IndexRange] = []
    for part in sorted(parts):
        last = merged[-1] if merged else None
        if last is None or part.first > last.last + (part.step == last.step == 1):
            merged.append(part)
        elif part.step == last.step == 1:
            merged[-1] = IndexRange(last.first, max(last.last, part.last))
        else:
            merged.append(part)
    return _untangle(merged)


def _untangle(parts: list[IndexRange]) -> list[IndexRange]:
    """Replace stepped ranges that interleave with others by plain runs."""
    result: list[IndexRange] = []
    tangle: list[IndexRange] = []
    reach = -1
    for part in parts:
        if tangle and part.first > reach:
            result.extend(_plain_runs(tangle))
            tangle = []
        tangle.append(part)
        reach = max(reach, part.last)
    result.extend(_plain_runs(tangle))
    return result


def _plain_runs(parts: list[IndexRange]) -> Iterable[IndexRange]:
    if len(parts) == 1:
        return parts
    if sum(len(part.values()) for part in parts) > _MAX_UNTANGLED:
        raise ValueError(f"the array interleaves more than {_MAX_UNTANGLED} indices; write plain ranges")
    return collapse(index for part in parts for index in part.values())


def format_array_indices(ranges: Iterable[IndexRange], throttle: Optional[int] = None, steps: bool = False) -> str:
    """Write indices collapsed: `0-3,7%2`.

    Steps are written one by one, as squeue does (measured on 22.05); `steps` keeps them as a-b:s, for --array.
    """
    texts = []
    for first, last, step in ranges:
        if first == last:
            texts.append(str(first))
        elif step == 1:
            texts.append(f"{first}-{last}")
        elif steps:
            texts.append(f"{first}-{last}:{step}")
        else:
            texts.extend(map(str, range(first, last + 1, step)))
    text = ",".join(texts)
    return f"{text}%{throttle}" if throttle else text
