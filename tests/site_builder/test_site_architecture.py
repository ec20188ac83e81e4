"""The picture of an entry: what it has as boxes and edges, where they stand, and what it has where."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linnet.language.check.dims import Dim
from linnet.site_builder.architecture import MOST_BOXES, architectures
from linnet.site_builder.build import SiteReport
from linnet.site_builder.code import Code, read_code
from linnet.site_builder.collect import ModelPage, collect_model
from linnet.site_builder.diagram import draw
from linnet.site_builder.flow import Graph, entry_graph
from linnet.site_builder.fold import fold_chains
from linnet.site_builder.layout import lay_out
from linnet.site_builder.paths import entry_diagrams
from linnet.site_builder.sources import FolderSource

PARTS = """module parts

use std.nn.linear::{Linear}
use std.nn.activations::{silu}

/// Two maps and a product.
block Gate<H: Dim, T: Float> {
    sub up: Linear<H, H, T>
    sub down: Linear<H, H, T>

    pub fn forward<*S: Shape>(x: Tensor[*S, H; T]) -> Tensor[*S, H; T] {
        return silu(up.forward(x)) * down.forward(x)
    }
}

pub block Model<H: Dim, N: Dim, T: Float> {
    param bias: Tensor[H; T]? = none
    state kept: Tensor[H; T]
    sub first: Linear<H, H, T>
    sub gates: [Gate<H, T>; N]
    sub absent: Linear<H, H, T>? = none

    pub entry forward<B: Dim>(x: Tensor[B, H; T], y: Tensor[B, H; T]) -> Tensor[B, H; T] {
        var h = first.forward(x) + y
        static for gate in gates {
            h = h + gate.forward(h)
        }
        let extra = match absent {
            some(inner) => inner.forward(h)
            none => h
        }
        return plus(extra)
    }

    pub entry kept_forward(x: Tensor[H; T], y: Tensor[H; T]) -> Tensor[H; T] {
        kept = x + y
        return kept * x
    }

    fn plus<B: Dim>(h: Tensor[B, H; T]) -> Tensor[B, H; T] {
        return match bias {
            some(value) => h + broadcast_to(value, [B, H])
            none => h
        }
    }
}
"""


@pytest.fixture
def parts(tmp_path: Path) -> Code:
    path = tmp_path / "src" / "parts.linnet"
    path.parent.mkdir()
    path.write_text(PARTS, encoding="utf-8")
    code = read_code(tmp_path, "src/parts.linnet", "Model", {"H": 64, "N": 3, "T": "bf16"}, lambda path: f"{path}.html")
    assert code is not None
    assert code.checked.errors == []
    return code


def graph_of(code: Code, entry: str, *present: str) -> Graph:
    bound = code.bound
    assert bound is not None
    generics = {name: Dim.of(v) if isinstance(v, int) else v for name, v in bound.generics.items()}
    return entry_graph(bound.entries()[entry], generics, bound.block, lambda path: ".".join(path) in present)


def edges(graph: Graph) -> set[str]:
    names = [f"{node.kind} {node.label}" for node in graph.nodes]
    return {f"{names[a]} -> {names[b]} {shape}" for (a, b), shape in graph.edges.items()}


def test_an_entry_is_a_graph(parts: Code) -> None:
    graph = graph_of(parts, "forward")
    assert edges(graph) == {
        "input x -> block first [B, 64]",
        "block first -> join + [B, 64]",
        "input y -> join + [B, 64]",
        "join + -> repeat gates [B, 64]",
        "repeat gates -> output result [B, 64]",
    }
    repeat = next(node for node in graph.nodes if node.kind == "repeat")
    assert (repeat.count, repeat.type, repeat.path) == (3, "Gate<64, bf16>", ("gates",))
    assert repeat.inner is not None
    assert edges(repeat.inner) == {
        "input h -> block up [B, 64]",
        "input h -> block down [B, 64]",
        "block up -> op silu [B, 64]",
        "op silu -> join \N{MULTIPLICATION SIGN} [B, 64]",
        "block down -> join \N{MULTIPLICATION SIGN} [B, 64]",
        "join \N{MULTIPLICATION SIGN} -> join + [B, 64]",
        "input h -> join + [B, 64]",
        "join + -> output h [B, 64]",
    }


def test_what_the_checkpoint_has_is_drawn(parts: Code) -> None:
    with_block = graph_of(parts, "forward", "absent")
    assert "repeat gates -> block absent [B, 64]" in edges(with_block)
    assert "block absent -> output result [B, 64]" in edges(with_block)


def test_what_is_written_to_a_state_is_read_from_there(parts: Code) -> None:
    assert edges(graph_of(parts, "kept_forward")) == {
        "input x -> join + [64]",
        "input y -> join + [64]",
        "join + -> join \N{MULTIPLICATION SIGN} [64]",
        "input x -> join \N{MULTIPLICATION SIGN} [64]",
        "join \N{MULTIPLICATION SIGN} -> output result [64]",
    }


RESHAPED = """module reshaped

