"""Links, code blocks and tables of the pages agree with the project."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest
import yaml
from tests.unit.docs import pages
from tests.unit.docs.pages import PAGES, ROOT, Block

from overspan.bridge.cli.program import COMMANDS
from overspan.bridge.config.settings import load_settings
from overspan.bridge.readers.job_file import read_job_file
from overspan.bridge.readers.read_context import ReadContext

BLOCKS = [(page, block) for page in PAGES for block in pages.read_blocks(page)]
README = ROOT / "README.md"


def of_language(*languages: str) -> list[object]:
    """The blocks of these languages, with names for pytest."""
    return [
        pytest.param(block, id=f"{page.name}:{block.line}") for page, block in BLOCKS if block.language in languages
    ]


def test_there_is_something_to_check() -> None:
    assert {page.name for page in PAGES} >= {"README.md", "CONTRIBUTING.md", "job-file.md", "acceptance.md"}
    assert {block.language for _, block in BLOCKS} >= {"yaml", "sh", "python", "console", "toml"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", pages.read_text(page)):
        if "://" in target:
            continue
        path, _, fragment = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name}: {target}"
        if fragment:
            headings = re.findall(r"^#+ +(.*)$", pages.read_text(file), re.MULTILINE)
            assert fragment in map(pages.anchor, headings), f"{page.name}: {target}"


@pytest.mark.parametrize("block", of_language("yaml"))
def test_yaml_is_a_job_file_or_a_configuration(block: Block, tmp_path: Path) -> None:
    if any(key in block.text for key in ("clusters:", "default_cluster:", "stores:")):
        file = tmp_path / "config.yaml"
        file.write_text(block.text)
        settings = load_settings(str(tmp_path / "none.yaml"), str(file))
        assert settings.clusters or settings.stores
    else:
        assert read_job_file(block.text, "example.yaml", context=ReadContext(directory="/work")).tasks


@pytest.mark.parametrize("block", of_language("python"))
def test_python_can_be_compiled_and_its_imports_exist(block: Block) -> None:
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("overspan"):
            module = __import__(str(node.module), fromlist=["*"])
            assert all(hasattr(module, alias.name) for alias in node.names)


@pytest.mark.parametrize("block", of_language("sh", "console"))
def test_shell_names_commands_and_targets_that_exist(block: Block) -> None:
    words = re.findall(r"(?:^|[;&|(`\"]\s*|\$ )span (\w+)", block.text, re.MULTILINE)
    assert set(words) <= set(COMMANDS), words


def test_make_targets_that_are_named_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        named = set(re.findall(r"`make ([a-z]+)`", page.read_text()))
        assert named <= targets, page.name


def test_the_readme_lists_every_command() -> None:
    section = pages.read_section(README, "Commands")
    named = {word.removeprefix("span ").split()[0] for word in pages.first_words(section)}
    assert named == {name for name, command in COMMANDS.items() if command.summary}


def test_the_page_of_commands_lists_every_command() -> None:
    text = (ROOT / "docs" / "commands.md").read_text()
    assert [name for name, command in COMMANDS.items() if command.summary and not re.search(rf"\b{name}\b", text)] == []


def test_examples_that_are_named_exist() -> None:
    text = (ROOT / "examples" / "README.md").read_text()
    folders = [ROOT / "examples", *(ROOT / "examples").glob("*")]
    for name in re.findall(r"\b[\w-]+\.(?:py|sh|yaml)\b", text):
        assert any((folder / name).exists() for folder in folders), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tables_have_even_rows(page: Path) -> None:
    for table in re.findall(r"(?:^\|.*\n)+", pages.read_text(page), re.MULTILINE):
        widths = {len(re.split(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(widths) == 1, f"{page.name}: {table.splitlines()[0]}"


def test_the_demo_in_the_readme_is_the_example() -> None:
    documents = list(yaml.safe_load_all((ROOT / "examples" / "rlhf" / "rlhf.yaml").read_text()))
    names = [document["name"] for document in documents if document][1:]
    text = README.read_text()
    assert names and all(f"{name} (aux)" in text or f"{name}  " in text for name in names), json.dumps(names)
