"""Steps of Slurm's own srun in a native job, for a command on the user's terminal.

The step's program is a file on the login node that only the user can read, and that removes itself when it starts: so
neither its variables nor its words show in a command line.
"""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass

from overspan.adapters.abilities import StepEntrance, StepRequest
from overspan.adapters.slurm.access.allocations import GUARD, StepAccess, choose_variables, render_step, step_words
from overspan.adapters.slurm.access.shells import CLEAN, open_terminal
from overspan.adapters.slurm.commands.queries import Queries
from overspan.adapters.slurm.files.application import InstalledApplication
from overspan.adapters.slurm.groups.rendering import supervisor_words
from overspan.adapters.slurm.handles import Handle, parse_any
from overspan.adapters.slurm.rendering.renderer import resolve_root
from overspan.adapters.slurm.settings import Settings
from overspan.adapters.slurm.transports.transport import Transport
from overspan.bridge.model.errors import InvalidRequest, OverspanError
from overspan.bridge.runtime.core.job_access import render_command

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class NativeSteps:
    """Prepares steps on one cluster: `transport` is the user's own, `root` is the setting."""

    queries: Queries
    transport: Transport
    settings: Settings
    root: str
    application: InstalledApplication

    async def prepare(self, request: StepRequest) -> StepEntrance:
        """The command of a step. Raises InvalidRequest for a launch that takes no steps, Unreachable."""
        handle = _find_job(request.handle)
        words = step_words(handle.name, request.words, request.own)
        root = resolve_root(self.root, (await self.queries.site()).home)
        folder = f"{root}/steps/{secrets.token_hex(8)}"
        program = ["/bin/sh", f"{folder}/step"]
        entrance = open_terminal(self.transport, self.settings, program, request.terminal, request.alone)
        variables = choose_variables(request.environment, request.words, self.settings.shared)
        directory = request.directory if self.settings.shared else handle.folder
        place = (directory, self.settings.path, f"{request.umask:04o}" if self.settings.shared else "")
        access = await self._give_access(request.access, root, folder)
        text = f"{CLEAN}\n{render_step(folder, words, variables, place, access)}"
        await self.transport.write(f"{folder}/step", text.encode("utf-8", "surrogateescape"))
        words = ["/bin/sh", "-c", GUARD, "guard", folder]
        guard = open_terminal(self.transport, self.settings, words, False, request.alone)
        return StepEntrance(entrance.words, guard.words)

    async def _give_access(self, document: str, root: str, folder: str) -> StepAccess | None:
        """What commands in the step need, where its nodes see the folder."""
        if not (document and self.settings.shared_root):
            return None
        try:
            await self.application.bring(root)
        except OverspanError as error:
            # A disk that is full costs the step its commands alone.
            _log.warning("a step begins without `span`: %s", error.message)
            return None
        return StepAccess(document, render_command(supervisor_words(self.settings, root), folder))


def _find_job(text: str) -> Handle:
    """The native job of a handle. Raises InvalidRequest for a group."""
    handle = parse_any(text)
    if not isinstance(handle, Handle):
        raise InvalidRequest(
            "a group takes no steps from outside: its tasks are what runs there",
            remedy="`span shell` runs a command beside a task",
        )
    return handle
