"""What names refer to: every name of a checked source has its reference, and each kind leads where it should."""

from __future__ import annotations

from pathlib import Path

import pytest

from linnet.language.check import CheckResult, load
from linnet.language.check.modules import STD_ROOT
from linnet.language.check.references import KINDS, Reference
from linnet.language.diagnostics import Diagnostics
from linnet.language.program.types import DTYPES
from linnet.language.source import Source, Span
from linnet.language.syntax import tree
from linnet.language.syntax.lexer import lex
from linnet.language.syntax.parse_types import KINDS as GENERIC_KINDS
from linnet.language.syntax.parser import parse

GOOD = Path(__file__).resolve().parents[1] / "corpus" / "good"
# Names that the language itself gives a meaning: element types, kinds, reductions, a named argument of the prelude.
PLAIN = frozenset((*DTYPES, *GENERIC_KINDS, "Tensor", "sum", "prod", "max", "min", "any", "all", "axis"))

SOURCE = """\
module zoo

use std.random as chance
use std.nn.linear::{Linear as Dense, linear}

const WIDTH = 8
type Row<N: Dim> = Tensor[N; f32]
struct Pair<N: Dim> { left: Row<N>  right: Row<N> }
enum Way { Up, Down }

/// Mixes.
fn mix<N: Dim>(a: Row<N>, way: Way) -> Pair<N> {
    let doubled[i] = sum[j] a[i] * a[j]
    let signed = match way { Up => doubled  Down => a }
    return Pair(left = signed, right = abs(a))
}

pub block Root<H: Dim = 4> where H > 0 {
    /// The first layer.
    sub dense: Dense<H, WIDTH, f32>
    state seen: Tensor[H; f32]

    fn twice(x: Row<H>) -> Row<H> {
        return mix(x, way = Way.Down).left
    }

    pub entry run(x: Row<H>, key: Tensor[2; i64]) -> Tensor[WIDTH; f32] {
        var total = twice(x)
        total = total + seen
        seen = total
        let keys = chance.split<2>(key)
        let noise = chance.uniform<H, f32>(keys[0])
        return linear(total + noise, dense.weight)
    }
}
"""


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> CheckResult:
    file = tmp_path_factory.mktemp("zoo") / "zoo.linnet"
    file.write_text(SOURCE)
    result = load(file)
    assert result.ok, result.diagnostics
    return result


def root_source(result: CheckResult) -> Source:
    assert result.program is not None
    return result.program.root.source


def at(result: CheckResult, text: str, word: str) -> Reference:
    """The reference at `word` inside the only place of SOURCE that reads `text`."""
    assert SOURCE.count(text) == 1, text
    source = root_source(result)
    found = result.references.at(source, source.text.index(text) + text.index(word))
    assert found is not None, (text, word)
    assert found.span.text == word
    return found


@pytest.mark.parametrize(
    ("text", "word", "kind", "defined", "type"),
    [
        ("use std.random as chance", "std.random", "module", "std.random", None),
        ("use std.random as chance", "chance", "module", "std.random", None),
        ("{Linear as Dense,", "Linear", "block", "Linear", None),
        ("{Linear as Dense,", "Dense", "block", "Linear", None),
        ("Dense<H, WIDTH, f32>", "Dense", "block", "Linear", None),
        ("Dense<H, WIDTH, f32>", "H", "generic", "H", "Dim"),
        ("Dense<H, WIDTH, f32>", "WIDTH", "const", "WIDTH", "{integer}"),
        ("where H > 0", "H", "generic", "H", "Dim"),
        ("mix<N: Dim>(a: Row<N>", "Row", "alias", "Row", "Tensor[N; f32]"),
        ("mix<N: Dim>(a: Row<N>", "a", "local", "a", "Tensor[N; f32]"),
        ("-> Pair<N>", "Pair", "struct", "Pair", None),
        ("way = Way.Down", "Down", "variant", "Down", "Way"),
        ("Down => a", "Down", "variant", "Down", "Way"),
        ("a[i] * a[j]", "i", "index", "i", "index over [N]"),
        ("a[i] * a[j]", "j", "index", "j", "index over [N]"),
        ("Pair(left = signed", "left", "field", "left", "Tensor[N; f32]"),
        ("right = abs(a)", "abs", "prelude", None, None),
        ("mix(x, way = Way.Down).left", "mix", "fn", "mix", "fn mix<N: Dim>(a: Row<N>, way: Way) -> Pair<N>"),
        ("mix(x, way = Way.Down).left", "way", "local", "way", "Way"),
        ("mix(x, way = Way.Down).left", "left", "field", "left", "Tensor[H; f32]"),
        ("var total = twice(x)", "twice", "fn", "twice", "fn twice(x: Row<H>) -> Row<H>"),
        ("total = total + seen", "seen", "state", "seen", "Tensor[H; f32]"),
        ("seen = total\n", "seen", "state", "seen", "Tensor[H; f32]"),
        ("seen = total\n", "total", "local", "total", "Tensor[H; f32]"),
        ("chance.split<2>", "split", "op", "split", "pub op split<N: Dim>(key: Tensor[2; i64]) -> Tensor[N, 2; i64]"),
        ("dense.weight", "dense", "sub", "dense", "Linear<H, 8, f32>"),
        ("dense.weight", "weight", "param", "weight", "Tensor[8, H; f32]"),
    ],
)
def test_a_name_leads_to_its_declaration(
    zoo: CheckResult, text: str, word: str, kind: str, defined: str | None, type: str | None
) -> None:
    found = at(zoo, text, word)
    assert found.kind == kind
    if type != "{integer}":
        assert found.type_text == type
    assert (found.definition.text if found.definition else None) == defined


