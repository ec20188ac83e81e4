"""Text to tree: what each construct becomes, where its span lies, and how the parser goes on after a fault."""

from __future__ import annotations

import dataclasses
from importlib.resources import files
from pathlib import Path

import pytest
from fuzzing import fuzzed
from hypothesis import given
from hypothesis import strategies as st

from linnet.language.diagnostics import Diagnostic, Diagnostics
from linnet.language.source import Source
from linnet.language.syntax import tree
from linnet.language.syntax.lexer import KEYWORDS, PUNCTUATION, RESERVED, lex
from linnet.language.syntax.parser import parse

STD = Path(str(files("linnet"))) / "std"


def read(text: str) -> tuple[tree.Module, list[Diagnostic]]:
    diagnostics = Diagnostics()
    return parse(Source("test.linnet", text), diagnostics), diagnostics.items


def good(text: str) -> tree.Module:
    """The module of items without fault."""
    module, reported = read(f"module test\n{text}\n")
    assert [(item.message, item.span.location()) for item in reported] == []
    return module


def faults(text: str) -> list[str]:
    """`line: message` of what is reported."""
    return [f"{item.span.source.position(item.span.start)[0]}: {item.message}" for item in read(text)[1]]


def show(value: object) -> str:
    """A tree in short: names as they are, other nodes as `(Class field ..)` without spans and absent parts."""
    if isinstance(value, tree.Name):
        return value.text
    if isinstance(value, tree.NameExpr):
        return value.name
    if isinstance(value, tree.IntLiteral | tree.FloatLiteral | tree.BoolLiteral):
        return repr(value.value)
    if isinstance(value, tree.BinaryExpr):
        return f"({value.op} {show(value.left)} {show(value.right)})"
    if isinstance(value, tree.UnaryExpr):
        return f"({value.op} {show(value.operand)})"
    if isinstance(value, tree.NamedType):
        path = ".".join(name.text for name in value.path)
        return path if value.args is None else f"{path}{show(value.args)}"
    if isinstance(value, tuple):
        return f"[{' '.join(show(item) for item in value)}]"
    if isinstance(value, tree.Node):
        parts = [type(value).__name__]
        for field in dataclasses.fields(value):
            part = getattr(value, field.name)
            absent = part is None or (field.name == "clauses" and not part)
            if not absent and field.name not in ("span", "doc", "op_span", "signature", "source"):
                parts.append(show(part))
        return f"({' '.join(parts)})"
    return repr(value)


def statements(text: str) -> tuple[tree.Stmt, ...]:
    module = good(f"fn f() -> f32 {{\n{text}\n}}")
    (item,) = module.items
    assert isinstance(item, tree.FunctionItem)
    return item.body


def statement(text: str) -> str:
    (found,) = statements(text)
    return show(found)


def expression(text: str) -> str:
    (found,) = statements(f"return {text}")
    assert isinstance(found, tree.ReturnStmt)
    return show(found.value)


