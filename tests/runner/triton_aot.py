"""Compiles Triton programs for a GPU that need not be there, and reads what the compiler made of them."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

# The threads of a warp, for every NVIDIA GPU.
WARP = 32
POINTERS = {"bf16": "*bf16", "f16": "*fp16", "f32": "*fp32", "e4m3": "*fp8e4nv"}
ANY_SIZE = {"rows", "scale_stride", "x_scale_stride"}
TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"


@dataclass(frozen=True)
class Compiled:
    """`registers` and `spilled` (bytes of local memory) of one thread, `shared` bytes of one program."""

    ptx: str
    sass: str
    registers: int
    spilled: int
    shared: int


def compile_program(
    function: Any,
    pointers: Mapping[str, str],
    constants: Mapping[str, Any],
    *,
    capability: int,
    warps: int,
    stages: int = 3,
    floats: frozenset[str] = frozenset(),
) -> Compiled:
    """`function` for `capability` (90 is Hopper).

    `pointers` gives the dtype of each pointer; other parameters are i32, or f32 where `floats` names them. Pointers and
    the weight's sides are taken to be multiples of 16, as the launcher sees them; numbers of rows and strides of scales
    are not.
    """
    signature: dict[str, str] = {}
    multiples: dict[tuple[int, ...], list[list[object]]] = {}
    for place, name in enumerate(function.arg_names):
        if name in constants:
            signature[name] = "constexpr"
            continue
        signature[name] = POINTERS[pointers[name]] if name in pointers else "fp32" if name in floats else "i32"
        if name not in floats and name not in ANY_SIZE:
            multiples[place,] = [["tt.divisibility", 16]]
    source = ASTSource(fn=function, signature=signature, constexprs=dict(constants), attrs=multiples)
    target = GPUTarget("cuda", capability, WARP)
    # As the launcher asks: what later releases of Triton take by default differs.
    options = {"num_warps": warps, "num_stages": stages, "enable_fp_fusion": True}
    made = triton.compile(source, target=target, options=options)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        usage = _run("cuobjdump", "-res-usage", file.name)
        sass = _run("nvdisasm", "-c", file.name)
    used = {key: int(value) for key, value in re.findall(r"(REG|LOCAL|STACK):(\d+)", usage)}
    spilled = used["LOCAL"] + used["STACK"]
    return Compiled(made.asm["ptx"], sass, used["REG"], spilled, made.metadata.shared)


def _run(tool: str, *arguments: str) -> str:
    return subprocess.run([TOOLS / tool, *arguments], check=True, capture_output=True, text=True).stdout
