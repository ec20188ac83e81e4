"""What hovers say of each kind of name."""

from __future__ import annotations

from pathlib import Path

import pytest

from linnet.language.check import load
from linnet.language.check.context import PRELUDE as PRELUDE_NAMES
from linnet.language.server.hover import PRELUDE, RESERVED, hover_text
from linnet.language.syntax.pygments_lexer import PRELUDE as COLOURED

SOURCE = """\
/// Two halves.
module halves

use std.nn.linear::{Linear}

const WIDTH = 8
const SCALE: f32 = 0.5
type Row<N: Dim> = Tensor[N; f32]
struct Pair<N: Dim> { left: Row<N>  right: f32 }
enum Way { Up, Down }

pub block Root<N: Dim, T: Float = f32> where N > 0 {
    sub inner: Linear<N, WIDTH, T>
    state seen: Tensor[N; f32]

    pub entry run(
        x: Row<N>,
    ) -> Row<N> {
        let pair = Pair(left = x * SCALE, right = 1.0)
        let sums[i] = pair.left[i] + seen[i]
        let way = Way.Up
        return match way { Up => abs(sums)  Down => gather }
    }
}
"""


@pytest.mark.parametrize(
    ("text", "word", "said"),
    [
        ("module halves", "halves", "module halves"),
        ("<N, WIDTH, T>", "WIDTH", "const WIDTH = 8"),
        ("x * SCALE", "SCALE", "const SCALE: f32 = 0.5"),
        ("x: Row<N>", "Row", "type Row = Tensor[N; f32]"),
        ("= Pair(", "Pair", "struct Pair<N: Dim> { left: Tensor[N; f32]  right: f32 }"),
        ("pair.left", "left", "left: Tensor[N; f32]"),
        ("pair.left", "pair", "pair: Pair<N>"),
        ("Way.Up", "Way", "enum Way { Up, Down }"),
        ("Way.Up", "Up", "Way.Up"),
        ("seen[i]", "i", "index i over [N]"),
        ("seen[i]", "seen", "state seen: Tensor[N; f32]"),
        ("WIDTH, T>", "T>", "T: Float = f32"),
        ("block Root", "Root", "block Root<N: Dim, T: Float = f32> where N > 0"),
        ("entry run", "run", "pub entry run(\n    x: Row<N>,\n) -> Row<N>"),
        ("abs(sums)", "abs", "abs(x)"),
    ],
)
def test_declarations(tmp_path: Path, text: str, word: str, said: str) -> None:
    file = tmp_path / "halves.linnet"
    file.write_text(SOURCE)
    result = load(file)
    (source,) = [source for source in result.references.sources() if source.name == str(file)]
    found = result.references.at(source, SOURCE.index(text) + text.index(word))
    assert found is not None
    assert hover_text(found, []).startswith(f"```linnet\n{said}\n```")


def test_every_prelude_function_is_explained(tmp_path: Path) -> None:
    assert PRELUDE.keys() == set(COLOURED)
    file = tmp_path / "later.linnet"
    for name in sorted(PRELUDE_NAMES - PRELUDE.keys()):
        file.write_text(f"module later\n\nfn f(x: f32) -> f32 {{\n    return {name}(x)\n}}\n")
        references = load(file).references
        (source,) = references.sources()
        found = references.at(source, source.text.index(name))
        assert found is not None
        assert RESERVED in hover_text(found, [])