def type_of(text: str) -> str:
    module = good(f"type X = {text}")
    (item,) = module.items
    assert isinstance(item, tree.AliasItem)
    return show(item.type)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a + b * c", "(+ a (* b c))"),
        ("a * b + c", "(+ (* a b) c)"),
        ("a - b - c", "(- (- a b) c)"),
        ("a / b % c", "(% (/ a b) c)"),
        ("(a + b) * c", "(* (+ a b) c)"),
        ("-a * b", "(* (- a) b)"),
        ("- -+!a", "(- (- (+ (! a))))"),
        ("a || b && c == d < e | f ^ g & h + i * j", "(|| a (&& b (== c (< d (| e (^ f (& g (+ h (* i j)))))))))"),
        ("a * b + c & d ^ e | f < g == h && i || j", "(|| (&& (== (< (| (^ (& (+ (* a b) c) d) e) f) g) h) i) j)"),
        ("a != b == c", "(== (!= a b) c)"),
        ("a <= b", "(<= a b)"),
        ("-x.y[0]", "(- (IndexExpr (MemberExpr x y) [0]))"),
        ("none", "(NoneLiteral)"),
        ("some(a)", "(SomeExpr a)"),
        ('"s"', "(StringLiteral 's')"),
        ("true", "True"),
        ("(a, b)", "(TupleExpr [a b])"),
        ("(a,)", "(TupleExpr [a])"),
        ("[a, *S, 2,]", "(ListExpr [a (PackAxis S) 2])"),
        ("[]", "(ListExpr [])"),
        ("if c { a } else { b }", "(IfExpr c a b)"),
        ("if c { a } else if d { b } else { e }", "(IfExpr c a (IfExpr d b e))"),
        (
            "match v { some(x) => x  none => y }",
            "(MatchExpr v [(MatchArm (Pattern 'some' x) x) (MatchArm (Pattern 'none') y)])",
        ),
        (
            "match e { Mean => a  ClassToken => b + 1 }",
            "(MatchExpr e [(MatchArm (Pattern 'variant' Mean) a) (MatchArm (Pattern 'variant' ClassToken) (+ b 1))])",
        ),
        ("random.normal<N, f32>(k)", "(CallExpr (MemberExpr random normal) [N f32] [k] [])"),
    ],
)
def test_expressions(text: str, shown: str) -> None:
    assert expression(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("f()", "(CallExpr f [] [])"),
        ("f(a, b,)", "(CallExpr f [a b] [])"),
        ("f(a, axis = -1)", "(CallExpr f [a] [(NamedArg axis (- 1))])"),
        ("f(a == b)", "(CallExpr f [(== a b)] [])"),
        ("f<A, B>(x)", "(CallExpr f [A B] [x] [])"),
        ("f<A / 2 * B, [C, *S], f32,>(x)", "(CallExpr f [(* (/ A 2) B) (ShapeArg [C (PackAxis S)]) f32] [x] [])"),
        ("f<\n1,\nmin(A, B)\n>(x)", "(CallExpr f [1 (CallExpr min [A B] [])] [x] [])"),
        (
            "f<m.N>(x)(y)[0].z",
            "(MemberExpr (IndexExpr (CallExpr (CallExpr f [(MemberExpr m N)] [x] []) [y] []) [0]) z)",
        ),
        ("f(g<A>(x), y)", "(CallExpr f [(CallExpr g [A] [x] []) y] [])"),
        ("a < b", "(< a b)"),
        ("running && count < MaxNew", "(&& running (< count MaxNew))"),
        ("a < b > c", "(> (< a b) c)"),
        ("a < (b) + c", "(< a (+ b c))"),
        ("a < b && c > (d)", "(&& (< a b) (> c d))"),
        ("f(a < b, c)", "(CallExpr f [(< a b) c] [])"),
        # The rule of the reference: it reads as generic arguments, closes, and `(` follows.
        ("f(a < b, c > (d))", "(CallExpr f [(CallExpr a [b c] [d] [])] [])"),
        ("a < b >= c", "(>= (< a b) c)"),
    ],
)
def test_calls_and_comparisons(text: str, shown: str) -> None:
    assert expression(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x[0]", "[0]"),
        ("x[:, 1:3]", "[(SliceItem) (SliceItem 1 3)]"),
        ("x[..., 0::2]", "[(EllipsisItem) (SliceItem 0 2)]"),
        ("x[::2]", "[(SliceItem 2)]"),
        ("x[1:n:2]", "[(SliceItem 1 n 2)]"),
        ("x[:, S - 1, :,]", "[(SliceItem) (- S 1) (SliceItem)]"),
        ("x[0, P:P + Batch, :]", "[0 (SliceItem P (+ P Batch)) (SliceItem)]"),
        ("x[*s, i]", "[(PackAxis s) i]"),
        ("x[a * b]", "[(* a b)]"),
        ("x[y[i], j]", "[(IndexExpr y [i]) j]"),
    ],
)
def test_positions(text: str, shown: str) -> None:
    assert expression(text) == f"(IndexExpr x {shown})"


