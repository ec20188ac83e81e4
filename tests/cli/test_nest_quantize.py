"""`nest quantize`, as users run it: a package that passes its check, or a sentence and nothing written."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import torch
from safetensors.torch import load_file, save_file

from linnet import nest
from linnet.quantize.errors import QuantizeError
from linnet.quantize.fp8 import dequantize_blocks
from linnet.registry.errors import RegistryError

Run = Callable[..., CompletedProcess[str]]

CARD = """\
[model]
name = "small"
title = "Small"
summary = "Two layers and a head."
license = "MIT"
family = "mlp"
tags = ["test"]

[links]
huggingface = "https://huggingface.co/someone/small"

[source]
path = "src/lib.linnet"
root = "Model"
entry = "forward"

[generics]
H = 8
N = 2
T = "bf16"

[check]
B = 2

[weights]
files = ["first.safetensors", "second.safetensors"]
bindings = "bindings.json"
unused = ["rest.*"]

[weights.sha256]
"first.safetensors" = "{sha256}"
"""
SOURCE = """\
module small

use std.nn.activations::{silu}
use std.nn.linear::{Linear}

/// One layer.
block Layer<H: Dim, T: Float> {
    sub up: Linear<H, 2 * H, T>
    sub down: Linear<2 * H, H, T>

    fn forward<B: Dim>(x: Tensor[B, H; T]) -> Tensor[B, H; T] {
        return x + down.forward(silu(up.forward(x)))
    }
}

