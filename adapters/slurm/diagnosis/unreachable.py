"""Causes why a cluster cannot be reached, each with a remedy. Pure."""

from __future__ import annotations

import re
import shlex

from overspan.adapters.slurm.settings import LOCAL, SSH, Settings
from overspan.bridge.model.errors import OverspanError

_CAUSES: tuple[tuple[str, str], ...] = (
    (
        r"Can't open user config file|Bad configuration option|terminating, \d+ bad configuration|bad number of arg",
        "mend the file that `ssh_config` of the cluster names, or set it to another one",
    ),
    (
        r"Could not resolve|Name or service not known|Temporary failure in name resolution|nodename nor servname",
        "set `host` of the cluster to a name that ssh knows: a `Host` of the ssh configuration, or one in the DNS",
    ),
    (
        r"Host key|host key|not found in known_hosts|REMOTE HOST IDENTIFICATION",
        "run `{ssh} true` on a terminal, compare the host's key with the one that the site publishes, and accept it",
    ),
    (
        r"Permission denied|[Aa]uthentication|Too many authentication failures",
        "`{ssh} true` has to work: give it the right user and key; {login}",
    ),
    (
        r"Connection refused|timed out|No route to host|Network is unreachable|no answer within|reset by peer",
        "see with `{ssh} true` whether the host answers: its sshd, the port, a VPN or jump host on the way",
    ),
    (r"ssh cannot be started", "install the OpenSSH client, or set `transport: paramiko`"),
    (
        r"not found|No such file or directory|code 127",
        "set `path` of the cluster to the folder there that has Slurm's commands: `{ssh} command -v scontrol` shows it",
    ),
    (
        r"Unable to contact slurm|slurm_load|Slurm backup controller|configuration source",
        "Slurm's controller does not answer there: `{ssh} scontrol ping` shows which; ask the site",
    ),
)


def describe_unreachable(error: OverspanError, settings: Settings) -> tuple[str, str]:
    """The error as `host: message`, with the host only once, and the remedy for its cause."""
    where = settings.host or "this machine"
    seen = error.message if error.message.startswith(f"{where}: ") else f"{where}: {error.message}"
    return seen, _find_remedy(seen.removeprefix(f"{where}: "), settings) or error.remedy or _default_remedy(settings)


def _find_remedy(message: str, settings: Settings) -> str:
    remedy = next((remedy for cause, remedy in _CAUSES if re.search(cause, message)), "")
    if settings.transport == LOCAL:
        return "" if "{ssh} true" in remedy else remedy.replace("{ssh} ", "").replace(" of the cluster", "")
    login = "`span login` asks for passwords and codes" if settings.transport == SSH else "paramiko asks for no codes"
    return remedy.format(ssh=spell_ssh(settings), login=login)


def _default_remedy(settings: Settings) -> str:
    if settings.transport == LOCAL:
        return "run the daemon where Slurm's commands work, set `path` to their folder, or `host` to reach them by ssh"
    return f"try `{spell_ssh(settings)} scontrol ping`; `span login` opens a connection that asks for codes"


def spell_ssh(settings: Settings) -> str:
    """The ssh command that connects as the daemon does, with the cluster's own configuration, user and port."""
    words = ["ssh", *(["-F", settings.ssh_config] if settings.ssh_config else []), *settings.ssh_options]
    words += ["-l", settings.user] if settings.user else []
    words += ["-p", str(settings.port)] if settings.port else []
    # `~` stays unquoted, so that the user's shell expands it.
    return " ".join(
        word if re.fullmatch(r"~/[\w./-]+", word) else shlex.quote(word) for word in [*words, settings.host]
    )
