"""Modules, imports, items and block members."""

from __future__ import annotations

from linnet.language.source import Span
from linnet.language.syntax.cursor import ITEM_WORDS, MEMBER_WORDS, STATEMENT_WORDS, DueBrackets
from linnet.language.syntax.lexer import KEYWORDS, Token
from linnet.language.syntax.parse_statements import DECLARATIONS, StatementParser
from linnet.language.syntax.tree import (
    AliasItem,
    BlockItem,
    ConstItem,
    EnumItem,
    Field,
    FunctionItem,
    GradClause,
    Item,
    KernelClause,
    Member,
    Module,
    Name,
    Parameter,
    StructItem,
    UseDecl,
    UseName,
)

_NO_WILDCARDS = "there are no wildcard imports: list what the module uses, as in `use a.b::{x, y}`"
ITEM_HABITS = {
    "def": "a function is a `fn`: `fn name(x: Tensor[N; f32]) -> Tensor[N; f32] { .. }`",
    "func": "a function is a `fn`",
    "function": "a function is a `fn`",
    "class": "a module of a network is a `block`, plain data a `struct`",
    "import": "an import is a `use`: `use std.nn.linear::{linear}`",
    "from": "an import is a `use`: `use std.nn.linear::{linear}`",
}
"""Words that items of other languages begin with, and what to write."""
MEMBER_HABITS = {
    "def": "a method is a `fn`, or an `entry` where a backend calls it, without `self`",
    "class": "blocks stand beside each other in the module, and hold others as `sub`s",
}
"""The same for members."""
_FUNCTIONS = ("fn", "op", "entry")
_BODY_WORDS = frozenset(("}", *STATEMENT_WORDS, *MEMBER_WORDS))
_MEMBERS = ("param", "buffer", "state", "sub")


