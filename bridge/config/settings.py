"""The settings: what the user's and the site's configuration files say, checked and merged.

The user's file stands above the site's, except for keys that the site marks `final`. Used by the daemon.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, PrivateAttr, model_validator

from overspan.bridge.config.store_settings import StoreName, StoreSettings
from overspan.bridge.model.durations import parse_delay
from overspan.bridge.model.errors import InvalidRequest, Place
from overspan.bridge.model.sizes import parse_skypilot_memory
from overspan.bridge.validation.diagnostics import nearest
from overspan.bridge.validation.models import DocumentModel, Real, Whole, read_model
from overspan.bridge.validation.positions import NOWHERE, Path, Positions
from overspan.bridge.validation.yaml_documents import read_table
from overspan.bridge.validation.yaml_nodes import Table, find_node, has_path, key_place, plain

MAX_BYTES = 1 << 20
"""The largest configuration file that is read, in bytes."""

Seconds = Annotated[int, BeforeValidator(parse_delay)]
"""Seconds, written as a whole number with at most one unit of s, m, h, d, w."""


def _read_memory(value: Any) -> Any:
    """GB as job files have it, as MiB."""
    return value if value == 0 and not isinstance(value, bool) else parse_skypilot_memory(value).mib


Mebibytes = Annotated[int, BeforeValidator(_read_memory)]
"""Memory, written in GB or with a unit."""

_CLUSTERS = "clusters"
_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.:@/-]{0,199}$"


class GpuSettings(DocumentModel):
    """What a job file's tasks with GPUs get where they name no CPUs or no memory; 0 asks for nothing."""

    cpus_per_gpu: Real = Field(default=4, ge=0, le=1024)
    memory_per_cpu: Mebibytes = Field(default=4096, ge=0)


def _check_folder(path: str) -> str:
    if not path.startswith("/") or path == "/" or "//" in path or ".." in path.split("/"):
        raise ValueError(f"{path!r} is no absolute path of a folder; write one such as /scratch")
    return path.rstrip("/")


Folder = Annotated[str, Field(max_length=4096), AfterValidator(_check_folder)]
FolderName = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]


class FolderSettings(DocumentModel):
    """A folder as a cluster has it; `volume` is what pods mount there, as an entry of `volumes` has it."""

    path: Folder
    volume: Any = None

    @model_validator(mode="before")
    @classmethod
    def _take_path(cls, value: Any) -> Any:
        return {"path": value} if isinstance(value, str) else value


class ClusterSettings(DocumentModel):
    """One cluster: its kind, the directory for its run directories, and the kind's own settings."""

    model_config = ConfigDict(extra="allow", frozen=True)

    kind: str = Field(default="", pattern=r"^([a-z][a-z0-9_-]{0,62})?$")
    root: str = Field(default="", max_length=4096)
    daemon_address: str = Field(default="", pattern=r"^([A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?(:[0-9]{1,5})?)?$")
    """HOST or HOST:PORT where the cluster's jobs reach this daemon; empty where they cannot."""
    daemon_tunnel: bool = False
    """Whether that port is on the cluster's side, and leads here by the daemon's own connection to the cluster."""
    paths: dict[FolderName, FolderSettings] = Field(default_factory=dict, max_length=100)
    """What the cluster calls folders that it shares with others."""
    max_running: Whole | None = Field(default=None, ge=1, le=10_000_000)
    """How many of the daemon's jobs are on the cluster at once; the others wait in the daemon."""
    max_submitted: Whole | None = Field(default=None, ge=1, le=10_000_000)
    """The same, told to users as a limit on submitted jobs."""
    gpu_defaults: GpuSettings = GpuSettings()

    @model_validator(mode="after")
    def _check_tunnel(self) -> ClusterSettings:
        if self.daemon_tunnel and ":" not in self.daemon_address:
            raise ValueError("daemon_tunnel needs a port: `daemon_address: HOST:PORT`, as the cluster's nodes see it")
        return self

    @property
    def own(self) -> dict[str, Any]:
        """The settings that only the kind's adapter knows."""
        return dict(self.model_extra or {})


