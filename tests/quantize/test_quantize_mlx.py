"""`nest quantize --mlx-bits`: a package whose recipe says which tensors are packed, or a sentence and no package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from text_package import write_text_package

from linnet import nest
from linnet.quantize.errors import QuantizeError
from linnet.registry.card import read_card
from linnet.registry.errors import RegistryError

GPT2 = ("wte.weight", "wpe.weight")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random GPT-2, whose token table is its head too; its other matrices are stored [In, Out]."""
    return write_text_package(tmp_path_factory.mktemp("nests") / "text").folder


@pytest.fixture(scope="module")
def made(original: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nest.quantize(original, tmp_path_factory.mktemp("made") / "text-4bit", mlx_bits=4, group=32).folder


def test_the_package_passes_its_check_and_says_what_it_is(original: Path, made: Path) -> None:
    assert nest.check(made, hub=False, smoke="full", strict=True).ok
    card = read_card(made)
    assert (card.weights.recipe, card.weights.bindings) == ("recipe.json", "bindings.json")
    assert card.model.title.endswith(" 4-bit")
    assert {"4-bit", "mlx"} <= set(card.model.tags)
    recipe = json.loads((made / "recipe.json").read_text())
    assert recipe == {"schema": 1, "tensors": {name: {"bits": 4, "group": 32, "mode": "affine"} for name in GPT2}}
    written, before = load_file(made / "model.safetensors"), load_file(original / "model.safetensors")
    for name in GPT2:
        stem = name.removesuffix(".weight")
        assert written[name].dtype == torch.uint32
        assert written[name].shape[1] * 8 == before[name].shape[1]
        assert written.pop(f"{stem}.scales").shape == written.pop(f"{stem}.biases").shape == (len(before[name]), 1)
    assert all(torch.equal(written[name], before[name]) for name in written if name not in GPT2)
    readme = (made / "README.md").read_text()
    assert "2 matrices in 4 bits" in readme
    assert "nest quantize text --mlx-bits 4 --group 32" in readme


def test_both_engines_read_it_alike(original: Path, made: Path) -> None:
    pytest.importorskip("mlx.core", reason="MLX is not installed")
    from linnet.runner.mlx.dtypes import to_torch

    tokens = torch.arange(12).reshape(1, 12)
    expected = nest.load(made, device="cpu")(tokens)
    model: Any = nest.load(made, backend="mlx", device="cpu")
    assert (to_torch(model(tokens)) - expected).abs().max() <= 1e-4 * expected.abs().max()
    assert model.weights_report.converted < 0.3 * sum(load_file(original / "model.safetensors")[n].nbytes for n in GPT2)
    # Packed tables: a token reads its row of one, and all of the other, which is the head too.
    whole: Any = nest.load(original, backend="mlx", device="cpu")
    assert model.bytes_per_token() < whole.bytes_per_token()


def test_what_is_kept_stays_whole(original: Path, tmp_path: Path) -> None:
    made = nest.quantize(original, tmp_path / "kept", mlx_bits=8, group=32, keep=["wpe"])
    assert (made.matrices, made.how) == (1, "matrices in 8 bits with groups of 32")
    assert list(json.loads((made.folder / "recipe.json").read_text())["tensors"]) == ["wte.weight"]
    assert "--group 32 --keep wpe`" in (made.folder / "README.md").read_text()
    assert list(made.lines())[1] == f"Relative RMS error of their weights: {100 * made.error:.2f}%"


def refused(package: Path, output: Path, **settings: Any) -> str:
    """The sentence that a quantisation ends with; it must have written nothing."""
    with pytest.raises((QuantizeError, RegistryError, nest.NestError)) as error:
        nest.quantize(package, output, **settings)
    assert not output.exists()
    assert not list(output.parent.glob(".new-*"))
    return str(error.value)


def test_bad_input_is_one_sentence_and_nothing_is_written(original: Path, made: Path, tmp_path: Path) -> None:
    target = tmp_path / "new"
    assert "Numbers of 3 bits are not written. Choose 4 or 8." in refused(original, target, mlx_bits=3)
    assert "Groups of 48 weights are none of MLX's." in refused(original, target, mlx_bits=4, group=48)
    narrow = refused(original, target, mlx_bits=4, group=64)
    assert "wte.weight has rows of 32 weights, which groups of 64 do not fill. Choose --group 32, or keep it" in narrow
    unknown = refused(original, target, mlx_bits=4, group=32, keep=["lm_head"])
    assert 'Nothing of text that would be packed is called "lm_head". The nearest that could be is' in unknown
    assert "no std.nn.linear::Linear and no" in refused(original, target, mlx_bits=4, group=32, keep=["wte", "wpe"])
    assert "The weights of text-4bit are packed already" in refused(made, target, mlx_bits=4, group=32)
    assert "The weights of text-4bit are packed already" in refused(made, target, fp8_block=32)
    assert "two forms of weights" in refused(original, target, mlx_bits=4, fp8_block=32)
    assert "belong to mlx_bits" in refused(original, target, group=64)


def edit_recipe(package: Path, **changed: Any) -> None:
    recipe = json.loads((package / "recipe.json").read_text())
    recipe["tensors"] |= {name.replace("_", "."): entry for name, entry in changed.items()}
    (package / "recipe.json").write_text(json.dumps(recipe))


@pytest.fixture(params=["torch", "mlx"])
def backend(request: pytest.FixtureRequest) -> str:
    if request.param == "mlx":
        pytest.importorskip("mlx.core", reason="MLX is not installed")
    return str(request.param)


@pytest.fixture
def edited(original: Path, tmp_path: Path) -> Path:
    return nest.quantize(original, tmp_path / "edited", mlx_bits=4, group=32).folder


def test_a_recipe_that_does_not_fit_is_told_by_check_and_load(edited: Path, backend: str) -> None:
    edit_recipe(edited, lm_head={"bits": 4, "group": 32, "mode": "affine"})
    message = 'recipe.json names the tensor "lm.head", which is not in "model.safetensors".'
    found = nest.check(edited, hub=False, smoke="none")
    assert [item.message for item in found.errors()] == [message]
    with pytest.raises(RegistryError, match=r'names the tensor "lm\.head"'):
        nest.load(edited, backend=backend, device="cpu")
    (edited / "recipe.json").unlink()
    assert any("weights.recipe names the file recipe.json, which is not" in str(e) for e in nest.check(edited).errors())


def test_an_inconsistent_group_is_told(edited: Path, backend: str) -> None:
    edit_recipe(edited, wte_weight={"bits": 4, "group": 64, "mode": "affine"})
    with pytest.raises(RegistryError, match="groups of 64 at 4 bits, but its words are") as error:
        nest.load(edited, backend=backend, device="cpu")
    assert len(error.value.problems) == 1


def test_a_tensor_that_takes_the_scales_name_is_refused(original: Path, tmp_path: Path) -> None:
    package = write_text_package(tmp_path / "taken").folder
    tensors = load_file(package / "model.safetensors")
    bindings = json.loads((package / "bindings.json").read_text()) if (package / "bindings.json").is_file() else {}
    tensors["wte.scales"] = tensors.pop("ln_f.bias")
    save_file(tensors, package / "model.safetensors")
    path = next(key for key, value in bindings.items() if value == "ln_f.bias")
    (package / "bindings.json").write_text(json.dumps({**bindings, path: "wte.scales"}))
    assert "has a tensor wte.scales already" in refused(package, tmp_path / "new", mlx_bits=4, group=32)
