"""Programs with one dimension changed."""

from __future__ import annotations

import re
from dataclasses import replace
from random import Random

from program_text import HELPERS, Program

# A dimension, an operator of one, or the name of an index.
MUTABLE = re.compile(r"(?<![\w.])(?:[A-RU-Z](?!: Dim)|[h-t]|\d+(?!\.\d))(?!\w)| [-+*/%] |<=")


def mutated(program: Program, rng: Random) -> Program:
    """The program with one dimension, operator or index changed, outside of what `headers` promise."""
    fixed = [(program.text.index(header), len(header)) for header in program.headers]
    places = [
        found
        for found in MUTABLE.finditer(program.text)
        if not any(start <= found.start() < start + size for start, size in fixed)
    ]
    # What is generated, the last part, as often as the functions that all programs have.
    own = program.text.index(HELPERS) + len(HELPERS)
    half = [found for found in places if (found.start() >= own) == (rng.random() < 0.5)] or places
    chosen = rng.choice(half)
    old = chosen.group()
    if old.strip() in "+-*/%":
        new = rng.choice([f" {op} " for op in "+-*/%" if op != old.strip()])
    elif old == "<=":
        new = rng.choice((">=", "<", "=="))
    else:
        start = max(0, program.text.rfind("\n\n", 0, chosen.start()))
        near = {found.group() for found in MUTABLE.finditer(program.text, start, chosen.end() + 80)}
        kind = str.islower if old.islower() else lambda text: text[0].isupper() or text[0].isdigit()
        others = sorted(text for text in near if kind(text) and text != old)
        shifted = [] if old.islower() else [f"({old} + 1)", f"{old} / 2", str(rng.randint(0, 4))]
        new = rng.choice([*others, *shifted] or ["j"])
    return replace(program, text=program.text[: chosen.start()] + new + program.text[chosen.end() :])
