"""Matrices in few bits, in the layout that MLX multiplies by (`mx.quantize`, mode "affine").

A weight [Out, In] lies in groups of `group` along its rows. Each is a number of `bits` bits, and

    weight = scale * number + bias

with a scale and a bias for each group, [Out, In / group]. Words are u32, [Out, In * bits / 32], the first number in the
lowest bits; torch carries them as i32.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

WORD_BITS = 32
# What a group of one value is divided by, where it is not 0.
LEAST_SCALE = 1e-7


@dataclass(frozen=True, slots=True)
class Packing:
    """`bits` of a number, and weights of a row that share a scale and a bias."""

    bits: int
    group: int


@dataclass(frozen=True, slots=True)
class PackedTensor:
    """A matrix [Out, In] as words [Out, In * bits / 32] i32, and scales and biases [Out, In / group] of its dtype."""

    words: Tensor
    scales: Tensor
    biases: Tensor
    packing: Packing

    @property
    def nbytes(self) -> int:
        return self.words.nbytes + self.scales.nbytes + self.biases.nbytes

    def dense(self, dtype: torch.dtype) -> Tensor:
        """The weights [Out, In]: products and sums in f32, rounded once to `dtype`."""
        bits, group = self.packing.bits, self.packing.group
        shifts = torch.arange(0, WORD_BITS, bits, dtype=torch.int32, device=self.words.device)
        # A right shift of a negative word brings ones in from above, which the mask takes away.
        numbers = (self.words.unsqueeze(-1) >> shifts) & (2**bits - 1)
        groups = numbers.view(len(self.words), -1, group).float()
        weights: Tensor = groups * self.scales.float()[..., None] + self.biases.float()[..., None]
        return weights.flatten(1).to(dtype)


def pack(weight: Tensor, packing: Packing) -> PackedTensor:
    """Floating `weight` [Out, In], `In` a multiple of the group, in few bits; scales and biases are in its dtype.

    The end of a group's range that is larger in magnitude is kept as it is (it is the bias), and the scale is such that
    0 is a number too. A weight, which must be finite, becomes the nearest number under the scale as it is rounded.
    """
    rows, columns = weight.shape
    groups = weight.float().view(rows, columns // packing.group, packing.group)
    largest, least = groups.amax(-1), groups.amin(-1)
    most = 2**packing.bits - 1
    from_least = least.abs() > largest.abs()
    edge = torch.where(from_least, least, largest)
    scale = ((largest - least) / most).clamp(min=LEAST_SCALE)
    scale = torch.where(from_least, scale, -scale)
    steps = (edge / scale).round()
    scale = torch.where(steps != 0, edge / steps, scale).to(weight.dtype)
    bias = torch.where(steps != 0, edge, 0).to(weight.dtype)
    # f16 rounds a small scale to 0: then every number stands for the bias.
    divisor = torch.where(scale != 0, scale, 1).float()
    numbers = ((groups - bias.float()[..., None]) / divisor[..., None]).round().clamp(0, most).to(torch.int64)
    each = WORD_BITS // packing.bits
    shifts = torch.arange(0, WORD_BITS, packing.bits, dtype=torch.int64)
    words = (numbers.view(rows, columns // each, each) << shifts).sum(-1)
    signed = torch.where(words >= 2 ** (WORD_BITS - 1), words - 2**WORD_BITS, words).to(torch.int32)
    return PackedTensor(signed, scale, bias, packing)
