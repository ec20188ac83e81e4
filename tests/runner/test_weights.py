"""Weights: mapped and not copied, converted when asked, refused with a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from linnet.language.program.manifest import Manifest, ManifestEntry
from linnet.language.program.types import SAFETENSORS
from linnet.runner.errors import WeightsError
from linnet.runner.torch.dtypes import NATIVE
from linnet.runner.torch.weights import (
    TensorLocation,
    WeightSource,
    check_tensors,
    empty_weights,
    random_weights,
    read_weights,
)

CPU = torch.device("cpu")


def entry(path: str, shape: tuple[int, ...], dtype: str = "f32", *, optional: bool = False) -> ManifestEntry:
    return ManifestEntry(path, "param", shape, dtype, optional, "", "a::Block")


def manifest(*entries: ManifestEntry) -> Manifest:
    return Manifest(entries)


def locations(file: Path, tensors: dict[str, torch.Tensor]) -> dict[str, TensorLocation]:
    save_file(tensors, file)
    stored = {NATIVE[linnet]: name for name, linnet in SAFETENSORS.items() if name != "F8_E4M3"}
    stored[torch.float8_e4m3fn] = "F8_E4M3"
    return {name: TensorLocation(file, name, stored[x.dtype], tuple(x.shape)) for name, x in tensors.items()}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


def test_a_fitting_tensor_is_mapped_and_not_copied(file: Path) -> None:
    value = torch.randn(300, 400).bfloat16()
    source = WeightSource({"a.weight": "t"}, locations(file, {"t": value}))
    tensors, report = read_weights(manifest(entry("a.weight", (300, 400), "bf16")), source, CPU)
    assert torch.equal(tensors["a.weight"], value)
    assert (report.mapped, report.converted, report.files) == (value.nbytes, 0, ["model.safetensors"])
    maps = Path("/proc/self/maps")
    if maps.exists():
        assert str(file) in maps.read_text()
    # Writing to the mapping leaves the file alone.
    tensors["a.weight"].fill_(1)
    again, _ = read_weights(manifest(entry("a.weight", (300, 400), "bf16")), source, CPU)
    assert torch.equal(again["a.weight"], value)


def test_unlisted_paths_bind_to_their_own_name(file: Path) -> None:
    source = WeightSource({}, locations(file, {"a.weight": torch.ones(2)}))
    assert read_weights(manifest(entry("a.weight", (2,))), source, CPU)[0]["a.weight"].tolist() == [1, 1]


def test_two_paths_of_one_tensor_share_it(file: Path) -> None:
    source = WeightSource({"a": "t", "b": "t"}, locations(file, {"t": torch.ones(2)}))
    tensors, report = read_weights(manifest(entry("a", (2,)), entry("b", (2,))), source, CPU)
    assert tensors["a"] is tensors["b"]
    assert report.mapped == 8


@pytest.mark.parametrize("dtype", ["bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "f32", "f64"])
def test_every_dtype_is_read(file: Path, dtype: str) -> None:
    value = torch.tensor([0, 1, 1]).to(NATIVE[dtype])
    source = WeightSource({}, locations(file, {"a": value}))
    read = read_weights(manifest(entry("a", (3,), dtype)), source, CPU)[0]["a"]
    assert read.dtype == NATIVE[dtype]
    assert read.tolist() == value.tolist()


def test_floats_are_converted_only_when_asked(file: Path) -> None:
    value = torch.randn(8, 4).bfloat16()
    source = WeightSource({}, locations(file, {"a": value}))
    with pytest.raises(WeightsError, match=r"a needs f32 \[8, 4\], but tensor a is BF16 \[8, 4\]"):
        read_weights(manifest(entry("a", (8, 4))), source, CPU)
    tensors, report = read_weights(manifest(entry("a", (8, 4))), source, CPU, convert=True)
    assert torch.equal(tensors["a"], value.float())
    assert (report.mapped, report.converted) == (0, 8 * 4 * 4)
    assert str(report) == "0.00 GiB mapped, 0.00 GiB converted, 1 file"


def test_integers_are_never_converted(file: Path) -> None:
    source = WeightSource({}, locations(file, {"a": torch.ones(2, dtype=torch.int32)}))
    with pytest.raises(WeightsError, match=r"a needs f32 \[2\], but tensor a is I32 \[2\]"):
        read_weights(manifest(entry("a", (2,))), source, CPU, convert=True)


def test_fp8_tensors_are_read_as_their_bytes(file: Path) -> None:
    value = torch.tensor([[1.0, -2.0], [448.0, 0.0]]).to(torch.float8_e4m3fn)
    source = WeightSource({}, locations(file, {"a": value}))
    tensors, report = read_weights(manifest(entry("a", (2, 2), "u8")), source, CPU)
    assert torch.equal(tensors["a"], value.view(torch.uint8))
    assert (report.mapped, report.converted) == (4, 0)


@pytest.mark.parametrize("byte", [0x7F, 0xFF])
def test_fp8_nan_bytes_are_refused(file: Path, byte: int) -> None:
    data = torch.zeros(40, 50, dtype=torch.uint8)
    data[3, 4] = data[39, 49] = byte
    source = WeightSource({}, locations(file, {"w": data.view(torch.float8_e4m3fn), "fine": torch.ones(1)}))
    with pytest.raises(WeightsError) as caught:
        read_weights(manifest(entry("w", (40, 50), "u8"), entry("fine", (1,))), source, CPU)
    assert str(caught.value) == (f"tensor w of {file} holds 2 E4M3 NaN bytes (0x7f or 0xff): the checkpoint is damaged")


def test_plain_u8_tensors_may_hold_any_byte(file: Path) -> None:
    source = WeightSource({}, locations(file, {"w": torch.full((4,), 0xFF, dtype=torch.uint8)}))
    assert read_weights(manifest(entry("w", (4,), "u8")), source, CPU)[0]["w"].tolist() == [255] * 4


def test_missing_tensors_are_listed_first_few_and_counted(file: Path) -> None:
    entries = [entry(f"layers.{i}.w", (2,)) for i in range(9)]
    source = WeightSource({e.path: f"t{i}" for i, e in enumerate(entries)}, locations(file, {"t0": torch.ones(2)}))
    with pytest.raises(WeightsError) as caught:
        read_weights(manifest(*entries), source, CPU)
    assert len(caught.value.problems) == 8
    assert str(caught.value).startswith("layers.1.w binds to tensor t1, which no weights file has; layers.2.w")
    assert str(caught.value).endswith("; and 3 more")


def test_a_path_the_model_lacks_is_an_error(file: Path) -> None:
    source = WeightSource({"a": "t", "b": "t"}, locations(file, {"t": torch.ones(2)}))
    with pytest.raises(WeightsError, match="b is bound, but the model has no such parameter"):
        read_weights(manifest(entry("a", (2,))), source, CPU)


def test_shapes_are_compared(file: Path) -> None:
    source = WeightSource({}, locations(file, {"a": torch.ones(2, 3)}))
    with pytest.raises(WeightsError, match=r"a needs f32 \[3, 2\], but tensor a is F32 \[2, 3\]"):
        read_weights(manifest(entry("a", (3, 2))), source, CPU)


def test_optional_weights_may_be_missing(file: Path) -> None:
    source = WeightSource({}, locations(file, {"a": torch.ones(2)}))
    tensors, _ = read_weights(manifest(entry("a", (2,)), entry("bias", (2,), optional=True)), source, CPU)
    assert set(tensors) == {"a"}


def test_a_file_that_is_gone_or_damaged_is_named(file: Path) -> None:
    source = WeightSource({}, locations(file, {"a": torch.ones(2)}))
    file.write_bytes(file.read_bytes()[:20])
    with pytest.raises(WeightsError, match=r"tensor a cannot be read from .*model\.safetensors.*fetch the file again"):
        read_weights(manifest(entry("a", (2,))), source, CPU)
    file.unlink()
    with pytest.raises(WeightsError, match="tensor a cannot be read"):
        read_weights(manifest(entry("a", (2,))), source, CPU)


def test_given_tensors_are_checked() -> None:
    needed = manifest(entry("a", (2,)), entry("b", (2,), "u8"), entry("c", (1,), optional=True))
    check_tensors(needed, {"a": torch.ones(2), "b": torch.ones(2, dtype=torch.uint8)})
    with pytest.raises(WeightsError) as caught:
        check_tensors(needed, {"a": torch.ones(3), "d": torch.ones(1), "c": torch.ones(1).half()})
    assert caught.value.problems == (
        "the model has no parameter d",
        "a needs f32 [2], but is given f32 [3]",
        "b has no tensor",
        "c needs f32 [1], but is given f16 [1]",
    )


def test_random_weights_are_seeded_and_sensible() -> None:
    entries = [
        entry("layers.0.proj.weight", (64, 64)),
        entry("layers.0.norm.weight", (64,), "bf16"),
        entry("layers.0.norm.variance", (64,)),
        entry("layers.0.q.weight", (128, 128), "u8"),
        entry("layers.0.q.scale", (4, 4)),
        entry("index", (100,), "i64"),
        entry("mask", (100,), "bool"),
        entry("bias", (2,), optional=True),
    ]
    weights = random_weights(manifest(*entries), 3)
    assert "bias" not in weights
    assert set(random_weights(manifest(*entries), 3, optional=True)) == {e.path for e in entries}
    check_tensors(manifest(*entries), weights)
    assert weights["layers.0.proj.weight"].std().item() == pytest.approx(0.02, rel=0.1)
    assert weights["layers.0.norm.weight"].float().sub(1).abs().max() <= 0.11
    assert weights["layers.0.norm.variance"].min() > 0
    decoded = weights["layers.0.q.weight"].view(torch.float8_e4m3fn).float()
    assert decoded.isfinite().all()
    assert weights["layers.0.q.weight"].unique().numel() == 254
    assert weights["layers.0.q.scale"].min() > 0
    assert set(weights["index"].tolist()) == {0, 1}
    again = random_weights(manifest(*entries[:2]), 3)
    assert all(torch.equal(again[path], weights[path]) for path in again)
    assert not torch.equal(random_weights(manifest(*entries), 4)["index"], weights["index"])


def test_empty_weights_on_meta_take_no_memory() -> None:
    made = empty_weights([entry("a", (2**20, 2**20))], torch.device("meta"))
    assert made["a"].is_meta
    assert made["a"].shape == (2**20, 2**20)