class PollIntervals(DocumentModel):
    """Intervals of polling and retrying, in seconds (the section `ticks`)."""

    observe: Seconds = Field(default=60, ge=1, le=3600)
    """The longest wait for events in one call. Adapters that get events pushed return at once."""
    retry: Seconds = Field(default=1, ge=1, le=3600)
    """The first wait before a cluster that did not answer is asked again; doubled up to `retry_limit`."""
    retry_limit: Seconds = Field(default=10, ge=1, le=86400)


class DaemonLimits(DocumentModel):
    """Upper bounds of what the daemon accepts."""

    max_live_jobs: Whole = Field(default=100_000, ge=1, le=10_000_000)
    max_tasks: Whole = Field(default=1_000, ge=1, le=100_000)
    max_nodes: Whole = Field(default=10_000, ge=1, le=1_000_000)


class ServerSettings(DocumentModel):
    """Settings of the server. `operators` are for a daemon with several users; a single user's ignores them."""

    job_port: Whole = Field(default=0, ge=0, le=65535)
    """Where the daemon listens for commands inside jobs; 0 is a free port, which is kept."""
    operators: tuple[Annotated[str, Field(min_length=1, max_length=256)], ...] = Field(default=(), max_length=1000)
    """Names of users who may give orders for all users' jobs, as root may."""


class Settings(DocumentModel):
    """Everything a configuration file can say, with its defaults."""

    default_cluster: str = Field(default="", max_length=200)
    paths: dict[FolderName, Folder] = Field(default_factory=dict, max_length=100)
    """What this machine calls folders that it shares with clusters."""
    clusters: dict[Annotated[str, Field(pattern=_NAME)], ClusterSettings] = Field(default_factory=dict, max_length=1000)
    stores: dict[StoreName, StoreSettings] = Field(default_factory=dict, max_length=100)
    """Object stores that jobs' storage, evaluations and `span storage` reach."""
    ticks: PollIntervals = PollIntervals()
    limits: DaemonLimits = DaemonLimits()
    server: ServerSettings = ServerSettings()
    retention: Seconds = Field(default=30 * 86400, ge=60)
    """How long finished jobs stay known."""
    top: Any = None
    """What `span top` reads for itself (`top_settings.py`): a mistake in it must not keep the daemon from starting."""
    _positions: Positions = PrivateAttr(default=NOWHERE)

    def find_positions(self, cluster: str) -> Positions:
        """Where the settings of a cluster stand, for its adapter's messages."""
        return self._positions.below((_CLUSTERS, cluster))


class _SiteFile(Settings):
    """The site's file: the settings, and the keys a user cannot change."""

    final: tuple[Annotated[str, Field(max_length=400)], ...] = Field(default=(), max_length=1000)


class Kinds(NamedTuple):
    """What is asked of the kinds of clusters: `check` raises InvalidRequest for one that cannot be used."""

    check: Callable[[str], None]
    has_volumes: Callable[[str], bool]


ANY_KIND = Kinds(lambda kind: None, lambda kind: True)


def load_settings(user_file: str, site_file: str, kinds: Kinds = ANY_KIND) -> Settings:
    """Read both files; one that does not exist says nothing. Raises InvalidRequest with file, line and column."""
    user, site = _read(user_file), _read(site_file)
    site_settings = read_model(_SiteFile, plain(site), Positions((site,)))
    final = [_final_path(text, site, index) for index, text in enumerate(site_settings.final)]
    read_model(Settings, plain(user), Positions((user,)))
    for path in final:
        _refuse_final(path, user, site)
    merged = _merge({key: value for key, value in plain(site).items() if key != "final"}, plain(user))
    positions = Positions(tuple(file for file in (user, site) if file.entries))
    settings = read_model(Settings, merged, positions)
    settings._positions = positions
    _check_kinds(settings, positions, kinds)
    if settings.default_cluster and settings.clusters and settings.default_cluster not in settings.clusters:
        # `local` is there without being written down; other kinds may be found when the daemon starts.
        _check_default(settings, positions)
    return settings