def test_slice_parts_are_told_apart() -> None:
    (found,) = statements("return x[0::2, :3, 4:]")
    assert isinstance(found, tree.ReturnStmt)
    assert isinstance(found.value, tree.IndexExpr)
    parts = [
        (show(p.start), show(p.stop), show(p.step)) for p in found.value.positions if isinstance(p, tree.SliceItem)
    ]
    assert parts == [("0", "None", "2"), ("None", "3", "None"), ("4", "None", "None")]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("sum[i] a[i] * b[i]", "(ReduceExpr sum [i] (* (IndexExpr a [i]) (IndexExpr b [i])))"),
        ("1 + sum[i, *s] a + b || c", "(+ 1 (ReduceExpr sum [i (PackAxis s)] (|| (+ a b) c)))"),
        ("sum<f32>[k] e", "(ReduceExpr sum f32 [k] e)"),
        ("sum<T>[k] e", "(ReduceExpr sum T [k] e)"),
        ("all[b] (next[b] == eos)", "(ReduceExpr all [b] (== (IndexExpr next [b]) eos))"),
        ("max[i] a", "(ReduceExpr max [i] a)"),
        ("max(a, b)", "(CallExpr max [a b] [])"),
        ("min<f32>(a, b)", "(CallExpr min [f32] [a b] [])"),
        ("prod[i] any[j] e", "(ReduceExpr prod [i] (ReduceExpr any [j] e))"),
        ("sum + all", "(+ sum all)"),
        ("sum(a)", "(CallExpr sum [a] [])"),
        ("sum < b", "(< sum b)"),
        ("m.sum[i]", "(IndexExpr (MemberExpr m sum) [i])"),
    ],
)
def test_reductions_are_contextual(text: str, shown: str) -> None:
    assert expression(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("let x = a", "(LetStmt [x] False False a)"),
        ("let x: f32 = a", "(LetStmt [x] False False f32 a)"),
        ("var x: i32 = 0", "(LetStmt [x] False True i32 0)"),
        ("let (a, b,) = f(x)", "(LetStmt [a b] True False (CallExpr f [x] []))"),
        ("let y[*s, i] = x[*s, i]", "(LetIndexStmt y [(PackAxis s) i] (IndexExpr x [(PackAxis s) i]))"),
        ("x = x + 1", "(AssignStmt x (+ x 1))"),
        ("return a", "(ReturnStmt a)"),
        (
            "static for l in layers { x = l.f(x) }",
            "(StaticForStmt l layers [(AssignStmt x (CallExpr (MemberExpr l f) [x] []))])",
        ),
        ("static for i in 0..Steps { }", "(StaticForStmt i 0 Steps [])"),
        ("while a && b < c { }", "(WhileStmt (&& a (< b c)) [])"),
        ("for i in a + 1..b { }", "(ForStmt i (+ a 1) b [])"),
        (
            "let hs = for t in 0..T { h = f(h)  yield h }",
            "(ForStmt hs t 0 T [(AssignStmt h (CallExpr f [h] [])) (YieldStmt h)])",
        ),
    ],
)
def test_statements(text: str, shown: str) -> None:
    assert statement(text) == shown


def test_statements_need_no_separator() -> None:
    assert [show(item) for item in statements("let a = x let b = -y a = z return (a)")] == [
        "(LetStmt [a] False False x)",
        "(LetStmt [b] False False (- y))",
        "(AssignStmt a z)",
        "(ReturnStmt a)",
    ]


def test_a_bracket_on_the_next_line_continues_the_expression() -> None:
    assert [show(item) for item in statements("let a = x\n(y)\nreturn a\n[0]")] == [
        "(LetStmt [a] False False (CallExpr x [y] []))",
        "(ReturnStmt (IndexExpr a [0]))",
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("f32", "f32"),
        ("T?", "(OptionalTypeNode T)"),
        ("Tensor[B, S + 1; bf16]?", "(OptionalTypeNode (TensorTypeNode [B (+ S 1)] bf16))"),
        ("Tensor[*S, H,; T]", "(TensorTypeNode [(PackAxis S) H] T)"),
        ("Tensor[; f32]", "(TensorTypeNode [] f32)"),
        ("(f32, Tensor[N; T])", "(TupleTypeNode [f32 (TensorTypeNode [N] T)])"),
        ("(f32)", "f32"),
        ("[Layer<H, T>; Layers * 2]", "(ArrayTypeNode Layer[H T] (* Layers 2))"),
        ("linear.Linear<Heads / Shards * D, 128, T>", "linear.Linear[(* (/ Heads Shards) D) 128 T]"),
        ("Tensor", "Tensor"),
    ],
)
def test_types(text: str, shown: str) -> None:
    assert type_of(text) == shown


