"""The outbox in memory: stored calls to clusters that are not answered yet, as the dispatcher works through them."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from overspan.bridge.store.records import OutboxRow

SUBMIT = "submit"
ORDER = "order"
BACK = "back"
"""Marks, in a payload, the submission of a launch that its cluster has requeued itself and so has already."""

QueueKey = tuple[str, str]
"""A cluster and a kind of call; calls of different keys do not wait for each other."""


class Outbox:
    """Rows by token, job and queue key. A row that waits for a time, or for a submission's answer, is not ready."""

    def __init__(self) -> None:
        self._rows: dict[str, OutboxRow] = {}
        self._places: dict[str, int] = {}
        """In which order the rows came."""
        self._added = 0
        self._of_job: dict[int, dict[str, None]] = {}
        self._ready: dict[QueueKey, dict[str, None]] = {}
        self._mixed: set[QueueKey] = set()
        """Queues where a call was put back behind younger ones, so that they have to be sorted."""
        self._later: dict[QueueKey, list[tuple[float, str]]] = {}
        self._tried: set[str] = set()
        self._first: set[str] = set()
        self._unanswered: dict[str, float] = {}
        """When calls became in doubt: they have no answer while their cluster answers others."""

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, row: OutboxRow, *, tried: bool = False) -> None:
        """Owe a call. `tried`: an earlier process may have made it already."""
        self._rows[row.token] = row
        self._added += 1
        self._places[row.token] = self._added
        self._of_job.setdefault(row.job_id, {})[row.token] = None
        if tried:
            self._tried.add(row.token)
        if row.next_try_at:
            self._postpone(row)
        else:
            self.offer(row.token)

    def done(self, token: str) -> None:
        """Remove a call."""
        row = self._rows.pop(token, None)
        if row is None:
            return
        del self._places[token]
        tokens = self._of_job[row.job_id]
        del tokens[token]
        if not tokens:
            del self._of_job[row.job_id]
        self._ready.get(_queue_key(row), {}).pop(token, None)
        self.untry((token,))

    def offer(self, token: str) -> None:
        """Make a call ready."""
        row = self._rows.get(token)
        if row is None:
            return
        ready = self._ready.setdefault(_queue_key(row), {})
        last = next(reversed(ready), token)
        if self._places[last] > self._places[token]:
            self._mixed.add(_queue_key(row))
        ready[token] = None

    def defer(self, token: str, next_try_at: float, error: str) -> None:
        """Try a call again later that was refused for now: its cluster has no trace of it."""
        row = self._rows.get(token)
        if row is not None:
            row = self._rows[token] = row._replace(next_try_at=next_try_at, error=error, tries=row.tries + 1)
            self.untry((token,))
            self._postpone(row)

    def hasten(self, token: str, now: float) -> None:
        """Make a call that waits for its next try due now; one that is ready or under way stays as it is."""
        row = self._rows.get(token)
        if row is not None and row.next_try_at > now and token not in self._ready.get(_queue_key(row), {}):
            row = self._rows[token] = row._replace(next_try_at=now)
            self._postpone(row)

    def put_off(self, token: str, now: float, next_try_at: float) -> None:
        """Try a call again later that is in doubt: it counts as tried until it is answered."""
        row = self._rows.get(token)
        if row is not None:
            self._unanswered.setdefault(token, now)
            row = self._rows[token] = row._replace(next_try_at=next_try_at)
            self._postpone(row)

    def move_clock(self, seconds: float) -> None:
        """Shift all times by `seconds`, the jump of the machine's clock."""
        for token, row in self._rows.items():
            if row.next_try_at:
                self._rows[token] = row._replace(next_try_at=row.next_try_at + seconds)
        self._later = {key: [(at + seconds, token) for at, token in later] for key, later in self._later.items()}
        self._unanswered = {token: since + seconds for token, since in self._unanswered.items()}

    def take(self, key: QueueKey, now: float, limit: int) -> list[OutboxRow]:
        """Take the oldest ready calls, at most `limit`; they count as tried from here on."""
        self._wake(key, now)
        self._sort(key)
        ready = self._ready.get(key, {})
        tokens = [token for token, _ in zip(ready, range(limit), strict=False)]
        for token in tokens:
            del ready[token]
            self._try(token)
        return [self._rows[token] for token in tokens]

    def claim(self, key: QueueKey, now: float) -> list[OutboxRow]:
        """Take every ready call, oldest first, without counting it as tried; `start` does that for those chosen."""
        self._wake(key, now)
        self._sort(key)
        return [self._rows[token] for token in self._ready.pop(key, {})]

    def start(self, tokens: Iterable[str]) -> list[OutboxRow]:
        """The claimed calls of these tokens that are still owed; they count as tried from here on."""
        rows = [row for row in map(self._rows.get, tokens) if row is not None]
        for row in rows:
            self._try(row.token)
        return rows

    def is_first(self, token: str) -> bool:
        """Whether the try under way is the call's first, so that the cluster cannot have known of it before."""
        return token in self._first

    def untry(self, tokens: Iterable[str]) -> None:
        """Note that the cluster knows nothing of these calls."""
        for token in tokens:
            self._tried.discard(token)
            self._first.discard(token)
            self._unanswered.pop(token, None)

    def of_queue(self, key: QueueKey) -> list[OutboxRow]:
        """The calls owed under a queue key, oldest first."""
        return [row for row in self._rows.values() if _queue_key(row) == key]

    def of_cluster(self, cluster: str) -> list[OutboxRow]:
        """The calls owed to a cluster."""
        return [row for row in self._rows.values() if row.cluster == cluster]

    def unanswered_since(self, token: str) -> float | None:
        """Since when a call is in doubt; None if it is not."""
        return self._unanswered.get(token)

    def unanswered(self) -> list[OutboxRow]:
        """The calls in doubt."""
        return [self._rows[token] for token in self._unanswered]

    def next_time(self, key: QueueKey) -> float | None:
        """When the next deferred call of a queue key is due; None if there is none."""
        later = self._later.get(key, [])
        while later and not self._postponed(later[0]):
            heapq.heappop(later)
        return later[0][0] if later else None

    def owes(self, token: str) -> bool:
        """Whether the call is still owed."""
        return token in self._rows

    def tried(self, token: str) -> bool:
        """Whether the cluster may know of the call, or has requeued the launch itself."""
        return token in self._tried or self._is_back(token)

    def of_job(self, job_id: int) -> list[OutboxRow]:
        """The calls owed for a job, oldest first."""
        return [self._rows[token] for token in self._of_job.get(job_id, ())]

    def submit_of(self, job_id: int, cluster: str) -> OutboxRow | None:
        """The submission of a job that is owed to a cluster."""
        return next((row for row in self.of_job(job_id) if row.kind == SUBMIT and row.cluster == cluster), None)

    def queue_keys(self) -> Iterable[QueueKey]:
        """Every queue key with owed calls."""
        return {_queue_key(row) for row in self._rows.values()}

    def _sort(self, key: QueueKey) -> None:
        """Restore the order of arrival: a later order must not overtake an earlier one about the same thing."""
        if key in self._mixed:
            self._mixed.remove(key)
            self._ready[key] = dict.fromkeys(sorted(self._ready[key], key=self._places.__getitem__))

    def _is_back(self, token: str) -> bool:
        row = self._rows.get(token)
        return row is not None and bool(row.payload.get(BACK))

    def _try(self, token: str) -> None:
        if self.tried(token):
            self._first.discard(token)
        else:
            self._first.add(token)
        self._tried.add(token)

    def _postpone(self, row: OutboxRow) -> None:
        heapq.heappush(self._later.setdefault(_queue_key(row), []), (row.next_try_at, row.token))

    def _postponed(self, item: tuple[float, str]) -> bool:
        row = self._rows.get(item[1])
        return row is not None and row.next_try_at == item[0] and row.token not in self._ready.get(_queue_key(row), {})

    def _wake(self, key: QueueKey, now: float) -> None:
        later = self._later.get(key, [])
        while later and later[0][0] <= now:
            item = heapq.heappop(later)
            if self._postponed(item):
                self.offer(item[1])


def _queue_key(row: OutboxRow) -> QueueKey:
    return row.cluster, row.kind
