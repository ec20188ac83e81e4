"""The Triton programs compiled for Hopper, as every configuration of the tables asks: no GPU is needed for that.

Asserted on what the compiler made: tensor-core instructions where a program is for them, loads of 128 bits, nothing in
local memory, shared memory within a multiprocessor's.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

if os.environ.get("TRITON_INTERPRET"):
    pytest.skip("TRITON_INTERPRET is set, so that nothing is compiled", allow_module_level=True)
pytest.importorskip("triton", reason="Triton is made for Linux alone")

from triton_aot import Compiled, compile_program

from linnet.runner.torch.kernels.triton import configurations, dispatch, launch
from linnet.runner.torch.kernels.triton.configurations import Entry
from linnet.runner.torch.kernels.triton.programs import gemv, rounding, small, tile

HOPPER = 90
# Registers of a thread on every GPU of that kind.
REGISTERS = 255
PRODUCT = {"x_ptr": "bf16", "weight_ptr": "e4m3", "scale_ptr": "bf16", "out_ptr": "bf16"}
ROUNDING = {"x_ptr": "bf16", "q_ptr": "e4m3", "scale_ptr": "f32"}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


def distinct(entries: tuple[Entry, ...]) -> list[object]:
    return list(dict.fromkeys(entry.config for entry in entries))


def check(made: Compiled) -> None:
    assert made.spilled == 0
    assert not re.search(r"\b(STL|LDL)\b", made.sass)
    assert made.registers <= REGISTERS
    assert made.shared <= dispatch.HOPPER.shared


def wide_loads(made: Compiled) -> int:
    """128-bit loads of weights, each read once and first to leave the cache."""
    return len(re.findall(r"\bLDG\.E\.EF\.128\b", made.sass))


@pytest.mark.parametrize("rowwise", [False, True])
@pytest.mark.parametrize("config", distinct(configurations.GEMV), ids=str)
def test_gemv(config: configurations.Gemv, rowwise: bool) -> None:
    constants = {"block_n": config.block_n, "block_k": config.block_k, "rowwise": rowwise}
    made = compile_program(gemv.gemv, PRODUCT, constants, capability=HOPPER, warps=config.warps)
    check(made)
    # Of the first tile and of the next one in the loop; no weight comes by a narrower load.
    tile_loads = config.block_n * config.block_k // (config.warps * 32 * 16)
    assert wide_loads(made) == 2 * tile_loads
    assert not re.search(r"\bLDG\.E\.EF\.(?!128)", made.sass)
    assert "cvt.rn.f16x2.e4m3x2" in made.ptx
    assert "mma" not in made.ptx


@pytest.mark.parametrize("config", distinct(configurations.GATED_GEMV), ids=str)
def test_gated_gemv(config: configurations.Gemv) -> None:
    constants = {"block_n": config.block_n, "block_k": config.block_k}
    made = compile_program(gemv.gated_gemv, PRODUCT, constants, capability=HOPPER, warps=config.warps)
    check(made)
    assert wide_loads(made) == 4 * config.block_n * config.block_k // (config.warps * 32 * 16)
    assert not re.search(r"\bLDG\.E\.EF\.(?!128)", made.sass)


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
@pytest.mark.parametrize("block_m", [16, 32])
def test_small_rows(block_m: int, dtype: str) -> None:
    """Weights on the long side of the tensor cores, taken from registers; copies to shared memory run ahead."""
    (config,) = {(c.block_n, c.warps, c.stages) for c in distinct(configurations.SMALL_ROWS) if c.block_m == block_m}
    block_n, warps, stages = config
    pointers = {"x_ptr": dtype, "weight_ptr": "e4m3", "scale_ptr": "bf16", "part_ptr": "f32"}
    constants = {"block_m": block_m, "block_n": block_n, "block_k": 128, "splits": 4, "rowwise": False}
    made = compile_program(small.small_rows, pointers, constants, capability=HOPPER, warps=warps, stages=stages)
    check(made)
    kind = {"bf16": "k16.f32.bf16.bf16", "f16": "k16.f32.f16.f16", "f32": "k8.f32.tf32.tf32"}[dtype]
    assert f"wgmma.mma_async.sync.aligned.m64n{block_m}{kind}" in made.ptx
    assert "mma.sync.aligned" not in made.ptx.replace("wgmma.mma_async.sync.aligned", "")
    # Inputs are copied 16 bytes at a time; weights 8, as the tensor cores' register layout of one-byte factors has it.
    assert re.search(r"\bLDGSTS\.E\.BYPASS\.(?:\w+\.)*128\b", made.sass)
    assert re.search(r"\bLDGSTS\.E\.(?:\w+\.)*(?:64|128)\b", made.sass)
    # The slow conversion, a quarter of a warp at a time.
    assert "F2F." not in made.sass


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("splits", sorted({c.splits for c in distinct(configurations.SMALL_ROWS)}))
def test_add_splits(splits: int, gated: bool) -> None:
    constants = {"splits": splits, "gated": gated, "block": launch.REDUCED}
    made = compile_program(
        small.add_splits, {"part_ptr": "f32", "out_ptr": "bf16"}, constants, capability=HOPPER, warps=4
    )
    check(made)
    assert re.search(r"\bLDG\.E\.128\b", made.sass)


@pytest.mark.parametrize("config", distinct(configurations.TILE), ids=str)
def test_tile(config: configurations.Tile) -> None:
    """E4M3 by E4M3, four instructions of 32 inputs, and the scales in f32 outside of them."""
    constants = {"block_m": config.block_m, "block_n": config.block_n, "group": config.group}
    pointers = {**PRODUCT, "x_ptr": "e4m3", "x_scale_ptr": "f32"}
    made = compile_program(tile.tile, pointers, constants, capability=HOPPER, warps=config.warps, stages=config.stages)
    check(made)
    assert f"wgmma.mma_async.sync.aligned.m64n{config.block_n}k32.f32.e4m3.e4m3" in made.ptx
    assert len(re.findall(r"\bQGMMA\.", made.sass)) == 4
    assert re.search(r"\bLDGSTS\.E\.BYPASS\.(?:\w+\.)*128\b", made.sass)
    assert re.search(r"\bSTG\.E\.128\b", made.sass)
    assert re.search(r"\bFFMA\b", made.sass)


@pytest.mark.parametrize("inner", [4096, 12288])
@pytest.mark.parametrize("name", ["quantise", "rms_norm_quantise", "silu_mul_quantise"])
def test_rounding(name: str, inner: int) -> None:
    whole = name == "rms_norm_quantise"
    block = launch.power_of_two(inner) if whole else launch.COLUMNS
    pointers = {**ROUNDING, "weight_ptr": "bf16"} if whole else ROUNDING
    made = compile_program(
        getattr(rounding, name),
        pointers,
        {"block": block},
        capability=HOPPER,
        warps=launch.norm_warps(block) if whole else 4,
        floats=frozenset(["eps"]),
    )
    check(made)
    assert re.search(r"\bLDG\.E\.128\b", made.sass)
    # Rounds to nearest and saturates, in hardware.
    assert "cvt.rn.satfinite.e4m3x2.f32" in made.ptx


@pytest.mark.parametrize("rowwise", [False, True])
@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
def test_decode(dtype: str, rowwise: bool) -> None:
    pointers = {"weight_ptr": "e4m3", "scale_ptr": "bf16", "out_ptr": dtype}
    constants = {"block_n": launch.DECODED_ROWS, "rowwise": rowwise}
    made = compile_program(rounding.decode, pointers, constants, capability=HOPPER, warps=4)
    check(made)
    assert wide_loads(made)
    assert re.search(r"\bSTG\.E\.128\b", made.sass)


def test_sizes_of_one_compile() -> None:
    """A launcher fixes an argument that is 1: one row, or one block of inputs."""
    one = {"rows": 1, "scale_stride": 1}
    tiles = {"block_m": 64, "block_n": 64, "group": 8, "x_scale_stride": 4}
    pointers = {**PRODUCT, "x_ptr": "e4m3", "x_scale_ptr": "f32"}
    check(compile_program(tile.tile, pointers, one | tiles, capability=HOPPER, warps=4))
    constants = {"block_n": 4, "block_k": 1024, "scale_stride": 1}
    check(compile_program(gemv.gemv, PRODUCT, constants | {"rowwise": False}, capability=HOPPER, warps=4))
    check(compile_program(gemv.gated_gemv, PRODUCT, constants, capability=HOPPER, warps=4))
    check(compile_program(rounding.quantise, ROUNDING, {"rows": 1, "block": 128}, capability=HOPPER, warps=4))


def test_a_program_that_spills_is_seen() -> None:
    """What `check` refuses does happen: a tile far too large for its threads."""
    constants = {"block_n": 128, "block_k": 1024, "rowwise": False}
    made = compile_program(gemv.gemv, PRODUCT, constants, capability=HOPPER, warps=4)
    with pytest.raises(AssertionError):
        check(made)