ITEMS = """
use std.nn.linear::{Linear, linear as project,}
use std.random
use crate.a.b as c

const N = 16
pub const THETA: f32 = 1e6
pub type Hidden<B: Dim, H: Dim = 4,> = Tensor[B, H; bf16]
struct Moments<N: Dim> { mean: Tensor[N; f32]  scale: f32, }
enum Pooling { Mean, ClassToken, }
pub op f<*S: Shape, T: Float = bf16>(x: Tensor[*S; T], eps: f32 = 1e-5,) -> f32
where N > 0, N % 2 == 0,
kernel fast.f<T> { return eps }
grad(y, dy) { return dy }
kernel slow.f<T>
entry loss() -> f32 { return 0.0 }
pub block B<H: Dim> where H > 0 {
    param weight: Tensor[H; f32]
    param bias: Tensor[H; f32]? = none
    sub layers: [Layer<H>; 2]
    state cache: Tensor[H; f32]
    buffer table: Tensor[H; f32]
    pub entry forward(x: f32) -> f32 where H > 1 { return x }
    fn helper() -> f32 { return 1.0 }
}
"""


def test_items() -> None:
    module = good(ITEMS)
    assert [show(use) for use in module.uses] == [
        "(UseDecl [std nn linear] [(UseName Linear) (UseName linear project)])",
        "(UseDecl [std random])",
        "(UseDecl [crate a b] c)",
    ]
    assert [show(item) for item in module.items] == [
        "(ConstItem N False 16)",
        "(ConstItem THETA True f32 1000000.0)",
        "(AliasItem Hidden True [(Generic B False Dim) (Generic H False Dim 4)] (TensorTypeNode [B H] bf16))",
        "(StructItem Moments False [(Generic N False Dim)] [(Field mean (TensorTypeNode [N] f32)) (Field scale f32)])",
        "(EnumItem Pooling False [Mean ClassToken])",
        "(FunctionItem f True 'op' [(Generic S True Shape) (Generic T False Float bf16)]"
        " [(Parameter x (TensorTypeNode [(PackAxis S)] T)) (Parameter eps f32 1e-05)] f32"
        " [(> N 0) (== (% N 2) 0)] [(ReturnStmt eps)]"
        " [(KernelClause [fast f] [T]) (GradClause [y dy] [(ReturnStmt dy)]) (KernelClause [slow f] [T])])",
        "(FunctionItem loss False 'entry' [] [] f32 [] [(ReturnStmt 0.0)])",
        "(BlockItem B True [(Generic H False Dim)] [(> H 0)]"
        " [(Member weight 'param' (TensorTypeNode [H] f32))"
        " (Member bias 'param' (OptionalTypeNode (TensorTypeNode [H] f32)) (NoneLiteral))"
        " (Member layers 'sub' (ArrayTypeNode Layer[H] 2))"
        " (Member cache 'state' (TensorTypeNode [H] f32))"
        " (Member table 'buffer' (TensorTypeNode [H] f32))]"
        " [(FunctionItem forward True 'entry' [] [(Parameter x f32)] f32 [(> H 1)] [(ReturnStmt x)])"
        " (FunctionItem helper False 'fn' [] [] f32 [] [(ReturnStmt 1.0)])])",
    ]


def test_signatures_and_items_have_their_spans() -> None:
    module = good(ITEMS)
    spans = {item.name.text: item.span.text for item in module.items}
    assert spans["THETA"] == "pub const THETA: f32 = 1e6"
    assert spans["Pooling"] == "enum Pooling { Mean, ClassToken, }"
    assert spans["B"].startswith("pub block B<H: Dim>")
    assert spans["B"].endswith("return 1.0 }\n}")
    op = next(item for item in module.items if isinstance(item, tree.FunctionItem))
    assert op.signature.text == (
        "pub op f<*S: Shape, T: Float = bf16>(x: Tensor[*S; T], eps: f32 = 1e-5,) -> f32\nwhere N > 0, N % 2 == 0,"
    )


def test_a_list_of_generics_may_close_before_an_equals_sign() -> None:
    module = good("type A<B: Dim>= Tensor[B; f32]\nblock C { param b: A<4>= none }")
    assert [show(item) for item in module.items] == [
        "(AliasItem A False [(Generic B False Dim)] (TensorTypeNode [B] f32))",
        "(BlockItem C False [] [] [(Member b 'param' A[4] (NoneLiteral))] [])",
    ]


def test_reserved_words_name_modules() -> None:
    module = good("use std.random::{split}\nuse std.random\nfn f() -> f32 { return random.kernel(x) }")
    assert show(module.uses[1]) == "(UseDecl [std random])"
    (item,) = module.items
    assert "(MemberExpr random kernel)" in show(item)


