"""The language server: what editors ask over the Language Server Protocol, answered from checked sources.

Needs pygls, which nothing else imports.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer
from pygls.uris import from_fs_path, to_fs_path

from linnet.language.check.references import Reference
from linnet.language.diagnostics import Diagnostic, Diagnostics
from linnet.language.server.analysis import path_of
from linnet.language.server.completion import Suggestion, complete
from linnet.language.server.concrete import FindPackage
from linnet.language.server.hover import hover_text
from linnet.language.server.positions import Lines
from linnet.language.server.symbols import Symbol, symbols
from linnet.language.server.workspace import OpenFiles
from linnet.language.source import Source, Span
from linnet.language.syntax.parser import parse

# How long after the last key a check begins, in seconds.
PAUSE = 0.15
UNNECESSARY = ("W1001", "W1002", "W1003")

SYMBOL_KINDS = {
    "const": lsp.SymbolKind.Constant,
    "type": lsp.SymbolKind.Interface,
    "struct": lsp.SymbolKind.Struct,
    "enum": lsp.SymbolKind.Enum,
    "variant": lsp.SymbolKind.EnumMember,
    "field": lsp.SymbolKind.Field,
    "fn": lsp.SymbolKind.Function,
    "op": lsp.SymbolKind.Operator,
    "entry": lsp.SymbolKind.Event,
    "block": lsp.SymbolKind.Class,
    "param": lsp.SymbolKind.Field,
    "buffer": lsp.SymbolKind.Field,
    "state": lsp.SymbolKind.Variable,
    "sub": lsp.SymbolKind.Property,
}
COMPLETION_KINDS = {
    "local": lsp.CompletionItemKind.Variable,
    "index": lsp.CompletionItemKind.Variable,
    "generic": lsp.CompletionItemKind.TypeParameter,
    "const": lsp.CompletionItemKind.Constant,
    "alias": lsp.CompletionItemKind.Interface,
    "struct": lsp.CompletionItemKind.Struct,
    "enum": lsp.CompletionItemKind.Enum,
    "variant": lsp.CompletionItemKind.EnumMember,
    "fn": lsp.CompletionItemKind.Function,
    "op": lsp.CompletionItemKind.Function,
    "entry": lsp.CompletionItemKind.Function,
    "prelude": lsp.CompletionItemKind.Function,
    "block": lsp.CompletionItemKind.Class,
    "module": lsp.CompletionItemKind.Module,
    "keyword": lsp.CompletionItemKind.Keyword,
    "type": lsp.CompletionItemKind.Keyword,
}
Result = TypeVar("Result")


class LinnetServer(LanguageServer):
    """One editor's session. `find_package` reads the card beside a file, so that hovers can show its numbers."""

    def __init__(self, version: str, find_package: FindPackage) -> None:
        super().__init__("linnet", version)
        self.files = OpenFiles(find_package)
        self._published: set[Path] = set()
        self._pending: asyncio.Task[None] | None = None
        # One thread checks, so that the editor can go on and no two checks share what they read.
        self._checker = ThreadPoolExecutor(1, "linnet-check")

    # Texts

    def opened(self, uri: str) -> None:
        """Take over the text of an open document, and check it after a pause."""
        path = path_of_uri(uri)
        if path is not None:
            self.files.put(path, self.workspace.get_text_document(uri).source)
            self.check_soon()

    def lines(self, text: str) -> Lines:
        encoding = self.workspace.position_encoding
        return Lines(text, str(getattr(encoding, "value", encoding) or "utf-16"))

    def place(self, document: lsp.TextDocumentIdentifier, position: lsp.Position) -> tuple[Path, str, int] | None:
        """The resolved path, text and character offset that a request is about; None for what is not an open file."""
        path = path_of_uri(document.uri)
        text = self.files.texts.get(path) if path is not None else None
        if path is None or text is None:
            return None
        return path, text, self.lines(text).offset(position.line, position.character)

    async def reference(self, document: lsp.TextDocumentIdentifier, position: lsp.Position) -> Reference | None:
        """The name at a place of an open file."""
        place = self.place(document, position)
        if place is None:
            return None
        path, _, offset = place
        return await self.work(lambda: self.files.analysis(path).reference(offset))

    def range(self, span: Span) -> lsp.Range:
        lines = self.lines(span.source.text)
        return lsp.Range(lsp.Position(*lines.position(span.start)), lsp.Position(*lines.position(span.end)))

    # Diagnostics

    def check_soon(self) -> None:
        """Check what has changed once the editor has been still for a moment."""
        if self._pending is not None:
            self._pending.cancel()
        self._pending = asyncio.get_running_loop().create_task(self._check_later())

    async def _check_later(self) -> None:
        await asyncio.sleep(PAUSE)
        for path in self.files.stale():
            await self.work(partial(self.files.analysis, path))
        # What is stale again is checked again: the editor has gone on.
        if not self.files.stale():
            self.publish()

    async def work(self, task: Callable[[], Result]) -> Result:
        """What `task` gives, done in the checking thread."""
        return await asyncio.get_running_loop().run_in_executor(self._checker, task)

    def publish(self) -> None:
        """Show the diagnostics of every file that has some, and clear those of files that no longer do."""
        found = self.files.diagnostics()
        for path in self._published - found.keys():
            self._show(path, [])
        for path, items in found.items():
            self._show(path, items)
        self._published = set(found)

    def _show(self, path: Path, items: list[Diagnostic]) -> None:
        shown = [self._diagnostic(item) for item in items]
        self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(from_fs_path(str(path)) or "", shown))

    def _diagnostic(self, item: Diagnostic) -> lsp.Diagnostic:
        lines = [item.message, *(note.message for note in item.notes if note.span is None)]
        lines += [f"help: {item.help}"] if item.help is not None else []
        related = [
            lsp.DiagnosticRelatedInformation(self.location(note.span), note.message)
            for note in item.notes
            if note.span is not None
        ]
        return lsp.Diagnostic(
            range=self.range(item.span),
            message="\n".join(lines),
            severity=lsp.DiagnosticSeverity.Error if item.severity == "error" else lsp.DiagnosticSeverity.Warning,
            code=item.code,
            source="linnet",
            tags=[lsp.DiagnosticTag.Unnecessary] if item.code in UNNECESSARY else None,
            related_information=related or None,
        )

    def location(self, span: Span) -> lsp.Location:
        return lsp.Location(from_fs_path(str(path_of(span.source))) or "", self.range(span))


