"""Log-probabilities and losses, in f32. logits [N, V], targets [N] i64, weights [N] f32."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from linnet.runner.torch.kernels import Call, kernel
from linnet.runner.torch.primitives import check_positions


@kernel("std.nn.loss::log_softmax")
def log_softmax(x: Tensor) -> Tensor:
    """x [.., V] -> [.., V] f32, over the last axis."""
    return torch.log_softmax(x, dim=-1, dtype=torch.float32)


@kernel("std.nn.loss::token_log_probs", raises=True)
def token_log_probs(logits: Tensor, targets: Tensor) -> Tensor:
    """-> [N] f32. Raises IndexRangeError for a target outside the vocabulary."""
    check_positions(targets, logits.shape[-1], "logits", "std.nn.loss::token_log_probs")
    return log_softmax(logits).gather(-1, targets[:, None])[:, 0]


@kernel("std.nn.loss::cross_entropy", raises=True)
def cross_entropy(logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """-> f32 scalar: the sum over n of -weights[n] * log p(targets[n])."""
    return -(weights * token_log_probs(logits, targets)).sum()


@kernel("std.nn.loss::linear_token_log_probs", raises=True)
def linear_token_log_probs(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """hidden [N, H], weight [V, H] -> [N] f32; the logits are rounded to hidden's dtype."""
    return token_log_probs(functional.linear(hidden, weight), targets)


@kernel("std.nn.loss::linear_cross_entropy", raises=True)
def linear_cross_entropy(hidden: Tensor, weight: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """hidden [N, H], weight [V, H] -> f32 scalar."""
    return cross_entropy(functional.linear(hidden, weight), targets, weights)


@kernel("std.nn.loss::split_token_log_probs", raises=True)
def split_token_log_probs(hidden: Tensor, weight: Tensor, targets: Tensor, *, call: Call) -> Tensor:
    """As linear_token_log_probs with `Shards` parts of V rows; one process holds one, which stands for all."""
    return token_log_probs(_split_logits(hidden, weight, call), targets)


@kernel("std.nn.loss::split_cross_entropy", raises=True)
def split_cross_entropy(hidden: Tensor, weight: Tensor, targets: Tensor, weights: Tensor, *, call: Call) -> Tensor:
    """As linear_cross_entropy with `Shards` parts of V rows each."""
    return cross_entropy(_split_logits(hidden, weight, call), targets, weights)


def _split_logits(hidden: Tensor, weight: Tensor, call: Call) -> Tensor:
    return functional.linear(hidden, weight).repeat(1, call.generics["Shards"])
