"""The checker: declarations resolved on demand, then every body checked, then what only the whole shows."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import cached_property

from linnet.language.check import declarations, statements
from linnet.language.check.context import (
    PRELUDE,
    CheckFailedError,
    Context,
    Decl,
    Import,
    ModuleScope,
    another_name,
)
from linnet.language.check.expressions import expression
from linnet.language.check.library import keep_modules, kept_module
from linnet.language.check.modules import STD_ROOT, LoadedModule
from linnet.language.check.order import cycles, declaration_order, postorder
from linnet.language.check.references import References, record_imports
from linnet.language.diagnostics import Diagnostics, Note
from linnet.language.program.checked import CheckedBlock, CheckedFunction, CheckedModule, Program, Typed
from linnet.language.program.types import BlockArrayType, BlockType, OptionalType, Type
from linnet.language.source import Span
from linnet.language.syntax import tree

# Models nest a dozen blocks; paths and their bookkeeping are made for no more than this.
MAX_DEPTH = 64
# How many names all unknown names together are compared with, about 5 microseconds each.
MAX_COMPARED = 100_000


class Checker:
    """Checks a root module and all that it imports."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        self.diagnostics = diagnostics
        self.references = References()
        self.scopes: dict[int, ModuleScope] = {}
        self.nodes: dict[int, tree.FunctionItem | tree.BlockItem] = {}
        self.broken_members: dict[int, set[str]] = {}
        self.members_done: set[int] = set()
        self.members_read: set[tuple[int, str]] = set()
        self.calls: dict[int, dict[int, tuple[CheckedFunction, Span]]] = {}
        self.contexts: dict[int, Context] = {}
        # Above zero while a `where` clause is read: its divisors need no proof.
        self.in_where = 0
        self.compared = 0

    def check(self, root: LoadedModule) -> Program:
        """Declare and check every module that `root` reaches."""
        order, fresh = self._collect(root)
        for scope in fresh:
            for name in declaration_order(scope.items):
                self.declare(scope, name)
        for scope in fresh:
            for block in scope.checked.blocks.values():
                self.ensure_members(block)
        record_imports(self, fresh)
        for scope in fresh:
            self._check_bodies(scope)
        self._recursion(fresh)
        self._nesting(order)
        # What an error left unchecked would look unused.
        if not self.diagnostics.has_errors:
            for scope in fresh:
                self._unused(scope)
            keep_modules(fresh, self.references, self.diagnostics.items)
        modules = {scope.loaded.key: scope.checked for scope in order}
        return Program(self.scopes[id(root)].checked, modules)

    def _collect(self, root: LoadedModule) -> tuple[list[ModuleScope], list[ModuleScope]]:
        """Every module that `root` reaches, each after those that it imports, and those of them that are to be
        checked."""
        order: list[ModuleScope] = []
        fresh: list[ModuleScope] = []
        for loaded in postorder([root], lambda module: module.imports.values()):
            for segments, imported in loaded.imports.items():
                loaded.imports[segments] = self.scopes[id(imported)].loaded
            kept = kept_module(loaded)
            if kept is not None:
                order.append(kept.scope)
                self.scopes[id(loaded)] = self.scopes[id(kept.scope.loaded)] = kept.scope
                self.members_done.update(map(id, kept.scope.checked.blocks.values()))
                self.references.adopt(kept.references)
                continue
            checked = CheckedModule(".".join(name.text for name in loaded.tree.path), loaded.tree.source)
            scope = self.scopes[id(loaded)] = ModuleScope(loaded, checked)
            order.append(scope)
            fresh.append(scope)
            self._names(scope)
        return order, fresh

    def _names(self, scope: ModuleScope) -> None:
        """Bind a module's imports and items, one meaning for each name (E1204, E1207)."""
        spans: dict[str, Span] = {}

        def bind(name: tree.Name, what: str) -> bool:
            if name.text in PRELUDE:
                message = f"`{name.text}` is a prelude name and cannot be redeclared"
                self.diagnostics.error("E1207", message, name.span, help=another_name(name.text))
                return False
            if name.text in spans:
                first = Note("first declared here", spans[name.text])
                self.diagnostics.error("E1204", f"two {what} of one name: `{name.text}`", name.span, (first,))
                return False
            spans[name.text] = name.span
            return True

        for use in scope.loaded.tree.uses:
            module = scope.loaded.imports.get(tuple(name.text for name in use.path))
            if use.names is None:
                name = use.alias or use.path[-1]
                if module is None:
                    scope.broken.add(name.text)
                elif bind(name, "imports"):
                    scope.imports[name.text] = Import(module, None, name.span)
                continue
            for used in use.names:
                name = used.alias or used.name
                if module is None:
                    scope.broken.add(name.text)
                elif bind(name, "imports"):
                    scope.imports[name.text] = Import(module, used.name, name.span)
        for item in scope.loaded.tree.items:
            if bind(item.name, "items"):
                scope.items[item.name.text] = item
        for bound, imported in list(scope.imports.items()):
            if imported.item is not None and not self._importable(scope, imported):
                del scope.imports[bound]
                scope.broken.add(bound)

    def _importable(self, scope: ModuleScope, imported: Import) -> bool:
        """Whether the imported item exists and is public (E1201, E1203)."""
        assert imported.item is not None
        source = self.scopes[id(imported.module)]
        item = source.items.get(imported.item.text)
        if item is not None and item.public:
            return True
        key, text = imported.module.key, imported.item.text
        if item is not None:
            self.diagnostics.error(
                "E1203",
                f"`{text}` is private to `{key}`",
                imported.item.span,
                (Note("declared here", item.name.span),),
                publish(key),
            )
            return False
        if text in source.broken:
            return False
        help = self._other_item(source, text)
        self.diagnostics.error("E1201", f"module `{key}` has no item `{text}`", imported.item.span, help=help)
        return False

    def _other_item(self, scope: ModuleScope, name: str) -> str | None:
        """Where an item that a module lacks may be: elsewhere in the standard library, or under a near name."""
        if home := self.std_home(name):
            return f"`{name}` is in `{home}`"
        public = [other for other, item in scope.items.items() if item.public]
        near = get_close_matches(name, public, 1)
        if near or not public:
            return f"did you mean `{near[0]}`?" if near else None
        return f"its items are {', '.join(public[:12])}{', ..' if len(public) > 12 else ''}"

    # Lookups that contexts use

    def expression(self, ctx: Context, node: tree.Expr, expected: Type | None) -> Typed:
        return expression(ctx, node, expected)

    def find_item(self, scope: ModuleScope, name: str, span: Span) -> Decl | LoadedModule | None:
        """What `name` means in a module: its own item, or an import's. Raises CheckFailedError."""
        if name in scope.items:
            decl = self.declare(scope, name, span)
            if decl is None:
                raise CheckFailedError
            self.references.use(span, decl)
            return decl
        imported = scope.imports.get(name)
        if imported is None:
            if name in scope.broken:
                raise CheckFailedError
            return None
        imported.used = True
        if imported.item is None:
            self.references.use(span, imported.module)
            return imported.module
        decl = self.declare(self.scopes[id(imported.module)], imported.item.text, span)
        if decl is None:
            raise CheckFailedError
        self.references.use(span, decl)
        return decl

    def public_item(self, module: LoadedModule, name: tree.Name, ctx: Context) -> Decl:
        """`module.name` (E1201, E1203). Raises CheckFailedError."""
        scope = self.scopes[id(module)]
        item = scope.items.get(name.text)
        if item is None:
            help = self._other_item(scope, name.text)
            ctx.fail("E1201", f"module `{module.key}` has no item `{name.text}`", name.span, help=help)
        if not item.public and scope is not ctx.scope:
            ctx.fail(
                "E1203",
                f"`{name.text}` is private to `{module.key}`",
                name.span,
                [Note("declared here", item.name.span)],
                publish(module.key),
            )
        decl = self.declare(scope, name.text, name.span)
        if decl is None:
            raise CheckFailedError
        self.references.use(name.span, decl)
        return decl

    def declare(self, scope: ModuleScope, name: str, used: Span | None = None) -> Decl | None:
        """The declaration of a module's item, resolved once; None where that failed (E2122 where it needs itself)."""
        if name in scope.decls:
            return scope.decls[name]
        item = scope.items[name]
        if name in scope.declaring:
            # The last one's declaration holds the marked use: the chain is read from there.
            user = scope.declaring[-1]
            chain = " -> ".join([user, *scope.declaring[scope.declaring.index(name) :]])
            self.diagnostics.error("E2122", f"`{user}` is defined by itself: {chain}", used or item.name.span)
            return None
        scope.declaring.append(name)
        try:
            decl = declarations.declare(self, scope, item)
            self.references.define(item.name.span, decl, item.doc)
        except CheckFailedError:
            decl = None
        scope.declaring.pop()
        scope.decls[name] = decl
        return decl

    def ensure_members(self, block: CheckedBlock) -> None:
        """Resolve a block's members and methods before they are looked up."""
        if id(block) not in self.members_done:
            self.members_done.add(id(block))
            declarations.members(self, block)

    def member_read(self, block: CheckedBlock, name: str) -> None:
        self.members_read.add((id(block), name))

    def edge(self, caller: CheckedFunction | None, callee: CheckedFunction, span: Span) -> None:
        """Remember that one function calls another."""
        if caller is not None:
            self.calls.setdefault(id(caller), {}).setdefault(id(callee), (callee, span))

    @cached_property
    def _std_names(self) -> dict[str, str]:
        """Public items of the standard library and the module that has each, for suggestions."""
        found: dict[str, str] = {}
        for path in sorted(STD_ROOT.rglob("*.linnet")):
            module = ".".join(("std", *path.relative_to(STD_ROOT).with_suffix("").parts))
            for name in re.findall(r"^pub (?:op|fn|block|const) (\w+)", path.read_text("utf-8"), re.M):
                found.setdefault(name, module)
        return found

    def nearest(self, name: str, known: Callable[[], Sequence[str]]) -> str | None:
        """The one of the `known` names that is most like an unknown name, if any is."""
        # Whoever has thousands of unknown names in scopes of thousands is helped by the first suggestions.
        if self.compared > MAX_COMPARED:
            return None
        names = known()
        self.compared += len(names)
        near = get_close_matches(name, names, 1)
        return near[0] if near else None

    def std_home(self, name: str) -> str | None:
        return self._std_names.get(name)

    # Bodies, and what only the whole program shows

    def _check_bodies(self, scope: ModuleScope) -> None:
        for function in _functions(scope):
            node = self.nodes[id(function)]
            assert isinstance(node, tree.FunctionItem)
            ctx = self.contexts[id(function)]
            with ctx.inner_scope():
                for parameter, var in zip(node.parameters, function.parameters, strict=True):
                    ctx.declare_local(parameter.name, var, warn_unused=False)
                function.body = statements.function_body(ctx, node, function.result)

    def _recursion(self, order: list[ModuleScope]) -> None:
        """No function calls itself, directly or through others (E2119)."""
        functions = [function for scope in order for function in _functions(scope)]
        for cycle, span in cycles(functions, lambda function: self.calls.get(id(function), {}).values()):
            chain = " -> ".join(function.name for function in cycle)
            help = "repeat with `while`, `for` or `static for`"
            self.diagnostics.error("E2119", f"recursion: {chain}", span, help=help)

    def _nesting(self, order: list[ModuleScope]) -> None:
        """No block holds itself, directly or through its children (E2122)."""
        blocks = [block for scope in order for block in scope.checked.blocks.values()]
        for cycle, span in cycles(blocks, _children):
            holder = cycle[-2].name
            chain = " -> ".join([holder, *(block.name for block in cycle[:-1])])
            self.diagnostics.error("E2122", f"block `{holder}` holds itself: {chain}", span)
        depths: dict[CheckedBlock, int] = {}
        for block in postorder(blocks, lambda block: [child for child, _ in _children(block)]):
            depths[block] = 1 + max((depths.get(child, 0) for child, _ in _children(block)), default=0)
            if depths[block] == MAX_DEPTH + 1:
                self.diagnostics.error("E2190", f"blocks nest more than {MAX_DEPTH} deep here", block.span)

    def _unused(self, scope: ModuleScope) -> None:
        for name, imported in scope.imports.items():
            if not imported.used and not name.startswith("_"):
                self.diagnostics.warning("W1001", f"unused import `{name}`", imported.span, help="remove it")
        for block in scope.checked.blocks.values():
            private = [method for method in block.methods.values() if not method.public and method.kind == "fn"]
            # Other modules may read the members of a public block, but nothing stands above one with entries.
            local = not block.public or block.entries()
            spans = {member.name: member.span for member in block.members.values() if local}
            spans |= {method.name: method.span for method in private}
            for name, span in spans.items():
                if (id(block), name) not in self.members_read and not name.startswith("_"):
                    self.diagnostics.warning("W1003", f"member `{name}` of `{block.name}` is never used", span)


def _functions(scope: ModuleScope) -> list[CheckedFunction]:
    """A module's functions, then its blocks' methods."""
    methods = [method for block in scope.checked.blocks.values() for method in block.methods.values()]
    return [*scope.checked.functions.values(), *methods]


def _children(block: CheckedBlock) -> list[tuple[CheckedBlock, Span]]:
    """The blocks that a block holds, and where it says so."""
    members = [(child_block(member.type), member.span) for member in block.members.values()]
    return [(child, span) for child, span in members if child is not None]


def publish(key: str) -> str:
    """How to reach a private item of a module."""
    return "the standard library keeps it to itself" if key.startswith("std.") else f"declare it `pub` in {key}"


def child_block(type: Type) -> CheckedBlock | None:
    """The block of a `sub`, also of an array or an optional one."""
    if isinstance(type, OptionalType):
        type = type.inner
    if isinstance(type, BlockArrayType):
        type = type.inner
    return type.block if isinstance(type, BlockType) else None