use std.nn.linear::{Linear}

pub block Model<H: Dim, T: Float> {
    sub first: Linear<H, H, T>
    sub second: Linear<H, H, T>

    pub entry forward<B: Dim, S: Dim>(x: Tensor[B, S, H; T]) -> Tensor[B, S, H; T] {
        let flat = first.forward(reshape(x, [B * S, H]))
        return reshape(second.forward(flat), [B, S, H])
    }
}
"""


def test_an_edge_has_the_shape_that_is_taken(tmp_path: Path) -> None:
    (tmp_path / "reshaped.linnet").write_text(RESHAPED, encoding="utf-8")
    code = read_code(tmp_path, "reshaped.linnet", None, {"H": 8, "T": "f32"}, lambda path: path)
    assert code is not None
    assert code.checked.errors == []
    graph = graph_of(code, "forward")
    assert edges(graph) == {
        "input x -> block first [B * S, 8]",
        "block first -> block second [B * S, 8]",
        "block second -> output result [B, S, 8]",
    }
    drawing = draw(graph, lambda node, depth: False, lambda node: ("", ""), "reshaped").html
    shown = re.findall(r'<text class="shape"[^>]*>([^<]*)', drawing)
    assert sorted(shown) == ["[B * S, 8]", "[B * S, 8]", "[B, S, 8]"]


def test_a_loop_says_how_often(root: Path, tmp_path: Path) -> None:
    page = shipped_model(root, "qwen3-tiny", tmp_path)
    drawn = architectures(page, {"generate": "models/qwen3-tiny/architecture/generate/index.html"})["generate"]
    heads = re.findall(r'<text class="head"[^>]*>([^<]*)', drawn.svg)
    assert heads == ["loop \N{MULTIPLICATION SIGN} Steps", "layers \N{MULTIPLICATION SIGN} 4"]


def chain(count: int) -> str:
    subs = "\n".join(f"    sub l{i}: Linear<H, H, T>" for i in range(count))
    body = "\n".join(f"        h = l{i}.forward(h)" for i in range(count))
    return f"""module chain

use std.nn.linear::{{Linear}}

