"""Each native kernel against its op's body, over shapes and dtypes.

A kernel may differ from the body by what another order of summation gives, and against the same inputs in f64 it must
not be further from the truth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch

from linnet.language.program.binding import BoundProgram
from linnet.runner.errors import IndexRangeError
from linnet.runner.torch.dtypes import NATIVE, integer_range
from linnet.runner.torch.kernels import Kernel, equivalent_kernels
from linnet.runner.torch.module import load_model

FLOATS = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
# Relative to the largest magnitude of the result: f32 sums in another order, or one rounding to the dtype.
TOLERANCE = {"f64": 2e-6, "f32": 2e-6, "f16": 2e-3, "bf16": 1.6e-2}

Sizes = dict[str, int]
Shape = tuple[int | str, ...]


@dataclass(frozen=True)
class Case:
    """One op: `call` is an expression over `inputs`, whose shapes are in the entry's generics.

    An input is `name: (shape, kind)`; kinds are T (float, normal), f32, bool, u8 (E4M3 bytes), scale (positive, in T),
    and `i32:N` or `i64:N` (0 .. N - 1, N a generic, a number or an expression of them).
    """

    module: str
    call: str
    result: str
    inputs: dict[str, tuple[Shape, str]]
    sizes: tuple[Sizes, ...]
    where: str = ""

    @property
    def name(self) -> str:
        return self.call.partition("(")[0].partition("<")[0]


ROWS: tuple[Sizes, ...] = ({"B": 1, "N": 1}, {"B": 3, "N": 5}, {"B": 2, "N": 64}, {"B": 1, "N": 257})
ELEMENTWISE = {"x": (("B", "N"), "T")}
ATTENTION = {
    "q": (("B", "H", "Q", "D"), "T"),
    "k": (("B", "Hk", "K", "D"), "T"),
    "v": (("B", "Hk", "K", "D"), "T"),
    "s": ((), "f32"),
}
ATTENTION_SIZES: tuple[Sizes, ...] = (
    {"B": 1, "H": 1, "Hk": 1, "Q": 1, "K": 1, "D": 2},
    {"B": 2, "H": 4, "Hk": 4, "Q": 3, "K": 7, "D": 8},
    {"B": 2, "H": 6, "Hk": 2, "Q": 5, "K": 5, "D": 4},
)
DENSE_SIZES = tuple({**sizes, "H": sizes["Hk"]} for sizes in ATTENTION_SIZES)
PAGED = {
    "k": ((1, "Hk", "N", "D"), "T"),
    "v": ((1, "Hk", "N", "D"), "T"),
    "s": ((), "f32"),
}
PAGED_SIZES: tuple[Sizes, ...] = (
    {"B": 1, "P": 1, "H": 1, "Hk": 1, "N": 4, "Pages": 1, "Size": 4, "D": 2},
    {"B": 3, "P": 5, "H": 4, "Hk": 2, "N": 24, "Pages": 3, "Size": 4, "D": 8},
)
CACHE = {"cache": (("B", "H", "S", "D"), "T")}
CACHE_SIZES: tuple[Sizes, ...] = (
    {"B": 1, "H": 1, "S": 1, "D": 1, "N": 1, "M": 1, "P": 1},
    {"B": 3, "H": 2, "S": 9, "D": 4, "N": 4, "M": 2, "P": 7},
)
HIDDEN = {"h": (("N", "H"), "T"), "w": (("V", "H"), "T"), "t": (("N",), "i64:V")}
LOSS_SIZES: tuple[Sizes, ...] = ({"N": 1, "H": 1, "V": 1}, {"N": 6, "H": 12, "V": 33})
LOGITS = {"x": (("N", "V"), "T"), "t": (("N",), "i64:V")}
FP8_SIZES: tuple[Sizes, ...] = ({"B": 1, "Out": 4, "In": 4}, {"B": 3, "Out": 12, "In": 32})
GROUPED = "where Hk > 0, H % Hk == 0"
HALVES = "where D % 2 == 0"

CASES = [
    Case("nn.linear", "linear(x, w)", "[B, Out; T]", {"x": (("B", "In"), "T"), "w": (("Out", "In"), "T")}, FP8_SIZES),
    Case(
        "nn.linear",
        "linear(x, w, some(b))",
        "[B, Out; T]",
        {"x": (("B", "In"), "T"), "w": (("Out", "In"), "T"), "b": (("Out",), "T")},
        FP8_SIZES,
    ),
    Case(
        "nn.mlp",
        "swiglu(x, g, u, d)",
        "[B, H; T]",
        {"x": (("B", "H"), "T"), "g": (("I", "H"), "T"), "u": (("I", "H"), "T"), "d": (("H", "I"), "T")},
        ({"B": 1, "H": 1, "I": 1}, {"B": 3, "H": 16, "I": 24}),
    ),
    Case(
        "nn.embedding",
        "embedding(i, w)",
        "[B, N, H; T]",
        {"i": (("B", "N"), "i32:V"), "w": (("V", "H"), "T")},
        ({"B": 1, "N": 1, "V": 1, "H": 1}, {"B": 2, "N": 5, "V": 11, "H": 7}),
    ),
    Case("nn.norm", "rms_norm(x, w, 1e-6)", "[B, N; T]", {**ELEMENTWISE, "w": (("N",), "T")}, ROWS),
    Case("nn.norm", "layer_norm(x, w)", "[B, N; T]", {**ELEMENTWISE, "w": (("N",), "T")}, ROWS[1:]),
    Case(
        "nn.norm",
        "layer_norm(x, w, some(b), 1e-12)",
        "[B, N; T]",
        {**ELEMENTWISE, "w": (("N",), "T"), "b": (("N",), "T")},
        ROWS[1:],
    ),
    Case("nn.softmax", "softmax(x)", "[B, N; T]", ELEMENTWISE, ROWS),
    *(
        Case("nn.activations", f"{name}(x)", "[B, N; T]", ELEMENTWISE, ROWS)
        for name in ("relu", "sigmoid", "silu", "gelu", "gelu_erf")
    ),
    Case(
        "nn.rope",
        "rope(x, c, s)",
        "[B, H, S, D; T]",
        {"x": (("B", "H", "S", "D"), "T"), "c": (("S", "D"), "T"), "s": (("S", "D"), "T")},
        ({"B": 1, "H": 1, "S": 1, "D": 2}, {"B": 2, "H": 3, "S": 5, "D": 8}),
        where=HALVES,
    ),
    Case(
        "nn.rope",
        "rope_rows(x, c, s)",
        "[B, H, S, D; T]",
        {"x": (("B", "H", "S", "D"), "T"), "c": (("B", "S", "D"), "T"), "s": (("B", "S", "D"), "T")},
        ({"B": 1, "H": 1, "S": 1, "D": 2}, {"B": 2, "H": 3, "S": 5, "D": 8}),
        where=HALVES,
    ),
    Case("nn.decoding", "argmax(x)", "[B; i32]", ELEMENTWISE, ROWS),
    Case("nn.parallel", "all_reduce(x)", "[B, N; T]", ELEMENTWISE, ROWS[1:2]),
    Case("nn.parallel", "shared(x)", "[B, N; T]", ELEMENTWISE, ROWS[1:2]),
    Case("nn.attention", "grouped_attention(q, k, v, s)", "[B, H, Q, D; T]", ATTENTION, ATTENTION_SIZES, where=GROUPED),
    Case(
        "nn.attention",
        "grouped_attention(q, k, v, s, some(m))",
        "[B, H, Q, D; T]",
        {**ATTENTION, "m": (("Q", "K"), "bool")},
        ATTENTION_SIZES,
        where=GROUPED,
    ),
    Case(
        "nn.attention",
        "grouped_attention_rows(q, k, v, s, m)",
        "[B, H, Q, D; T]",
        {**ATTENTION, "m": (("B", "Q", "K"), "bool")},
        ATTENTION_SIZES,
        where=GROUPED,
    ),
    Case(
        "nn.attention",
        "sink_attention(q, k, v, z, s, m)",
        "[B, H, Q, D; T]",
        {**ATTENTION, "z": (("H",), "T"), "m": (("B", "Q", "K"), "bool")},
        ATTENTION_SIZES,
        where=GROUPED,
    ),
    Case(
        "nn.attention",
        "attention(q, k, v, s, some(m))",
        "[B, Hk, Q, D; T]",
        {**ATTENTION, "q": (("B", "Hk", "Q", "D"), "T"), "m": (("Q", "K"), "bool")},
        DENSE_SIZES,
    ),
    Case(
        "nn.attention",
        "attention_rows(q, k, v, s, m)",
        "[B, Hk, Q, D; T]",
        {**ATTENTION, "q": (("B", "Hk", "Q", "D"), "T"), "m": (("B", "Q", "K"), "bool")},
        DENSE_SIZES,
    ),
    Case(
        "nn.attention",
        "paged_attention<B, H, Hk, N, Pages, Size, D, T>(q, k, v, t, p, s)",
        "[B, H, 1, D; T]",
        {
            **PAGED,
            "q": (("B", "H", 1, "D"), "T"),
            "t": (("B", "Pages"), "i32:N // Size"),
            "p": (("B",), "i32:Pages * Size"),
        },
        PAGED_SIZES,
        where=GROUPED,
    ),
    Case(
        "nn.attention",
        "paged_prefill_attention<P, H, Hk, N, B, Pages, Size, D, T>(q, k, v, t, r, p, s)",
        "[1, H, P, D; T]",
        {
            **PAGED,
            "q": ((1, "H", "P", "D"), "T"),
            "t": (("B", "Pages"), "i32:N // Size"),
            "r": (("P",), "i32:B"),
            "p": (("P",), "i32:Pages * Size"),
        },
        PAGED_SIZES,
        where=GROUPED,
    ),
    Case(
        "nn.cache",
        "write_at(cache, x, at)",
        "[B, H, S, D; T]",
        {**CACHE, "x": (("B", "H", 1, "D"), "T"), "at": ((), "i32:S")},
        CACHE_SIZES,
    ),
    Case(
        "nn.cache",
        "write_span(cache, x, at)",
        "[B, H, S, D; T]",
        {**CACHE, "x": (("B", "H", "N", "D"), "T"), "at": ((), "i32:S - N + 1")},
        CACHE_SIZES,
    ),
    Case(
        "nn.cache",
        "write_rows(cache, x, at)",
        "[B, H, S, D; T]",
        {**CACHE, "x": (("B", "H", 1, "D"), "T"), "at": (("B",), "i32:S")},
        CACHE_SIZES,
    ),
    Case(
        "nn.cache",
        "write_slot(cache, x, slot, at)",
        "[B, H, S, D; T]",
        {**CACHE, "x": ((1, "H", "N", "D"), "T"), "slot": ((), "i32:B"), "at": ((), "i32:S - N + 1")},
        CACHE_SIZES,
    ),
    Case(
        "nn.cache",
        "write_slots(cache, x, slots, at)",
        "[B, H, S, D; T]",
        {**CACHE, "x": (("M", "H", "N", "D"), "T"), "slots": (("M",), "i32:B"), "at": ((), "i32:S - N + 1")},
        CACHE_SIZES,
    ),
    Case(
        "nn.cache",
        "write_tokens(cache, x, rows, at)",
        "[B, H, S, D; T]",
        {**CACHE, "x": ((1, "H", "P", "D"), "T"), "rows": (("P",), "i32:B"), "at": (("P",), "i32:S")},
        CACHE_SIZES,
    ),
    Case("nn.loss", "log_softmax(x)", "[B, N; f32]", ELEMENTWISE, ROWS),
    Case("nn.loss", "token_log_probs(x, t)", "[N; f32]", LOGITS, LOSS_SIZES),
    Case("nn.loss", "cross_entropy(x, t, y)", "f32", {**LOGITS, "y": (("N",), "f32")}, LOSS_SIZES),
    Case("nn.loss", "linear_token_log_probs(h, w, t)", "[N; f32]", HIDDEN, LOSS_SIZES),
    Case("nn.loss", "linear_cross_entropy(h, w, t, y)", "f32", {**HIDDEN, "y": (("N",), "f32")}, LOSS_SIZES),
    Case("nn.loss", "split_token_log_probs<N, H, V, 2, T>(h, w, t)", "[N; f32]", HIDDEN, LOSS_SIZES),
    Case(
        "nn.loss",
        "split_cross_entropy<N, H, V, 1, T>(h, w, t, y)",
        "f32",
        {**HIDDEN, "y": (("N",), "f32")},
        LOSS_SIZES,
    ),
    Case("quant", "decode_fp8(b)", "[Out, In; f32]", {"b": (("Out", "In"), "u8")}, FP8_SIZES),
    Case(
        "quant",
        "dequantize_fp8(b, s)",
        "[Out, In; f32]",
        {"b": (("Out", "In"), "u8"), "s": (("Out", 1), "f32")},
        FP8_SIZES,
    ),
    Case(
        "quant",
        "dequantize_fp8_block<Out, In, 4, T>(b, s)",
        "[Out, In; f32]",
        {"b": (("Out", "In"), "u8"), "s": (("Out / 4", "In / 4"), "scale")},
        FP8_SIZES,
        where="where In % 4 == 0, Out % 4 == 0",
    ),
    Case(
        "quant",
        "fp8_linear(x, b, s)",
        "[B, Out; T]",
        {"x": (("B", "In"), "T"), "b": (("Out", "In"), "u8"), "s": (("Out", 1), "f32")},
        FP8_SIZES,
    ),
    *(
        Case(
            "quant",
            f"fp8_block_linear<[B], In, Out, 4, T>(x, b, s{bias})",
            "[B, Out; T]",
            {
                "x": (("B", "In"), "T"),
                "b": (("Out", "In"), "u8"),
                "s": (("Out / 4", "In / 4"), "scale"),
                **({"c": (("Out",), "T")} if bias else {}),
            },
            FP8_SIZES,
            where="where In % 4 == 0, Out % 4 == 0",
        )
        for bias in ("", ", some(c)")
    ),
]
IDS = [case.call for case in CASES]


def source(case: Case) -> str:
    """A program with one entry that calls the op."""
    types = {"T": "T", "f32": "f32", "bool": "bool", "u8": "u8", "scale": "T"}
    parameters = []
    for name, (shape, kind) in case.inputs.items():
        dtype = types.get(kind, kind[:3])
        axes = ", ".join(map(str, shape))
        parameters.append(f"{name}: " + (f"Tensor[{axes}; {dtype}]" if shape else dtype))
    names = sorted({name for sizes in case.sizes for name in sizes})
    result = f"Tensor{case.result}" if case.result.startswith("[") else case.result
    return (
        f"module kernels\nuse std.{case.module}::{{{case.name}}}\n"
        f"pub block Root<{''.join(f'{n}: Dim, ' for n in names)}T: Float> {case.where} {{\n"
        f"    pub entry run({', '.join(parameters)}) -> {result} {{ return {case.call} }}\n}}\n"
    )


def draw(case: Case, sizes: Sizes, dtype: torch.dtype, seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    inputs = []
    for shape, kind in case.inputs.values():
        size = [eval(str(n).replace("/", "//"), {}, dict(sizes)) for n in shape]
        if kind in ("T", "f32"):
            drawn = torch.randn(size, generator=generator)
            inputs.append(drawn.to(dtype) if kind == "T" else drawn)
        elif kind == "scale":
            inputs.append((0.1 + torch.rand(size, generator=generator)).to(dtype))
        elif kind == "bool":
            inputs.append(torch.rand(size, generator=generator) < 0.7)
        elif kind == "u8":
            # Of both signs; the NaN bytes, 0x7f and 0xff, are left out.
            drawn = torch.randint(0, 0xFE, size, generator=generator)
            inputs.append((drawn + (drawn >= 0x7F)).to(torch.uint8))
        else:
            limit = eval(kind[4:], {}, dict(sizes))
            drawn = torch.randint(0, limit, size, generator=generator)
            inputs.append(drawn.to(torch.int32 if kind.startswith("i32") else torch.int64))
    return inputs


@pytest.fixture(scope="module")
def run_case(bind_source: Callable[..., BoundProgram]) -> Callable[..., torch.Tensor]:
    def run(case: Case, sizes: Sizes, dtype: str, inputs: list[torch.Tensor], numerics: str) -> torch.Tensor:
        bound = bind_source(source(case), **sizes, T=dtype)
        return load_model(bound, {}, entry="run", numerics=numerics, compile=False)(*inputs)

    return run


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_kernel_computes_what_its_body_does(case: Case, dtype: str, run_case: Callable[..., torch.Tensor]) -> None:
    for seed, sizes in enumerate(case.sizes):
        inputs = draw(case, sizes, FLOATS[dtype], seed)
        body = run_case(case, sizes, dtype, inputs, "exact")
        native = run_case(case, sizes, dtype, inputs, "equivalent")
        assert native.dtype == body.dtype
        assert native.shape == body.shape
        if not body.is_floating_point():
            assert torch.equal(native, body)
            continue
        tolerance = TOLERANCE[dtype if body.dtype == FLOATS[dtype] else "f32"]
        if case.module == "nn.loss" and "linear" in case.name + "linear" * case.name.startswith("split"):
            # A logit may round to its neighbour in T before the log-softmax.
            tolerance = TOLERANCE[dtype]
        assert (native.double() - body.double()).abs().max() <= tolerance * max(1.0, body.abs().max().item()), sizes


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_kernel_rounds_no_more_than_its_body(case: Case, dtype: str, run_case: Callable[..., torch.Tensor]) -> None:
    """Against the same inputs in f64: the kernel's RMS error is at most a little above the body's."""
    sizes = case.sizes[-1]
    errors = {"exact": 0.0, "equivalent": 0.0}
    for seed in range(6):
        inputs = draw(case, sizes, FLOATS[dtype], seed)
        wide = [x.double() if x.dtype == FLOATS[dtype] else x for x in inputs]
        truth = run_case(case, sizes, "f64", wide, "exact").double()
        for numerics in errors:
            found = run_case(case, sizes, dtype, inputs, numerics).double()
            errors[numerics] += (found - truth).square().mean().item()
    assert errors["equivalent"] <= 1.1 * errors["exact"] + 1e-12


def test_every_kernel_is_compared(monkeypatch: pytest.MonkeyPatch, run_case: Callable[..., torch.Tensor]) -> None:
    """Each kernel is prepared by some case, and none falls back to its body."""
    prepared: set[str] = set()
    prepare = Kernel.prepare

    def recorded(self: Kernel, node: object, target: object) -> object:
        operation = prepare(self, node, target)  # type: ignore[arg-type]
        if operation is not None:
            prepared.add(self.identity)
        return operation

    monkeypatch.setattr(Kernel, "prepare", recorded)
    for case in CASES:
        sizes = case.sizes[0]
        run_case(case, sizes, "f32", draw(case, sizes, torch.float32, 0), "equivalent")
    assert prepared == set(equivalent_kernels())


GRADIENTS = [case for case in CASES if case.name != "argmax" and any(kind == "T" for _, kind in case.inputs.values())]


@pytest.mark.parametrize("case", GRADIENTS, ids=[case.call for case in GRADIENTS])
def test_gradients_of_kernel_and_body_agree(case: Case, bind_source: Callable[..., BoundProgram]) -> None:
    sizes = case.sizes[-1]
    bound = bind_source(source(case), **sizes, T="f32")
    gradients: dict[str, list[torch.Tensor]] = {}
    for numerics in ("exact", "equivalent"):
        inputs = draw(case, sizes, torch.float32, 3)
        leaves = [x.requires_grad_() for x in inputs if x.is_floating_point()]
        result = load_model(bound, {}, entry="run", numerics=numerics, trainable=True)(*inputs)
        weight = torch.randn(result.shape, generator=torch.Generator().manual_seed(8))
        gradients[numerics] = list(torch.autograd.grad((result * weight).sum(), leaves))
    for body, native in zip(gradients["exact"], gradients["equivalent"], strict=True):
        assert (body - native).abs().max() <= 1e-5 * max(1.0, body.abs().max().item())


WRITES = [case for case in CASES if case.module == "nn.cache"]


@pytest.mark.parametrize("numerics", ["exact", "equivalent"])
@pytest.mark.parametrize("outside", [-1, 9, 2**31 - 1])
@pytest.mark.parametrize("case", WRITES, ids=[case.call for case in WRITES])
def test_writes_outside_the_cache_are_errors(
    case: Case, outside: int, numerics: str, run_case: Callable[..., torch.Tensor]
) -> None:
    sizes = case.sizes[-1]
    for name in case.inputs.keys() & {"at", "rows", "slots", "slot"}:
        inputs = dict(zip(case.inputs, draw(case, sizes, torch.float32, 0), strict=True))
        inputs[name].view(-1)[-1] = outside
        with pytest.raises(IndexRangeError):
            run_case(case, sizes, "f32", list(inputs.values()), numerics)


@pytest.mark.parametrize("numerics", ["exact", "equivalent"])
@pytest.mark.parametrize("dtype", ["u8", "u16", "u32", "u64", "i8", "i64", "f32"])
def test_argmax_of_every_kind_of_number(dtype: str, numerics: str, bind_source: Callable[..., BoundProgram]) -> None:
    """The upper half of an unsigned dtype is above its lower half."""
    text = "module m\nuse std.nn.decoding::{argmax}\npub block Root {\n"
    text += f"    pub entry run(x: Tensor[4; {dtype}]) -> i32 {{ return argmax(x) }}\n}}\n"
    greatest = 9 if dtype == "f32" else integer_range(dtype)[1]
    model = load_model(bind_source(text), {}, entry="run", numerics=numerics)
    for values, first in (([3, 0, greatest, 1], 2), ([3, 0, 2, 3], 0)):
        assert model(torch.tensor(values, dtype=NATIVE[dtype])).item() == first


@pytest.mark.parametrize("numerics", ["exact", "equivalent"])
def test_attention_without_heads_is_empty(numerics: str, run_case: Callable[..., torch.Tensor]) -> None:
    for case in CASES:
        if case.name in ("attention", "attention_rows"):
            sizes = {**case.sizes[-1], "H": 0, "Hk": 0}
            inputs = draw(case, sizes, torch.float32, 0)
            assert run_case(case, sizes, "f32", inputs, numerics).shape == inputs[0].shape


@pytest.mark.parametrize("numerics", ["exact", "equivalent"])
def test_gelu_erf_up_to_half_of_f32(numerics: str, run_case: Callable[..., torch.Tensor]) -> None:
    """Past 1.7e38 the two differ, as the kernel's docstring says."""
    (case,) = [case for case in CASES if case.name == "gelu_erf"]
    x = torch.tensor([[-1.7e38, -9.0, 0.0, 9.0, 1.7e38]])
    expected = torch.tensor([[0.0, 0.0, 0.0, 9.0, 1.7e38]])
    assert torch.allclose(run_case(case, {"B": 1, "N": 5}, "f32", [x], numerics), expected, rtol=1e-6, atol=1e-6)