/// Layers and a head.
pub block Model<H: Dim, N: Dim, T: Float> where H > 0 {
    sub layers: [Layer<H, T>; N]
    sub head: Linear<H, H, T>

    /// `[B, H]` to `[B, H]`.
    pub entry forward<B: Dim>(x: Tensor[B, H; T]) -> Tensor[B, H; T] {
        var y = x
        static for layer in layers {
            y = layer.forward(y)
        }
        return head.forward(y)
    }
}
"""
BINDINGS = {"layers.{i}.up.weight": "h.{i}.w1.weight", "layers.{i}.up.bias": "h.{i}.w1.bias"}


@pytest.fixture
def tensors() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = {"head.weight": (8, 8), "rest.ids": (3,)}
    for i in range(2):
        shapes |= {f"h.{i}.w1.weight": (16, 8), f"h.{i}.w1.bias": (16,), f"layers.{i}.down.weight": (8, 16)}
    return {name: torch.randn(shape, generator=generator).bfloat16() for name, shape in shapes.items()}


@pytest.fixture
def small(tmp_path: Path, tensors: dict[str, torch.Tensor]) -> Path:
    """A package with weights in two files, one of them with a digest, a tokenizer, a licence and a config.json."""
    folder = tmp_path / "nests" / "small"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "lib.linnet").write_text(SOURCE)
    (folder / "src" / "unused.linnet").write_text("// Nothing.\nmodule small.unused\n")
    (folder / "linnet.toml").write_text('[package]\nname = "small"\nversion = "1.2.0"\nlanguage = "0.1"\n')
    (folder / "bindings.json").write_text(json.dumps(BINDINGS))
    (folder / "README.md").write_text("# Small\n\nTwo layers.\n")
    (folder / "LICENSE").write_text("Free.\n")
    (folder / "config.json").write_text('{"model_type": "small"}')
    return write_weights(folder, tensors)


def write_weights(folder: Path, tensors: dict[str, torch.Tensor]) -> Path:
    from linnet.registry.package import digest_file

    names = sorted(tensors)
    save_file({name: tensors[name] for name in names[:4]}, folder / "first.safetensors")
    save_file({name: tensors[name] for name in names[4:]}, folder / "second.safetensors")
    card = CARD.format(sha256=digest_file(folder / "first.safetensors")[1])
    (folder / "nest.toml").write_text(card + '\n[tokenizer]\nfile = "tok/tokenizer.json"\n')
    (folder / "tok").mkdir(exist_ok=True)
    (folder / "tok" / "tokenizer.json").write_text("{}")
    return folder


def test_a_package_is_written_that_passes_its_check(
    run: Run, small: Path, tmp_path: Path, tensors: dict[str, torch.Tensor]
) -> None:
    made = tmp_path / "mine" / "small-fp8"
    done = run("nest", "quantize", small, "--fp8-block", "4", "-o", made)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    first, second = done.stdout.splitlines()
    assert first.startswith(f"{made}: 4 projections in FP8 with blocks of 4 by 4, ")
    assert second.startswith("Relative RMS error of their weights: 2.")

    assert nest.check(made, hub=False, smoke="full", strict=True).ok
    files = [path.relative_to(made).as_posix() for path in made.rglob("*") if path.is_file()]
    assert sorted(files) == [
        "LICENSE", "README.md", "bindings.json", "config.json", "first.safetensors", "linnet.toml", "nest.toml",
        "second.safetensors", "src/lib.linnet", "src/unused.linnet", "tok/tokenizer.json",
    ]  # fmt: skip
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here", "mine", "nests"]
    assert (made / "first.safetensors").stat().st_mode & 0o777 == 0o644

    written = {**load_file(made / "first.safetensors"), **load_file(made / "second.safetensors")}
    for i in range(2):
        for name, scale in ((f"h.{i}.w1.weight",) * 2, (f"layers.{i}.down.weight", f"layers.{i}.down.scale")):
            scale = f"{name}_scale_inv" if scale == name else scale
            assert written[name].dtype == torch.float8_e4m3fn
            decoded = dequantize_blocks(written.pop(name), written.pop(scale))
            assert (decoded - tensors[name].float()).abs().max() <= 0.07 * tensors[name].abs().max()
    kept = {name: tensor for name, tensor in tensors.items() if not name.endswith(("w1.weight", "down.weight"))}
    del kept["rest.ids"]
    assert written.keys() == kept.keys()
    assert all(torch.equal(written[name], kept[name]) for name in kept)

    x = torch.randn(3, 8, generator=torch.Generator().manual_seed(1)).bfloat16()
    plain, quantized = nest.load(small)(x), nest.load(made)(x)
    assert 0 < (quantized - plain).float().norm() <= 0.1 * plain.float().norm()


def test_the_card_tells_what_it_is(small: Path, tmp_path: Path) -> None:
    from linnet.registry.card import read_card

    made = nest.quantize(small, tmp_path / "small-fp8", fp8_block=8)
    assert (made.matrices, made.how, made.after < made.before) == (4, "projections in FP8 with blocks of 8 by 8", True)
    card, original = read_card(made.folder), read_card(small)
    assert (card.model.name, card.model.title, card.model.tags) == ("small-fp8", "Small FP8", ("test", "fp8"))
    assert (card.links.huggingface, card.weights.unused, dict(card.weights.sha256)) == (None, (), {})
    assert (card.generics, card.check, card.source) == (original.generics, original.check, original.source)
    assert '"small"' not in (made.folder / "linnet.toml").read_text()
    assert 'version = "1.2.0"' in (made.folder / "linnet.toml").read_text()
    config = json.loads((made.folder / "config.json").read_text())
    assert config["model_type"] == "small"
    assert config["quantization_config"]["weight_block_size"] == [8, 8]
    readme = (made.folder / "README.md").read_text()
    assert f"weights is {100 * made.error:.2f}%" in readme
    # What is quantised already has no dense layer left.
    with pytest.raises(QuantizeError, match="not quantised yet"):
        nest.quantize(made.folder, tmp_path / "again", fp8_block=8)


def refused(small: Path, output: Path, **settings: int) -> str:
    """The sentence that a quantisation ends with; it must have written nothing."""
    before = sorted(output.parent.rglob("*"))
    with pytest.raises((QuantizeError, RegistryError)) as error:
        nest.quantize(small, output, **settings)
    assert sorted(output.parent.rglob("*")) == before
    return str(error.value)


def test_bad_input_is_one_sentence_and_nothing_is_written(
    small: Path, tmp_path: Path, tensors: dict[str, torch.Tensor]
) -> None:
    target = tmp_path / "small-fp8"
    assert "layers.0.up.weight is 16 by 8, which blocks of 16 by 16 do not fill" in refused(small, target, fp8_block=16)
    assert "Blocks of 0 weights are none" in refused(small, target, fp8_block=0)
    assert "is not empty" in refused(small, small, fp8_block=8)
    assert "cannot be a package's: it may hold only" in refused(small, tmp_path / "Small FP8", fp8_block=8)
    (tmp_path / "file").write_text("")
    assert "file is not a folder. Name another" in refused(small, tmp_path / "file", fp8_block=8)
    assert "file is not a folder. Name another" in refused(small, tmp_path / "file" / "deeper", fp8_block=8)

    bad = tensors["layers.1.down.weight"].clone()
    bad[3, 3] = math.nan
    write_weights(small, {**tensors, "layers.1.down.weight": bad})
    assert "The tensor layers.1.down.weight holds NaN or infinity" in refused(small, target, fp8_block=8)
    write_weights(small, {**tensors, "head.weight": tensors["head.weight"].float()})
    assert "head.weight: The dtypes of head.weight differ" in refused(small, target, fp8_block=8)
    write_weights(small, tensors)


def test_a_tensor_that_another_parameter_reads_too_is_refused(small: Path, tmp_path: Path) -> None:
    (small / "src" / "lib.linnet").write_text(
        SOURCE.replace("    sub head", "    param tied: Tensor[2 * H, H; T]\n    sub head").replace(
            "head.forward(y)", "head.forward(y + tied[0, :])"
        )
    )
    (small / "bindings.json").write_text(json.dumps({**BINDINGS, "tied": "h.1.w1.weight"}))
    message = refused(small, tmp_path / "small-fp8", fp8_block=8)
    assert 'The tensor h.1.w1.weight is a projection\'s and also "tied"' in message


def test_a_tensor_with_the_name_of_the_scales_is_refused(
    small: Path, tmp_path: Path, tensors: dict[str, torch.Tensor]
) -> None:
    taken = {**BINDINGS, "head.weight": "h.1.w1.weight_scale_inv"}
    (small / "bindings.json").write_text(json.dumps(taken))
    write_weights(small, {**tensors, "h.1.w1.weight_scale_inv": tensors["head.weight"].clone()})
    assert "has a tensor h.1.w1.weight_scale_inv already" in refused(small, tmp_path / "small-fp8", fp8_block=8)


def test_the_command_line_is_held_to_its_form(run: Run, small: Path, tmp_path: Path) -> None:
    done = run("nest", "quantize", small, "-o", tmp_path / "x")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Say how to quantise: --fp8-block 128, or --mlx-bits 4." in done.stderr
    assert run("nest", "quantize", small, "--fp8-block", "0", "-o", tmp_path / "x").returncode == 2
    assert run("nest", "quantize", small, "--fp8-block", "8").returncode == 2
    both = run("nest", "quantize", small, "--fp8-block", "8", "--mlx-bits", "4", "-o", tmp_path / "x")
    assert (both.returncode, "two forms of weights" in both.stderr) == (2, True)
    alone = run("nest", "quantize", small, "--fp8-block", "8", "--group", "32", "-o", tmp_path / "x")
    assert (alone.returncode, "--group and --keep belong to --mlx-bits" in alone.stderr) == (2, True)
    assert run("nest", "quantize", small, "--mlx-bits", "3", "-o", tmp_path / "x").returncode == 2
    done = run("nest", "quantize", small, "--mlx-bits", "8", "--keep", "head, layers.0", "-o", tmp_path / "x")
    assert done.returncode == 1
    assert "layers.1.up.weight has rows of 8 weights, which groups of 64 do not fill" in done.stderr
    done = run("nest", "quantize", "no-such-package", "--fp8-block", "8", "-o", tmp_path / "x")
    assert done.returncode == 1
    assert "no-such-package" in done.stderr
    done = run("nest", "quantize", small, "--fp8-block", "8", "-o", tmp_path / "small-fp8", "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