def nodes(value: object) -> list[tree.Node]:
    """All nodes of a tree."""
    if isinstance(value, tuple):
        return [node for item in value for node in nodes(item)]
    if not isinstance(value, tree.Node):
        return []
    below = [node for field in dataclasses.fields(value) for node in nodes(getattr(value, field.name))]
    return [value, *below]


def children(node: tree.Node) -> list[tree.Node]:
    values = [getattr(node, field.name) for field in dataclasses.fields(node)]
    flat = [item for value in values for item in (value if isinstance(value, tuple) else (value,))]
    return [item for item in flat if isinstance(item, tree.Node)]


def test_spans_hold_their_children_and_begin_and_end_at_tokens(seed: Path) -> None:
    sources = [*STD.rglob("*.linnet"), *seed.rglob("*.linnet")]
    for path in sources:
        source = Source(path.name, path.read_text(encoding="utf-8"))
        diagnostics = Diagnostics()
        module = parse(source, diagnostics)
        assert diagnostics.items == []
        found = nodes(module)
        assert len(found) > 20
        for node in found:
            if isinstance(node, tree.Module):
                continue
            assert node.span.text == node.span.text.strip() != ""
            for child in children(node):
                assert node.span.start <= child.span.start
                assert child.span.end <= node.span.end


DOCUMENTED = """
// The module,
// in two lines.
module a

use std.random // trailing

/// A constant.
///   indented
// not this
const A = 1

// Not its documentation: a blank line follows.

const B = 2 // nor this
const C = 3

/** A block.
 * With a star. */
pub block D {
    // a weight
    param w: Tensor[2; f32] // trailing
    sub s: E
    //// rule
    // an entry
    pub entry f() -> f32 { return 1.0 }
}
"""


def test_documentation() -> None:
    module, reported = read(DOCUMENTED)
    assert reported == []
    assert module.doc == "The module,\nin two lines."
    docs = {item.name.text: item.doc for item in module.items}
    assert docs == {"A": "A constant.\n  indented", "B": None, "C": None, "D": "A block.\nWith a star."}
    block = module.items[-1]
    assert isinstance(block, tree.BlockItem)
    assert [(member.name.text, member.doc) for member in block.members] == [("w", "a weight"), ("s", None)]
    assert block.methods[0].doc == "rule\nan entry"
    assert len(module.comments) == 13


def test_the_seed_is_read(seed: Path) -> None:
    path = seed / "qwen3-8b-fp8" / "src" / "lib.linnet"
    module, reported = read(path.read_text(encoding="utf-8"))
    assert reported == []
    model = next(item for item in module.items if isinstance(item, tree.BlockItem) and item.name.text == "Model")
    entries = [method for method in model.methods if method.kind == "entry"]
    assert len(entries) == 17
    assert all(entry.doc for entry in entries)


# Faults


