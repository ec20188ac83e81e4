"""Highlighted texts are what Pygments' own lexers make of them, faster."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from linnet.site_builder.tokens import LEXERS, Line, _lexer, _token_class, token_lines

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = {
    "bash": "set -e\nfor x in a b; do\n  echo \"${x}\" 'q' $(( 1 + 2 )) `ls` <<EOF\nhi $x\nEOF\ndone # end\n",
    "json": (ROOT / "docs/schemas/model.v1.schema.json").read_text("utf-8"),
    "linnet": (ROOT / "linnet/std/nn/attention.linnet").read_text("utf-8"),
    "markdown": (ROOT / "README.md").read_text("utf-8"),
    "python": Path(__file__).read_text("utf-8") + 'x = f"{a!r:>{w}} \\n" + rb"\\x00" + """doc\n"""\n',
    "text": "one\n\ntwo & <three>\n",
    "toml": (ROOT / "pyproject.toml").read_text("utf-8"),
    "yaml": (ROOT / "mkdocs.yml").read_text("utf-8"),
}


def _by_pygments(text: str, language: str) -> tuple[Line, ...]:
    lines: list[list[tuple[str, str]]] = [[]]
    for kind, value in LEXERS[language](stripnl=False, ensurenl=False).get_tokens(text):
        name = _token_class(kind)
        for index, piece in enumerate(value.split("\n")):
            if index:
                lines.append([])
            if piece and lines[-1] and lines[-1][-1][0] == name:
                lines[-1][-1] = (name, lines[-1][-1][1] + piece)
            elif piece:
                lines[-1].append((name, piece))
    return tuple(map(tuple, lines if lines[-1] else lines[:-1]))


@pytest.mark.parametrize("language", LEXERS)
def test_samples(language: str) -> None:
    assert token_lines(SAMPLES[language], language) == _by_pygments(SAMPLES[language], language)


@pytest.mark.parametrize("language", LEXERS)
def test_texts_of_other_languages_and_broken_ones(language: str) -> None:
    chance = random.Random(language)
    for sample in SAMPLES.values():
        for _ in range(6):
            first = chance.randrange(len(sample))
            piece = sample[first : first + 1500]
            cut = chance.randrange(len(piece) + 1)
            text = piece[:cut] + chance.choice("\"'`\\\n\r\x00\t{}()[]<>*_#~$\u202e\ufeff") + piece[cut:]
            assert token_lines(text, language) == _by_pygments(text, language), text


def test_lexers_whose_rules_are_patterns_are_joined() -> None:
    joined = {language for language in LEXERS if type(_lexer(language)).__mro__[1].__name__ == "_Joined"}
    assert joined == {"bash", "linnet", "markdown", "python", "toml"}
