"""What a hover says of a name: its declaration or type, the same with a package's numbers, its documentation."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

from linnet.language.check.context import AliasDecl, ConstDecl
from linnet.language.check.modules import LoadedModule
from linnet.language.check.references import Part, PreludeFunction, Reference
from linnet.language.check.type_nodes import generic_text
from linnet.language.program.checked import (
    CheckedBlock,
    CheckedFunction,
    DimValue,
    GenericDecl,
    IndexVar,
    Literal,
    StructDecl,
    Typed,
)
from linnet.language.program.environment import Concrete
from linnet.language.program.types import EnumType, value_text
from linnet.language.server.concrete import concrete_types
from linnet.language.source import Span

PRELUDE: Mapping[str, tuple[str, str]] = {
    "cast": ("cast<T>(x)", "`x` converted to the element type `T`."),
    "exp": ("exp(x)", "e to the power of each element."),
    "log": ("log(x)", "The natural logarithm of each element."),
    "sqrt": ("sqrt(x)", "The square root of each element."),
    "rsqrt": ("rsqrt(x)", "One over the square root of each element."),
    "sin": ("sin(x)", "The sine of each element, in radians."),
    "cos": ("cos(x)", "The cosine of each element, in radians."),
    "tanh": ("tanh(x)", "The hyperbolic tangent of each element."),
    "abs": ("abs(x)", "The absolute value of each element."),
    "min": ("min(a, b)", "The lesser of two, element by element; of two compile-time integers a dimension."),
    "max": ("max(a, b)", "The greater of two, element by element; of two compile-time integers a dimension."),
    "shl": ("shl(x, n)", "Each integer shifted left by `n` bits."),
    "shr": ("shr(x, n)", "Each integer shifted right by `n` bits; arithmetic for signed types."),
    "select": ("select(cond, a, b)", "`a` where `cond` is true, else `b`."),
    "reshape": ("reshape(x, [..])", "The same elements in another shape, in row-major order."),
    "permute": ("permute(x, [0, 2, 1])", "The axes of `x` in another order."),
    "broadcast_to": ("broadcast_to(x, [..])", "`x` repeated to a shape, aligned at the last axes."),
    "concat": ("concat(a, b, .., axis = k)", "Tensors joined along an axis; `k < 0` counts from the back."),
    "cumsum": ("cumsum(x, axis = k)", "Running sums along an axis."),
    "iota": ("iota<T = i64>(n)", "The integers from 0 to `n - 1`."),
    "fill": ("fill<T>([..], value)", "A tensor of one value."),
}
"""How each prelude function is called, and what it gives."""
RESERVED = "Reserved for a later version of the language."


def hover_text(found: Reference, generics: list[Mapping[str, Concrete]]) -> str:
    """Markdown for a name; `generics` are the values that a package gives to the generics in scope there."""
    parts = [f"```linnet\n{_declaration(found)}\n```"]
    if isinstance(found.target, GenericDecl):
        values = dict.fromkeys(str(values[found.name]) for values in generics if found.name in values)
        concrete = [f"{found.name} = {value}" for value in values]
    else:
        concrete = concrete_types(found.type, generics) if found.type is not None else []
    if concrete:
        parts.append("In this package: " + " or ".join(f"`{text}`" for text in concrete))
    doc = found.doc
    if isinstance(found.target, PreludeFunction):
        doc = PRELUDE[found.name][1] if found.name in PRELUDE else RESERVED
    if doc:
        parts.append(doc)
    if isinstance(found.target, (CheckedFunction, CheckedBlock)):
        parts.append(f"`{found.target.identity}`")
    return "\n\n".join(parts)


def _declaration(found: Reference) -> str:
    target = found.target
    match target:
        case CheckedFunction():
            return _signature(target.signature)
        case CheckedBlock():
            generics = f"<{', '.join(map(generic_text, target.generics))}>" if target.generics else ""
            where = f" where {', '.join(map(str, target.where))}" if target.where else ""
            return f"block {target.name}{generics}{where}"
        case GenericDecl():
            return generic_text(target)
        case StructDecl():
            generics = f"<{', '.join(map(generic_text, target.generics))}>" if target.generics else ""
            return f"struct {target.name}{generics} {{ {'  '.join(f'{n}: {t}' for n, t in target.fields)} }}"
        case EnumType():
            return f"enum {target.name} {{ {', '.join(target.variants)} }}"
        case LoadedModule():
            return f"module {target.key}"
        case PreludeFunction():
            return PRELUDE[target.name][0] if target.name in PRELUDE else target.name
        case Part(owner=EnumType()):
            return f"{target.owner.name}.{target.name}"
        case AliasDecl():
            return f"type {target.name} = {target.type}"
        case ConstDecl():
            value = f" = {_constant(target.value)}" if _constant(target.value) else ""
            type = "" if str(target.type).startswith("{") else f": {target.type}"
            return f"const {target.name}{type}{value}"
        case IndexVar():
            return f"index {target.name} over {value_text(target.extent)}"
    kind = f"{found.kind} " if found.kind in ("param", "buffer", "state", "sub") else ""
    return f"{kind}{found.name}: {found.type_text}"


def _constant(value: Typed) -> str | None:
    """A constant's value where it is a plain one."""
    if isinstance(value, DimValue):
        return str(value.dim)
    return str(value.value) if isinstance(value, Literal) else None


def _signature(span: Span) -> str:
    """A signature as it is written, taken back from its indentation."""
    line, _ = span.source.position(span.start)
    written = span.source.line(line)
    indent = written[: len(written) - len(written.lstrip())]
    return textwrap.dedent(indent + span.text.rstrip())
