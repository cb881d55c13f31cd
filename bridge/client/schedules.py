"""The client's part for schedules and crontabs."""

from __future__ import annotations

from typing import Any

from overspan.bridge.client.transport import Transport

_PLACE = ("environment", "directory", "umask", "uid", "gid", "host")


class ScheduleCalls(Transport):
    """What a client can ask about schedules; raises as every method of the client does."""

    def schedules(self) -> list[dict[str, Any]]:
        """Every schedule: id, name, schedule, timezone, next_due, last_job, counts and policies. Times are epoch."""
        return list(self._get("/v1/schedules")["schedules"])

    def pause_schedule(self, schedule_id: int) -> None:
        """Make no more runs of a schedule."""
        self._post(f"/v1/schedules/{schedule_id}/pause", {})

    def resume_schedule(self, schedule_id: int) -> None:
        """End a pause."""
        self._post(f"/v1/schedules/{schedule_id}/resume", {})

    def run_schedule(self, schedule_id: int) -> int:
        """Make a run now; its job's id."""
        lost = "whether the run was made is not known; look with `span cron list`"
        return int(self._post(f"/v1/schedules/{schedule_id}/run", {}, lost=lost)["id"])

    def delete_schedule(self, schedule_id: int) -> None:
        """Forget a schedule; jobs that it has made go on."""
        self._post(f"/v1/schedules/{schedule_id}/delete", {})

    def crontab(self) -> str:
        """The user's crontab. Raises NotFound when there is none."""
        return str(self._get("/v1/crontab")["text"])

    def install_crontab(self, text: str, file: str = "") -> list[int]:
        """Put a crontab in place of the former one; the schedules' ids, one for each entry.

        `file` names it in errors.
        """
        from overspan.bridge.client.messages import Submission
        from overspan.bridge.client.submission import submission_document

        document = submission_document(Submission(kind="script", text=""), self.environment)
        body = {name: document[name] for name in _PLACE}
        lost = "whether the crontab was installed is not known; look with `span cron -l`"
        return [
            int(number) for number in self._post("/v1/crontab", {"text": text, "file": file, **body}, lost=lost)["ids"]
        ]

    def remove_crontab(self) -> None:
        """Remove the user's crontab; jobs that it has made go on."""
        self._post("/v1/crontab/remove", {})
