"""bf16 weights of linear layers for a CPU: [Out, In] cut into blocks of outputs, each block lying transposed.

The blocks lie one below the other as the rows of one table [Blocks * In, Columns].

The product of one row is then a sum of the rows of each block, weighted by x: what `torch.embedding_bag` computes, with
FBGEMM's generated code, at the speed of memory (measured by `bench/gemv.py`: half as fast again as oneDNN's own order,
two to three times a plain product). It adds in f32, in the order of the inputs, and rounds once. Products of more rows
take each block as the right side of a matrix product.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional

# Outputs of a block: FBGEMM sums 512 at once in registers, and would read the block twice for more. Fewer than a block
# at once are half as fast: a block is read from one end to the other. Large blocks are better for many rows.
MOST_COLUMNS, STEP = 512, 16
# Rows that are multiplied one by one: a block is read from memory once and from the cache for the others.
MOST_SINGLE_ROWS = 4
# Numbers in copies of x that torch may make, one for each block, to multiply by all blocks in one product.
MOST_COPIED = 2**20


def can_block(device: torch.device) -> bool:
    """Whether this machine has FBGEMM's kernels, which are for x86 with AVX2 at least."""
    if device.type != "cpu" or "fbgemm" not in torch.backends.quantized.supported_engines:
        return False
    return torch.backends.cpu.get_cpu_capability().startswith("AVX")


