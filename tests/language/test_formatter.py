"""The canonical style of each construct; what is written in it stays; and every source says the same after."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

import pytest
from fuzzing import fuzzed
from hypothesis import given
from hypothesis import strategies as st

from linnet.language.diagnostics import Diagnostics
from linnet.language.source import Source, read_source
from linnet.language.syntax import formatter
from linnet.language.syntax.compare import same_tree
from linnet.language.syntax.formatter import FormatError, format_source
from linnet.language.syntax.parser import parse
from linnet.language.syntax.tree import Module

ROOT = Path(__file__).resolve().parents[2]
SEED_DIFF = Path(__file__).parent / "formatter" / "seed.diff"
CANONICAL = [
    path.relative_to(ROOT).as_posix()
    for folder in ("linnet/std", "nests", "tests/corpus/good")
    for path in sorted((ROOT / folder).rglob("*.linnet"))
]
OTHERS = [
    path.relative_to(ROOT).as_posix()
    for folder in ("tests/corpus/bad", "tests/language")
    for path in sorted((ROOT / folder).rglob("*.linnet"))
]


def tree_of(text: str) -> Module:
    diagnostics = Diagnostics()
    module = parse(Source("test.linnet", text), diagnostics)
    assert not diagnostics.has_errors, [item.message for item in diagnostics.items]
    return module


def comments(module: Module) -> list[list[str]]:
    return [[line.strip() for line in comment.text.split("\n")] for comment in module.comments]


def formatted(text: str) -> str:
    """The text in canonical style; it says the same, and its style is canonical."""
    diagnostics = Diagnostics()
    result = format_source(Source("test.linnet", text), diagnostics)
    assert result is not None, [item.message for item in diagnostics.items]
    before, after = tree_of(text), tree_of(result)
    assert same_tree(before, after), "another tree"
    assert comments(before) == comments(after), "other comments"
    assert format_source(Source("test.linnet", result), diagnostics) == result, "not canonical yet"
    assert not any(line != line.rstrip() for line in result.split("\n")), "spaces at the end of a line"
    return result


@pytest.mark.parametrize("path", CANONICAL)
def test_what_ships_is_in_canonical_style(path: str) -> None:
    text = (ROOT / path).read_bytes().decode()
    assert formatted(text) == text


@pytest.mark.parametrize("path", OTHERS)
def test_other_sources_say_the_same_or_are_left_alone(path: str) -> None:
    source = read_source(ROOT / path, path)
    diagnostics = Diagnostics()
    if format_source(source, diagnostics) is None:
        assert diagnostics.has_errors
    else:
        formatted(source.text)


def test_the_seed_changes_only_where_the_golden_diff_says(seed: Path) -> None:
    lines: list[str] = []
    for path in sorted(seed.rglob("*.linnet")):
        name = path.relative_to(seed).as_posix()
        text = path.read_bytes().decode()
        lines += difflib.unified_diff(text.splitlines(True), formatted(text).splitlines(True), name, name, n=0)
    golden = SEED_DIFF.read_text().splitlines(True)
    assert [line for line in golden if not line.startswith("#")] == lines


STYLES = {
    "spaces": (
        "module   a . b\nuse c . d as e\nuse f::{ g  as h , i }\nconst   N=0xff\npub const X :f32= - 1.5e3",
        "module a.b\nuse c.d as e\nuse f::{g as h, i}\nconst N = 0xff\npub const X: f32 = -1.5e3\n",
    ),
    "types": (
        "module a\ntype A<*S:Shape,H:Dim=4>=Tensor[* S,H*2;f32]?\ntype B=(f32,[L<A,[B,2]>;N])\ntype C = Tensor[;f32]",
        "module a\ntype A<*S: Shape, H: Dim = 4> = Tensor[*S, H * 2; f32]?\n"
        "type B = (f32, [L<A, [B, 2]>; N])\ntype C = Tensor[; f32]\n",
    ),
    "structs and enums take a line for each of their parts": (
        "module a\nstruct S{mean:f32,scale:f32}\nenum E{A,B}\nenum None{}",
        "module a\nstruct S {\n    mean: f32\n    scale: f32\n}\nenum E {\n    A,\n    B,\n}\nenum None {}\n",
    ),
    "one clause stands after where, more stand on lines of their own": (
        "module a\nfn f<N:Dim>()->f32 where N>0,{return 1.0}\nfn g<N:Dim>()->f32 where N>0,N%2==0,{return 1.0}",
        "module a\nfn f<N: Dim>() -> f32\nwhere N > 0 {\n    return 1.0\n}\n"
        "fn g<N: Dim>() -> f32\nwhere\n    N > 0,\n    N % 2 == 0\n{\n    return 1.0\n}\n",
    ),
    "clauses for a backend stand on lines of their own": (
        "module a\nop f(x:f32)->f32 kernel k.f<f32>{return x}grad(y,dy){return dy}kernel other",
        "module a\nop f(x: f32) -> f32\nkernel k.f<f32>\n{\n    return x\n}\n"
        "grad(y, dy) {\n    return dy\n}\nkernel other\n",
    ),
    "empty bodies": ("module a\nblock B { }\nfn f() -> f32 {\n}", "module a\nblock B {}\nfn f() -> f32 {}\n"),
    "a doubled parenthesis is one, and a tuple's comma stays": (
        "module a\nfn f() -> (f32,) {\n    return (((a + ((b))),))\n}",
        "module a\nfn f() -> (f32,) {\n    return ((a + (b)),)\n}\n",
    ),
    "a list with a comma at its end stays broken": (
        "module a\nconst X = f(a, g<N,>(b))\nuse m::{x,}",
        "module a\nconst X = f(\n    a,\n    g<\n        N,\n    >(\n        b,\n    ),\n)\nuse m::{\n    x,\n}\n",
    ),
    "empty lines": (
        "\n\nmodule a\n\n\n\nblock B {\n\n    param a: f32\n\n\n    param b: f32\n\n}\n\n\n",
        "module a\n\nblock B {\n    param a: f32\n\n    param b: f32\n}\n",
    ),
    "line ends and the byte order mark": (
        "\ufeffmodule a\r\n\r\n/* b\r\n   c */\r\nconst N = 1",
        "module a\n\n/* b\n   c */\nconst N = 1\n",
    ),
}


@pytest.mark.parametrize(("text", "expected"), STYLES.values(), ids=STYLES.keys())
def test_style(text: str, expected: str) -> None:
    assert formatted(text) == expected


BODIES = {
    "statements": (
        "var x:f32=1.0 x=-  -y let(a,b)=f (x) let y[* s,i]=x[*s,i]",
        "var x: f32 = 1.0\nx = --y\nlet (a, b) = f(x)\nlet y[*s, i] = x[*s, i]",
    ),
    "loops": (
        "static for l in layers{x=l.f(x)}static for i in 0..N-1{}while a&&b<c{x=y}let h=for t in 0..T{yield x}",
        "static for l in layers {\n    x = l.f(x)\n}\nstatic for i in 0..N - 1 {}\n"
        "while a && b < c {\n    x = y\n}\nlet h = for t in 0..T {\n    yield x\n}",
    ),
    "slices": (
        "let a=x[ : ,1 : 3,0:: 2, : : 2,...,P : P+B]",
        "let a = x[:, 1:3, 0::2, ::2, ..., P:P + B]",
    ),
    "reductions": ("let a=sum <f32>[ i,*s ]x[i,*s]*y[i]", "let a = sum<f32>[i, *s] x[i, *s] * y[i]"),
    "an if on one line, a match never": (
        "let a=if c{x}else if d{y}else{z}let b=match m{some(v)=>v none=>x}",
        "let a = if c { x } else if d { y } else { z }\nlet b = match m {\n    some(v) => v\n    none => x\n}",
    ),
    "long arguments stand on a line each": (
        f"let a = f<N>({'a' * 50}, {'b' * 40}, axis = 1)",
        f"let a = f<N>(\n    {'a' * 50},\n    {'b' * 40},\n    axis = 1,\n)",
    ),
    "long generic arguments break the arguments too": (
        f"let a = f<{'A' * 50}, {'B' * 50}>(x)",
        f"let a = f<\n    {'A' * 50},\n    {'B' * 50},\n>(\n    x,\n)",
    ),
    "a sum goes to a line of its own, then breaks": (
        f"let a = {'a' * 50} + {'b' * 36}\nlet a = {'a' * 60} + {'b' * 30} * {'c' * 10} - d\n"
        f"return {'a' * 60} + {'b' * 40}",
        f"let a =\n    {'a' * 50} + {'b' * 36}\n"
        f"let a =\n    {'a' * 60} +\n    {'b' * 30} * {'c' * 10} -\n    d\n"
        f"return {'a' * 60} +\n    {'b' * 40}",
    ),
    "a reduction goes to a line of its own, or its body does": (
        f"let a[i] = sum[k] {'a' * 75}[i, k]\nlet a[i] = sum[k] {'a' * 81}[i, k]",
        f"let a[i] =\n    sum[k] {'a' * 75}[i, k]\nlet a[i] = sum[k]\n    {'a' * 81}[i, k]",
    ),
    "a long if takes a line for each branch": (
        f"let a = if {'c' * 40} {{ {'a' * 40} }} else {{ b }}",
        f"let a = if {'c' * 40} {{\n    {'a' * 40}\n}} else {{\n    b\n}}",
    ),
    "a long optional has no comma": (
        f"let a = some({'a' * 86} + b)",
        f"let a = some(\n    {'a' * 86} + b\n)",
    ),
}


def in_body(text: str) -> str:
    """The formatted statements of a function, moved to the margin: they are laid out in 96 columns."""
    head, tail = "module a\nfn f() -> f32 {\n", "}\n"
    result = formatted(f"{head}{text}{tail}")
    assert result.startswith(head)
    assert result.endswith(tail)
    lines = result.removeprefix(head).removesuffix(tail).split("\n")
    return "\n".join(line.removeprefix("    ") for line in lines).removesuffix("\n")


@pytest.mark.parametrize(("text", "expected"), BODIES.values(), ids=BODIES.keys())
def test_style_of_statements(text: str, expected: str) -> None:
    assert in_body(text) == expected


def test_signatures_break_from_the_parameters_on() -> None:
    parameters = "x: Tensor[A, B; f32], y: Tensor[A, B; f32]"
    text = f"module a\nfn f<A: Dim, B: Dim>({parameters}) -> Tensor[A, B; f32] {{ return x }}"
    assert formatted(text).split("\n")[1] == f"fn f<A: Dim, B: Dim>({parameters}) -> Tensor[A, B; f32] {{"
    assert formatted(text.replace("fn f<", "fn very_long_function<")).split("\n")[1:5] == [
        "fn very_long_function<A: Dim, B: Dim>(",
        "    x: Tensor[A, B; f32],",
        "    y: Tensor[A, B; f32],",
        ") -> Tensor[A, B; f32] {",
    ]
    many = ", ".join(f"Generic{i}: Dim" for i in range(7))
    assert formatted(f"module a\nfn f<{many}>(x: f32) -> f32 {{ return x }}").split("\n")[1:12] == [
        "fn f<",
        *(f"    Generic{i}: Dim," for i in range(7)),
        ">(",
        "    x: f32,",
        ") -> f32 {",
    ]
    dims = ", ".join("Dimension" * 2 + str(i) for i in range(5))
    assert formatted(f"module a\nfn f() -> Tensor[{dims}; f32] {{ return x }}").split("\n")[1:9] == [
        "fn f() -> Tensor[",
        *(f"    {dim}," for dim in dims.split(", ")[:-1]),
        f"    {dims.split(', ')[-1]};",
        "    f32",
        "] {",
    ]


COMMENTED = {
    "before, beside and after": (
        "// header\n\nmodule a // a\n\n// above\n// it\nconst N = 1 // one\n\n/* last */",
        "// header\n\nmodule a // a\n\n// above\n// it\nconst N = 1 // one\n\n/* last */\n",
    ),
    "in a body": (
        "module a\nfn f() -> f32 { // open\n\n// first\n\nlet a = 1 // one\n\n// last\n\n}// after",
        "module a\nfn f() -> f32 { // open\n    // first\n\n    let a = 1 // one\n\n    // last\n} // after\n",
    ),
    "in lists": (
        "module a\nconst N = f( // open\na, // one\n// two\nb // b\n, c /* c */, /* d */ d\n// end\n)",
        "module a\nconst N = f( // open\n    a, // one\n    // two\n    b, // b\n    c, /* c */\n    /* d */ d,\n"
        "    // end\n)\n",
    ),
    "within a line": (
        "module a\nconst N = f(/* axis */1, x /* it */)",
        "module a\nconst N = f(/* axis */ 1, x /* it */)\n",
    ),
    "in a sum": (
        "module a\nconst N = a // why\n+ b // and\n/ c",
        "module a\nconst N =\n    a + // why\n    b / // and\n        c\n",
    ),
    "in where": (
        "module a\nfn f() -> f32 // it\nwhere // all\nA > 0, // a\n// and\nB > 0 // b\n{ return 1.0 }",
        "module a\nfn f() -> f32 // it\nwhere // all\n    A > 0, // a\n    // and\n    B > 0 // b\n"
        "{\n    return 1.0\n}\n",
    ),
    "between fields": (
        "module a\nstruct S { a: f32 // a\n, /* b */ b: f32\n// end\n}",
        "module a\nstruct S {\n    a: f32 // a\n    /* b */\n    b: f32\n    // end\n}\n",
    ),
    "lines of a block comment move together": (
        "module a\nfn f() -> f32 {\n  /* one\n   * two\n   */\n  return 1.0\n}",
        "module a\nfn f() -> f32 {\n    /* one\n     * two\n     */\n    return 1.0\n}\n",
    ),
    "where nothing breaks": (
        "module a\nfn // f\nf /* g */ () -> f32 { return // r\n1.0 }",
        "module a\nfn // f\nf /* g */() -> f32 {\n    return // r\n    1.0\n}\n",
    ),
}


@pytest.mark.parametrize(("text", "expected"), COMMENTED.values(), ids=COMMENTED.keys())
def test_comments(text: str, expected: str) -> None:
    assert formatted(text) == expected


def test_documentation_stays_documentation() -> None:
    text = (
        "module a\n/// doc of a\nconst A = 1 // not of b\nconst B = 2 /** nor of c */ const C = 3\n// of d\nconst D = 4"
    )
    docs = [item.doc for item in tree_of(formatted(text)).items]
    assert docs == ["doc of a", None, None, "of d"]


def test_an_empty_line_keeps_a_comment_from_documenting() -> None:
    text = "module a\n// one\n  /* two */  // three\n \nconst A = 1\n"
    assert formatted(text) == "module a\n// one\n/* two */ // three\n\nconst A = 1\n"


def test_syntax_errors_leave_a_source_alone() -> None:
    diagnostics = Diagnostics()
    assert format_source(Source("test.linnet", "module a\nfn f( {"), diagnostics) is None
    assert [item.code for item in diagnostics.items] == ["E1101"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text.replace("1", "2"),
        lambda text: text.replace("// c", "// d"),
        lambda text: text.replace("// doc\n", "// doc\n\n"),
        lambda text: text.replace("const", "cons"),
    ],
    ids=["value", "comment", "documentation", "syntax"],
)
def test_a_result_that_says_something_else_is_refused(monkeypatch: pytest.MonkeyPatch, damage) -> None:
    real = formatter.layout
    monkeypatch.setattr(formatter, "layout", lambda doc: damage(real(doc)))
    with pytest.raises(FormatError, match=r"^formatting x\.linnet would change what it says"):
        format_source(Source("x.linnet", "module a\n// doc\nconst N  = 1 // c\n"), Diagnostics())


DEEP = {
    "parentheses": "const N = " + "(" * 60 + "x" + " + y)" * 60,
    "calls": "const N = " + "f<A>(x, " * 60 + "x" + ")" * 60,
    "lists": "const N = " + "[" * 60 + "]" * 60,
    "indices": "const N = " + "x[" * 60 + "0" + "]" * 60,
    "operators": "const N = " + "x + " * 125 + "x",
    "every precedence": "const N = " + "(a || b && c == d < e | f ^ g & h + i * " * 12 + "x" + ")" * 12,
    "operators and parentheses": "const N = " + "a + b * (" * 60 + "x" + ")" * 60,
    "operators and calls": "const N = " + "a + b * f(" * 40 + "x" + ")" * 40,
    "signs": "const N = " + "-" * 125 + "x",
    "members": "const N = x" + ".y" * 125,
    "ifs": "const N = " + "if a { b } else " * 60 + "{ c }",
    "nested ifs": "const N = " + "if a { " * 30 + "b" + " } else { c }" * 30,
    "matches": "const N = " + "match a { none => " * 60 + "b" + " }" * 60,
    "reductions": "const N = " + "sum[i] " * 60 + "x",
    "loops": "fn f() -> f32 { " + "while a { " * 60 + "}" * 60 + "}",
    "types": "type T = " + "(" * 60 + "f32" + ",)" * 60,
    "generics": "type T = " + "A<min(" * 1 + "[" * 20 + "]" * 20 + ")>",
}


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP.keys())
def test_deep_nesting(text: str) -> None:
    formatted(f"module a\n{text}\n")


def test_a_long_source() -> None:
    items = "\n\n".join(f"/// doc {i}\nconst N{i} = f(a, b) + {i} // c" for i in range(2000))
    text = f"module a\n\n{items}\n"
    assert formatted(text) == text


# Programs of every construct, spelled with arbitrary white space and comments


def separated(*choices: str) -> st.SearchStrategy[str]:
    return st.sampled_from(choices)


NAMES = separated("x", "y", "long_name_of_a_value", "Heads", "W" * 45)
LITERALS = separated("1", "0xff", "1_000", "2.5", "1e-5", "true", "false", "none", '"text // no comment"', '"\\""')
GAPS = st.one_of(
    st.just(" "),
    separated("\n ", "\n\n\n  ", "\r\n ", "\t", "\n        "),
    separated("// line\n ", "/* block */", "/* more\n     * lines */", "/// doc\n ", "/** doc */ ", "//\n\n "),
    separated("\n // own line\n ", "\n /* own */\n ", "\n\n // apart\n\n "),
)


def comma_list(item: st.SearchStrategy[list[str]], least: int = 0, most: int = 3) -> st.SearchStrategy[list[str]]:
    """Items with commas between them, and perhaps one at the end."""

    def joined(parts: list[list[str]], comma: bool) -> list[str]:
        words: list[str] = []
        for index, part in enumerate(parts):
            words += [*([","] if index else []), *part]
        return [*words, ","] if comma and parts else words

    return st.builds(joined, st.lists(item, min_size=least, max_size=most), st.booleans())


def words(*parts: str | st.SearchStrategy[list[str]] | st.SearchStrategy[str]) -> st.SearchStrategy[list[str]]:
    """The tokens of the parts in a row."""

    def joined(*found: str | list[str]) -> list[str]:
        return [word for part in found for word in ([part] if isinstance(part, str) else part)]

    return st.builds(joined, *(st.just(part) if isinstance(part, str) else part for part in parts))


def several(item: st.SearchStrategy[list[str]]) -> st.SearchStrategy[list[str]]:
    """Up to three in a row."""
    return st.lists(item, max_size=3).map(lambda parts: [word for part in parts for word in part])


def extended(inner: st.SearchStrategy[list[str]]) -> st.SearchStrategy[list[str]]:
    operator = separated(*"|| && == != < <= > >= | ^ & + - * / %".split())
    axis = inner | words("*", NAMES)
    index = NAMES.map(lambda name: [name]) | words("*", NAMES)
    grouped = words("(", inner, ")")
    argument = inner | words(NAMES, "=", inner)
    part = st.one_of(st.just([]), inner)
    position = st.one_of(axis, words(part, ":", part), words(part, ":", part, ":", inner), st.just(["..."]))
    callee = words(NAMES) | words(NAMES, ".", NAMES)
    generic = st.one_of(words(NAMES), words(NAMES, "/", "2"), words("[", comma_list(index), "]"))
    return st.one_of(
        grouped,
        words(grouped, operator, inner),
        words(NAMES, operator, inner),
        words(separated("-", "!", "+"), grouped),
        words(callee, "(", comma_list(inner), ")"),
        words(callee, "<", comma_list(generic, 1), ">", "(", comma_list(inner), ")"),
        words(callee, "(", NAMES, "=", inner, ")"),
        words(grouped, "[", comma_list(position, 1), "]"),
        words(grouped, ".", NAMES),
        words("some", "(", inner, ")"),
        words("(", inner, ",", ")"),
        words("(", inner, ",", inner, ")"),
        words("[", comma_list(axis), "]"),
        words(separated("sum", "max"), st.sampled_from(([], ["<", "f32", ">"])), "[", comma_list(index, 1), "]", inner),
        words("if", NAMES, "{", inner, "}", "else", "{", inner, "}"),
        words("if", NAMES, "{", inner, "}", "else", "if", grouped, "{", inner, "}", "else", "{", inner, "}"),
        words("match", NAMES, "{", "some", "(", NAMES, ")", "=>", inner, "none", "=>", inner, "}"),
        words(NAMES, "(", comma_list(argument, 1, 1), ")"),
    )


EXPRESSIONS = st.recursive(words(NAMES | LITERALS), extended, max_leaves=8)
DIMENSIONS = words(NAMES) | words(NAMES, separated("+", "*", "/"), NAMES) | words("*", NAMES)
TYPES = st.recursive(
    words(NAMES) | words("Tensor", "[", comma_list(DIMENSIONS), ";", "f32", "]"),
    lambda inner: st.one_of(
        words("(", inner, ")", "?"),
        words("(", comma_list(inner, 1), ")"),
        words("[", inner, ";", NAMES, "]"),
        words("A", "<", comma_list(words(NAMES), 1), ">"),
    ),
    max_leaves=4,
)
INDICES = words("[", comma_list(words(NAMES) | words("*", NAMES), 1), "]")


def blocks(inner: st.SearchStrategy[list[str]]) -> st.SearchStrategy[list[str]]:
    body = words("{", several(inner), "}")
    return st.one_of(
        words("static", "for", NAMES, "in", NAMES, body),
        words("for", NAMES, "in", "0", "..", NAMES, body),
        words("let", NAMES, "=", "for", NAMES, "in", "0", "..", "4", body),
        words("while", NAMES, body),
    )


STATEMENTS = st.recursive(
    st.one_of(
        words("let", NAMES, "=", EXPRESSIONS),
        words("var", NAMES, ":", TYPES, "=", EXPRESSIONS),
        words("let", "(", comma_list(words(NAMES), 1), ")", "=", EXPRESSIONS),
        words("let", NAMES, INDICES, "=", EXPRESSIONS),
        words("return", EXPRESSIONS),
        words("yield", EXPRESSIONS),
    ),
    blocks,
    max_leaves=3,
)
BODY = words("{", several(STATEMENTS), "}")
GENERIC = st.one_of(words(NAMES, ":", "Dim"), words("*", NAMES, ":", "Shape"), words(NAMES, ":", "Float", "=", "f32"))
GENERICS = st.just([]) | words("<", comma_list(GENERIC, 1), ">")
WHERE = st.just([]) | words("where", comma_list(words(NAMES, ">", "0"), 1))
PARAMETERS = words(
    "(", comma_list(words(NAMES, ":", TYPES) | words(NAMES, ":", "f32", "=", EXPRESSIONS), 0), ")", "->", TYPES
)
CLAUSES = st.sampled_from(([], ["kernel", "k"])) | words("grad", "(", "y", ",", "dy", ")", BODY)
FUNCTION = words(NAMES, GENERICS, PARAMETERS, WHERE, CLAUSES, BODY, CLAUSES)
MEMBER = st.one_of(
    words(separated("param", "sub", "state"), NAMES, ":", TYPES),
    words("param", NAMES, ":", TYPES, "=", "none"),
    words("pub", "entry", FUNCTION),
)
ITEMS = st.one_of(
    words("use", NAMES, ".", NAMES),
    words("use", NAMES, "::", "{", comma_list(words(NAMES) | words(NAMES, "as", NAMES)), "}"),
    words("const", NAMES, "=", EXPRESSIONS),
    words("pub", "type", NAMES, GENERICS, "=", TYPES),
    words(
        "struct",
        NAMES,
        GENERICS,
        "{",
        several(words(NAMES, ":", TYPES, separated(",", "\n "))),
        "}",
    ),
    words("enum", NAMES, "{", comma_list(words(NAMES)), "}"),
    words(separated("fn", "op"), FUNCTION),
    words("block", NAMES, GENERICS, WHERE, "{", several(MEMBER), "}"),
)


@st.composite
def programs(draw: st.DrawFn) -> list[str]:
    """The words of a program without syntax errors, each followed by what separates it from the next."""
    pieces = [draw(separated("", "// header\n", "/* header */ ", "\n\n")), "module a"]
    for item in draw(st.lists(ITEMS, min_size=1, max_size=3)):
        pieces.append(
            draw(separated("\n", "\n\n\n", " // beside\n", "\n/// doc\n", "\n// doc\n\n// doc\n", "/* beside */\n"))
        )
        for word in item:
            # A slash would make a comment of the one that follows it.
            pieces += [word + " " * (word == "/"), draw(GAPS)]
    return pieces


@given(programs())
@fuzzed(150)
def test_generated_programs_say_the_same(pieces: list[str]) -> None:
    formatted("".join(pieces))


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """An item of a source that ships, with something put between its words, or with a piece of it taken out."""
    text = (ROOT / draw(st.sampled_from(CANONICAL))).read_bytes().decode()
    item = draw(st.sampled_from(re.split(r"\n\n(?=\S)", text)[1:]))
    gaps = [match.start() for match in re.finditer(r"\s", item)]
    for _ in range(draw(st.integers(0, 4)) if gaps else 0):
        at = draw(st.sampled_from(gaps))
        piece = draw(separated(" // x\n ", " /* x */ ", "\n\n ", "\n // y\n\n ", "\r\n ", ",", " (", ") "))
        item = item[:at] + piece + item[at:]
    if draw(st.integers(0, 3)) == 0:
        start, end = sorted(draw(st.integers(0, len(item))) for _ in range(2))
        item = item[:start] + item[end:]
    return f"module a\n\n{item}"


@given(damaged())
@fuzzed(100)
def test_damaged_sources_say_the_same_or_are_left_alone(text: str) -> None:
    diagnostics = Diagnostics()
    if format_source(Source("test.linnet", text), diagnostics) is None:
        assert diagnostics.has_errors
    else:
        formatted(text)
