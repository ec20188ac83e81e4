"""Sources rewritten with FP8 projections: what is replaced, what is not, and that the result is the same model."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from linnet.language.check import load
from linnet.language.program.binding import BoundProgram, bind
from linnet.quantize.errors import QuantizeError
from linnet.quantize.fp8 import dequantize_blocks, quantize_blocks
from linnet.quantize.source import QuantizedSource, quantize_source
from linnet.registry.card import read_card
from linnet.runner.torch.module import load_model

HEAD = "module m\nuse std.nn.linear::{Linear}\n"
ROOT = """
pub block Model<H: Dim, N: Dim, T: Float> {
    sub layers: [Layer<H, T>; N]
    sub head: Linear<H, H, T>
    pub entry forward<B: Dim>(x: Tensor[B, H; T]) -> Tensor[B, H; T] {
        var y = x
        static for layer in layers { y = layer.forward(y) }
        return head.forward(y)
    }
}
"""
Rewrite = Callable[..., QuantizedSource]


def layer(members: str, body: str) -> str:
    return (
        f"block Layer<H: Dim, T: Float> {{ {members} "
        f"fn forward<B: Dim>(x: Tensor[B, H; T]) -> Tensor[B, H; T] {{ return {body} }} }}"
    )


@pytest.fixture
def rewrite(tmp_path: Path) -> Rewrite:
    """Rewrite a one-file source at H = 8, two layers, in blocks of 4."""

    def of(text: str, block: int = 4, **generics: int | str) -> QuantizedSource:
        file = tmp_path / "lib.linnet"
        file.write_text(text)
        return quantize_source(file, bound_at(file, **{"H": 8, "N": 2, "T": "f32", **generics}), block)

    return of


def bound_at(file: Path, **generics: int | str) -> BoundProgram:
    result = load(file)
    assert result.program is not None, [d.message for d in result.diagnostics]
    return bind(result.program, "Model", generics)


def only(texts: dict[Path, str] | object) -> str:
    assert isinstance(texts, dict)
    (text,) = texts.values()
    return str(text)


def test_layers_are_replaced_and_the_head_is_not(rewrite: Rewrite) -> None:
    made = rewrite(HEAD + layer("sub p: Linear<H, H, T>", "p.forward(x)") + ROOT)
    assert made.projections == ("layers.0.p", "layers.1.p")
    text = only(made.texts)
    assert "sub p: Fp8BlockLinear<H, H, 4, T>" in text
    assert "sub head: Linear<H, H, T>" in text
    assert text.count("H % 4 == 0") == 2  # the layer asks for it, and the model that holds layers
    assert "use std.nn.linear::{Linear}" in text
    assert "use std.quant::{Fp8BlockLinear}" in text


def test_imports_that_nothing_uses_any_more_go(rewrite: Rewrite) -> None:
    source = "module m\nuse std.nn.linear::{Linear as Dense, linear}\n" + layer(
        "sub p: Dense<H, H, T> param w: Tensor[H, H; T]", "linear(p.forward(x), w)"
    )
    made = rewrite(source + ROOT.replace("    sub head: Linear<H, H, T>\n", "").replace("head.forward(y)", "y"))
    text = only(made.texts)
    assert "use std.nn.linear::{linear}" in text
    assert "Dense" not in text


def test_weights_that_something_else_reads_stay(rewrite: Rewrite) -> None:
    source = "module m\nuse std.nn.linear::{Linear, linear}\n" + layer(
        "sub p: Linear<H, H, T> sub q: Linear<H, H, T>", "p.forward(linear(x, q.weight))"
    )
    made = rewrite(source + ROOT)
    assert made.projections == ("layers.0.p", "layers.1.p")
    assert "sub q: Linear<H, H, T>" in only(made.texts)
    with pytest.raises(QuantizeError, match=r"has no layers with a std\.nn\.linear::Linear or std\.nn\.mlp::SwiGlu"):
        rewrite(HEAD + layer("sub p: Linear<H, H, T>", "x + sum_of(p.weight)") + SUM + ROOT)


SUM = "\nfn sum_of<H: Dim, T: Float>(w: Tensor[H, H; T]) -> T { return sum[i, j] w[i, j] }\n"


def test_gated_layers_keep_their_paths(rewrite: Rewrite) -> None:
    source = "module m\nuse std.nn.linear::{Linear}\nuse std.nn.mlp::{SwiGlu}\n"
    made = rewrite(source + layer("sub mlp: SwiGlu<H, 2 * H, T>", "mlp.forward(x)") + ROOT)
    assert made.projections[:3] == ("layers.0.mlp.gate", "layers.0.mlp.up", "layers.0.mlp.down")
    text = only(made.texts)
    assert "block Fp8SwiGlu<H: Dim, Inner: Dim, T: Float>" in text
    assert "SwiGlu}" not in text


def test_sides_and_names_that_do_not_fit_are_named(rewrite: Rewrite) -> None:
    plain = HEAD + layer("sub p: Linear<H, H, T>", "p.forward(x)") + ROOT
    with pytest.raises(QuantizeError, match=r"layers.0.p.weight is 8 by 8, which blocks of 3 by 3 do not fill"):
        rewrite(plain, block=3)
    with pytest.raises(QuantizeError, match=r"cannot be rewritten .* E1204, .*Rename what is in the way"):
        rewrite(plain + "\nfn Fp8BlockLinear<B: Dim>(x: Tensor[B; f32]) -> Tensor[B; f32] { return x }\n")


def test_another_packages_modules_are_refused(tmp_path: Path) -> None:
    for name, dependencies in (("a", '\n[dependencies]\nb = { path = "../b" }\n'), ("b", "")):
        (tmp_path / name / "src").mkdir(parents=True)
        head = f'[package]\nname = "{name}"\nversion = "0.1.0"\nlanguage = "0.1"\n'
        (tmp_path / name / "linnet.toml").write_text(head + dependencies)
    (tmp_path / "b" / "src" / "lib.linnet").write_text(
        "module b\npub fn same<B: Dim, T: Float>(x: Tensor[B; T]) -> Tensor[B; T] { return x }\n"
    )
    file = tmp_path / "a" / "src" / "lib.linnet"
    source = HEAD + "use b::{same}\n" + layer("sub p: Linear<H, H, T>", "p.forward(x)") + ROOT
    file.write_text(source.replace("return head.forward(y)", "return head.forward(y) * same(fill<T>([1], 1))"))
    with pytest.raises(QuantizeError, match="The source uses b, a module of another package"):
        quantize_source(file, bound_at(file, H=8, N=2, T="f32"), 4)


@pytest.mark.parametrize("name", ["qwen3-8b", "all-minilm-l6-v2"])
def test_a_package_computes_what_its_weights_decoded_do(root: Path, tmp_path: Path, name: str) -> None:
    """At sizes of one block, in f32: the rewritten source over bytes and scales against the source over what they
    stand for."""
    small = {
        "qwen3-8b": {"Vocab": 32, "H": 128, "Heads": 2, "KvHeads": 2, "HeadDim": 64, "Inner": 256, "Layers": 2,
                     "Batch": 2, "MaxSeq": 8, "T": "f32"},
        "all-minilm-l6-v2": {"Vocab": 32, "D": 128, "Heads": 2, "Inner": 256, "Layers": 2, "T": "f32"},
    }[name]  # fmt: skip
    shutil.copytree(root / "nests" / name, tmp_path / name)
    card = read_card(tmp_path / name)
    file = tmp_path / name / card.source.path
    bound = bound_at(file, **{**card.generics, **small})
    made = quantize_source(file, bound, 128)
    for path, text in made.texts.items():
        path.write_text(text)
    rewritten = load(file)
    assert rewritten.diagnostics == []
    assert rewritten.program is not None
    quantized = bind(rewritten.program, card.source.root, bound.generics)

    generator = torch.Generator().manual_seed(3)
    plain, coded = {}, {}
    for entry in bound.manifest.required():
        tensor = torch.randn(entry.shape, generator=generator) * entry.shape[-1] ** -0.5
        if entry.path.removesuffix(".weight") in made.projections:
            data, scale = quantize_blocks(tensor, 128)
            coded[entry.path], coded[entry.path.removesuffix("weight") + "scale"] = data.view(torch.uint8), scale
            tensor = dequantize_blocks(data, scale)
        else:
            coded[entry.path] = tensor
        plain[entry.path] = tensor
    ids = torch.randint(32, (2, 5), generator=generator, dtype=torch.int32)
    inputs = [ids] if name == "qwen3-8b" else [ids, torch.zeros_like(ids), torch.ones(2, 5, dtype=torch.bool)]
    wanted = load_model(bound, plain, entry=card.source.entry)(*inputs)
    found = load_model(quantized, coded, entry=card.source.entry)(*inputs)
    assert (found - wanted).abs().max() <= 1e-5 * wanted.abs().max()
