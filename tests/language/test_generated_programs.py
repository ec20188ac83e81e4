"""Generated programs: what the checker accepts runs with the shapes that its types promise, whatever the generics.

`fuzzing.py` says how to try more of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

import pytest
import torch
from fuzzing import fuzzed
from hypothesis import given
from hypothesis import strategies as st
from program_generator import Program, random_program

from linnet.language.check import load
from linnet.language.program.binding import bind
from linnet.language.program.checked import Program as CheckedProgram
from linnet.language.program.core import EntryGraph
from linnet.language.program.ranges import InputBoundsError
from linnet.language.program.verify import verify
from linnet.runner.errors import IndexRangeError
from linnet.runner.smoke import random_inputs
from linnet.runner.torch.dtypes import CARRIED
from linnet.runner.torch.interpreter import Frame, Preparation
from linnet.runner.torch.weights import empty_weights, random_weights

# Assignments that each accepted program runs at.
ASSIGNMENTS = 3
# Elements of the largest tensor that the CPU computes with.
MAX_ELEMENTS = 20_000


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Small tensors on several threads wait for each other longer than they compute."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def checked(program: Program) -> tuple[CheckedProgram | None, list[str]]:
    """The checked program, None where it is refused, and what is wrong with it."""
    path = Path("generated.linnet").resolve()
    result = load(path, {path: program.text})
    return result.program, [f"{item.code} {item.message}" for item in result.errors]


def run_at(checked: CheckedProgram, program: Program, values: Mapping[str, int], rng: Random) -> None:
    """Bind, lower, verify and run at one assignment, and compare the results with what their types promise."""
    own = {name: values[name] for name in program.entry_generics}
    bound = bind(checked, "M", {name: values[name] for name in program.block_generics})
    optional = frozenset(entry.path for entry in bound.manifest.entries if entry.optional)
    present = optional if rng.random() < 0.5 else frozenset()
    given_inputs = frozenset(var.name for var in program.inputs if var.name == "extra" and rng.random() < 0.5)
    lowered = bound.lower("run", own, present, given_inputs)
    verify(lowered.graph)
    assert bound.infer("run", {taken.name: taken.spec for taken in lowered.inputs}) == own
    promised = program.promised(values)
    assert [(value.spec.shape, value.spec.dtype) for value in lowered.graph.outputs] == promised

    expected = [(shape, CARRIED[dtype]) for shape, dtype in promised]
    entries = [entry for entry in bound.manifest.entries if not entry.optional or entry.path in present]
    meta = torch.device("meta")
    inputs = [torch.empty(taken.spec.shape, dtype=CARRIED[taken.spec.dtype], device=meta) for taken in lowered.inputs]
    outputs = Preparation(meta, verify=True).graph(lowered.graph).run(Frame(empty_weights(entries, meta)), inputs)
    assert [(tuple(x.shape), x.dtype) for x in outputs] == expected
    if largest(lowered) > MAX_ELEMENTS:
        return
    drawn = random_weights(bound.manifest, 0, optional=True)
    frame = Frame({entry.path: drawn[entry.path] for entry in entries})
    try:
        inputs = random_inputs(lowered, 0)
        outputs = Preparation(torch.device("cpu"), verify=True).graph(lowered.graph).run(frame, inputs)
    except (InputBoundsError, IndexRangeError):
        # A position outside its axis is the one fault of shapes that only a run can show.
        return
    assert [(tuple(x.shape), x.dtype) for x in outputs] == expected


def largest(lowered: EntryGraph) -> int:
    return max((value.spec.size for node in lowered.graph.walk() for value in node.outputs), default=0)


def attack(rng: Random) -> str:
    """Check one program and run it where it is accepted. The verdict: ran, idle (nothing satisfies its clauses), or the
    first error's code and message."""
    program = random_program(rng)
    try:
        result, errors = checked(program)
        if result is None:
            assert errors
            return errors[0]
        assignments = list(program.assignments())
        for values in rng.sample(assignments, min(ASSIGNMENTS, len(assignments))):
            run_at(result, program, values, rng)
    except Exception as error:
        error.add_note(program.text)
        raise
    return "ran" if assignments else "idle"


@given(st.integers(0, 2**64 - 1))
@fuzzed(600)
def test_accepted_programs_run_as_their_types_promise(seed: int) -> None:
    attack(Random(seed))


def test_a_decent_share_of_generated_programs_is_accepted_and_runs() -> None:
    """The test above would say nothing if most programs were refused, or if no values satisfied their clauses."""
    verdicts = Counter(attack(Random(f"share {number}")) for number in range(60))
    assert verdicts["ran"] >= 30, verdicts