pub block Model<H: Dim, T: Float> {{
{subs}

    pub entry forward<B: Dim>(x: Tensor[B, H; T]) -> Tensor[B, H; T] {{
        var h = x
{body}
        return h
    }}
}}
"""


def test_blocks_written_one_by_one_are_folded(tmp_path: Path) -> None:
    path = tmp_path / "chain.linnet"
    path.write_text(chain(700), encoding="utf-8")
    code = read_code(tmp_path, "chain.linnet", None, {"H": 8, "T": "f32"}, lambda path: path)
    assert code is not None
    graph = graph_of(code, "forward")
    assert len(graph.nodes) == 702
    fold_chains(graph)
    assert [(node.kind, node.label, node.count) for node in graph.nodes] == [
        ("input", "x", 1),
        ("block", "l0 … l699", 700),
        ("output", "result", 1),
    ]
    assert len(graph.edges) == 2


@given(
    st.integers(1, 14).flatmap(
        lambda n: st.tuples(
            st.lists(st.tuples(st.integers(20, 200), st.integers(20, 300)), min_size=n, max_size=n),
            st.sets(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda e: e[0] < e[1]), max_size=24),
        )
    )
)
def test_boxes_never_overlap_and_edges_go_down(graph: tuple[list[tuple[int, int]], set[tuple[int, int]]]) -> None:
    sizes, joined = graph
    layout = lay_out(tuple((float(w), float(h)) for w, h in sizes), tuple(sorted(joined)))
    boxes = layout.boxes
    for i, one in enumerate(boxes):
        assert one.x - one.width / 2 >= -1e-6
        assert one.x + one.width / 2 <= layout.width + 1e-6
        for other in boxes[i + 1 :]:
            apart_x = abs(one.x - other.x) + 1e-6 >= (one.width + other.width) / 2
            apart_y = one.y + one.height <= other.y + 1e-6 or other.y + other.height <= one.y + 1e-6
            assert apart_x or apart_y
    for source, target in joined:
        assert boxes[source].y + boxes[source].height < boxes[target].y
        route = layout.routes[source, target]
        assert (route[0], route[-1]) == (boxes[source], boxes[target])
        assert [place.layer for place in route] == list(range(boxes[source].layer, boxes[target].layer + 1))


def shipped_model(root: Path, name: str, tmp_path: Path) -> ModelPage:
    return collect_model(*FolderSource(root / "nests" / name, name, None).packages(tmp_path))


def test_pictures_are_the_same_each_time_and_link_to_sources(root: Path, tmp_path: Path) -> None:
    page = shipped_model(root, "all-minilm-l6-v2", tmp_path)
    path = "models/all-minilm-l6-v2/architecture/index.html"
    first, second = (architectures(page, {page.entry: path})[page.entry] for _ in range(2))
    assert first == second
    assert 'href="../../../std/nn/' in first.svg
    assert 'href="../source/src/' in first.svg
    assert 'href="#inside-layers.attention"' in first.svg
    assert [part.path for part in first.parts] == ["layers.attention"]
    assert first.parts[0].count == 6
    assert first.parts[0].block == "SelfAttention<D = 384, Heads = 12, T = f32>"
    assert first.parts[0].parameters == 4 * (384 * 384 + 384)
    # Nothing that the pages' policy forbids, and no number that a platform writes otherwise.
    assert "style=" not in first.svg
    assert re.findall(r"\d+\.\d{2,}", first.svg) == []


def test_a_source_that_does_not_check_has_no_picture(make_package: Callable[..., object], tmp_path: Path) -> None:
    source = make_package(files={"src/lib.linnet": "module wren\n\nlet\n"})
    page = collect_model(source)  # type: ignore[arg-type]
    assert architectures(page, {page.entry: "x"}) == {}
    assert page.symbols == ()


def test_too_many_boxes_are_no_picture(tmp_path: Path, root: Path) -> None:
    path = tmp_path / "wide.linnet"
    count = MOST_BOXES
    subs = "\n".join(f"    sub l{i}: Linear<H, H, T>" for i in range(count))
    total = " + ".join(f"l{i}.forward(x)" for i in range(count))
    head = "module wide\n\nuse std.nn.linear::{Linear}\n\npub block Model<H: Dim, T: Float> {"
    entry = "    pub entry forward<B: Dim>(x: Tensor[B, H; T]) -> Tensor[B, H; T] {"
    path.write_text(f"{head}\n{subs}\n{entry}\n        return {total}\n    }}\n}}\n", encoding="utf-8")
    code = read_code(tmp_path, "wide.linnet", None, {"H": 8, "T": "f32"}, lambda path: path)
    assert code is not None
    page = shipped_model(root, "gpt2", tmp_path)
    object.__setattr__(page, "code", code)
    assert architectures(page, {page.entry: "x"}) == {}


def test_every_entry_has_its_picture(whole: SiteReport) -> None:
    folder = whole.output / "models" / "gpt2" / "architecture"
    page = (folder / "index.html").read_text(encoding="utf-8")
    assert sorted(path.name for path in folder.iterdir()) == ["decode", "index.html", "prefill"]
    jump = page[page.index('<ul class="jump"') : page.index("</ul>", page.index('<ul class="jump"'))]
    assert re.findall(r'href="([^"]+)"', jump) == ["index.html", "prefill/index.html", "decode/index.html"]
    decode = (folder / "decode" / "index.html").read_text(encoding="utf-8")
    assert "<title>Architecture of decode · GPT-2 small · Nest</title>" in decode
    assert 'aria-label="The entry decode of GPT-2 small"' in decode
    entries = (whole.output / "models" / "gpt2" / "entries" / "index.html").read_text(encoding="utf-8")
    assert 'href="../architecture/decode/index.html">picture</a>' in entries


def test_entries_that_differ_in_case_have_pages_of_their_own() -> None:
    found = entry_diagrams("wren", ["forward", "Forward", "index"])
    assert found["Forward"] == "models/wren/architecture/Forward/index.html"
    assert len({place.casefold() for place in found.values()}) == 3
    assert "models/wren/architecture/index.html" not in found.values()
