"""What editors take from here: the TextMate grammar, the VS Code folder, the Pygments entry point."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import click
import pytest
from pygments.lexers import get_lexer_by_name, get_lexer_for_filename

from linnet.cli.linnet_main import linnet
from linnet.language.program.types import DTYPES
from linnet.language.syntax.lexer import KEYWORDS, RESERVED
from linnet.language.syntax.parse_types import KINDS
from linnet.language.syntax.pygments_lexer import PRELUDE, LinnetLexer

Rule = dict[str, Any]


@pytest.fixture(scope="module")
def folder(root: Path) -> Path:
    return root / "editors" / "vscode"


@pytest.fixture(scope="module")
def grammar(folder: Path) -> Rule:
    found: Rule = json.loads((folder / "syntaxes" / "linnet.tmLanguage.json").read_text())
    return found


def rules(node: Any) -> Iterator[Rule]:
    """Every rule of a grammar, at any depth."""
    if isinstance(node, dict):
        if {"match", "begin", "include"} & node.keys():
            yield node
        for value in node.values():
            yield from rules(value)
    elif isinstance(node, list):
        for value in node:
            yield from rules(value)


def listed(grammar: Rule, part: str, scope: str = "") -> set[str]:
    """The words between `|` in the rules of a part of the grammar whose scope begins with `scope`."""
    found: set[str] = set()
    for rule in grammar["repository"][part]["patterns"]:
        if rule.get("name", "").startswith(scope):
            for group in re.findall(r"\(\?:([\w|]+)\)", rule["match"]):
                found |= set(group.split("|"))
    return found


def test_the_words_are_those_of_the_lexer(grammar: Rule) -> None:
    reserved = listed(grammar, "keywords", "invalid")
    assert reserved == RESERVED
    assert listed(grammar, "keywords") - reserved == KEYWORDS
    assert listed(grammar, "types") == {*DTYPES, *KINDS, "Tensor"}
    assert listed(grammar, "functions", "support.function.linnet") == set(PRELUDE)


def test_every_pattern_compiles_and_every_include_leads_somewhere(grammar: Rule) -> None:
    seen = 0
    for rule in rules(grammar):
        for key in ("match", "begin", "end"):
            if key in rule:
                seen += 1
                groups = re.compile(rule[key]).groups
                captures = [int(number) for number in rule.get("captures", {})]
                assert max(captures, default=0) <= groups
        if "include" in rule:
            assert rule["include"].removeprefix("#") in grammar["repository"]
    assert seen > 20


def scopes(grammar: Rule, line: str) -> dict[str, str]:
    """The innermost scope of each piece of a line of code, as an editor finds it: earliest match first, then order."""

    def flat(patterns: list[Rule]) -> Iterator[Rule]:
        for rule in patterns:
            if "include" in rule:
                part = grammar["repository"][rule["include"][1:]]
                yield from flat([part] if {"match", "begin"} & part.keys() else part["patterns"])
            else:
                yield rule

    known = list(flat(grammar["patterns"]))
    found: dict[str, str] = {}
    at = 0
    while at < len(line):
        matches = [
            (m.start(), i, m)
            for i, r in enumerate(known)
            if (m := re.compile(r.get("match") or r["begin"]).search(line, at))
        ]
        if not matches:
            break
        _, i, match = min(matches, key=lambda item: item[:2])
        rule = known[i]
        if "end" in rule:
            end = re.compile(rule["end"]).search(line, match.end())
            assert end is not None
            found[line[match.start() : end.end()]] = rule["name"]
            at = end.end()
            continue
        if "name" in rule:
            found[match[0]] = rule["name"]
        for number, capture in rule.get("captures", {}).items():
            found[match[int(number)]] = capture["name"]
        at = max(match.end(), at + 1)
    return {text: scope.removesuffix(".linnet") for text, scope in found.items()}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("use std.random::{split}", {"use": "keyword.other.import", "std.random": "entity.name.namespace"}),
        (
            "pub block Layer<H: Dim, T: Float>",
            {"Layer": "entity.name.type", "Dim": "support.type", "pub": "storage.modifier"},
        ),
        ("    sub layers: [Layer<H>; Layers]", {"layers": "variable.other.member", "sub": "storage.type"}),
        (
            "let y[i] = sum<f32>[k] x[k] // all",
            {
                "sum": "support.function.reduction",
                "f32": "support.type.primitive",
                "// all": "comment.line.double-slash",
            },
        ),
        (
            "return lm_head.forward(max(x, 1e-5))",
            {"forward": "variable.other.member", "max": "support.function", "1e-5": "constant.numeric.float"},
        ),
        (
            'static for i in 0..Steps { x = "a" }',
            {"static": "keyword.control", "..": "keyword.operator", '"a"': "string.quoted.double"},
        ),
        ("let async = 0xff", {"async": "invalid.illegal.reserved", "0xff": "constant.numeric.hex"}),
        ("random.split(key)", {"split": "variable.other.member"}),
    ],
)
def test_lines_are_coloured(grammar: Rule, line: str, expected: dict[str, str]) -> None:
    assert expected.items() <= scopes(grammar, line).items()


def test_the_extension_names_what_is_there(folder: Path, root: Path) -> None:
    extension = json.loads((folder / "package.json").read_text())
    contributes = extension["contributes"]
    (language,), (colours,) = contributes["languages"], contributes["grammars"]
    assert language["id"] == colours["language"] == "linnet"
    assert colours["scopeName"] == json.loads((folder / colours["path"]).read_text())["scopeName"]
    json.loads((folder / language["configuration"]).read_text())
    assert (folder / extension["main"]).is_file()
    assert extension["version"] == tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    (program, command) = contributes["configuration"]["properties"]["linnet.server.command"]["default"]
    assert program == "linnet"
    assert command in linnet.list_commands(click.Context(linnet))


def test_pygments_finds_the_lexer() -> None:
    (point,) = [point for point in entry_points(group="pygments.lexers") if point.name == "linnet"]
    assert point.load() is LinnetLexer
    assert isinstance(get_lexer_by_name("linnet"), LinnetLexer)
    assert isinstance(get_lexer_for_filename("lib.linnet"), LinnetLexer)
