"""Configuration files: positions, merging, what a site fixes, and mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from overspan.adapters.installed import check_kind, has_volumes
from overspan.bridge.config.settings import ANY_KIND, Kinds, Settings, load_settings
from overspan.bridge.controller.core.clusters import Clusters
from overspan.bridge.model.errors import InvalidRequest, Place


def _load(folder: Path, user: str | None = None, site: str | None = None) -> Settings:
    for name, text in (("user.yaml", user), ("site.yaml", site)):
        if text is not None:
            (folder / name).write_text(text)
    return load_settings(
        str(folder / "user.yaml"), str(folder / "site.yaml"), ANY_KIND._replace(has_volumes=has_volumes)
    )


def test_no_files_are_the_defaults(tmp_path: Path) -> None:
    assert _load(tmp_path) == Settings()


def test_an_empty_file_says_nothing(tmp_path: Path) -> None:
    assert _load(tmp_path, user="# nothing\n") == Settings()


def test_user_stands_above_site(tmp_path: Path) -> None:
    site = (
        "retention: 7d\nticks: {observe: 30s, retry: 2}\nclusters:\n  big: {kind: slurm, root: /shared, host: login}\n"
    )
    settings = _load(tmp_path, user="ticks: {observe: 10}\nclusters: {big: {host: me@login}}\n", site=site)
    assert settings.retention == 7 * 86400
    assert (settings.ticks.observe, settings.ticks.retry) == (10, 2)
    assert settings.clusters["big"].root == "/shared"
    assert settings.clusters["big"].own == {"host": "me@login"}


def test_operators_of_a_shared_daemon(tmp_path: Path) -> None:
    site = "server: {operators: [ada, bob]}\nfinal: [server]\n"
    assert _load(tmp_path, site=site).server.operators == ("ada", "bob")
    with pytest.raises(InvalidRequest, match="fixed by the site"):
        _load(tmp_path, user="server: {operators: [eve]}\n", site=site)


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("retention: 5d\nretentoin: 1\n", 2, 1, "unknown key 'retentoin'"),
        ("ticks:\n  observ: 1\n", 2, 3, "did you mean 'observe'"),
        ("a: 1\na: 2\n", 2, 1, "twice; the first is at"),
        ("retention: 1m30s\n", 1, 12, "not a delay"),
        ("clusters:\n  x: {root: /a}\n", 2, 3, "'clusters.x.kind' is missing"),
        ("clusters: {'': {kind: local}}\n", 1, 12, "clusters."),
        ("a: [1\n", 2, 1, "not YAML"),
        ("paths: {lab: scratch}\n", 1, 14, "no absolute path"),
        ("paths: {lab: /}\n", 1, 14, "no absolute path"),
        ("paths: {La_b: /x}\n", 1, 9, "paths."),
        (
            "clusters:\n  x: {kind: slurm, paths: {lab: {volume: c}}}\n",
            2,
            28,
            "clusters.x.paths.lab.path: the key is missing",
        ),
        ("clusters:\n  x: {kind: slurm, paths: {lab: {path: /l, volume: c}}}\n", 2, 44, "only pods have a volume"),
        ("- 1\n", 1, 1, "keys and values are wanted here, not a list"),
        ("retention: 5d\n---\nretention: 6d\n", 3, 1, "only one document"),
        ("? [a]\n: 1\n", 1, 3, "a key must be a single word"),
        ("a: &x [1]\nb: *y\n", 2, 4, "no anchor &y"),
        ("retention: !!binary 5\n", 1, 12, "the tag"),
        ("default_cluster: moon\nclusters: {a: {kind: local}}\n", 1, 18, "'moon' is not configured"),
    ],
)
def test_mistakes_have_a_place(tmp_path: Path, text: str, line: int, column: int, words: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        _load(tmp_path, user=text)
    assert caught.value.place == Place(str(tmp_path / "user.yaml"), line, column)
    assert words in str(caught.value)


def test_what_clusters_have_in_common_is_written_once(tmp_path: Path) -> None:
    text = "clusters:\n  a: &a {kind: slurm, host: login, tick: 5}\n  b: {<<: *a, host: other}\n"
    assert _load(tmp_path, user=text).clusters["b"].own == {"host": "other", "tick": 5}


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    text = "ticks: {observe: 0, retry: soon}\nlimits: {max_tasks: '5'}\nclusters: {a: {kind: 3}, b: }\n"
    with pytest.raises(InvalidRequest) as caught:
        _load(tmp_path, user=text)
    file = str(tmp_path / "user.yaml")
    assert caught.value.place == Place(file, 1, 18)
    assert caught.value.message.splitlines() == [
        "ticks.observe: 0 is out of range; it must be at least 1",
        f"{file}:1:28: ticks.retry: 'soon' is not a delay; write whole seconds, or a whole number with s, m, h, d or w",
        f"{file}:2:21: limits.max_tasks: a whole number is wanted here, not the text '5'",
        f"{file}:3:22: clusters.a.kind: text is wanted here, not 3; put it in quotes",
        f"{file}:3:29: clusters.b: a mapping is wanted here, not nothing",
    ]


def test_a_key_without_a_value_leaves_the_site_s(tmp_path: Path) -> None:
    assert _load(tmp_path, user="retention:\nticks: {retry: }\n", site="retention: 7d\n").retention == 7 * 86400


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "user.yaml").write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(InvalidRequest, match="not UTF-8") as caught:
        _load(tmp_path)
    assert caught.value.place == Place(str(tmp_path / "user.yaml"), 2)


def test_what_the_site_fixes_stays(tmp_path: Path) -> None:
    site = "retention: 7d\nlimits: {max_tasks: 5}\nfinal: [retention, limits.max_tasks]\n"
    assert _load(tmp_path, user="limits: {max_nodes: 3}\n", site=site).limits.max_tasks == 5
    with pytest.raises(InvalidRequest, match="fixed by the site") as caught:
        _load(tmp_path, user="limits:\n  max_tasks: 50\n", site=site)
    assert caught.value.place == Place(str(tmp_path / "user.yaml"), 2, 3)
    assert "site.yaml:2" in str(caught.value)


def test_a_fixed_part_covers_what_is_inside(tmp_path: Path) -> None:
    site = "clusters: {a.b: {kind: slurm}}\nfinal: [clusters.a.b, ticks]\n"
    for user in ("clusters: {a.b: {root: /x}}\n", "ticks: {observe: 1}\n"):
        with pytest.raises(InvalidRequest, match="fixed by the site"):
            _load(tmp_path, user=user, site=site)
    assert "own" in _load(tmp_path, user="clusters: {own: {kind: local}}\n", site=site).clusters


def test_a_final_key_has_to_exist(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="did you mean 'retention'"):
        _load(tmp_path, user="", site="final: [retenton]\n")


def test_a_kind_that_there_is_not_is_refused_when_the_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text("clusters:\n  mine:\n    kind: locall\n")
    with pytest.raises(InvalidRequest, match="of kind 'locall'; did you mean 'local'") as caught:
        load_settings(str(tmp_path / "user.yaml"), str(tmp_path / "site.yaml"), Kinds(check_kind, has_volumes))
    assert caught.value.place == Place(str(tmp_path / "site.yaml"), 3, 11)
    assert "kinds that work here: kubernetes, local, slurm" in caught.value.remedy


def test_a_cluster_s_own_settings_have_places(tmp_path: Path) -> None:
    settings = _load(tmp_path, user="clusters:\n  a.b: {kind: local, root: /r,\n    cpu: 4}\n")
    clusters = Clusters(settings, str(tmp_path))
    with pytest.raises(InvalidRequest, match=r"unknown key 'clusters\.a\.b\.cpu'\n") as caught:
        clusters.get("a.b").open()
    assert caught.value.place == Place(str(tmp_path / "user.yaml"), 3, 5)
    assert (
        "did you mean 'cpus'? known keys: address, cpus, data_cache_size, data_fuse, data_keep, gpus"
        in caught.value.remedy
    )
    positions = settings.find_positions("a.b")
    assert positions.value(("cpu",)) == Place(str(tmp_path / "user.yaml"), 3, 10)
    assert positions.key(("nothing",)) == Place(str(tmp_path / "user.yaml"), 2, 3)
    assert settings.find_positions("none").key(()) is None
