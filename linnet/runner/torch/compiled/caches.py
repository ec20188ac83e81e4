"""Key/value caches of a graph that is being compiled: written in place where nothing reads the old value any more."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from linnet.language.program.core import CoreNode, Graph, Value
from linnet.runner.affine import Indices
from linnet.runner.rewriting import Rewriter, is_call, named, native

SPANS = ("std.nn.cache::write_at", "std.nn.cache::write_span")
ROWS = ("std.nn.cache::write_rows",)
TOKENS = ("std.nn.cache::write_tokens",)


def write_in_place(graph: Graph, on_host: bool) -> None:
    """Replace writes into a state's only value by writes into its memory, and drop what would have stored the result.

    With `on_host` a position that is a scalar is handed over as a Python number.
    """
    pass_ = Rewriter(graph)
    indices = Indices(graph)
    # The state whose memory a value is.
    memory: dict[Value, str] = {}
    stored = {node.inputs[0]: node.attributes["path"] for node in graph.nodes if node.op == "state.write"}
    ends = _ends(pass_)
    for node in graph.nodes:
        if node.op == "state.read":
            memory[node.outputs[0]] = node.attributes["path"]
        elif node.op == "state.write" and memory.get(node.inputs[0]) == node.attributes["path"]:
            continue
        written = _in_place(node, indices, on_host) if node.op == "call" else None
        if written is not None:
            cache, made = node.inputs[0], node.outputs[0]
            path = memory.get(cache)
            # The value has to end in its own state, and nothing else may read what it was.
            alone = pass_.only_reader(cache) is node and cache not in stored
            if path is not None and alone and ends.get(made) == path:
                pass_.emit(written)
                pass_.replace(made, written.outputs[0])
                memory[made] = memory[written.outputs[0]] = path
                continue
        pass_.emit(node)
    pass_.finish()


def _ends(graph: Rewriter) -> dict[Value, str]:
    """The state that each value is stored in at the end of the run, as it is or after further writes into it; values
    that are stored in several states, or in none, are left out."""
    ends: dict[Value, str] = {}
    for node in reversed(graph.graph.nodes):
        if not is_call(node, *SPANS, *ROWS, *TOKENS):
            continue
        (made,) = node.outputs
        found = [reader.attributes["path"] for reader in graph.readers.get(made, ()) if reader.op == "state.write"]
        further = graph.only_reader(made)
        if len(found) == 1:
            ends[made] = found[0]
        elif further is not None and is_call(further, *SPANS, *ROWS, *TOKENS) and further.outputs[0] in ends:
            ends[made] = ends[further.outputs[0]]
    return ends


def _in_place(node: CoreNode, indices: Indices, on_host: bool) -> CoreNode | None:
    inputs = named(node) if is_call(node, *SPANS, *ROWS, *TOKENS) else {}
    if not inputs:
        return None
    cache, value = inputs["cache"], inputs["value"]
    function: Callable[..., Tensor]
    if is_call(node, *SPANS):
        function, rest, numbers = write_span, [inputs["at"]], [2] if on_host else []
    elif is_call(node, *ROWS):
        function, rest, numbers = write_rows, [inputs["at"]], []
    elif indices.counts_up(inputs["rows"]) and value.spec.shape[2] <= cache.spec.shape[0]:
        # Rows 0, 1, ..: no two tokens are for one place.
        function, rest, numbers = write_tokens, [inputs["positions"]], []
    else:
        return None
    made = native(function, (cache, value, *rest), (node.outputs[0].spec,), numbers=numbers, like=node)
    span = value.spec.shape[2] if function is write_span else 1
    bound = (2, cache.spec.shape[2], "cache", span, node.attributes["op"])
    made.attributes = {**made.attributes, "bounds": (bound,)}
    return made


def write_span(cache: Tensor, value: Tensor, at: int | Tensor) -> Tensor:
    """value [B, H, N, D] into cache [B, H, S, D] at positions at .. at + N."""
    count = value.shape[2]
    if not count:
        # Nothing is written, so any position will do, as in the definition.
        return cache
    if isinstance(at, int):
        cache.narrow(2, at, count).copy_(value)
    else:
        cache.index_copy_(2, at + torch.arange(count, device=cache.device), value)
    return cache


def write_rows(cache: Tensor, value: Tensor, at: Tensor) -> Tensor:
    """value [B, H, 1, D] into cache [B, H, S, D], row b at position at[b]."""
    rows = torch.arange(cache.shape[0], device=cache.device)
    cache.transpose(1, 2).index_put_((rows, at.long()), value[:, :, 0])
    return cache


def write_tokens(cache: Tensor, value: Tensor, positions: Tensor) -> Tensor:
    """value [1, H, P, D] into cache [B, H, S, D], token p at position positions[p] of row p."""
    rows = torch.arange(value.shape[2], device=cache.device)
    cache.transpose(1, 2).index_put_((rows, positions.long()), value[0].transpose(0, 1))
    return cache
