"""Every floating op of the standard library against a reference in f64: its rounding in bf16, its gradients in f32."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from std_harness import NUMERICS, assert_within_one_rounding, random, run_std
from torch import Tensor
from torch.nn import functional

from linnet.language.check import load


@dataclass(frozen=True)
class Case:
    """A call of `module::name` on `inputs` (name: type); those not in `fixed` are drawn, and gradients taken for them.

    `call` is what the entry returns, of type `result`; `reference` takes the inputs in order, floating ones in f64.
    """

    module: str
    name: str
    inputs: dict[str, str]
    result: str
    call: str
    reference: Callable[..., Tensor]
    fixed: dict[str, Tensor | int | float] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


MASK = torch.tensor([[[True, False, True], [False, True, True]], [[True, True, True], [True, False, False]]])
PAGES = {
    "table": torch.tensor([[1, 0], [2, 3]], dtype=torch.int32),
    "positions": torch.tensor([2, 3], dtype=torch.int32),
    "scale": 0.4,
}
BLOCKS = (torch.arange(96) * 37 % 256).to(torch.uint8).reshape(3, 2, 1, 16)
SCALES = (torch.arange(6) + 124).to(torch.uint8).reshape(3, 2, 1)
E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], dtype=torch.float64)
FP8 = torch.tensor([[0x38, 0xB9, 0x40, 0x07], [0x31, 0x42, 0xC0, 0x2A]], dtype=torch.uint8)
INT4 = torch.tensor([[0x8F, 0x71], [0x3C, 0x05]], dtype=torch.uint8)
INT4_VALUES = torch.tensor([[-1.0, -8.0, 1.0, 7.0], [-4.0, 3.0, 5.0, 0.0]], dtype=torch.float64)
INT8 = torch.tensor([[-128, 3, 0, 127], [5, -6, 7, -8]], dtype=torch.int8)
EXPERTS = {"e": torch.tensor([[0, 2], [1, 1], [2, 0]])}


def attention(q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Tensor | None = None) -> Tensor:
    repeat = q.shape[1] // k.shape[1]
    scores = q @ k.repeat_interleave(repeat, 1).mT * scale
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return torch.softmax(scores, -1) @ v.repeat_interleave(repeat, 1)


def sink_attention(q: Tensor, k: Tensor, v: Tensor, sinks: Tensor, scale: float, mask: Tensor) -> Tensor:
    scores = (q @ k.repeat_interleave(2, 1).mT * scale).masked_fill(~mask[:, None], -torch.inf)
    scores = torch.cat((scores, sinks[:, None, None].expand(*scores.shape[:-1], 1)), -1)
    return torch.softmax(scores, -1)[..., :-1] @ v.repeat_interleave(2, 1)


def paged(q: Tensor, k: Tensor, v: Tensor, table: Tensor, rows: Tensor, positions: Tensor, scale: float) -> Tensor:
    """`q` [P, H, 1, D]: token `p` as row `rows[p]`, pages of two positions."""
    slots = (table[:, :, None] * 2 + torch.arange(2)).flatten(1)[rows]
    seen = torch.arange(slots.shape[1]) <= positions[:, None]
    return attention(q, k[0][:, slots].transpose(0, 1), v[0][:, slots].transpose(0, 1), scale, seen[:, None, None])


def written(cache: Tensor, value: Tensor, places: list[tuple[int, int, int, int]]) -> Tensor:
    """`value[m, :, n]` at `cache[b, :, s]` for each `(m, n, b, s)`."""
    result = cache.clone()
    for m, n, b, s in places:
        result[b, :, s] = value[m, :, n]
    return result


def rotate(x: Tensor) -> Tensor:
    low, high = x.chunk(2, -1)
    return torch.cat((-high, low), -1)


def picked(logits: Tensor, targets: Tensor) -> Tensor:
    return torch.log_softmax(logits, -1).gather(1, targets[:, None])[:, 0]


def rms_norm(x: Tensor, w: Tensor) -> Tensor:
    return functional.rms_norm(x, (5,), w, 1e-5)


def elementwise(name: str, reference: Callable[[Tensor], Tensor], dtype: str = "T") -> Case:
    shape = f"Tensor[3, 5; {dtype}]"
    return Case("nn.activations", name, {"x": shape}, shape, f"{name}(x)", reference)


def attends(name: str, heads: int, reference: Callable[..., Tensor], mask: str = "") -> Case:
    kv = f"Tensor[2, {heads}, 3, 4; T]"
    inputs = {"q": "Tensor[2, 4, 2, 4; T]", "k": kv, "v": kv, "scale": "f32"}
    fixed: dict[str, Tensor | int | float] = {"scale": 0.4}
    if mask:
        inputs["m"], fixed["m"] = f"Tensor[{mask}; bool]", MASK if mask.startswith("2, 2") else MASK[0]
    call = f"{name}(q, k, v, scale{'' if not mask else ', m' if mask.startswith('2, 2') else ', some(m)'})"
    return Case("nn.attention", name, inputs, inputs["q"], call, reference, fixed)


def writes(name: str, count: int, span: int, places: list[tuple[int, int, int, int]], /, **at: int | list[int]) -> Case:
    kinds = {key: "i32" if isinstance(value, int) else f"Tensor[{len(value)}; i32]" for key, value in at.items()}
    inputs = {"cache": "Tensor[2, 3, 5, 2; T]", "value": f"Tensor[{count}, 3, {span}, 2; T]", **kinds}
    fixed: dict[str, Tensor | int | float] = {
        key: value if isinstance(value, int) else torch.tensor(value, dtype=torch.int32) for key, value in at.items()
    }
    call = f"{name}({', '.join(inputs)})"
    return Case("nn.cache", name, inputs, inputs["cache"], call, lambda c, v, *_: written(c, v, places), fixed)


def loses(name: str, call: str, inputs: str, summed: bool, reference: Callable[..., Tensor]) -> Case:
    kinds = {"x": "Tensor[3, 5; T]", "h": "Tensor[3, 4; T]", "w": "Tensor[5, 4; T]", "t": "Tensor[3; i64]"}
    kinds["m"] = "Tensor[3; f32]"
    result = "f32" if summed else "Tensor[3; f32]"
    fixed: dict[str, Tensor | int | float] = {"t": torch.tensor([4, 0, 2])} if "t" in inputs else {}
    return Case("nn.loss", name, {key: kinds[key] for key in inputs}, result, call, reference, fixed)


def dequantizes(name: str, weight: Tensor, kind: str, scale: str, call: str, values: Tensor) -> list[Case]:
    """`dequantize_{name}` and `{name}_linear`, of weights [2, 4] whose values are `values`."""

    def spread(scale: Tensor) -> Tensor:
        down, across = 2 // scale.shape[0], 4 // scale.shape[1]
        return values * scale.repeat_interleave(down, 0).repeat_interleave(across, 1)

    weights = {"w": f"Tensor[{', '.join(map(str, weight.shape))}; {kind}]", "s": f"Tensor[{scale}]"}
    linear = {"x": "Tensor[3, 4; T]", **weights, "b": "Tensor[2; T]"}
    own = f"<2, 4{call}>"
    layer = call and f"<[3], 4, 2{call}>"
    return [
        Case("quant", f"dequantize_{name}", weights, "Tensor[2, 4; f32]", f"dequantize_{name}{own}(w, s)",
             lambda w, s: spread(s), {"w": weight}),
        Case("quant", f"{name}_linear", linear, "Tensor[3, 2; T]", f"{name}_linear{layer}(x, w, s, some(b))",
             lambda x, w, s, b: x @ spread(s).mT + b, {"w": weight}),
    ]  # fmt: skip


def mxfp4(blocks: Tensor, scales: Tensor) -> Tensor:
    codes = torch.stack((blocks % 16, blocks // 16), -1).flatten(-2).long()
    return (torch.cat((E2M1, -E2M1))[codes] * torch.exp2(scales.double() - 127)[..., None]).flatten(-2)


def mxfp4_experts(name: str, x: str, product: str) -> Case:
    inputs = {"x": f"Tensor[{x}; T]", "w": "Tensor[3, 2, 1, 16; u8]", "s": "Tensor[3, 2, 1; u8]"}
    inputs |= {"e": "Tensor[3, 2; i64]", "b": "Tensor[3, 2; T]"}
    return Case("quant", name, inputs, "Tensor[3, 2, 2; T]", f"{name}(x, w, s, e, some(b))",
                lambda x, w, s, e, b: torch.einsum(product, x, mxfp4(w, s)[e]) + b[e],
                {"w": BLOCKS, "s": SCALES, **EXPERTS})  # fmt: skip


CASES = [
    Case("linalg", "dot", {"a": "Tensor[4; T]", "b": "Tensor[4; T]"}, "T", "dot(a, b)", torch.dot),
    Case("linalg", "outer", {"a": "Tensor[4; T]", "b": "Tensor[3; T]"}, "Tensor[4, 3; T]", "outer(a, b)", torch.outer),
    Case("linalg", "matmul", {"a": "Tensor[2, 4; T]", "b": "Tensor[4, 3; T]"}, "Tensor[2, 3; T]", "matmul(a, b)",
         torch.matmul),
    Case("linalg", "batched_matmul", {"a": "Tensor[2, 2, 4; T]", "b": "Tensor[2, 4, 3; T]"}, "Tensor[2, 2, 3; T]",
         "batched_matmul(a, b)", torch.matmul),
    Case("linalg", "transpose", {"a": "Tensor[2, 4; T]"}, "Tensor[4, 2; T]", "transpose(a)", torch.t),
    elementwise("relu", torch.relu),
    elementwise("sigmoid", torch.sigmoid),
    elementwise("silu", functional.silu),
    elementwise("gelu", lambda x: functional.gelu(x, approximate="tanh")),
    elementwise("gelu_erf", functional.gelu),
    elementwise("erf", torch.erf, "f32"),
    attends("attention", 4, attention),
    attends("attention", 4, attention, "2, 3"),
    attends("grouped_attention", 2, attention),
    attends("grouped_attention", 2, attention, "2, 3"),
    attends("attention_rows", 4, lambda q, k, v, s, m: attention(q, k, v, s, m[:, None]), "2, 2, 3"),
    attends("grouped_attention_rows", 2, lambda q, k, v, s, m: attention(q, k, v, s, m[:, None]), "2, 2, 3"),
    Case("nn.attention", "sink_attention",
         {"q": "Tensor[2, 4, 2, 4; T]", "k": "Tensor[2, 2, 3, 4; T]", "v": "Tensor[2, 2, 3, 4; T]",
          "sinks": "Tensor[4; T]", "scale": "f32", "m": "Tensor[2, 2, 3; bool]"},
         "Tensor[2, 4, 2, 4; T]", "sink_attention(q, k, v, sinks, scale, m)", sink_attention,
         {"scale": 0.4, "m": MASK}),
    Case("nn.attention", "paged_attention",
         {"q": "Tensor[2, 4, 1, 4; T]", "k": "Tensor[1, 2, 8, 4; T]", "v": "Tensor[1, 2, 8, 4; T]",
          "table": "Tensor[2, 2; i32]", "positions": "Tensor[2; i32]", "scale": "f32"},
         "Tensor[2, 4, 1, 4; T]", "paged_attention<2, 4, 2, 8, 2, 2, 4, T>(q, k, v, table, positions, scale)",
         lambda q, k, v, table, positions, scale: paged(q, k, v, table, torch.arange(2), positions, scale), PAGES),
    Case("nn.attention", "paged_prefill_attention",
         {"q": "Tensor[1, 4, 3, 4; T]", "k": "Tensor[1, 2, 8, 4; T]", "v": "Tensor[1, 2, 8, 4; T]",
          "table": "Tensor[2, 2; i32]", "rows": "Tensor[3; i32]", "positions": "Tensor[3; i32]", "scale": "f32"},
         "Tensor[1, 4, 3, 4; T]",
         "paged_prefill_attention<3, 4, 2, 8, 2, 2, 2, 4, T>(q, k, v, table, rows, positions, scale)",
         lambda q, k, v, *rest: paged(q.permute(2, 1, 0, 3), k, v, *rest).permute(2, 1, 0, 3),
         {**PAGES, "rows": torch.tensor([0, 1, 1], dtype=torch.int32),
          "positions": torch.tensor([2, 0, 3], dtype=torch.int32)}),
    writes("write_at", 2, 1, [(0, 0, 0, 3), (1, 0, 1, 3)], at=3),
    writes("write_span", 2, 2, [(m, n, m, 1 + n) for m in range(2) for n in range(2)], at=1),
    writes("write_rows", 2, 1, [(0, 0, 0, 4), (1, 0, 1, 0)], at=[4, 0]),
    writes("write_slot", 1, 2, [(0, 0, 1, 2), (0, 1, 1, 3)], slot=1, at=2),
    writes("write_slots", 2, 2, [(0, 0, 1, 2), (0, 1, 1, 3), (1, 0, 0, 2), (1, 1, 0, 3)], slots=[1, 0], at=2),
    writes("write_tokens", 1, 3, [(0, 0, 1, 4), (0, 1, 0, 0), (0, 2, 1, 2)], rows=[1, 0, 1], positions=[4, 0, 2]),
    Case("nn.conv", "zero_pad", {"x": "Tensor[1, 2, 3, 2; T]"}, "Tensor[1, 2, 6, 9; T]",
         "zero_pad<1, 2, 3, 2, 1, 2, 3, 4, T>(x)", lambda x: functional.pad(x, (3, 4, 1, 2))),
    Case("nn.conv", "conv1d", {"x": "Tensor[2, 3, 7; T]", "w": "Tensor[2, 3, 3; T]", "b": "Tensor[2; T]"},
         "Tensor[2, 2, 4; T]", "conv1d<2, 3, 2, 7, 3, 2, 1, T>(x, w, some(b))",
         lambda x, w, b: functional.conv1d(x, w, b, stride=2, padding=1)),
    Case("nn.conv", "conv2d", {"x": "Tensor[2, 3, 5, 6; T]", "w": "Tensor[2, 3, 3, 3; T]", "b": "Tensor[2; T]"},
         "Tensor[2, 2, 3, 3; T]", "conv2d<2, 3, 2, 5, 6, 3, 2, 1, T>(x, w, some(b))",
         lambda x, w, b: functional.conv2d(x, w, b, stride=2, padding=1)),
    Case("nn.conv", "conv2d_rect", {"x": "Tensor[1, 2, 6, 9; T]", "w": "Tensor[3, 2, 2, 3; T]", "b": "Tensor[3; T]"},
         "Tensor[1, 3, 7, 4; T]", "conv2d_rect<1, 2, 3, 6, 9, 2, 3, 1, 2, 1, 0, T>(x, w, some(b))",
         lambda x, w, b: functional.conv2d(x, w, b, stride=(1, 2), padding=(1, 0))),
    Case("nn.embedding", "embedding", {"ids": "Tensor[4; i32]", "w": "Tensor[5, 3; T]"}, "Tensor[4, 3; T]",
         "embedding(ids, w)", lambda ids, w: w[ids.long()], {"ids": torch.tensor([1, 4, 1, 0], dtype=torch.int32)}),
    Case("nn.linear", "linear", {"x": "Tensor[2, 3, 4; T]", "w": "Tensor[5, 4; T]", "b": "Tensor[5; T]"},
         "Tensor[2, 3, 5; T]", "linear(x, w, some(b))", functional.linear),
    Case("nn.loss", "log_softmax", {"x": "Tensor[3, 5; T]"}, "Tensor[3, 5; f32]", "log_softmax(x)",
         lambda x: torch.log_softmax(x, -1)),
    loses("token_log_probs", "token_log_probs(x, t)", "xt", False, picked),
    loses("cross_entropy", "cross_entropy(x, t, m)", "xtm", True, lambda x, t, m: -(picked(x, t) * m).sum()),
    loses("linear_token_log_probs", "linear_token_log_probs(h, w, t)", "hwt", False,
          lambda h, w, t: picked(h @ w.mT, t)),
    loses("linear_cross_entropy", "linear_cross_entropy(h, w, t, m)", "hwtm", True,
          lambda h, w, t, m: -(picked(h @ w.mT, t) * m).sum()),
    loses("split_token_log_probs", "split_token_log_probs<3, 4, 5, 1, T>(h, w, t)", "hwt", False,
          lambda h, w, t: picked(h @ w.mT, t)),
    loses("split_cross_entropy", "split_cross_entropy<3, 4, 5, 1, T>(h, w, t, m)", "hwtm", True,
          lambda h, w, t, m: -(picked(h @ w.mT, t) * m).sum()),
    loses("entropy", "entropy(x)", "x", False,
          lambda x: -(torch.softmax(x, -1) * torch.log_softmax(x, -1)).sum(-1)),
    Case("nn.mlp", "swiglu",
         {"x": "Tensor[2, 4; T]", "g": "Tensor[6, 4; T]", "u": "Tensor[6, 4; T]", "d": "Tensor[4, 6; T]"},
         "Tensor[2, 4; T]", "swiglu(x, g, u, d)",
         lambda x, g, u, d: (functional.silu(x @ g.mT) * (x @ u.mT)) @ d.mT),
    Case("nn.moe", "linear_experts",
         {"x": "Tensor[3, 2, 4; T]", "w": "Tensor[3, 5, 4; T]", "e": "Tensor[3, 2; i64]"}, "Tensor[3, 2, 5; T]",
         "linear_experts(x, w, e)", lambda x, w, e: torch.einsum("rki,rkoi->rko", x, w[e]), EXPERTS),
    Case("nn.moe", "linear_experts_shared",
         {"x": "Tensor[3, 4; T]", "w": "Tensor[3, 5, 4; T]", "e": "Tensor[3, 2; i64]"}, "Tensor[3, 2, 5; T]",
         "linear_experts_shared(x, w, e)", lambda x, w, e: torch.einsum("ri,rkoi->rko", x, w[e]), EXPERTS),
    Case("nn.moe", "combine_experts", {"x": "Tensor[3, 2, 4; T]", "g": "Tensor[3, 2; f32]"}, "Tensor[3, 4; T]",
         "combine_experts(x, g)", lambda x, g: (x * g[..., None]).sum(1)),
    Case("nn.norm", "rms_norm", {"x": "Tensor[2, 3, 5; T]", "w": "Tensor[5; T]"}, "Tensor[2, 3, 5; T]",
         "rms_norm(x, w)", rms_norm),
    Case("nn.norm", "layer_norm", {"x": "Tensor[2, 3, 5; T]", "w": "Tensor[5; T]", "b": "Tensor[5; T]"},
         "Tensor[2, 3, 5; T]", "layer_norm(x, w, some(b))",
         lambda x, w, b: functional.layer_norm(x, (5,), w, b, 1e-5)),
    Case("nn.norm", "batch_norm",
         {"x": "Tensor[2, 3, 2, 2; T]", "mean": "Tensor[3; T]", "s": "Tensor[3; T]", "w": "Tensor[3; T]",
          "b": "Tensor[3; T]"},
         "Tensor[2, 3, 2, 2; T]", "batch_norm(x, mean, s * s + cast<T>(0.5), w, b)",
         lambda x, mean, s, w, b: (x - mean[:, None, None]) * torch.rsqrt(s * s + 0.5 + 1e-5)[:, None, None]
         * w[:, None, None] + b[:, None, None]),
    Case("nn.norm", "group_norm", {"x": "Tensor[2, 4, 2, 3; T]", "w": "Tensor[4; T]", "b": "Tensor[4; T]"},
         "Tensor[2, 4, 2, 3; T]", "group_norm<2, 4, 2, 3, 2, T>(x, w, b)",
         lambda x, w, b: functional.group_norm(x, 2, w, b, 1e-5)),
    Case("nn.parallel", "all_reduce", {"x": "Tensor[2, 3; T]"}, "Tensor[2, 3; T]", "all_reduce(x)", torch.clone),
    Case("nn.parallel", "all_gather", {"x": "Tensor[2, 3; T]"}, "Tensor[2, 3; T]", "all_gather<2, 3, 1, T>(x)",
         torch.clone),
    Case("nn.parallel", "shared", {"x": "Tensor[2, 3; T]"}, "Tensor[2, 3; T]", "shared(x)", torch.clone),
    Case("nn.pool", "max_pool2d", {"x": "Tensor[2, 3, 5, 6; T]"}, "Tensor[2, 3, 3, 3; T]",
         "max_pool2d<2, 3, 5, 6, 3, 2, 1, T>(x)", lambda x: functional.max_pool2d(x, 3, 2, 1)),
    Case("nn.pool", "global_average_pool2d", {"x": "Tensor[2, 3, 5, 6; T]"}, "Tensor[2, 3; T]",
         "global_average_pool2d(x)", lambda x: x.mean((2, 3))),
    Case("nn.resize", "upsample_nearest2d", {"x": "Tensor[1, 2, 2, 3; T]"}, "Tensor[1, 2, 6, 9; T]",
         "upsample_nearest2d<1, 2, 2, 3, 3, T>(x)", lambda x: x.repeat_interleave(3, 2).repeat_interleave(3, 3)),
    Case("nn.rope", "rotate_half", {"x": "Tensor[2, 6; T]"}, "Tensor[2, 6; T]", "rotate_half(x)", rotate),
    Case("nn.rope", "rope", {"x": "Tensor[2, 3, 2, 4; T]", "c": "Tensor[2, 4; T]", "s": "Tensor[2, 4; T]"},
         "Tensor[2, 3, 2, 4; T]", "rope(x, c, s)", lambda x, c, s: x * c + rotate(x) * s),
    Case("nn.rope", "rope_rows", {"x": "Tensor[2, 3, 2, 4; T]", "c": "Tensor[2, 2, 4; T]", "s": "Tensor[2, 2, 4; T]"},
         "Tensor[2, 3, 2, 4; T]", "rope_rows(x, c, s)", lambda x, c, s: x * c[:, None] + rotate(x) * s[:, None]),
    Case("nn.softmax", "softmax", {"x": "Tensor[2, 5; T]"}, "Tensor[2, 5; T]", "softmax(x)",
         lambda x: torch.softmax(x, -1)),
    *dequantizes("fp8", FP8, "u8", "2, 1; f32", "", FP8.view(torch.float8_e4m3fn).double()),
    *dequantizes("fp8_block", FP8, "u8", "1, 2; T", ", 2, T", FP8.view(torch.float8_e4m3fn).double()),
    *dequantizes("int8", INT8, "i8", "2, 1; f32", "", INT8.double()),
    *dequantizes("int4", INT4, "u8", "2, 1; f32", "", INT4_VALUES),
    *dequantizes("int4_group", INT4, "u8", "2, 2; T", ", 2, T", INT4_VALUES),
    mxfp4_experts("mxfp4_experts", "3, 2, 32", "rki,rkoi->rko"),
    mxfp4_experts("mxfp4_experts_shared", "3, 32", "ri,rkoi->rko"),
]  # fmt: skip


@pytest.mark.parametrize("numerics", NUMERICS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_are_those_of_the_reference(case: Case, numerics: str) -> None:
    given: list[Tensor | int | float] = []
    for seed, (name, kind) in enumerate(case.inputs.items()):
        shape = [int(size) for size in re.findall(r"\d+(?=[,;])", kind)]
        given.append(case.fixed[name] if name in case.fixed else random(*shape, seed=seed).requires_grad_())
    wide = [
        value.detach().double().requires_grad_() if isinstance(value, Tensor) and value.requires_grad else value
        for value in given
    ]
    parameters = ", ".join(f"{name}: {kind}" for name, kind in case.inputs.items())
    found = run_std(
        f"use std.{case.module}::{{{case.name}}}",
        f"({parameters}) -> {case.result} {{ return {case.call} }}",
        *given,
        numerics=numerics,
        trainable=True,
    )
    wanted = case.reference(*wide)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-5)
    weight = random(*wanted.shape, seed=99)
    leaves = [value for value in given if isinstance(value, Tensor) and value.requires_grad]
    truths = [value for value in wide if isinstance(value, Tensor) and value.requires_grad]
    assert leaves
    gradients = torch.autograd.grad((found * weight).sum(), leaves)
    for gradient, truth in zip(gradients, torch.autograd.grad((wanted * weight).sum(), truths), strict=True):
        torch.testing.assert_close(gradient.double(), truth, rtol=1e-4, atol=1e-5 * max(1.0, truth.abs().max().item()))


def narrow(x: Tensor) -> Tensor:
    return x.bfloat16().double()


def rounded_swiglu(x: Tensor, g: Tensor, u: Tensor, d: Tensor) -> Tensor:
    return narrow(narrow(functional.silu(narrow(x @ g.mT))) * narrow(x @ u.mT)) @ d.mT


def rounded_batch_norm(x: Tensor, mean: Tensor, s: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return functional.batch_norm(x, mean, narrow(narrow(s * s) + 0.5), w, b, eps=1e-5)


# What rounds in between, as its documentation says: the logits of a loss, each step of swiglu; for batch_norm the
# variance that the call makes.
STEPS: dict[str, Callable[..., Tensor]] = {
    "swiglu": rounded_swiglu,
    "batch_norm": rounded_batch_norm,
    "linear_token_log_probs": lambda h, w, t: picked(narrow(h @ w.mT), t),
    "linear_cross_entropy": lambda h, w, t, m: -(picked(narrow(h @ w.mT), t) * m).sum(),
    "split_token_log_probs": lambda h, w, t: picked(narrow(h @ w.mT), t),
    "split_cross_entropy": lambda h, w, t, m: -(picked(narrow(h @ w.mT), t) * m).sum(),
}
# test_std.py has the roundings of these.
APART = {"rms_norm", "layer_norm", "rope", "rope_rows"}
IN_BF16 = [case for case in CASES if case.name not in APART]


@pytest.mark.parametrize("numerics", NUMERICS)
@pytest.mark.parametrize("case", IN_BF16, ids=str)
def test_results_in_bf16_are_rounded_where_documented(case: Case, numerics: str) -> None:
    given: list[Tensor | int | float] = []
    for seed, (name, kind) in enumerate(case.inputs.items()):
        shape = [int(size) for size in re.findall(r"\d+(?=[,;])", kind)]
        dtype = "f32" if "f32" in kind else "bf16"
        given.append(case.fixed[name] if name in case.fixed else random(*shape, seed=seed, dtype=dtype))
    parameters = ", ".join(f"{name}: {kind}" for name, kind in case.inputs.items())
    entry = f"({parameters}) -> {case.result} {{ return {case.call} }}"
    found = run_std(f"use std.{case.module}::{{{case.name}}}", entry, *given, dtype="bf16", numerics=numerics)
    wide = [v.double() if isinstance(v, Tensor) and v.is_floating_point() else v for v in given]
    assert_within_one_rounding(found, STEPS.get(case.name, case.reference)(*wide))


def test_every_floating_op_has_its_gradients_tested(root: Path) -> None:
    """Whatever takes a float tensor and gives a float one."""
    floating = re.compile(r"(; |^)(T|f32)\b")
    found = set()
    for path in (root / "linnet" / "std").rglob("*.linnet"):
        program = load(path).program
        assert program is not None
        for item in program.root.functions.values():
            takes = any(floating.search(str(var.type)) and "Tensor" in str(var.type) for var in item.parameters)
            if item.public and takes and floating.search(str(item.result)):
                found.add(f"{program.root.name.removeprefix('std.')}.{item.name}")
    assert found == {str(case) for case in CASES}
