"""Programs whose values a wrong lowering would change, run by the interpreter and compared with what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from linnet.language.check import load
from linnet.language.program.binding import BoundProgram, bind
from linnet.language.program.lower_values import LowerError
from linnet.language.program.small import small_generics
from linnet.runner.torch.module import Model, load_model
from linnet.runner.torch.weights import WeightSource


def bound(folder: Path, text: str, generics: Mapping[str, int | str] | None = None) -> BoundProgram:
    file = folder / "m.linnet"
    file.write_text("module m\n\n" + text)
    result = load(file)
    assert result.program is not None, [item.message for item in result.diagnostics]
    return bind(result.program, None, generics or {})


def model(folder: Path, text: str, numerics: str = "exact") -> Model:
    return load_model(bound(folder, text), WeightSource({}, {}), entry=None, numerics=numerics, device="cpu")


def run(folder: Path, text: str, *inputs: Any, generics: Mapping[str, int | str] | None = None) -> Any:
    return model(folder, text).run_entry("run", list(inputs), generics=dict(generics or {}))


ABSENT_FACTOR = """
pub block M<K: Dim = 5> {
    param b: Tensor[K; f32]? = none

    pub entry run<I: Dim, J: Dim>(x: Tensor[I; f32], y: Tensor[J; f32], z: Tensor[K; f32]) -> Tensor[J; f32] {
        let scaled[j] = sum[k, i] x[i] * y[j] * (match b { some(v) => v[k] none => 1.0 })
        let chosen[j] = sum[k, i] x[i] * y[j] * (if true { 1.0 } else { z[k] })
        return scaled + chosen
    }
}
"""


def test_an_index_that_no_factor_keeps_still_counts(tmp_path: Path) -> None:
    result = run(tmp_path, ABSENT_FACTOR, torch.ones(2), torch.ones(3), torch.ones(5))
    assert result.tolist() == [20.0, 20.0, 20.0]


WRAPPED = """
pub entry run<N: Dim>(x: Tensor[N; u8]) -> (u8, bool, Tensor[N; bool]) {
    let k = cast<u8>(N - 5)
    return (k, k > 100, x + k > 100)
}

pub entry typed<N: Dim>(x: Tensor[N; i8]) -> i8 {
    let k: i8 = N
    return k
}
"""


def test_a_cast_dimension_wraps_and_a_typed_one_must_fit(tmp_path: Path) -> None:
    k, larger, each = run(tmp_path, WRAPPED, torch.zeros(3, dtype=torch.uint8))
    assert (k.item(), larger.item(), each.tolist()) == (254, True, [True] * 3)
    with pytest.raises(LowerError, match="`N` is 300, which does not fit `i8`"):
        bound(tmp_path, WRAPPED).lower("typed", {"N": 300})


SHAPES = """
pub entry run<*S: Shape>(x: Tensor[*S; f32]) -> f32 {
    return sum[*s] x[*s]
}
"""


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 1, 3, 2)])
def test_an_entry_over_any_shape(tmp_path: Path, shape: tuple[int, ...]) -> None:
    x = torch.arange(float(torch.Size(shape).numel())).reshape(shape)
    assert run(tmp_path, SHAPES, x).item() == x.sum().item()


def test_a_small_shape_has_one_axis(tmp_path: Path) -> None:
    program = bound(tmp_path, SHAPES)
    assert small_generics(program.entries()["run"], {}) == {"S": (2,)}


def test_many_axes(tmp_path: Path) -> None:
    left, right = ([f"{letter}{i}" for i in range(30)] for letter in "ab")
    indices = ", ".join([*left, *right])
    text = f"""
pub entry run(x: Tensor[{", ".join(["1"] * 30)}; f32]) -> f32 {{
    return sum[{indices}] x[{", ".join(left)}] * x[{", ".join(right)}]
}}
"""
    assert run(tmp_path, text, torch.full((1,) * 30, 3.0)).item() == 9.0
    wide = f"""
pub entry run() -> Tensor[{", ".join(["1"] * 70)}; f32] {{
    return fill<f32>([{", ".join(["1"] * 70)}], 0)
}}
"""
    with pytest.raises(LowerError, match="a tensor of 70 axes"):
        bound(tmp_path, wide).lower("run", {})


def test_float_literals_that_overflow_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "m.linnet"
    for text in ("1e308 * 10.0", "1e308 * 10.0 % 2.0", "1.0 / 1e-308 / 1e-308"):
        file.write_text(f"module m\n\npub entry run(x: f64) -> f64 {{\n    return x + {text}\n}}\n")
        assert [item.code for item in load(file).diagnostics] == ["E2105"], text
