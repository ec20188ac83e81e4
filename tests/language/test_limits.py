"""Sources that chain, nest or multiply without end get a diagnostic, soon, and no recursion error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from linnet.language.check import CheckResult, load
from linnet.language.diagnostics import MAX_SHOWN, Diagnostics
from linnet.language.program.binding import BindError, bind
from linnet.language.program.lower_values import LowerError
from linnet.language.source import Source
from linnet.language.syntax.lexer import lex
from linnet.language.syntax.parser import parse_tokens

LONG = 1500


def check(folder: Path, text: str) -> CheckResult:
    file = folder / "long.linnet"
    file.write_text("module long\n\n" + text)
    return load(file)


def chain(first: str, link: Callable[[int], str]) -> str:
    return first + "\n" + "\n".join(link(i) for i in range(LONG, 0, -1)) + "\n"


CHAINS = {
    "constants": chain("const C0 = 1", lambda i: f"const C{i} = C{i - 1} + 1"),
    "aliases": chain("type A0 = f32", lambda i: f"type A{i} = A{i - 1}"),
    "functions": chain(
        "fn f0(x: f32) -> f32 {\n    return x\n}",
        lambda i: f"fn f{i}(x: f32) -> f32 {{\n    return f{i - 1}(x)\n}}",
    ),
    "blocks": chain(
        "block B0 {\n    param w: f32\n    pub fn f() -> f32 {\n        return w\n    }\n}",
        lambda i: f"block B{i} {{\n    sub b: B{i - 1}\n    pub fn f() -> f32 {{\n        return b.f()\n    }}\n}}",
    ),
}


@pytest.mark.parametrize("kind", CHAINS)
def test_a_long_chain_of_declarations_is_no_trouble_in_any_order(tmp_path: Path, kind: str) -> None:
    result = check(tmp_path, CHAINS[kind])
    assert [item.code for item in result.errors] == (["E2190"] if kind == "blocks" else [])


def test_a_chain_of_calls_too_long_to_inline_is_said_when_it_is_lowered(tmp_path: Path) -> None:
    entry = f"entry run(x: f32) -> f32 {{\n    return f{LONG}(x)\n}}\n"
    result = check(tmp_path, CHAINS["functions"] + entry)
    assert result.program is not None
    with pytest.raises(LowerError, match="`run`: calls and expressions nest too deeply"):
        bind(result.program, None, {}).lower("run", {})


def test_structs_that_nest_without_end(tmp_path: Path) -> None:
    result = check(tmp_path, chain("struct S0 { a: f32 }", lambda i: f"struct S{i} {{ a: S{i - 1} }}"))
    assert [item.code for item in result.errors] == ["E2190"]


def test_types_that_double(tmp_path: Path) -> None:
    doubling = "struct D0<N: Dim> { a: Tensor[N; f32] }\n" + "\n".join(
        f"struct D{i}<N: Dim> {{ a: D{i - 1}<N>  b: D{i - 1}<N> }}" for i in range(1, 60)
    )
    assert [item.code for item in check(tmp_path, doubling).errors] == ["E2190"]
    aliases = "type A0 = (f32, f32)\n" + "\n".join(f"type A{i} = (A{i - 1}, A{i - 1})" for i in range(1, 60))
    assert [item.code for item in check(tmp_path, aliases).errors] == ["E2190"]
    lets = "\n".join(f"    let t{i} = (t{i - 1}, t{i - 1})" for i in range(1, 60))
    body = f"fn f(t0: f32) -> f32 {{\n{lets}\n    let (a, b) = t59\n    return t0\n}}\n"
    assert [item.code for item in check(tmp_path, body).errors] == ["E2190"]


def test_a_cycle_of_any_length_is_found(tmp_path: Path) -> None:
    cyclic = CHAINS["functions"].replace("    return x\n", f"    return f{LONG}(x)\n", 1)
    (error,) = check(tmp_path, cyclic).errors
    assert error.code == "E2119"
    blocks = CHAINS["blocks"].replace("    param w: f32\n", f"    param w: f32\n    sub b: B{LONG}\n", 1)
    assert "E2122" in [item.code for item in check(tmp_path, blocks).errors]


MANY = """pub block Many<N: Dim> {
    sub layers: [Leaf; N]

    pub entry run(x: f32) -> f32 {
        var y = x
        static for layer in layers {
            y = y + layer.f()
        }
        return y
    }

    pub entry count<Steps: Dim>(x: f32) -> f32 {
        var y = x
        static for i in 0..Steps {
            y = y + cast<f32>(i)
        }
        return y
    }
}