def test_later_faults_are_reported_too() -> None:
    text = """module a
fn f(x: f32) -> f32 {
    let = 3
    let z = (1 + 2
    let ok = 1
    return x +
}
block B<H: Dim {
    param weight: Tensor[H]
    sub a: Linear<3
    fn g(x f32) -> f32 {
        return foo(x, , 1)
    }
    param b f32
}
struct S { a f32 }
fn h() -> f32 { return 1.0 }
"""
    assert faults(text) == [
        "3: expected a name for a variable, found `=`",
        "4: expected `)` to close the parentheses, found the keyword `let`",
        "6: expected an expression, found `}`",
        "8: expected `,` or `>` in the generic arguments, found `{`",
        "9: expected `;` and an element type after the axes, found `]`",
        "10: expected `,` or `>` in the generic arguments, found the keyword `fn`",
        "11: expected `:` and the type of `x`, found the name `f32`",
        "12: expected an expression, found `,`",
        "14: expected `:` and the type of `b`, found the name `f32`",
        "16: expected `:` and the type of `a`, found the name `f32`",
    ]
    assert [item.name.text for item in read(text)[0].items] == ["f", "h"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Braces that are missing or one too many.
        (
            "fn f() -> f32 {\n    return x\n\npub fn g() -> f32 {\n    return y\n}",
            ["expected `}` to close the body of `f`"],
        ),
        (
            "fn f() -> f32 {\n    while c {\n    return x\n\nfn g() -> f32 { return y }",
            ["expected `}` to close the `while` loop"],
        ),
        (
            "block A {\n    fn f() -> f32 {\n        return x\n\n    fn g() -> f32 { return y }\n}",
            ["expected `}` to close the body of `f`"],
        ),
        ("block A {\n    param x: f32\n\nblock B {\n}", ["expected `}` to close the block `A`"]),
        ("fn f() -> f32 { return x", ["expected `}` to close the body of `f`, found the end of the file"]),
        ("fn f() -> f32 { return x } }\nfn g() -> f32 { return y }", ["expected an item, found `}`"]),
        # Faults inside brackets and braces of an expression.
        ("fn f() -> f32 { let c = match x { some(y) => 1, none => 2 }  return c }", ["expected the next arm or `}`"]),
        (
            "fn f() -> f32 {\n    let h = for i in 3 { yield i }\n    return h\n}",
            ["expected `..` and the end of the range"],
        ),
        (
            "fn f() -> f32 {\n    let a = g(1 2,\n        axis = 3)\n    return a\n}",
            ["expected `,` or `)` in the argument list"],
        ),
        # Habits from elsewhere.
        ("fn f() -> f32 { let a = 1; let b = 2; return a; }", ["a `;` stands between statements"]),
        ("fn f() -> f32 { x += 1  return x }", ["there is no `+=`"]),
        ("fn f() -> f32 { g(x)  return x }", ["an expression is not a statement"]),
        ("fn f() -> f32 { if c { 1 } else { 2 }  return x }", ["expected a statement or `}`, found the keyword `if`"]),
        (
            "fn f(self) -> f32 { return self.x }",
            ["a name for a parameter, found the keyword `self`", "an expression, found the keyword `self`"],
        ),
        ("fn f() -> f32 { return a::b }", ["expected a statement or `}`, found `::`"]),
        ("fn f() -> f32 { return x[0..3] }", ["expected `,`, `:` or `]` after the index, found `..`"]),
        ("use a.*", ["expected a name for a module, found `*`"]),
        ("use a::*", ["expected `{` after `::`, found `*`"]),
        ("pub use a.b", ["expected an item after `pub`, found the keyword `use`"]),
        ("enum E { A(f32) }", ["expected `,` or `}` after the variant"]),
        ("fn f(x: f32??) -> f32 { return x }", ["an optional cannot be made optional again"]),
        ("fn f() { return x }", ["expected `->` and the type that `f` returns"]),
        ("block B { op f() -> f32 { return x }\n    param y: f32 }", ["expected a member, found the keyword `op`"]),
        ("fn f() -> f32 { return f(a = 1, 2) }", ["a positional argument stands after a named one"]),
        # A reported character or string says nothing more of its neighbours.
        ("fn f() -> f32 { return a $ b }", ["unexpected character `$`"]),
        ('fn f() -> f32 {\n    let a = g("x)\n    return a\n}', ["this string is not closed on its line"]),
        ("fn f() -> f32 { # returns\n    return naïve\n}", ["unexpected character `#`", "cannot stand in a name"]),
        ("fn f() -> f32 { return x } /* end\nfn g( {", ["this block comment is never closed"]),
        ("fn f() -> f32 { /* return x }", ["this block comment is never closed"]),
    ],
)
def test_one_fault_is_reported_once(text: str, expected: list[str]) -> None:
    reported = faults(f"module a\n{text}\n")
    assert len(reported) == len(expected), reported
    for found, part in zip(reported, expected, strict=True):
        assert part in found


def codes(text: str) -> list[str]:
    return [item.code for item in read(text)[1]]


def test_words_that_are_no_names() -> None:
    text = "module a\nuse b::{c as mut}\nfn f(type: f32, ref: f32) -> f32 {\n    let kernel = 1\n    return kernel\n}"
    assert codes(text) == ["E1004"] * 4
    assert "`kernel` is reserved for a later version and cannot name a variable" in faults(text)[3]


def test_a_file_begins_with_its_module() -> None:
    assert codes("") == ["E1102"]
    assert codes("\ufeff") == ["E1102"]
    assert codes("// nothing") == ["E1102"]
    assert codes("fn f() -> f32 { return x }") == ["E1102"]
    assert codes("module a\nmodule b") == ["E1101"]