def block_columns(outputs: int) -> int | None:
    """The columns of a block for so many outputs; None where none divide them."""
    fitting = [c for c in range(STEP, MOST_COLUMNS + 1, STEP) if outputs % c == 0]
    threads = torch.get_num_threads()
    # All threads equally busy, and then blocks as large as can be.
    return min(fitting, key=lambda c: (-(-outputs // c // threads) * c, -c), default=None)


def table_shape(outputs: int, inputs: int) -> tuple[int, int]:
    """The rows and columns of the table of a weight [outputs, inputs] whose outputs `block_columns` divides."""
    columns = block_columns(outputs)
    assert columns is not None
    return outputs // columns * inputs, columns


def block_weight(
    parts: Sequence[Tensor], biases: Sequence[Tensor] = (), table: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Weights [Out_i, In], one below the other, as a table of `table_shape`, which may be given to write into.

    Biases [Out_i] are weights of one more input. With the table comes what makes bags of its rows: every row in turn,
    i32, and the row at which each block begins.
    """
    if biases:
        parts = [torch.cat((part, bias[:, None]), dim=1) for part, bias in zip(parts, biases, strict=True)]
    width = parts[0].shape[1]
    rows, columns = table_shape(sum(part.shape[0] for part in parts), width)
    if table is None:
        table = torch.empty(rows, columns, dtype=parts[0].dtype)
    blocks = table.view(-1, width, columns)
    start = 0
    for part in parts:
        stop = start + part.shape[0]
        # The blocks that are this part's alone, in one copy by all threads; others hold outputs of its neighbours too.
        first, last = -(-start // columns), stop // columns
        if first < last:
            own = part[first * columns - start : last * columns - start]
            blocks[first:last] = own.reshape(-1, columns, width).transpose(1, 2)
        shared = {(start, min(stop, first * columns)), (max(start, last * columns), stop)}
        for low, high in shared if first <= last else {(start, stop)}:
            if low < high:
                offset = low // columns * columns
                blocks[offset // columns, :, low - offset : high - offset] = part[low - start : high - start].t()
        start = stop
    return table, *bags(rows, width)


@lru_cache(maxsize=64)
def bags(rows: int, width: int) -> tuple[Tensor, Tensor]:
    """Numbers 0 to `rows`, i32, and those of them at which blocks of `width` begin."""
    return torch.arange(rows, dtype=torch.int32), torch.arange(0, rows, width, dtype=torch.int32)


def linear_for(rows: int, biased: bool = False) -> Callable[..., Tensor]:
    """The function that multiplies so many rows by blocks: `f(x, *block_weight(...))`."""
    if rows == 1:
        return biased_row_linear if biased else row_linear
    if rows <= MOST_SINGLE_ROWS:
        return biased_few_rows_linear if biased else few_rows_linear
    return biased_rows_linear if biased else rows_linear


def row_linear(x: Tensor, table: Tensor, rows: Tensor, starts: Tensor) -> Tensor:
    """x [.., In] of one row times blocks -> [.., Out]; sums in f32, rounded once."""
    flat, blocks = x.view(-1), starts.shape[0]
    scales = torch.cat([flat] * blocks) if blocks > 1 else flat
    sums: Tensor = torch.embedding_bag(table, rows, starts, False, 0, False, scales)[0]
    return sums.view(*x.shape[:-1], -1)


def few_rows_linear(x: Tensor, table: Tensor, rows: Tensor, starts: Tensor) -> Tensor:
    """`row_linear` of each row of x [.., In]."""
    flat = x.reshape(-1, x.shape[-1])
    return torch.cat([row_linear(row, table, rows, starts) for row in flat.unbind()]).view(*x.shape[:-1], -1)


def rows_linear(x: Tensor, table: Tensor, rows: Tensor, starts: Tensor) -> Tensor:
    """x [.., In] times blocks -> [.., Out]."""
    flat, blocks = _operands(x, table, starts)
    if flat.numel() * len(blocks) <= MOST_COPIED:
        return torch.bmm(flat.expand(len(blocks), -1, -1), blocks).transpose(0, 1).reshape(*x.shape[:-1], -1)
    sums = flat.new_empty(flat.shape[0], len(blocks), table.shape[1])
    for block, part in zip(blocks, sums.unbind(1), strict=True):
        torch.mm(flat, block, out=part)
    return sums.view(*x.shape[:-1], -1)


def biased_row_linear(x: Tensor, table: Tensor, rows: Tensor, starts: Tensor) -> Tensor:
    """As `row_linear`, with biases in the blocks."""
    return row_linear(functional.pad(x, (0, 1), value=1), table, rows, starts)


def biased_few_rows_linear(x: Tensor, table: Tensor, rows: Tensor, starts: Tensor) -> Tensor:
    return few_rows_linear(functional.pad(x, (0, 1), value=1), table, rows, starts)


def biased_rows_linear(x: Tensor, table: Tensor, rows: Tensor, starts: Tensor) -> Tensor:
    """As `rows_linear`, with biases in the blocks, added before the sums are rounded."""
    flat, blocks = _operands(x, table, starts)
    biases, blocks = blocks[:, -1:], blocks[:, :-1]
    if flat.numel() * len(blocks) <= MOST_COPIED:
        sums = torch.baddbmm(biases, flat.expand(len(blocks), -1, -1), blocks)
        return sums.transpose(0, 1).reshape(*x.shape[:-1], -1)
    sums = flat.new_empty(flat.shape[0], len(blocks), table.shape[1])
    for bias, block, part in zip(biases, blocks, sums.unbind(1), strict=True):
        torch.addmm(bias, flat, block, out=part)
    return sums.view(*x.shape[:-1], -1)


def _operands(x: Tensor, table: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
    """x [.., In] as [Rows, In], and a table as [Blocks, In, Columns]."""
    return x.reshape(-1, x.shape[-1]), table.view(starts.shape[0], -1, table.shape[1])


def take_rows(ids: Tensor, table: Tensor, width: int, biased: bool) -> Tensor:
    """Rows ids [..] of the weight [Out, In] that a table was made of -> [.., In]; `width` is In."""
    columns = table.shape[1]
    blocks = table.view(-1, width + biased, columns)[:, :width]
    # Each is a column of a block. Indexing by tensors is faster for many of them, slower for one, and brings the
    # best part of a megabyte of torch's code into memory.
    rows = [blocks[i // columns, :, i % columns] for i in ids.flatten().tolist()]
    return torch.stack(rows).view(*ids.shape, width) if rows else table.new_empty(*ids.shape, width)
