"""The guide names every command, option, card key and diagnostic code, and its own links lead somewhere."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from linnet.cli.linnet_main import linnet
from linnet.cli.nest_main import nest
from linnet.language.diagnostics import CODES
from linnet.registry.card import KEYS, TABLES, parse_card
from linnet.registry.gate_figures import LIMITS
from linnet.registry.gate_findings import KINDS

DOCS = Path(__file__).resolve().parents[2] / "docs"
IMAGES = DOCS / "images"
# The list of pictures is for the repository's reader and no page of the guide.
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md") if path.parent != IMAGES)


def commands(group: click.Group, name: str) -> Iterator[tuple[str, click.Command]]:
    """Every command of a group, nested ones included, by the words a user types."""
    context = click.Context(group)
    for word in group.list_commands(context):
        command = group.get_command(context, word)
        assert command is not None
        full = f"{name} {word}"
        if isinstance(command, click.Group):
            yield from commands(command, full)
        else:
            yield full, command


ALL_COMMANDS = [*commands(nest, "nest"), *commands(linnet, "linnet")]


def sections(text: str) -> dict[str, str]:
    """The text under each heading of level two."""
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.fixture(scope="module")
def command_sections(root: Path) -> dict[str, str]:
    return sections((root / "docs" / "commands.md").read_text())


@pytest.mark.parametrize(("name", "command"), ALL_COMMANDS, ids=[name for name, _ in ALL_COMMANDS])
def test_command_and_options_are_documented(
    command_sections: dict[str, str], name: str, command: click.Command
) -> None:
    assert name in command_sections
    text = command_sections[name]
    assert command.help
    assert f"Example: {name.split()[0]} " in command.help
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            longest = max(parameter.opts, key=len)
            assert f"`{longest}" in text, f"docs/commands.md says nothing of {longest} under {name}"
            assert parameter.help, f"{name} {longest} has no help"


def test_no_command_is_documented_that_is_not_there(command_sections: dict[str, str]) -> None:
    documented = {name for name in command_sections if name.startswith(("nest ", "linnet "))}
    # The group, whose own section says what it is short for.
    assert documented - {"nest index"} == {name for name, _ in ALL_COMMANDS}


def test_no_option_is_documented_that_is_not_there(command_sections: dict[str, str]) -> None:
    for name, command in ALL_COMMANDS:
        known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
        mentioned = set(re.findall(r"`(--[a-z0-9-]+)", command_sections[name]))
        assert mentioned <= known, f"under {name}"


def test_every_card_key_is_documented(root: Path) -> None:
    text = sections((root / "docs" / "cards.md").read_text())
    assert {f"[{table}]" for table in TABLES} <= text.keys()
    for table, keys in KEYS.items():
        for key in keys:
            assert f"`{key}`" in text[f"[{table}]"], f"docs/cards.md says nothing of {table}.{key}"


def test_the_examples_of_a_card_make_one(root: Path) -> None:
    examples = re.findall(r"^```toml\n(.*?)^```$", (root / "docs" / "cards.md").read_text(), re.DOTALL | re.MULTILINE)
    assert len(examples) == 2
    card = parse_card("\n".join(examples).encode())
    assert card.model.name == "all-minilm-l6-v2"
    assert card.tokenizer is not None
    assert card.tokenizer.chat_template is not None


def test_every_diagnostic_is_documented(root: Path) -> None:
    rows = dict(
        re.findall(r"^\| ([EW]\d{4}) \| (.+?) \| ", (root / "docs" / "diagnostics.md").read_text(), re.MULTILINE)
    )
    rows = {code: meaning.replace("\\|", "|") for code, meaning in rows.items()}
    assert rows == CODES


def test_the_navigation_names_every_page(root: Path) -> None:
    named = re.findall(r": ([\w./-]+\.md)$", (root / "mkdocs.yml").read_text(), re.MULTILINE)
    # help.md is made as the guide is built.
    assert sorted(named) == sorted([*PAGES, "help.md"])


@pytest.mark.parametrize("page", PAGES)
def test_links_between_pages_lead_somewhere(page: str) -> None:
    text = re.sub(r"^```.*?^```$", "", (DOCS / page).read_text(), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([\w./-]+)?(?:#([\w-]+))?\)", text):
        file, anchor = (DOCS / page).parent / target[0] if target[0] else DOCS / page, target[1]
        assert file.is_file(), target
        if file.suffix == ".md":
            headings = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE)
            slugs = {re.sub(r"[^\w]+", "-", heading.lower()).strip("-") for heading in headings}
            assert not anchor or anchor in slugs, target


def test_the_guide_builds_without_a_warning(root: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path / "guide")]
    done = subprocess.run(words, cwd=root, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    norm = (tmp_path / "guide" / "std" / "std.nn.norm.html").read_text()
    # The guide lies in the site's folder docs, and the sources are pages of the site.
    assert '<a href="../../std/nn/norm/index.html#L9">linnet/std/nn/norm.linnet:9</a>' in norm
    assert "../../linnet/" not in norm
    help = " ".join((tmp_path / "guide" / "help.html").read_text().split())
    for name, command in ALL_COMMANDS:
        assert f">{name}</h2>" in help
        assert html.escape(str(command.help).partition("\n")[0], quote=False) in help


def test_readme_names_only_files_and_commands_that_exist(root: Path) -> None:
    text = (root / "README.md").read_text()
    for path in re.findall(r"`((?:docs|nests|bench|tests)/[\w./-]+)`", text):
        assert (root / path.rstrip("/")).exists(), path
    known = {name for name, _ in ALL_COMMANDS} | {"nest index"}
    for line in re.findall(r"^((?:nest|linnet) .+?)\s*(?:#.*)?$", text, re.MULTILINE):
        assert any(line.startswith(name) for name in known), line
    targets = set(re.findall(r"^([a-z-]+):", (root / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:`|^)make ([a-z-]+)", text, re.MULTILINE))
    assert {"demo", "test"} <= named <= targets


def test_no_two_test_files_have_one_name(root: Path) -> None:
    """pytest imports them by name alone."""
    names = [path.name for path in (root / "tests").rglob("test_*.py")]
    assert sorted(set(names)) == sorted(names)


def test_every_kind_of_finding_of_the_gate_is_documented(root: Path) -> None:
    text = (root / "docs" / "gate.md").read_text()
    table = text[text.index("| kind | when |") :].split("\n\n")[0]
    cells = [line.split("|")[1] for line in table.splitlines()[2:]]
    assert sorted(kind for cell in cells for kind in re.findall(r"`([a-z-]+)`", cell)) == sorted(KINDS)
    assert all(name in text for name in LIMITS)


def test_every_picture_is_listed(root: Path) -> None:
    assert "(docs/images/README.md)" in (root / "README.md").read_text()
    listed = re.findall(r"\]\(([^)]+)\)", (IMAGES / "README.md").read_text())
    assert sorted(listed) == sorted(path.name for path in IMAGES.glob("*.png"))
