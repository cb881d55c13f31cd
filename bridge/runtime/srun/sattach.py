"""`sattach`: what the ranks of a running step write, beside its srun; or where they are.

    sattach STEP [--label] [--layout] [--output=RANK] [--error=RANK]
    sattach STEP --signal=N

The words are those that the command has read; it ends with the step, with the highest exit code of the ranks. With a
signal it hands that to the step's srun, and says nothing: KILL ends the step.
"""

from __future__ import annotations

import json
import os
import select
import signal
from collections.abc import Mapping, Sequence
from typing import Optional

from overspan.bridge.model.slurm.words import INVALID_JOB
from overspan.bridge.runtime.core.allocation import read_allocation
from overspan.bridge.runtime.srun import channel as wire
from overspan.bridge.runtime.srun.accounting import StepRecord, read_steps
from overspan.bridge.runtime.srun.channel import Channel, Frame
from overspan.bridge.runtime.srun.messages import complain
from overspan.bridge.runtime.srun.output import Sink, unfold_ranks, write_all
from overspan.bridge.runtime.srun.viewers import connect_step

_VERB = "sattach"


def main(words: Sequence[str]) -> int:
    """Follow a step of the allocation of OVERSPAN_RUN_DIR; gives sattach's exit code."""
    number, *rest = words
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    options = dict(word.removeprefix("--").partition("=")[::2] for word in rest)
    try:
        allocation = read_allocation(os.environ.get("OVERSPAN_RUN_DIR", ""))
        records = read_steps(allocation.folder, allocation.launch)
        record = next((one for one in records if one.number == int(number)), None)
        if record is None or not record.running:
            return _refuse(INVALID_JOB)
        if "layout" in options:
            write_all(1, describe_layout(record).encode())
            return 0
        channel = connect_step(allocation.folder, record.number)
        if "signal" in options:
            return _signal(channel, int(options["signal"]))
    except FileNotFoundError:
        # The job is over, and its run directory was packed.
        return _refuse(INVALID_JOB)
    except (OSError, ValueError) as error:
        return _refuse(getattr(error, "strerror", None) or str(error))
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return Attachment(options).follow(channel)


class Attachment:
    """One viewer's output: labelled or not, of all ranks or of one."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._labelled = "label" in options
        # The filter of stdout is that of stderr too, unless there is one (measured on Slurm 22.05).
        chosen = {wire.OUTPUT: options.get("output"), wire.ERROR: options.get("error", options.get("output"))}
        self._only = {kind: int(rank) for kind, rank in chosen.items() if rank is not None}
        self._sinks: dict[bytes, Sink] = {}
        self._seen: set[int] = set()

    def follow(self, channel: Channel) -> int:
        """Write what comes until the step is over; gives its exit code."""
        while True:
            select.select([channel], [], [])
            for frame in channel.receive():
                code = self._take(frame)
                if code is not None:
                    channel.close()
                    return code
            if channel.closed:
                channel.close()
                complain("Connection to the step is lost", _VERB)
                return 1

    def _take(self, frame: Frame) -> Optional[int]:
        if frame.kind == wire.STARTED:
            width = len(str(max(0, json.loads(frame.body)["count"] - 1))) if self._labelled else 0
            pairs = ((wire.OUTPUT, 1), (wire.ERROR, 2))
            self._sinks = {kind: Sink(fd, whole_lines=True, label_width=width) for kind, fd in pairs}
        elif frame.kind in self._sinks:
            rank, data = wire.unpack_rank(frame.body)
            if self._only.get(frame.kind, rank) == rank:
                self._seen.add(rank)
                self._sinks[frame.kind].write(rank, data)
        elif frame.kind == wire.ENDED:
            rank, data = wire.unpack_rank(frame.body)
            self._finish(rank)
            code = os.WEXITSTATUS(int(data)) if os.WIFEXITED(int(data)) else 0
            if code:
                complain(f"task {rank} exited with exit code {code}", _VERB)
        elif frame.kind == wire.DONE:
            for rank in sorted(self._seen):
                self._finish(rank)
            return int(frame.body)
        return None

    def _finish(self, rank: int) -> None:
        for sink in self._sinks.values():
            sink.finish(rank)


def _signal(channel: Channel, number: int) -> int:
    channel.send(wire.SIGNAL, b"%d" % number)
    # Srun has let this viewer in when it answers, and reads its words then.
    while not channel.closed and not channel.receive():
        select.select([channel], [], [])
    channel.close()
    return 0


def describe_layout(record: StepRecord) -> str:
    """Where the ranks of a step are, as `sattach --layout` prints it (measured on Slurm 22.05)."""
    from overspan.bridge.model.slurm.hostlists import compress

    nodes = [(name, ranks) for part in record.parts for name, ranks in zip(part.nodes, part.ranks)]
    ntasks = sum(part.ntasks for part in record.parts)
    hosts = compress(name for name, _ in nodes)
    lines = ["Job step layout:", f"\t{ntasks} tasks, {len(nodes)} nodes ({hosts})", ""]
    for place, (name, text) in enumerate(nodes):
        ranks = unfold_ranks(text)
        lines.append(f"\tNode {place} ({name}), {len(ranks)} task(s): {''.join(f'{rank} ' for rank in ranks)}")
    return "\n".join(lines) + "\n"


def _refuse(text: str) -> int:
    complain(f"Could not get job step info: {text}", _VERB)
    return 1