def _read(file: str) -> Table:
    try:
        with open(file, "rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return Table(Place(file), {})
    except OSError as error:
        raise InvalidRequest(
            f"cannot read the configuration: {error.strerror}", remedy="mend its permissions", place=Place(file)
        ) from None
    if len(data) > MAX_BYTES:
        raise InvalidRequest(f"a configuration file has at most {MAX_BYTES} bytes", place=Place(file))
    try:
        return read_table(data.decode("utf-8"), file)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidRequest("this is not UTF-8 text", place=Place(file, line)) from None


def _final_path(text: str, site: Table, index: int) -> Path:
    """The dotted path of a final key; cluster names may hold dots, so the names in the file are tried first."""
    place = key_place(site, "final", index)
    head, _, rest = text.partition(".")
    if head not in Settings.model_fields:
        known = list(Settings.model_fields)
        remedy = f"known keys: {', '.join(sorted(known))}"
        raise InvalidRequest(f"no key {text!r} to make final{nearest(head, known)}", remedy=remedy, place=place)
    if head != "clusters" or not rest:
        return (head, *(rest.split(".") if rest else ()))
    for name in sorted(plain(site).get("clusters") or {}, key=len, reverse=True):
        if rest == name or rest.startswith(f"{name}."):
            tail = rest[len(name) + 1 :]
            return ("clusters", name, *(tail.split(".") if tail else ()))
    raise InvalidRequest(f"no cluster for the final key {text!r} in this file", remedy="add the cluster", place=place)


def _refuse_final(path: Path, user: Table, site: Table) -> None:
    """A final key in the user's file is an error, even with the same value: it would look as if it counted."""
    for depth in range(len(path), 0, -1):
        found = find_node(user, *path[:depth])
        if found is None:
            continue
        if depth < len(path) and isinstance(found, Table):
            return
        fixed = key_place(site, *path) if has_path(site, path[0]) else key_place(site, "final")
        raise InvalidRequest(
            f"{'.'.join(map(str, path))!r} is fixed by the site ({fixed})",
            remedy="remove it from your file",
            place=key_place(user, *path),
        )


def _merge(below: Any, above: Any) -> Any:
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    result = dict(below)
    for key, value in above.items():
        # A key without a value counts as absent.
        if value is not None:
            result[key] = _merge(below[key], value) if key in below else value
    return result


def _check_kinds(settings: Settings, positions: Positions, kinds: Kinds) -> None:
    """Every cluster has a kind once both files are read, and one that can be used."""
    for name, cluster in settings.clusters.items():
        path: Path = (_CLUSTERS, name)
        if not cluster.kind:
            raise InvalidRequest(
                f"'clusters.{name}.kind' is missing",
                remedy="add the key, such as `kind: local`",
                place=positions.key(path),
            )
        volume = next((key for key, each in cluster.paths.items() if each.volume is not None), "")
        if volume and not kinds.has_volumes(cluster.kind):
            raise InvalidRequest(
                f"clusters.{name}.paths.{volume}: only pods have a volume",
                remedy="leave `volume` out: write the path alone",
                place=positions.key((*path, "paths", volume, "volume")),
            )
        try:
            kinds.check(cluster.kind)
        except InvalidRequest as error:
            error.place = positions.value((*path, "kind"))
            raise


def _check_default(settings: Settings, positions: Positions) -> None:
    known: Iterable[str] = [*settings.clusters, "local"]
    if settings.default_cluster not in known:
        raise InvalidRequest(
            f"the default cluster {settings.default_cluster!r} is not configured",
            remedy=f"configured clusters: {', '.join(known)}",
            place=positions.value(("default_cluster",)),
        )
