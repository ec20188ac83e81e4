"""Convolutions, pooling, resizing, group norms and experts of the standard library against torch."""

from __future__ import annotations

import pytest
import torch
from std_harness import assert_within_one_rounding, random, run_std
from torch.nn import functional

from linnet.runner.errors import IndexRangeError


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize(("kernel", "stride", "pad"), [(3, 1, 1), (3, 2, 0), (2, 2, 1), (1, 1, 0), (5, 3, 2)])
def test_conv2d_and_its_block(dtype, kernel, stride, pad):
    x, bias = random(2, 3, 7, 6, dtype=dtype), random(4, dtype=dtype, seed=2)
    weight = random(4, 3, kernel, kernel, dtype=dtype, seed=1)
    height, width = ((n + 2 * pad - kernel) // stride + 1 for n in (7, 6))
    wanted = functional.conv2d(x.double(), weight.double(), bias.double(), stride, pad)
    found = run_std(
        "use std.nn.conv::{Conv2d}",
        f"(x: Tensor[2, 3, 7, 6; T]) -> Tensor[2, 4, {height}, {width}; T] {{ return conv.forward(x) }}",
        x,
        dtype=dtype,
        members=f"sub conv: Conv2d<3, 4, {kernel}, {stride}, {pad}, T>",
        weights={"conv.weight": weight, "conv.bias": bias},
    )
    assert_within_one_rounding(found, wanted)


def test_conv2d_rect_has_sizes_for_each_axis():
    x, weight = random(1, 2, 6, 9), random(3, 2, 2, 3, seed=1)
    found = run_std(
        "use std.nn.conv::{conv2d_rect}",
        "(x: Tensor[1, 2, 6, 9; T], w: Tensor[3, 2, 2, 3; T]) -> Tensor[1, 3, 7, 5; T]"
        "{ return conv2d_rect<1, 2, 3, 6, 9, 2, 3, 1, 2, 1, 1, T>(x, w) }",
        x,
        weight,
    )
    wanted = functional.conv2d(x, weight, stride=(1, 2), padding=(1, 1))
    torch.testing.assert_close(found, wanted)
    bias = random(3, seed=2)
    block = run_std(
        "use std.nn.conv::{Conv2dRect}",
        "(x: Tensor[1, 2, 6, 9; T]) -> Tensor[1, 3, 7, 5; T] { return conv.forward(x) }",
        x,
        members="sub conv: Conv2dRect<2, 3, 2, 3, 1, 2, 1, 1, T>",
        weights={"conv.weight": weight, "conv.bias": bias},
    )
    torch.testing.assert_close(block, wanted + bias[:, None, None])


@pytest.mark.parametrize(("kernel", "stride", "pad"), [(3, 1, 1), (4, 2, 1), (2, 3, 0)])
def test_conv1d_and_its_block(kernel, stride, pad):
    x, weight = random(2, 3, 11), random(5, 3, kernel, seed=1)
    size = (11 + 2 * pad - kernel) // stride + 1
    found = run_std(
        "use std.nn.conv::{Conv1d}",
        f"(x: Tensor[2, 3, 11; T]) -> Tensor[2, 5, {size}; T] {{ return conv.forward(x) }}",
        x,
        members=f"sub conv: Conv1d<3, 5, {kernel}, {stride}, {pad}, T>",
        weights={"conv.weight": weight},
    )
    torch.testing.assert_close(found, functional.conv1d(x, weight, stride=stride, padding=pad))


@pytest.mark.parametrize(("kernel", "stride", "pad"), [(3, 2, 1), (2, 2, 0), (3, 1, 0)])
def test_max_pool2d(kernel, stride, pad):
    x = random(2, 3, 7, 6) - 5
    height, width = ((n + 2 * pad - kernel) // stride + 1 for n in (7, 6))
    found = run_std(
        "use std.nn.pool::{max_pool2d}",
        f"(x: Tensor[2, 3, 7, 6; T]) -> Tensor[2, 3, {height}, {width}; T]"
        f"{{ return max_pool2d<2, 3, 7, 6, {kernel}, {stride}, {pad}, T>(x) }}",
        x,
    )
    assert torch.equal(found, functional.max_pool2d(x, kernel, stride, pad))


def test_global_average_and_nearest_upsampling():
    x = random(2, 3, 4, 5)
    head = "<B: Dim, C: Dim, H: Dim, W: Dim>(x: Tensor[B, C, H, W; T])"
    mean = run_std(
        "use std.nn.pool::{global_average_pool2d}",
        f"{head} -> Tensor[B, C; T] {{ return global_average_pool2d(x) }}",
        x,
    )
    torch.testing.assert_close(mean, x.mean((2, 3)))
    grown = run_std(
        "use std.nn.resize::{upsample_nearest2d}",
        f"{head} -> Tensor[B, C, H * 3, W * 3; T] {{ return upsample_nearest2d<B, C, H, W, 3, T>(x) }}",
        x,
    )
    assert torch.equal(grown, functional.interpolate(x, scale_factor=3, mode="nearest"))


def test_group_norm_is_torchs():
    x, weight, bias = random(2, 6, 3, 4, scale=2.0) + 1, random(6, seed=1), random(6, seed=2)
    found = run_std(
        "use std.nn.norm::{group_norm}",
        "(x: Tensor[2, 6, 3, 4; T], w: Tensor[6; T], b: Tensor[6; T]) -> Tensor[2, 6, 3, 4; T]"
        "{ return group_norm<2, 6, 3, 4, 3, T>(x, w, b) }",
        x,
        weight,
        bias,
    )
    torch.testing.assert_close(found, functional.group_norm(x, 3, weight, bias))


def test_experts_read_their_own_weights():
    uses = "use std.nn.moe::{combine_experts, linear_experts, linear_experts_shared}"
    x, weight, gates = random(4, 2, 6), random(3, 5, 6, seed=1), random(4, 2, seed=2)
    experts = torch.tensor([[0, 2], [1, 1], [2, 0], [0, 1]])
    wanted = torch.einsum("rki,rkoi->rko", x, weight[experts])
    own = "(x: Tensor[4, 2, 6; T], w: Tensor[3, 5, 6; T], e: Tensor[4, 2; i64]) -> Tensor[4, 2, 5; T]"
    torch.testing.assert_close(run_std(uses, f"{own} {{ return linear_experts(x, w, e) }}", x, weight, experts), wanted)
    with pytest.raises(IndexRangeError):
        run_std(uses, f"{own} {{ return linear_experts(x, w, e) }}", x, weight, experts + 1)
    one = "(x: Tensor[4, 6; T], w: Tensor[3, 5, 6; T], e: Tensor[4, 2; i64]) -> Tensor[4, 2, 5; T]"
    torch.testing.assert_close(
        run_std(uses, f"{one} {{ return linear_experts_shared(x, w, e) }}", x[:, 0], weight, experts),
        torch.einsum("ri,rkoi->rko", x[:, 0], weight[experts]),
    )
    combined = "(x: Tensor[4, 2, 5; T], g: Tensor[4, 2; f32]) -> Tensor[4, 5; T] { return combine_experts(x, g) }"
    torch.testing.assert_close(run_std(uses, combined, wanted, gates), (wanted * gates[..., None]).sum(1))