def path_of_uri(uri: str) -> Path | None:
    """The resolved path of a `file:` address; None for what is not on disk."""
    if not uri.startswith("file:"):
        return None
    name = to_fs_path(uri)
    return Path(name).resolve() if name is not None else None


def create_server(version: str, find_package: FindPackage) -> LinnetServer:
    """A server that answers what `linnet lsp` offers."""
    server = LinnetServer(version, find_package)

    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    def _opened(params: lsp.DidOpenTextDocumentParams) -> None:
        server.opened(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    def _changed(params: lsp.DidChangeTextDocumentParams) -> None:
        server.opened(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_SAVE)
    def _saved(params: lsp.DidSaveTextDocumentParams) -> None:
        server.opened(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    def _closed(params: lsp.DidCloseTextDocumentParams) -> None:
        path = path_of_uri(params.text_document.uri)
        if path is not None:
            server.files.close(path)
            server.check_soon()

    @server.feature(lsp.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    def _watched(params: lsp.DidChangeWatchedFilesParams) -> None:
        paths = [path_of_uri(event.uri) for event in params.changes]
        server.files.changed(path for path in paths if path is not None)
        server.check_soon()

    @server.feature(lsp.TEXT_DOCUMENT_HOVER)
    async def _hover(params: lsp.HoverParams) -> lsp.Hover | None:
        place = server.place(params.text_document, params.position)
        found = await server.reference(params.text_document, params.position)
        if place is None or found is None:
            return None
        path, _, offset = place
        text = hover_text(found, await server.work(lambda: server.files.generics(path, offset)))
        return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, text), server.range(found.span))

    @server.feature(lsp.TEXT_DOCUMENT_DEFINITION)
    async def _definition(params: lsp.DefinitionParams) -> lsp.Location | None:
        found = await server.reference(params.text_document, params.position)
        return server.location(found.definition) if found is not None and found.definition is not None else None

    @server.feature(lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    def _symbols(params: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol]:
        place = server.place(params.text_document, lsp.Position(0, 0))
        if place is None:
            return []
        module = parse(Source(str(place[0]), place[1]), Diagnostics())
        return [_document_symbol(server, symbol) for symbol in symbols(module)]

    @server.feature(lsp.TEXT_DOCUMENT_FORMATTING)
    def _format(params: lsp.DocumentFormattingParams) -> list[lsp.TextEdit]:
        place = server.place(params.text_document, lsp.Position(0, 0))
        return _formatted(server, place[0], place[1]) if place is not None else []

    @server.feature(lsp.TEXT_DOCUMENT_COMPLETION, lsp.CompletionOptions(trigger_characters=[".", "{"]))
    async def _complete(params: lsp.CompletionParams) -> lsp.CompletionList:
        place = server.place(params.text_document, params.position)
        texts = dict(server.files.texts)
        found = await server.work(lambda: complete(*place, texts)) if place is not None else []
        return lsp.CompletionList(False, [_completion_item(suggestion) for suggestion in found])

    return server


def _document_symbol(server: LinnetServer, symbol: Symbol) -> lsp.DocumentSymbol:
    return lsp.DocumentSymbol(
        name=symbol.name,
        detail=symbol.detail or None,
        kind=SYMBOL_KINDS[symbol.kind],
        range=server.range(symbol.span),
        selection_range=server.range(symbol.selection),
        children=[_document_symbol(server, child) for child in symbol.children],
    )


def _formatted(server: LinnetServer, path: Path, text: str) -> list[lsp.TextEdit]:
    """One edit of the whole text; none where it is in style already, or has errors of syntax."""
    from linnet.language.syntax.formatter import FormatError, format_source

    try:
        done = format_source(Source(str(path), text), Diagnostics())
    except FormatError as error:
        server.window_show_message(lsp.ShowMessageParams(lsp.MessageType.Error, str(error)))
        return []
    if done is None or done == text:
        return []
    end = lsp.Position(*server.lines(text).position(len(text)))
    return [lsp.TextEdit(lsp.Range(lsp.Position(0, 0), end), done)]


def _completion_item(suggestion: Suggestion) -> lsp.CompletionItem:
    documentation: Any = None
    if suggestion.doc:
        documentation = lsp.MarkupContent(lsp.MarkupKind.Markdown, suggestion.doc)
    return lsp.CompletionItem(
        label=suggestion.name,
        kind=COMPLETION_KINDS.get(suggestion.kind, lsp.CompletionItemKind.Field),
        detail=suggestion.detail or None,
        documentation=documentation,
    )