def test_declarations_know_themselves_and_their_documentation(zoo: CheckResult) -> None:
    assert at(zoo, "fn mix<N: Dim>", "mix").is_definition
    assert at(zoo, "var total", "total").is_definition
    assert not at(zoo, "total + noise", "total").is_definition
    assert at(zoo, "mix(x, way", "mix").doc == "Mixes."
    assert at(zoo, "dense.weight", "dense").doc == "The first layer."


def test_the_standard_library_is_reached(zoo: CheckResult) -> None:
    definition = at(zoo, "return linear(", "linear").definition
    assert definition is not None
    assert definition.source.name == "std/nn/linear.linnet"
    assert definition.source in zoo.references.sources()
    assert all(found.kind in KINDS for source in zoo.references.sources() for found in zoo.references.of_source(source))


def test_no_name_between_names(zoo: CheckResult) -> None:
    source = root_source(zoo)
    assert zoo.references.at(source, SOURCE.index("struct Pair")) is None
    assert zoo.references.at(source, len(SOURCE)) is None
    assert zoo.references.at(Source("other", SOURCE), SOURCE.index("WIDTH")) is None
    end = SOURCE.index("WIDTH = 8") + len("WIDTH")
    found = zoo.references.at(source, end)
    assert found is not None
    assert found.name == "WIDTH"


@pytest.mark.parametrize(
    "path", sorted(GOOD.rglob("*.linnet")) + sorted(STD_ROOT.rglob("*.linnet")), ids=lambda p: p.stem
)
def test_every_name_has_its_reference(path: Path) -> None:
    assert_covered(path)


def test_every_name_of_the_seed_has_its_reference(seed: Path) -> None:
    for path in sorted(seed.rglob("*.linnet")):
        assert_covered(path)


def uninterpreted(source: Source) -> list[Span]:
    """The `kernel` and `grad` clauses, whose names mean something only to a backend that knows them."""
    module = parse(source, Diagnostics())
    functions = [item for item in module.items if isinstance(item, tree.FunctionItem)]
    functions += [method for item in module.items if isinstance(item, tree.BlockItem) for method in item.methods]
    return [clause.span for function in functions for clause in function.clauses]


def assert_covered(path: Path) -> None:
    result = load(path)
    assert result.ok
    source = root_source(result)
    tokens = lex(source, Diagnostics()).tokens
    names = [token for token in tokens if token.kind == "name" and token.text not in PLAIN]
    assert names
    ignored = uninterpreted(source)
    for token in names:
        if any(span.start <= token.start < span.end for span in ignored):
            continue
        found = result.references.at(source, token.start)
        assert found is not None, (source.position(token.start), token.text)
        assert found.span.start <= token.start
        assert token.end <= found.span.end


@pytest.mark.parametrize("broken", ["    let y = \n    return x\n", "    let y = nothing(x)\n    return x\n"])
def test_a_source_with_errors_keeps_what_was_understood(tmp_path: Path, broken: str) -> None:
    file = tmp_path / "broken.linnet"
    file.write_text(
        f"module broken\n\nfn f(x: f32) -> f32 {{\n{broken}}}\n\nfn g(x: f32) -> f32 {{\n    return f(x)\n}}\n"
    )
    result = load(file)
    assert not result.ok
    (source,) = result.references.sources()
    found = result.references.at(source, source.text.index("f(x)\n}"))
    assert found is not None
    assert (found.kind, found.name) == ("fn", "f")


def test_an_open_file_stands_for_what_is_on_disk(tmp_path: Path) -> None:
    (tmp_path / "linnet.toml").write_text('[package]\nname = "p"\nversion = "1.0.0"\nlanguage = "0.1"\n')
    root, part, new = (tmp_path / "src" / name for name in ("lib.linnet", "part.linnet", "new.linnet"))
    root.parent.mkdir()
    root.write_text("module p\n\nuse crate.part::{one}\n\nfn f() -> f32 {\n    return one()\n}\n")
    part.write_text("module p.part\n")
    assert [item.code for item in load(root).diagnostics] == ["E1201"]
    text = "module p.part\n\npub fn one() -> f32 {\n    return 1.0\n}\n"
    assert load(root, {part.resolve(): text}).ok
    overlay = {
        root.resolve(): root.read_text().replace("part", "new"),
        new.resolve(): text.replace("part", "new"),
    }
    assert load(root, overlay).ok
