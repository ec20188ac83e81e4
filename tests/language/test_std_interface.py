"""The standard library's interface: names, the order of generics, and parameters, which callers write.

The golden is `tests/data/std_interface.txt`; `UPDATE_GOLDEN=1 pytest tests/language/test_std_interface.py` writes it
anew, and the change is then reviewed as one of the interface.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from linnet.language.check import load
from linnet.language.program.checked import CheckedBlock, CheckedFunction, CheckedModule, GenericDecl

GOLDEN = Path("tests/data/std_interface.txt")


def generics(declared: tuple[GenericDecl, ...]) -> str:
    texts = []
    for decl in declared:
        star, kind = ("*", "Shape") if decl.kind == "Shape" else ("", decl.kind)
        default = "" if decl.default is None else f" = {decl.default}"
        texts.append(f"{star}{decl.name}: {kind}{default}")
    return f"<{', '.join(texts)}>" if texts else ""


def function(item: CheckedFunction) -> str:
    parameters = [
        f"{var.name}: {var.type}{'' if default is None else ' = ..'}"
        for var, default in zip(item.parameters, item.defaults, strict=True)
    ]
    return f"{item.kind} {item.name}{generics(item.generics)}({', '.join(parameters)}) -> {item.result}"


def block(item: CheckedBlock) -> Iterator[str]:
    yield f"block {item.name}{generics(item.generics)}"
    for member in item.members.values():
        yield f"    {member.kind} {member.name}: {member.type}"
    for method in item.methods.values():
        if method.public:
            yield f"    {function(method)}"


def interface(module: CheckedModule) -> Iterator[str]:
    for item in module.functions.values():
        if item.public:
            yield function(item)
    for owner in module.blocks.values():
        if owner.public:
            yield from block(owner)


def test_the_interface_is_the_one_that_callers_were_promised(root: Path) -> None:
    lines: list[str] = []
    for path in sorted((root / "linnet" / "std").rglob("*.linnet")):
        program = load(path).program
        assert program is not None
        lines += [f"[{program.root.name}]", *interface(program.root), ""]
    found = "\n".join(lines)
    if os.environ.get("UPDATE_GOLDEN") == "1":
        (root / GOLDEN).write_text(found)
    assert found == (root / GOLDEN).read_text(), f"the interface differs from {GOLDEN}: see the top of this test"
