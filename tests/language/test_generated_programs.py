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
from program_generator import random_program
from program_mutation import mutated
from program_text import Program

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

# Assignments that each accepted program runs at, and changed programs that are tried for each.
ASSIGNMENTS = 3
MUTANTS = 4
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


def run_at(checked: CheckedProgram, program: Program, values: Mapping[str, int], rng: Random) -> bool:
    """Bind, lower, verify and run at one assignment, and compare the results with what their types promise.

    Whether the CPU computed them: it does not where tensors are large, or where a position outside its axis ends it.
    """
    own = {name: values[name] for name in program.entry_generics}
    arguments: dict[str, int | str] = {name: values[name] for name in program.block_generics}
    dtype = "bf16"
    if program.float_generic and rng.random() < 0.7:
        dtype = arguments["T"] = rng.choice(("f32", "f64", "f16"))
    bound = bind(checked, "M", arguments)
    optional = frozenset(entry.path for entry in bound.manifest.entries if entry.optional)
    present = optional if rng.random() < 0.5 else frozenset()
    given_inputs = frozenset(var.name for var in program.inputs if var.name == "extra" and rng.random() < 0.5)
    lowered = bound.lower("run", own, present, given_inputs)
    verify(lowered.graph)
    assert bound.infer("run", {taken.name: taken.spec for taken in lowered.inputs}) == own
    promised = program.promised(values, dtype)
    assert [(value.spec.shape, value.spec.dtype) for value in lowered.graph.outputs] == promised

    expected = [(shape, CARRIED[dtype]) for shape, dtype in promised]
    entries = [entry for entry in bound.manifest.entries if not entry.optional or entry.path in present]
    meta = torch.device("meta")
    inputs = [torch.empty(taken.spec.shape, dtype=CARRIED[taken.spec.dtype], device=meta) for taken in lowered.inputs]
    outputs = Preparation(meta, verify=True).graph(lowered.graph).run(Frame(empty_weights(entries, meta)), inputs)
    assert [(tuple(x.shape), x.dtype) for x in outputs] == expected
    if largest(lowered) > MAX_ELEMENTS:
        return False
    drawn = random_weights(bound.manifest, 0, optional=True)
    frame = Frame({entry.path: drawn[entry.path] for entry in entries})
    try:
        inputs = random_inputs(lowered, 0)
        outputs = Preparation(torch.device("cpu"), verify=True).graph(lowered.graph).run(frame, inputs)
    except (InputBoundsError, IndexRangeError):
        # A position outside its axis is the one fault of shapes that only a run can show.
        return False
    assert [(tuple(x.shape), x.dtype) for x in outputs] == expected
    return True


def largest(lowered: EntryGraph) -> int:
    return max((value.spec.size for node in lowered.graph.walk() for value in node.outputs), default=0)


def attack(program: Program, rng: Random) -> str:
    """Check a program and run it where it is accepted. The verdict: ran, idle (nothing satisfies its clauses, or the
    CPU computed none of it), or the first error's code and message."""
    try:
        result, errors = checked(program)
        if result is None:
            assert errors
            return errors[0]
        assignments = list(program.assignments())
        chosen = rng.sample(assignments, min(ASSIGNMENTS, len(assignments)))
        ran = [run_at(result, program, values, rng) for values in chosen]
    except Exception as error:
        error.add_note(program.text)
        raise
    return "ran" if any(ran) else "idle"


def attack_mutants(rng: Random) -> Iterator[str]:
    """The verdicts on an accepted program with one dimension changed, which is refused or runs as ever."""
    program = random_program(rng)
    if checked(program)[0] is not None:
        for _ in range(MUTANTS):
            yield attack(mutated(program, rng), rng)


@given(st.integers(0, 2**64 - 1))
@fuzzed(300, shrink=False)
def test_accepted_programs_run_as_their_types_promise(seed: int) -> None:
    rng = Random(seed)
    attack(random_program(rng), rng)


@given(st.integers(0, 2**64 - 1))
@fuzzed(80, shrink=False)
def test_a_changed_dimension_is_refused_or_runs(seed: int) -> None:
    list(attack_mutants(Random(seed)))


def test_a_decent_share_of_generated_programs_is_accepted_and_runs() -> None:
    """The tests above would say nothing if most programs were refused, if no values satisfied their clauses, or if
    hardly a change mattered."""
    verdicts: Counter[str] = Counter()
    for number in range(40):
        rng = Random(f"share {number}")
        verdicts[attack(random_program(rng), rng)] += 1
    assert verdicts["ran"] >= 20, verdicts
    mutants = Counter(verdict for number in range(12) for verdict in attack_mutants(Random(f"mutant {number}")))
    refused = mutants.total() - mutants["ran"] - mutants["idle"]
    assert mutants["ran"] >= 3, mutants
    assert refused >= 15, mutants
