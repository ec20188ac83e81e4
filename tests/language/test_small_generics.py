"""Small generics: the least that satisfies every where, from the starts that the design names."""

from __future__ import annotations

from pathlib import Path

import pytest
from lowering_support import checked

from linnet.language.check import load
from linnet.language.program.checked import CheckedBlock, CheckedFunction
from linnet.language.program.small import SmallGenericsError, small_generics


def block(generics: str, where: str = "", members: str = "param w: Tensor[2; f32]") -> CheckedBlock:
    text = f"pub block Net<{generics}>\n{where}\n{{ {members} }}\n"
    text += "pub block Embedding<Rows: Dim, H: Dim> { param weight: Tensor[Rows, H; f32] }\n"
    text += "pub block Stack<H: Dim, Depth: Dim> { sub parts: [Embedding<H, H>; Depth] }\n"
    return checked(text).root.blocks["Net"]


def entry(generics: str, where: str = "") -> CheckedFunction:
    return checked(f"pub entry run<{generics}>() -> i32\n{where}\n{{ return 1 }}").root.functions["run"]


def test_everything_starts_at_one() -> None:
    assert small_generics(block("A: Dim, B: Dim = 64"), {}) == {"A": 1, "B": 1}


def test_layers_vocabulary_and_tables() -> None:
    members = "sub words: Embedding<N, H> sub layers: [Embedding<4, H>; Layers] sub stack: Stack<4, Depth>? = none"
    found = small_generics(block("Vocab: Dim, N: Dim, H: Dim, Layers: Dim, Depth: Dim", members=members), {})
    assert found == {"Vocab": 32, "N": 32, "H": 1, "Layers": 2, "Depth": 2}


def test_the_least_that_satisfies_every_where() -> None:
    where = "where (Heads / Shards * D) % 12 == 0, Shards > 0, Heads % Shards == 0, Heads % Kv == 0, Kv > 1, D < H"
    found = small_generics(block("H: Dim, Heads: Dim, Kv: Dim, D: Dim, Shards: Dim = 1", where), {})
    assert found == {"H": 2, "Heads": 12, "Kv": 2, "D": 1, "Shards": 1}


def test_a_start_moves_up_where_it_has_to() -> None:
    assert small_generics(block("Vocab: Dim", "where Vocab % 7 == 0"), {}) == {"Vocab": 35}


def test_an_earlier_choice_is_taken_back() -> None:
    assert small_generics(block("A: Dim, B: Dim", "where A % 3 == 0, A == 2 * B, A > 5"), {}) == {"A": 6, "B": 3}
    # C alone has no answer to A's first choice, though nothing connects A with B.
    where = "where A % 2 == 0, B % 5 == 0, C + 1 == A, C > 5"
    assert small_generics(block("A: Dim, B: Dim, C: Dim", where), {}) == {"A": 8, "B": 5, "C": 7}


def test_fixed_values_stay() -> None:
    found = small_generics(block("H: Dim, Heads: Dim, T: Float", "where H % Heads == 0"), {"Heads": 12, "T": "bf16"})
    assert found == {"H": 12, "Heads": 12, "T": "bf16"}


def test_dtypes_without_a_value() -> None:
    declared = "N: Numeric, I: Integer, D: DType, F: Float = bf16"
    assert small_generics(block(declared), {}) == {"N": "f32", "I": "i32", "D": "f32", "F": "f32"}


def test_an_entry_counts_its_own_generics_only() -> None:
    found = small_generics(entry("B: Dim, S: Dim, *R: Shape, T: Float", "where S > 1, B >= S"), {"H": 4, "T": "f64"})
    assert found == {"B": 2, "S": 2, "R": (2,), "T": "f64"}


def test_a_where_that_nothing_satisfies() -> None:
    unsatisfied = "no small generics of `run` satisfy every `where`; give some of them"
    with pytest.raises(SmallGenericsError, match=unsatisfied):
        small_generics(entry("A: Dim", "where A % 2 == 0, A % 2 == 1"), {})
    with pytest.raises(SmallGenericsError, match=unsatisfied):
        small_generics(entry("A: Dim, B: Dim", "where A * A == 2 * B * B"), {})
    with pytest.raises(SmallGenericsError, match=r"`A % 4 == 0` of `run` is false for the given generics"):
        small_generics(entry("A: Dim", "where A % 4 == 0"), {"A": 6})


def test_an_entry_of_a_block_needs_the_blocks_generics() -> None:
    text = "pub block Net<H: Dim> { pub entry run<S: Dim>() -> i32 where S > H { return 1 } }"
    method = checked(text).root.blocks["Net"].methods["run"]
    assert small_generics(method, {"H": 3}) == {"S": 4}
    with pytest.raises(SmallGenericsError, match="`run` depends on `H`; give their values"):
        small_generics(method, {})


def test_the_seed(seed: Path) -> None:
    program = load(seed / "qwen3-8b-fp8" / "src" / "lib.linnet").program
    assert program is not None
    assert small_generics(program.root.blocks["Model"], {"T": "bf16"}) == {
        "Vocab": 32,
        "H": 128,
        "Heads": 1,
        "KvHeads": 1,
        "HeadDim": 128,
        "Inner": 128,
        "Layers": 2,
        "Batch": 1,
        "MaxSeq": 1,
        "T": "bf16",
        "Shards": 1,
        "PageSize": 1,
    }