block Leaf {
    param w: f32

    pub fn f() -> f32 {
        return w
    }
}
"""


def test_a_count_of_layers_that_is_surely_mistyped(tmp_path: Path) -> None:
    program = check(tmp_path, MANY).program
    assert program is not None
    with pytest.raises(BindError, match="`Many` would hold 1,000,000,000,001 blocks"):
        bind(program, None, {"N": 10**12})
    with pytest.raises(LowerError, match="more than 65,536 turns of `static for`"):
        bind(program, None, {"N": 1}).lower("count", {"Steps": 10**9})


def test_ten_thousand_generics_and_as_many_clauses(tmp_path: Path) -> None:
    names = [f"N{i}" for i in range(10_000)]
    generics = ", ".join(f"{name}: Dim" for name in names)
    parameters = ", ".join(f"x{name}: Tensor[{name}; f32]" for name in names)
    clauses = ", ".join(f"{name} > 0" for name in names)
    text = f"fn f<{generics}>({parameters}) -> f32\nwhere {clauses} {{\n    return 1.0\n}}\n"
    assert check(tmp_path, text).diagnostics == []


@pytest.mark.parametrize("count", [MAX_SHOWN, MAX_SHOWN + 1, 2_000])
def test_the_first_hundred_errors_of_a_file_are_shown(tmp_path: Path, count: int) -> None:
    lets = "".join(f"    let width{i} = widht{i} + x\n" for i in range(count))
    result = check(tmp_path, f"fn f(x: f32) -> f32 {{\n{lets}    return x\n}}\n")
    assert [item.code for item in result.diagnostics] == ["E1201"] * MAX_SHOWN
    assert result.diagnostics[1].help == "did you mean `width0`?"
    more = () if count == MAX_SHOWN else ("there are more errors in this file; 100 are shown at a time",)
    assert tuple(note.message for note in result.diagnostics[-1].notes) == more


def test_the_first_hundred_warnings_of_a_file_are_shown(tmp_path: Path) -> None:
    lets = "".join(f"    let unused{i} = x\n" for i in range(200))
    result = check(tmp_path, f"fn f(x: f32) -> f32 {{\n{lets}    return x\n}}\n")
    assert result.ok
    assert [item.code for item in result.diagnostics] == ["W1002"] * MAX_SHOWN
    assert [note.message for note in result.diagnostics[-1].notes] == [
        "there are more warnings in this file; 100 are shown at a time"
    ]


def test_suggestions_end_where_scopes_of_thousands_have_made_them_dear(tmp_path: Path) -> None:
    lets = "".join(f"    let width{i} = x\n" for i in range(5_000))
    unknown = "".join(f"    let used{i} = widht{i}\n" for i in range(50))
    result = check(tmp_path, f"fn f(x: f32) -> f32 {{\n{lets}{unknown}    return x\n}}\n")
    assert len(result.errors) == 50
    assert str(result.errors[0].help).startswith("did you mean `width")
    assert result.errors[-1].help is None


def test_one_syntax_error_more_than_are_shown_ends_the_reading(tmp_path: Path) -> None:
    text = "fn fn\n" * 2_000
    assert len(check(tmp_path, text).errors) == MAX_SHOWN
    source = Source("long.linnet", "module long\n\n" + text)
    module, faults = parse_tokens(source, lex(source, Diagnostics()))
    assert len(faults) == MAX_SHOWN + 1
    assert module.items == ()
