"""Each kernel on MLX, and each op without one, against the op's body on torch, over shapes and dtypes."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch

pytest.importorskip("mlx.core", reason="MLX is not installed")

import mlx.core as mx
from test_kernels import CASES, FLOATS, IDS, TOLERANCE, Case, Sizes, draw, source

from linnet.language.program.binding import BoundProgram
from linnet.runner.mlx.dtypes import to_torch
from linnet.runner.mlx.kernels import POLICIES, Kernel, kernels, policy_of, wide
from linnet.runner.mlx.module import load_model
from linnet.runner.mlx.passes import ROTATIONS
from linnet.runner.torch import module as reference

# What `fast` rounds besides, on a CPU: attention's scores and weights, and weights that are decoded.
FAST = {"f32": 1.0, "bf16": 2.0}
# Ops whose argument has no number before a run here, so that a kernel which needs one is not taken.
NEED_A_NUMBER = {"std.nn.attention::" + name for name in ("attention", "attention_rows")} | {
    "std.nn.attention::grouped_attention",
    "std.nn.attention::grouped_attention_rows",
}


@pytest.fixture(scope="module")
def run_case(bind_source: Callable[..., BoundProgram]) -> Callable[..., torch.Tensor]:
    def run(case: Case, sizes: Sizes, dtype: str, inputs: list[torch.Tensor], numerics: str) -> torch.Tensor:
        bound = bind_source(source(case), **sizes, T=dtype)
        return to_torch(load_model(bound, {}, entry="run", numerics=numerics, device="cpu", compile=False)(*inputs))

    return run


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_ops_compute_what_their_bodies_do_on_torch(
    case: Case, dtype: str, run_case: Callable[..., torch.Tensor], bind_source: Callable[..., BoundProgram]
) -> None:
    for seed, sizes in enumerate(case.sizes):
        inputs = draw(case, sizes, FLOATS[dtype], seed)
        bound = bind_source(source(case), **sizes, T=dtype)
        body = reference.load_model(bound, {}, entry="run", numerics="exact")(*inputs)
        for numerics in ("exact", *POLICIES):
            found = run_case(case, sizes, dtype, inputs, numerics)
            assert (found.dtype, found.shape) == (body.dtype, body.shape)
            if not body.is_floating_point():
                assert torch.equal(found, body)
                continue
            tolerance = TOLERANCE[dtype if body.dtype == FLOATS[dtype] else "f32"]
            if case.module == "nn.loss":
                # A logit may round to its neighbour in T before the log-softmax.
                tolerance = TOLERANCE[dtype]
            tolerance *= FAST[dtype] if numerics == "fast" else 1.0
            distance = (found.double() - body.double()).abs().max()
            assert distance <= tolerance * max(1.0, body.abs().max().item()), (numerics, sizes)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_engine_gives_the_same_bits_as_torch_on_a_cpu(
    case: Case, dtype: str, run_case: Callable[..., torch.Tensor], bind_source: Callable[..., BoundProgram]
) -> None:
    for seed, sizes in enumerate(case.sizes):
        inputs = draw(case, sizes, FLOATS[dtype], seed)
        bound = bind_source(source(case), **sizes, T=dtype)
        for compiled in (False, True):
            theirs = reference.load_model(bound, {}, entry="run", numerics="engine", compile=compiled)(*inputs)
            assert torch.equal(run_case(case, sizes, dtype, inputs, "engine"), theirs), (compiled, sizes)


PIECES = [case for case in CASES if case.name in ("attention", "grouped_attention_rows", "sink_attention")]


@pytest.mark.parametrize("case", PIECES, ids=[case.call for case in PIECES])
def test_attention_in_f64_in_pieces(
    case: Case, run_case: Callable[..., torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = case.sizes[-1]
    inputs = draw(case, sizes, torch.float32, 5)
    whole = run_case(case, sizes, "f32", inputs, "engine")
    # One query at a time.
    monkeypatch.setattr(wide, "SCORES", 1)
    assert torch.equal(run_case(case, sizes, "f32", inputs, "engine"), whole)


def test_attention_in_f64_holds_few_scores_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    queries, keys = 1000, 1024
    monkeypatch.setattr(wide, "SCORES", 2**14)
    with mx.stream(mx.cpu):
        query, key = mx.random.normal((1, 1, queries, 8)), mx.random.normal((1, 1, keys, 8))
        seen = mx.arange(keys) <= mx.arange(queries)[:, None] + (keys - queries)
        arguments = query, key, key, mx.array(0.5)
        mx.eval(arguments, seen)
        for mask in ("causal", seen, None):
            before = mx.get_active_memory()
            mx.reset_peak_memory()
            found = wide.attend(*arguments, mask, None)
            mx.eval(found)
            # All scores alone take as much.
            assert mx.get_peak_memory() - before < 8 * queries * keys
            assert mask is None or mx.array_equal(found, wide.attend(*arguments, seen, None))


@pytest.mark.parametrize("policy", POLICIES)
def test_every_kernel_is_compared(
    policy: str, monkeypatch: pytest.MonkeyPatch, run_case: Callable[..., torch.Tensor]
) -> None:
    """Each kernel is prepared by some case, and none falls back to its body but for want of a number; what stands for
    rotations, with tables that are widened once, is compared in their place."""
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
        run_case(case, sizes, "f32", draw(case, sizes, torch.float32, 0), policy)
    absent = {"fast": NEED_A_NUMBER, "engine": set(ROTATIONS)}
    assert prepared == set(kernels(policy_of(policy, "cpu"))) - absent.get(policy, set())


def test_engine_has_no_kernel_on_a_gpu_that_is_not_compared() -> None:
    """All that it has beside those of `equivalent` it has on a CPU too."""
    beside = kernels("engine").items() - kernels("equivalent").items()
    assert {identity for identity, _ in beside} == set(ROTATIONS)
    assert beside <= kernels(policy_of("engine", "cpu")).items()


@pytest.mark.parametrize("name", ["attention_rows(q, k, v, s, m)", "grouped_attention(q, k, v, s, some(m))"])
def test_attention_in_the_inputs_dtype(name: str, bind_source: Callable[..., BoundProgram]) -> None:
    """With a scale that is known before a run, `fast` hands the inputs over as they are."""
    case = CASES[IDS.index(name)]
    sizes = case.sizes[-1]
    text = re.sub(r"\bs\b(?!:)", "0.25", source(case))
    inputs = draw(case, sizes, torch.bfloat16, 5)
    bound = bind_source(text, **sizes, T="bf16")
    body = reference.load_model(bound, {}, entry="run", numerics="exact")(*inputs)
    found = to_torch(load_model(bound, {}, entry="run", numerics="fast")(*inputs))
    assert (found.float() - body.float()).abs().max() <= 2 * TOLERANCE["bf16"] * max(1.0, body.abs().max().item())