def test_refused_items_are_reported_once_and_skipped() -> None:
    text = """module a
op f() -> f32 { return x }
kernel f<T>(x: T) { whatever [ }
extern fn g(x: f32) -> f32
pub extern op h() { }
const A = 1
"""
    assert codes(text) == ["E1103", "E2190", "E2190"]
    assert [item.name.text for item in read(text)[0].items] == ["f", "A"]
    assert codes("module a\nuse super.b\nuse self.c") == ["E1103", "E1103"]


def test_assignments_to_what_is_no_variable() -> None:
    text = "module a\nfn f() -> f32 {\n    a.b = 1\n    x[0] = 2\n    return x\n}"
    assert codes(text) == ["E2108", "E2108"]


@pytest.mark.parametrize(
    "text",
    [
        "return " + "(" * 10_000,
        "return " + "(" * 10_000 + "x" + ")" * 10_000,
        "return " + "[" * 10_000,
        "return " + "f(" * 10_000,
        "return " + "-" * 10_000 + "x",
        "return " + "x[" * 10_000,
        "return " + "sum[i] " * 10_000 + "x",
        "return " + "if c { " * 10_000,
        "return " + "if c { 1 } else " * 10_000 + "{ 1 }",
        "return " + "match x { a => " * 10_000,
        "return " + "some(" * 10_000,
        "return " + "f<(" * 10_000,
        "return x" + " + x" * 10_000,
        "return x" + ".y" * 10_000,
        "return x" + "(y)" * 10_000,
        "return x" + " || (y + z)" * 10_000,
        "while c { " * 5_000,
        "static for i in 0..1 { " * 5_000,
        "let x: " + "(" * 10_000,
        "let x: " + "[" * 10_000,
        "let x: Tensor[" + "(" * 10_000,
        "return " + "a || b && c == d < e | f ^ g & h + i * (" * 200,
    ],
    ids=lambda text: text[:24],
)
def test_deep_nesting_is_one_report(text: str) -> None:
    _, reported = read(f"module a\nfn f() -> f32 {{\n{text}\n}}\n")
    assert [item.code for item in reported] == ["E1101"]
    assert "nested too deeply" in reported[0].message


def test_nesting_up_to_the_limit_is_read() -> None:
    assert expression("(" * 60 + "x" + ")" * 60) == "x"
    assert expression("x" + " + x" * 100).count("+") == 100


# Whatever the text


WORDS = [
    *sorted(KEYWORDS | RESERVED),
    *PUNCTUATION,
    *'x y sum Tensor Dim 0 1.5 "s" f32 grad'.split(),
    "// c\n",
    "\n",
    "/* */",
]


def test_indentation_means_nothing_where_the_braces_match() -> None:
    text = "  block B {\nparam x: f32\n  entry f() -> f32 {\nlet y = x\nreturn y\n}\n }\n fn g() -> f32 {\nreturn 1\n}"
    block, function = good(text).items
    assert isinstance(block, tree.BlockItem)
    assert isinstance(function, tree.FunctionItem)
    assert (len(block.members), len(block.methods), len(block.methods[0].body)) == (1, 1, 2)
    assert faults("module a\n" + text.replace("= x", "= =")) == ["5: expected an expression, found `=`"]


@fuzzed(200)
@given(st.lists(st.sampled_from(WORDS), max_size=60))
def test_any_tokens_give_a_module(words: list[str]) -> None:
    module, reported = read("module a\n" + " ".join(words))
    assert isinstance(module, tree.Module)
    for item in reported:
        assert 0 <= item.span.start <= item.span.end <= len(module.source.text)


@fuzzed(100)
@given(st.text(max_size=80))
def test_any_text_gives_a_module(text: str) -> None:
    assert isinstance(read(text)[0], tree.Module)


SAMPLE = Source("sample", (STD / "nn" / "norm.linnet").read_text(encoding="utf-8"))
TOKENS = lex(SAMPLE, Diagnostics()).tokens[:-1]


@fuzzed(200)
@given(st.integers(0, len(TOKENS) - 1), st.sampled_from(["", *WORDS]))
def test_one_wrong_token_gives_few_reports(index: int, word: str) -> None:
    """A token left out or put in the place of another in a correct file: never a crash, never a cascade."""
    token = TOKENS[index]
    text = f"{SAMPLE.text[: token.start]} {word} {SAMPLE.text[token.end :]}"
    assert len(read(text)[1]) <= 4
