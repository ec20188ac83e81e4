"""Shapes and dtypes on the meta device: the same as on the CPU, and an error where operands do not fit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from graph_support import GraphMaker, execute

from linnet.runner.errors import SpecError
from linnet.runner.torch.dtypes import CARRIED
from linnet.runner.torch.interpreter import Frame, Preparation

Spec = tuple[tuple[int, ...], str]
CASES: list[tuple[str, list[Spec], Spec, dict[str, Any]]] = [
    ("add", [((3, 1, 4), "f32"), ((2, 4), "f32")], ((3, 2, 4), "f32"), {}),
    ("shl", [((5,), "i32"), ((), "i32")], ((5,), "i32"), {}),
    ("lt", [((2, 1), "bf16"), ((1, 3), "bf16")], ((2, 3), "bool"), {}),
    ("neg", [((0, 3), "f64")], ((0, 3), "f64"), {}),
    ("cast", [((2,), "f32")], ((2,), "u8"), {}),
    ("select", [((4, 1), "bool"), ((3,), "f16"), ((), "f16")], ((4, 3), "f16"), {}),
    ("iota", [], ((7,), "i64"), {}),
    ("concat", [((2, 3), "f32"), ((2, 0), "f32"), ((2, 1), "f32")], ((2, 4), "f32"), {"axis": 1}),
    ("cumsum", [((2, 3), "i32")], ((2, 3), "i32"), {"axis": 1}),
    ("gather", [((3, 4, 5), "f32"), ((2, 2), "i32")], ((2, 2, 3, 5), "f32"), {"axes": (1,), "label": "x"}),
    ("gather", [((3, 4, 5), "f32"), ((), "i64"), ((), "i64")], ((4,), "f32"), {"axes": (0, 2), "label": "x"}),
    ("reduce", [((3, 4, 5), "f32")], ((4,), "f32"), {"kind": "max", "axes": (0, 2)}),
    ("reduce", [((3, 4), "bool")], ((), "bool"), {"kind": "any", "axes": (0, 1)}),
    ("contract", [((2, 3, 4), "f32"), ((5, 4), "f32")], ((2, 3, 5), "f32"), {"spec": "ijk,lk->ijl"}),
    ("contract", [((2, 3), "i32"), ((3,), "i32")], ((), "i32"), {"spec": "ij,j->"}),
]


@pytest.mark.parametrize(("op", "inputs", "result", "attributes"), CASES)
def test_shapes_are_those_of_the_cpu(op: str, inputs: list[Spec], result: Spec, attributes: dict[str, Any]) -> None:
    for device in ("cpu", "meta"):
        make = GraphMaker()
        values = [make.input(*spec) for spec in inputs]
        graph = make.graph(make.node(op, values, *result, **attributes))
        tensors = [torch.zeros(shape, dtype=CARRIED[dtype], device=device) for shape, dtype in inputs]
        # Every value is compared with its spec as it is made.
        (made,) = Preparation(torch.device(device), verify=True).graph(graph).run(Frame({}), tensors)
        assert made.device.type == device


BAD: list[tuple[str, list[Spec], dict[str, Any], str]] = [
    ("add", [((3,), "f32"), ((2,), "f32")], {}, r"add cannot broadcast \[3\], \[2\]"),
    ("add", [((3,), "f32"), ((3,), "f64")], {}, "add of torch.float"),
    ("concat", [((2, 3), "f32"), ((3, 3), "f32")], {"axis": 1}, r"concat along 1 of \[2, 3\], \[3, 3\]"),
    ("gather", [((4, 4), "f32"), ((2,), "i32"), ((3,), "i32")], {"axes": (0, 1)}, r"gather over axes \[0, 1\]"),
    ("contract", [((2, 3), "f32"), ((4,), "f32")], {"spec": "ij,j->i"}, "contract ij,j->i: j is 3 and 4"),
    ("contract", [((2, 3), "f32"), ((3, 1), "f32")], {"spec": "ij,j->i"}, r"contract ij,j->i of \[2, 3\] and \[3, 1\]"),
    ("contract", [((2,), "f32"), ((2,), "bf16")], {"spec": "i,i->"}, "contract of torch.float32 and torch.bfloat16"),
]


@pytest.mark.parametrize(("op", "inputs", "attributes", "message"), BAD)
def test_operands_that_do_not_fit_are_refused(
    op: str, inputs: list[Spec], attributes: dict[str, Any], message: str
) -> None:
    make = GraphMaker()
    values = [make.input(*spec) for spec in inputs]
    graph = make.graph(make.node(op, values, (2,), "f32", **attributes))
    tensors = [torch.empty(shape, dtype=CARRIED[dtype], device="meta") for shape, dtype in inputs]
    with pytest.raises(SpecError, match=message):
        execute(graph, *tensors)
