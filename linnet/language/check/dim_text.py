"""The text of a dimension, as a person would write it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from linnet.language.check.dims import Atom, Dim, Term


def sum_text(terms: Iterable[Term]) -> str:
    """A sum of terms, in an order close to the one it was written in: `Heads / Shards * HeadDim`, `S - 1`."""
    # As a person writes it: what is added before what is taken away, symbols before a number.
    ordered = sorted(terms, key=lambda term: (not term[1], term[0] < 0))
    if len(ordered) > 1 and ordered[0][0] < 0:
        ordered.sort(key=lambda term: term[0] < 0)
    text = ""
    for coefficient, factors in ordered:
        product = _product_text(abs(coefficient), factors)
        if not text:
            # `-H / N` would divide -H.
            divided = coefficient == -1 and factors and not isinstance(factors[0], str) and factors[0].op in "/%"
            text = product if coefficient > 0 else f"-({product})" if divided else f"-{product}"
        else:
            text += f" + {product}" if coefficient > 0 else f" - {product}"
    return text or "0"


def _product_text(coefficient: int, factors: tuple[Atom, ...]) -> str:
    parts = [str(coefficient)] if coefficient != 1 or not factors else []
    for atom in factors:
        text = _atom_text(atom)
        # `/` binds like `*` and to the left, so only a quotient that comes first may stand bare.
        grouped = not isinstance(atom, str) and atom.op in "/%" and (parts or (atom.op == "%" and len(factors) > 1))
        parts.append(f"({text})" if grouped else text)
    return " * ".join(parts)


def _atom_text(atom: Atom) -> str:
    if isinstance(atom, str):
        return atom
    if atom.op in ("min", "max"):
        return f"{atom.op}({atom.left}, {atom.right})"
    terms = list(atom.left.terms())
    product = atom.op == "/" and len(terms) == 1 and terms[0][0] > 0 and not _is_remainder(atom.left)
    left = str(atom.left) if product or _is_simple(atom.left) else f"({atom.left})"
    right = str(atom.right) if _is_simple(atom.right) else f"({atom.right})"
    return f"{left} {atom.op} {right}"


def _is_simple(dim: Dim) -> bool:
    """Whether its text is one name, one number or one call, and so never needs parentheses."""
    if (number := dim.constant) is not None:
        return number >= 0
    terms = list(dim.terms())
    if len(terms) != 1 or terms[0][0] != 1 or len(terms[0][1]) != 1:
        return False
    atom = terms[0][1][0]
    return isinstance(atom, str) or atom.op in ("min", "max")


def _is_remainder(dim: Dim) -> bool:
    terms = list(dim.terms())
    if len(terms) != 1 or len(terms[0][1]) != 1:
        return False
    atom = terms[0][1][0]
    return not isinstance(atom, str) and atom.op == "%"
