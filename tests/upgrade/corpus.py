"""The corpus as files: what a recording leaves is scrubbed of its machine, and a copy of it has this machine's again.

Times are kept as they were recorded. A copy moves all of them by the same whole number of seconds, so that the
recording has just ended: nothing in it is too old to be kept, and nothing that waits for a time is due.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import socket
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.upgrade.old_version import COMMIT

CORPUS = Path(__file__).with_name("corpus")
DATABASE = "state/overspan.db"
KEPT = ("state", "slurm", "work")
LEFT_OUT = re.compile(r"state/(overspan\.db.*|daemon\..*|run|shims)|slurm/lib|state/clusters/local/(cache|wake)")
"""Below KEPT: the database, which is kept as text, and what each version writes for itself."""
MEASURED = re.compile(r"(journal|queue|orders)\.\d+\.jsonl")
"""Files in which cursors are places: each word is kept as long as it was, and is no placeholder."""
EARLIER, LATER = 3600, 40 * 86400
"""How many seconds around the recording a number of ten digits is a time."""
BOOT_ID = "00000000-0000-4000-8000-000000000000"
_TIME = re.compile(r"(?<![\w.-])\d{10}(?![\w-])")


class Places(NamedTuple):
    """What a machine has in the recorded texts: the folder of all, and that of the version's programs."""

    root: str
    programs: str

    def scrub(self, text: str) -> str:
        """Put placeholders in the place of this machine's own."""
        user = re.escape(name_user())
        text = text.replace(self.root, "@ROOT@").replace(self.programs, "@PROGRAMS@")
        text = re.sub(rf"\b{re.escape(socket.gethostname())}\b", "@HOST@", text)
        text = re.sub(rf"""(["']){user}(["'])""", r"\1@USER@\2", text)
        text = re.sub(rf"\b(USER|LOGNAME)={user}\b", r"\1=@USER@", text)
        return text.replace(_boot_id(), BOOT_ID)

    def disguise(self, text: str) -> str:
        """Put names as long as this machine's own in their place."""
        assert self.root not in text and self.programs not in text, text
        for name, word in ((socket.gethostname(), "host"), (name_user(), "user")):
            text = re.sub(rf'"{re.escape(name)}"', f'"{(word * len(name))[: len(name)]}"', text)
        return text

    def fill(self, text: str) -> str:
        """Put this machine's own in the place of the placeholders; its boot is another than the recorded one."""
        given = {"ROOT": self.root, "PROGRAMS": self.programs, "HOST": socket.gethostname(), "USER": name_user()}
        return re.sub(r"@(ROOT|PROGRAMS|HOST|USER)@", lambda found: given[found[1]], text)


def keep(root: Path, places: Places, now: float) -> None:
    """Put the corpus in the place of the one there is."""
    shutil.rmtree(CORPUS, ignore_errors=True)
    CORPUS.mkdir()
    with sqlite3.connect(root / DATABASE) as connection:
        (CORPUS / "overspan.sql").write_text(places.scrub("".join(f"{line}\n" for line in connection.iterdump())))
    connection.close()
    folders = []
    for path in walk(root):
        place = path.relative_to(root)
        if path.is_symlink() or path.is_file():
            target = CORPUS / place
            target.parent.mkdir(parents=True, exist_ok=True)
            _copy_scrubbed(path, target, places)
        elif path.is_dir() and not any(path.iterdir()):
            folders.append(str(place))
    about = {"commit": COMMIT, "recorded_at": int(now), "folders": sorted(folders)}
    (CORPUS / "recorded.json").write_text(json.dumps(about, indent=1) + "\n")


def walk(root: Path) -> Iterator[Path]:
    """What is kept of a recording, in order."""
    for top in KEPT:
        for folder, names, files in os.walk(root / top):
            for name in list(names):
                path = Path(folder, name)
                if LEFT_OUT.fullmatch(str(path.relative_to(root))):
                    names.remove(name)
                else:
                    yield path
            found = [Path(folder, name) for name in files]
            yield from (path for path in found if not LEFT_OUT.fullmatch(str(path.relative_to(root))))


def _copy_scrubbed(path: Path, target: Path, places: Places) -> None:
    if path.is_symlink():
        target.symlink_to(places.scrub(os.readlink(path)))
    else:
        scrub = places.disguise if MEASURED.fullmatch(path.name) else places.scrub
        target.write_text(scrub(path.read_text()))
        target.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)


def restore(root: Path, now: float) -> None:
    """Make a copy below a folder as it was when the recording ended, which is now."""
    about = json.loads((CORPUS / "recorded.json").read_text())
    places = Places(root=str(root), programs=str(Path(sys.executable).parent))

    def fill(text: str) -> str:
        return shift(places.fill(text), about["recorded_at"], int(now) - about["recorded_at"])

    for name in about["folders"]:
        (root / name).mkdir(parents=True, exist_ok=True)
    for path in sorted(CORPUS.rglob("*")):
        target = root / path.relative_to(CORPUS)
        if path.is_dir() and not path.is_symlink():
            target.mkdir(parents=True, exist_ok=True)
        elif path.is_symlink():
            target.symlink_to(places.fill(os.readlink(path)))
        else:
            target.write_text(fill(path.read_text()))
            target.chmod(0o700 if path.stat().st_mode & 0o100 else 0o600)
    for folder, _, _ in os.walk(root):
        os.chmod(folder, 0o700)
    connection = sqlite3.connect(root / DATABASE)
    connection.executescript((root / "overspan.sql").read_text())
    connection.close()
    (root / DATABASE).chmod(0o600)


def shift(text: str, recorded_at: int, seconds: int) -> str:
    """Move each time around the recording by so many seconds."""

    def move(found: re.Match[str]) -> str:
        at = int(found[0])
        return str(at + seconds) if recorded_at - EARLIER <= at <= recorded_at + LATER else found[0]

    return _TIME.sub(move, text)


def name_user() -> str:
    """Who runs this, as the daemon finds it out."""
    return pwd.getpwuid(os.geteuid()).pw_name


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