class ItemParser(StatementParser):
    def module(self) -> Module:
        """module = "module" NAME { "." NAME } { use | item }"""
        start = self.token.start
        doc = self.doc()
        path: tuple[Name, ...] = ()
        uses: list[UseDecl] = []
        items: list[Item] = []
        if self.at("module"):
            with self.recovering(self.next_item):
                self.next()
                path = self.path("a module")
        else:
            stem = self.source.name.replace("\\", "/").rsplit("/", 1)[-1].removesuffix(".linnet")
            help = f"begin the file with `module {stem if stem.isidentifier() else 'name'}`"
            self.error("E1102", "a file begins with the name of its module", self.span_of(self.token), help)
            doc = None
        while not self.at("end"):
            if self.semicolon():
                continue
            with self.recovering(self.next_item):
                if self.at("use"):
                    use = self.use()
                    if use is not None:
                        uses.append(use)
                else:
                    item = self.item()
                    if item is not None:
                        items.append(item)
        span = self.since(start)
        return Module(span, self.source, path, doc, tuple(uses), tuple(items), tuple(self.comments))

    def next_item(self, begun: int) -> None:
        """Skips to where an item may begin: at an item's first word, at the margin or outside brackets."""

        def stops(due: DueBrackets) -> bool:
            at_margin = self.token.first and self.column(self.token) == 1
            if self.token.kind == "name" and self.token.text in ITEM_HABITS:
                return at_margin
            return self.token.kind in ITEM_WORDS and (at_margin or (self.token.first and not due))

        self.resync(begun, stops)

    def path(self, what: str) -> tuple[Name, ...]:
        """path = NAME { "." NAME }"""
        names = [self.name(what, allow_reserved=True)]
        while self.accept("."):
            names.append(self.name(what, allow_reserved=True))
        return tuple(names)

    def use(self) -> UseDecl | None:
        """use = "use" path [ "as" NAME | "::" "{" { NAME [ "as" NAME ] "," } "}" ]; a path may begin with `crate`"""
        start = self.next().start
        if self.at("self", "super"):
            word = self.token.text
            message = f"a path cannot begin with `{word}`"
            help = "name the module from the root of its package: `use crate.a.b`"
            self.error("E1103", message, self.span_of(self.token), help)
        first = self.token
        refused = first.kind in ("self", "super")
        names = []
        if first.kind in ("crate", "self", "super"):
            self.next()
            names.append(Name(self.span_of(first), first.text))
        else:
            if self.at("string"):
                raise self.unexpected("a name for a package", help="a path has no quotes: `use std.nn.linear`")
            names.append(self.name("a package", allow_reserved=True))
        while self.accept("."):
            if self.at("{", "*"):
                help = "a list of items follows `::`, as in `use a.b::{x, y}`" if self.at("{") else _NO_WILDCARDS
                raise self.unexpected("a name for a module", help=help)
            names.append(self.name("a module", allow_reserved=True))
        if self.at("/"):
            raise self.unexpected("`.` and the next name of the path", help="a path is written `std.nn.linear`")
        if self.at("import"):
            raise self.unexpected("`::` and the items", help="items follow `::`, as in `use a.b::{x, y}`")
        if self.at("::"):
            self.next()
            help = _NO_WILDCARDS if self.at("*") else "items are listed in braces, as in `use a.b::{x, y}`"
            opener = self.expect("{", "after `::`", help=help)
            items = self.comma_list("}", self.use_name)
            self.close("}", opener, "the imports")
            return None if refused else UseDecl(self.since(start), tuple(names), tuple(items), None)
        alias = self.name("a module", allow_reserved=True) if self.accept("as") else None
        return None if refused else UseDecl(self.since(start), tuple(names), None, alias)

    def use_name(self) -> UseName:
        """use_name = NAME [ "as" NAME ]"""
        start = self.token.start
        if self.at("*"):
            raise self.unexpected(
                "the name of an item", help="name what the module needs: there are no wildcard imports"
            )
        name = self.name("an import")
        alias = self.name("an import") if self.accept("as") else None
        return UseName(self.since(start), name, alias)

    def item(self) -> Item | None:
        """item = [ "pub" ] ( const | alias | struct | enum | function | block )"""
        doc = self.doc()
        start = self.token
        public = self.accept("pub") is not None
        kind = self.token.kind
        if kind in _FUNCTIONS:
            return self.function(start, public, doc)
        if kind == "block":
            return self.block(start, public, doc)
        if kind == "const":
            return self.const(start, public, doc)
        if kind == "type":
            return self.alias(start, public, doc)
        if kind == "struct":
            return self.struct(start, public, doc)
        if kind == "enum":
            return self.enum(start, public, doc)
        if kind in ("kernel", "extern"):
            self.refused_item()
            return None
        if public and kind == "use":
            help = "imports are not passed on: callers import from the module itself"
            raise self.unexpected("an item after `pub`", help=help, here=True)
        if kind == "module":
            raise self.unexpected("an item", help="a file holds one module, named at its start", here=True)
        if kind == "}":
            raise self.unexpected("an item", help="this `}` closes nothing: it may be one too many", here=True)
        if kind in _MEMBERS:
            raise self.unexpected("an item", help=f"a `{kind}` is declared inside a block", here=True)
        if kind == "name" and self.token.text in ITEM_HABITS:
            raise self.unexpected("an item", help=ITEM_HABITS[self.token.text], here=True)
        if kind in ("let", "var"):
            raise self.unexpected("an item", help="a value of a module is a `const`", here=True)
        raise self.unexpected(
            "an item after `pub`" if public else "an item (`fn`, `op`, `entry`, `block`, `const`, ..)", here=True
        )

    def refused_item(self) -> None:
        """Reports a `kernel` (E1103) or `extern` (E2190) item and takes it whole."""
        token = self.next()
        if token.kind == "kernel":
            message = "a `kernel` item is not part of the language"
            help = "write an `op`: its body defines it, and a backend may run its own kernel for it"
            self.error("E1103", message, self.span_of(token), help)
        else:
            help = "declare an `op` with a body instead"
            self.error("E2190", "`extern` is not implemented", self.span_of(token), help)
        margin = self.column(token) if token.first else 1
        while not self.at("end"):
            if self.at("{"):
                begun = self.index
                self.next()
                self.resync(begun, lambda due: not due)
                return
            if self.token.kind in ITEM_WORDS and self.token.first and self.column(self.token) <= margin:
                return
            self.next()

    def const(self, start: Token, public: bool, doc: str | None) -> ConstItem:
        """const = "const" NAME [ ":" type ] "=" expression"""
        self.next()
        name = self.name("a constant")
        annotation = self.type() if self.accept(":") else None
        self.expect("=", f"and the value of `{name.text}`")
        value = self.expression()
        return ConstItem(self.since(start.start), name, public, doc, annotation, value)

    def alias(self, start: Token, public: bool, doc: str | None) -> AliasItem:
        """alias = "type" NAME generics "=" type"""
        self.next()
        name = self.name("a type")
        generics = self.generics()
        self.expect("=", f"and the type that `{name.text}` stands for")
        target = self.type()
        return AliasItem(self.since(start.start), name, public, doc, generics, target)

    def struct(self, start: Token, public: bool, doc: str | None) -> StructItem:
        """struct = "struct" NAME generics "{" { NAME ":" type [ "," ] } "}" """
        self.next()
        name = self.name("a struct")
        generics = self.generics()
        opener = self.expect("{", "to open the fields", help=f"write `struct {name.text} {{ field: type }}`")
        fields: list[Field] = []
        while not self.at("}", "end"):
            at = self.token.start
            field_name = self.labelled("a field")
            self.expect(":", f"and the type of `{field_name.text}`", help="write `name: type`")
            fields.append(Field(Span(self.source, at, at), field_name, self.type()))
            fields[-1].span = self.since(at)
            self.accept(",")
        self.close("}", opener, "the struct")
        return StructItem(self.since(start.start), name, public, doc, generics, tuple(fields))

    def enum(self, start: Token, public: bool, doc: str | None) -> EnumItem:
        """enum = "enum" NAME "{" { NAME "," } [ NAME ] "}" """
        self.next()
        name = self.name("an enum")
        opener = self.expect("{", "to open the variants")
        variants = self.comma_list("}", self.variant)
        self.close("}", opener, "the enum")
        return EnumItem(self.since(start.start), name, public, doc, tuple(variants))

    def variant(self) -> Name:
        """variant = NAME"""
        name = self.name("a variant")
        if self.at("(", "{", "="):
            raise self.unexpected("`,` or `}` after the variant", help="a variant is a name alone, without a value")
        return name

    def function(self, start: Token, public: bool, doc: str | None) -> FunctionItem | None:
        """function = signature clauses body clauses

        None where the signature cannot be read; the body is read all the same, for what is wrong in it.
        """
        kind = self.next().kind
        item: FunctionItem | None = None
        clauses: list[KernelClause | GradClause] = []
        with self.recovering(lambda _: self.skip_header(start)):
            item = self.signature(start, kind, public, doc)
            clauses += self.clauses(start, after_body=False)
            if not self.at("{"):
                help = self.clause_help() if item.where else None
                raise self.unexpected(f"`{{` to open the body of `{item.name.text}`", help=help)
        if not self.at("{"):
            return None
        body = self.body(f"the body of `{item.name.text}`" if item is not None else "the body", start)
        clauses += self.clauses(start, after_body=True)
        if item is not None:
            item.body, item.clauses = body, tuple(clauses)
            item.span = self.since(start.start)
        return item

    def signature(self, start: Token, kind: str, public: bool, doc: str | None) -> FunctionItem:
        """signature = [ "pub" ] ( "fn" | "op" | "entry" ) NAME generics "(" parameters ")" "->" type where"""
        name = self.name({"fn": "a function", "op": "an op", "entry": "an entry"}[kind])
        generics = self.generics()
        opener = self.expect("(", f"to open the parameters of `{name.text}`")
        parameters = tuple(self.comma_list(")", self.parameter))
        self.close(")", opener, "the parameters")
        help = "write the type of the result behind the parameters: `-> Tensor[N; f32]`"
        self.expect("->", f"and the type that `{name.text}` returns", help=help)
        result = self.type()
        where = self.where()
        span = self.since(start.start)
        return FunctionItem(span, name, public, doc, kind, generics, parameters, result, where, (), span)

    def skip_header(self, start: Token) -> None:
        """Skips to the `{` that opens a body after a header that cannot be read, or to the next declaration."""
        while not self.at("end", "}"):
            if self.token is not start and self.token.kind in DECLARATIONS and self.token.first:
                return
            following = self.peek()
            if self.at("{") and (following.first or following.kind in _BODY_WORDS):
                return
            self.next()

    def parameter(self) -> Parameter:
        """parameter = NAME ":" type [ "=" expression ]"""
        start = self.token.start
        if self.at("self"):
            help = "there is no `self`: inside a block, members and methods are bare names; remove it"
            raise self.unexpected("a name for a parameter", help=help, here=True)
        name = self.labelled("a parameter")
        self.expect(":", f"and the type of `{name.text}`", help="write `name: type`")
        annotation = self.type()
        default = self.expression() if self.accept("=") else None
        return Parameter(self.since(start), name, annotation, default)

    def clause_help(self) -> str | None:
        """The help where a `where` clause goes on in a way it cannot."""
        if self.at("="):
            return "dimensions are compared with `==`"
        if self.at("&&") or (self.at("name") and self.token.text == "and"):
            return "clauses are separated by `,`"
        return "put a `,` between two clauses" if self.begins_item() else None

    def labelled(self, what: str) -> Name:
        """NAME before a `:`, where a keyword too is no more than a name that is refused."""
        token = self.token
        if token.kind in KEYWORDS and token.first and self.peek().kind == ":":
            help = f"choose another name, such as `{token.text}_`"
            self.error("E1004", f"`{token.text}` is a keyword and cannot name {what}", self.span_of(token), help)
            self.next()
            return Name(self.span_of(token), token.text)
        return self.name(what)

    def clauses(self, owner: Token, after_body: bool) -> list[KernelClause | GradClause]:
        """clauses = { "kernel" path [ generic_args ] | "grad" "(" names ")" body }"""
        found: list[KernelClause | GradClause] = []
        while self.at_clause() and not (after_body and self.at_kernel_item()):
            start = self.next()
            if start.kind == "kernel":
                path = self.path("a kernel")
                args = self.generic_args() if self.at("<") else None
                found.append(KernelClause(self.since(start.start), path, args))
            else:
                opener = self.next()
                names = self.comma_list(")", lambda: self.name("a gradient"))
                self.close(")", opener, "the gradients")
                body = self.body("the `grad` clause", owner)
                found.append(GradClause(self.since(start.start), tuple(names), body))
        return found

    def at_kernel_item(self) -> bool:
        """Whether `kernel` begins an item with parameters or a body of its own, which is refused."""
        if not self.at("kernel"):
            return False
        begun, offset = self.index, 2
        while self.peek(offset).kind == ".":
            offset += 2
        depth = 0
        while begun + offset < len(self.tokens) - 1:
            kind = self.peek(offset).kind
            depth += (kind == "<") - (kind == ">")
            if depth <= 0 and kind != ">":
                return kind in ("(", "{")
            offset += 1
        return False

    def block(self, start: Token, public: bool, doc: str | None) -> BlockItem | None:
        """block = [ "pub" ] "block" NAME generics where "{" { member | function } "}"

        None where what stands before the braces cannot be read; the members are read all the same.
        """
        self.next()
        item: BlockItem | None = None
        with self.recovering(lambda _: self.skip_header(start)):
            name = self.name("a block")
            generics = self.generics()
            where = self.where()
            if not self.at("{"):
                help = None
                if self.at("("):
                    help = "a block has no parameters: sizes are generics, `<H: Dim>`, and inputs are a method's"
                elif where:
                    help = self.clause_help()
                raise self.unexpected(f"`{{` to open the block `{name.text}`", help=help)
            item = BlockItem(self.since(start.start), name, public, doc, generics, where, (), ())
        if not self.at("{"):
            return None
        opener = self.next()
        what = f"the block `{item.name.text}`" if item is not None else "the block"
        members: list[Member] = []
        methods: list[FunctionItem] = []
        ended = False

        def resume(begun: int) -> None:
            nonlocal ended
            ended = self.next_member(start, begun)

        while not ended and not self.at("}"):
            if self.semicolon():
                continue
            with self.recovering(resume):
                self.check_unclosed(opener, what, start)
                member = self.member(what)
                if isinstance(member, Member):
                    members.append(member)
                elif member is not None:
                    methods.append(member)
        if not ended:
            self.next()
        if item is not None:
            item.members, item.methods = tuple(members), tuple(methods)
            item.span = self.since(start.start)
        return item

    def next_member(self, owner: Token, begun: int) -> bool:
        """Skips to where a member may begin or the block ends; True if it ended without its `}`."""

        def stops(due: DueBrackets) -> bool:
            return (self.token.kind in MEMBER_WORDS and self.token.first) or (not due and self.at(";"))

        return self.resync_or_end(owner, begun, stops)

    def member(self, what: str) -> Member | FunctionItem | None:
        """member = ( "param" | "buffer" | "state" | "sub" ) NAME ":" type [ "=" expression ]"""
        doc = self.doc()
        start = self.token
        public = self.accept("pub") is not None
        kind = self.token.kind
        if kind in ("fn", "entry"):
            return self.function(start, public, doc)
        if kind == "op":
            raise self.unexpected("a member", help="an op belongs to a module: declare it outside the block", here=True)
        if kind not in _MEMBERS:
            help = MEMBER_HABITS.get(self.token.text) if kind == "name" else None
            if kind == "name" and help is None and self.peek().kind in (":", "="):
                help = f"say what it is: `param {self.token.text}: ..`, `buffer`, `state` or `sub`"
            if kind in ITEM_WORDS:
                help = f"a `{kind}` belongs to a module: declare it outside the block"
            elif kind in STATEMENT_WORDS:
                help = "statements stand in methods; a constant is a `const` of the module"
            raise self.unexpected(f"a member or `}}` to close {what}", help=help, here=True)
        if public:
            help = "every member can be read from outside; only methods are `pub`"
            self.error("E1101", f"a `{kind}` cannot be `pub`", self.span_of(start), help)
        self.next()
        name = self.name(f"a `{kind}`")
        self.expect(":", f"and the type of `{name.text}`", help=f"write `{kind} {name.text}: type`")
        annotation = self.type()
        value = self.expression() if self.accept("=") else None
        return Member(self.since(start.start), name, doc, kind, annotation, value)
