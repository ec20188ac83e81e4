"""The language server from end to end: a client speaks the protocol with the real process over its pipes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types as lsp
from pygls.lsp.client import LanguageClient

START = ("-c", "from linnet.cli.linnet_main import main; main()", "lsp")
# Long enough for a busy machine; what is waited for comes in well under a second.
PATIENCE = 30.0

LIB = """\
module pair

use crate.part::{Part, double}
use std.nn.linear::{Linear}

enum Way {
    Up,
    Down,
}

pub block Pair<H: Dim, T: Float = f32>
where H > 0 {
    /// The first half.
    sub first: Part<H, T>
    sub layers: [Linear<H, H, T>; 2]

    pub entry run<B: Dim>(x: Tensor[B, H; T]) -> Tensor[B, H; T] {
        let moved = first.forward(x)
        return double(layers[0].forward(moved), Way.Up)
    }
}

fn named(way: Way) -> f32 {
    return match way {
        Up => 1.0
        Down => 2.0
    }
}
"""
PART = """\
module pair.part

use std.nn.linear::{Linear}

pub block Part<H: Dim, T: Float> where H > 0 {
    sub inner: Linear<H, H, T>

    pub fn forward<*S: Shape>(x: Tensor[*S, H; T]) -> Tensor[*S, H; T] {
        return inner.forward(x)
    }
}

pub fn double<*S: Shape, T: Float>(x: Tensor[*S; T]) -> Tensor[*S; T] {
    return x + x
}
"""
CARD = """\
[model]
name = "pair"
title = "Pair"
summary = "Two layers."
license = "MIT"
family = "pair"
tags = ["test"]

[source]
path = "src/lib.linnet"
root = "Pair"
entry = "run"

[generics]
H = 48

[check]
B = 3

[weights]
files = ["model.safetensors"]
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "pair"
    (folder / "src").mkdir(parents=True)
    (folder / "linnet.toml").write_text('[package]\nname = "pair"\nversion = "1.0.0"\nlanguage = "0.1"\n')
    (folder / "nest.toml").write_text(CARD)
    (folder / "src" / "lib.linnet").write_text(LIB.replace(", Way.Up)", ")"))
    (folder / "src" / "part.linnet").write_text(PART)
    return folder


class Editor:
    """An editor's side of one session."""

    def __init__(self, client: LanguageClient) -> None:
        self.client = client
        self.texts: dict[str, str] = {}
        self.versions: dict[str, int] = {}
        self.diagnostics: dict[str, list[lsp.Diagnostic]] = {}
        self.news = asyncio.Event()

    def open(self, file: Path, text: str | None = None) -> str:
        uri = file.as_uri()
        self.texts[uri], self.versions[uri] = text if text is not None else file.read_text(), 1
        item = lsp.TextDocumentItem(uri, "linnet", 1, self.texts[uri])
        self.client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))
        return uri

    def replace(self, uri: str, old: str, new: str) -> None:
        """Type `new` over the only `old`, as a change of that range."""
        text = self.texts[uri]
        assert text.count(old) == 1, old
        at = text.index(old)
        place = lsp.Range(self.position(uri, at), self.position(uri, at + len(old)))
        self.texts[uri] = text.replace(old, new)
        self.versions[uri] += 1
        document = lsp.VersionedTextDocumentIdentifier(self.versions[uri], uri)
        change = lsp.TextDocumentContentChangePartial(place, new)
        self.client.text_document_did_change(lsp.DidChangeTextDocumentParams(document, [change]))

    def position(self, uri: str, offset: int) -> lsp.Position:
        before = self.texts[uri][:offset]
        return lsp.Position(before.count("\n"), len(before.rpartition("\n")[2].encode("utf-16-le")) // 2)

    def at(self, uri: str, text: str, word: str, into: int = 0) -> dict[str, Any]:
        """A request's place: `into` characters inside `word` inside the only `text`."""
        assert self.texts[uri].count(text) == 1, text
        offset = self.texts[uri].index(text) + text.index(word) + into
        return {"text_document": lsp.TextDocumentIdentifier(uri), "position": self.position(uri, offset)}

    async def codes(self, uri: str, expected: list[str]) -> list[lsp.Diagnostic]:
        """Wait until the diagnostics of a file are those of `expected`."""
        async with asyncio.timeout(PATIENCE):
            while [item.code for item in self.diagnostics.get(uri, [])] != expected or uri not in self.diagnostics:
                self.news.clear()
                await self.news.wait()
        return self.diagnostics[uri]

    async def hover(self, uri: str, text: str, word: str) -> str:
        found = await self.client.text_document_hover_async(lsp.HoverParams(**self.at(uri, text, word)))
        assert found is not None
        assert isinstance(found.contents, lsp.MarkupContent)
        return found.contents.value

    async def definition(self, uri: str, text: str, word: str) -> lsp.Location | None:
        found = await self.client.text_document_definition_async(lsp.DefinitionParams(**self.at(uri, text, word)))
        assert found is None or isinstance(found, lsp.Location)
        return found

    async def completion(self, uri: str, text: str, after: str) -> dict[str, lsp.CompletionItem]:
        place = self.at(uri, text, after, len(after))
        found = await self.client.text_document_completion_async(lsp.CompletionParams(**place))
        assert isinstance(found, lsp.CompletionList)
        assert len({item.label for item in found.items}) == len(found.items)
        return {item.label: item for item in found.items}


@asynccontextmanager
async def session(capabilities: lsp.ClientCapabilities | None = None) -> AsyncIterator[Editor]:
    client = LanguageClient("test", "1")
    editor = Editor(client)

    @client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    def _published(params: lsp.PublishDiagnosticsParams) -> None:
        editor.diagnostics[params.uri] = list(params.diagnostics)
        editor.news.set()

    await client.start_io(sys.executable, *START)
    await client.initialize_async(lsp.InitializeParams(capabilities=capabilities or lsp.ClientCapabilities()))
    client.initialized(lsp.InitializedParams())
    try:
        yield editor
    finally:
        await client.shutdown_async(None)
        client.exit(None)
        await client.stop()


def converse(talk: Callable[[Editor], Awaitable[None]], capabilities: lsp.ClientCapabilities | None = None) -> None:
    async def run() -> None:
        async with session(capabilities) as editor:
            await talk(editor)

    asyncio.run(run())


def test_diagnostics_follow_unsaved_text(package: Path) -> None:
    async def talk(editor: Editor) -> None:
        lib = editor.open(package / "src" / "lib.linnet")
        await editor.codes(lib, [])
        editor.replace(lib, "first.forward(x)", "first.forward(y)")
        (found,) = await editor.codes(lib, ["E1201"])
        assert found.message.startswith("unknown name `y`")
        assert (found.severity, found.source) == (lsp.DiagnosticSeverity.Error, "linnet")
        line = editor.texts[lib].splitlines()[found.range.start.line]
        assert line[found.range.start.character : found.range.end.character] == "y"
        editor.replace(lib, "first.forward(y)", "first.forward(x)")
        await editor.codes(lib, [])

    converse(talk)


def test_a_change_in_one_open_file_shows_in_another(package: Path) -> None:
    async def talk(editor: Editor) -> None:
        lib = editor.open(package / "src" / "lib.linnet")
        part = editor.open(package / "src" / "part.linnet")
        await editor.codes(lib, [])
        await editor.codes(part, [])
        editor.replace(part, "pub fn double", "pub fn twice")
        (found,) = await editor.codes(lib, ["E1201"])
        assert "no item `double`" in found.message
        document = lsp.TextDocumentIdentifier(part)
        editor.client.text_document_did_close(lsp.DidCloseTextDocumentParams(document))
        await editor.codes(lib, [])

    converse(talk)


def test_files_that_are_not_open(package: Path) -> None:
    async def talk(editor: Editor) -> None:
        lib, part = package / "src" / "lib.linnet", package / "src" / "part.linnet"
        uri = editor.open(lib)
        await editor.codes(uri, [])
        part.write_text(PART.replace("return x + x", "return x + z"))
        changed = [lsp.FileEvent(part.as_uri(), lsp.FileChangeType.Changed)]
        editor.client.workspace_did_change_watched_files(lsp.DidChangeWatchedFilesParams(changed))
        await editor.codes(part.as_uri(), ["E1201"])
        part.write_text(PART)
        editor.client.workspace_did_change_watched_files(lsp.DidChangeWatchedFilesParams(changed))
        await editor.codes(part.as_uri(), [])

    converse(talk)


def test_notes_lie_at_their_places(package: Path) -> None:
    async def talk(editor: Editor) -> None:
        text = LIB.replace("fn named", "fn run2(x: f32, x: f32) -> f32 {\n    return x\n}\n\nfn named")
        lib = editor.open(package / "src" / "lib.linnet", text.replace(", Way.Up)", ")"))
        (found,) = await editor.codes(lib, ["E1205"])
        assert found.related_information is not None
        (note,) = found.related_information
        assert note.location.uri == lib
        assert note.location.range.start.line == found.range.start.line

    converse(talk)


def test_unused_names_are_marked_so(package: Path) -> None:
    async def talk(editor: Editor) -> None:
        lib = editor.open(package / "src" / "lib.linnet")
        await editor.codes(lib, [])
        editor.replace(lib, "{Linear}", "{Linear, linear}")
        (found,) = await editor.codes(lib, ["W1001"])
        assert found.severity == lsp.DiagnosticSeverity.Warning
        assert list(found.tags or ()) == [lsp.DiagnosticTag.Unnecessary]

    converse(talk)


def test_hover(package: Path) -> None:
    async def talk(editor: Editor) -> None:
        lib = editor.open(package / "src" / "lib.linnet")
        part = editor.open(package / "src" / "part.linnet")
        text = await editor.hover(lib, "first.forward(x)", "x)")
        assert text == "```linnet\nx: Tensor[B, H; T]\n```\n\nIn this package: `Tensor[3, 48; f32]`"
        text = await editor.hover(lib, "sub first", "first")
        assert "sub first: Part<H, T>" in text
        assert "`Part<48, f32>`" in text
        assert "The first half." in text
        assert "H = 48" in await editor.hover(lib, "Tensor[B, H; T]) ->", "H")
        text = await editor.hover(lib, "double(layers", "double")
        assert "pub fn double<*S: Shape, T: Float>(x: Tensor[*S; T]) -> Tensor[*S; T]" in text
        assert "A dense layer" in await editor.hover(lib, "[Linear<H", "Linear")
        assert "`Tensor[*S, 48; f32]`" in await editor.hover(part, "inner.forward(x)", "x)")
        nothing = await editor.client.text_document_hover_async(
            lsp.HoverParams(**editor.at(lib, "module pair", "module"))
        )
        assert nothing is None

    converse(talk)


def test_hover_says_no_numbers_without_a_card(package: Path) -> None:
    (package / "nest.toml").write_text(CARD.replace("H = 48", "H = 0"))

    async def talk(editor: Editor) -> None:
        lib = editor.open(package / "src" / "lib.linnet")
        assert await editor.hover(lib, "first.forward(x)", "x)") == "```linnet\nx: Tensor[B, H; T]\n```"

    converse(talk)


def test_definitions(package: Path) -> None:
    async def talk(editor: Editor) -> None:
        lib = editor.open(package / "src" / "lib.linnet")
        found = await editor.definition(lib, "double(layers", "double")
        assert found is not None
        assert found.uri == (package / "src" / "part.linnet").as_uri()
        assert PART.splitlines()[found.range.start.line].startswith("pub fn double")
        found = await editor.definition(lib, "layers[0].forward", "forward")
        assert found is not None
        assert found.uri.endswith("/linnet/std/nn/linear.linnet")
        # The standard library opens as any file does, and its own names lead on.
        std = editor.open(Path(found.uri.removeprefix("file://")))
        await editor.codes(std, [])
        found = await editor.definition(lib, "first.forward(x)", "x)")
        assert found is not None
        assert (found.uri, found.range.start) == (lib, editor.position(lib, LIB.index("x: Tensor")))
        assert await editor.definition(lib, "module pair", "module") is None

    converse(talk)


def test_outline(package: Path) -> None:
    async def talk(editor: Editor) -> None:
        lib = editor.open(package / "src" / "lib.linnet")
        params = lsp.DocumentSymbolParams(lsp.TextDocumentIdentifier(lib))
        found = await editor.client.text_document_document_symbol_async(params)
        assert found is not None
        outline = [(s.name, s.kind.name, [(c.name, c.kind.name) for c in getattr(s, "children", ())]) for s in found]
        members = [("first", "Property"), ("layers", "Property"), ("run", "Event")]
        assert outline == [
            ("Way", "Enum", [("Up", "EnumMember"), ("Down", "EnumMember")]),
            ("Pair", "Class", members),
            ("named", "Function", []),
        ]

    converse(talk)


def test_formatting(package: Path) -> None:
    async def talk(editor: Editor) -> None:
        lib = editor.open(package / "src" / "lib.linnet")
        params = lsp.DocumentFormattingParams(lsp.TextDocumentIdentifier(lib), lsp.FormattingOptions(4, True))
        assert not await editor.client.text_document_formatting_async(params)
        editor.replace(lib, "let moved = first", "let   moved=first")
        edits = await editor.client.text_document_formatting_async(params)
        assert edits is not None
        (edit,) = edits
        assert edit.new_text == (package / "src" / "lib.linnet").read_text()
        editor.replace(lib, "let   moved=first", "let moved = (first")
        assert not await editor.client.text_document_formatting_async(params)

    converse(talk)


def test_completion(package: Path) -> None:
    async def talk(editor: Editor) -> None:
        lib = editor.open(package / "src" / "lib.linnet")
        editor.replace(lib, "let moved = first.forward(x)", "let moved = first.")
        found = await editor.completion(lib, "let moved = first.", "first.")
        assert found.keys() == {"inner", "forward"}
        assert found["inner"].detail == "Linear<H, H, T>"
        editor.replace(lib, "let moved = first.", "let moved = layers[0].fo")
        found = await editor.completion(lib, "moved = layers[0].fo", "layers[0].fo")
        assert found.keys() == {"weight", "bias", "forward"}
        editor.replace(lib, "let moved = layers[0].fo", "let moved = Way.")
        assert (await editor.completion(lib, "let moved = Way.", "Way.")).keys() == {"Up", "Down"}
        editor.replace(lib, "let moved = Way.", "let moved = ")
        found = await editor.completion(lib, "let moved = ", "= ")
        assert {"x", "first", "layers", "double", "named", "Way", "H", "B", "T", "reshape", "if"} <= found.keys()
        assert "moved" not in found
        assert found["x"].detail == "Tensor[B, H; T]"
        assert found["reshape"].kind == lsp.CompletionItemKind.Function

    converse(talk)


def test_completion_of_imports(package: Path) -> None:
    async def talk(editor: Editor) -> None:
        lib = editor.open(package / "src" / "lib.linnet")
        editor.replace(lib, "use std.nn.linear::{Linear}", "use ")
        assert (await editor.completion(lib, "use \n", "use ")).keys() == {"std", "crate"}
        editor.replace(lib, "use \n", "use std.\n")
        assert {"nn", "random", "linalg", "quant"} <= (await editor.completion(lib, "use std.", "std.")).keys()
        editor.replace(lib, "use std.\n", "use crate.\n")
        assert (await editor.completion(lib, "use crate.\n", "crate.")).keys() == {"part"}
        editor.replace(lib, "use crate.\n", "use std.nn.linear::{Linear, \n")
        found = await editor.completion(lib, "{Linear, ", "{Linear, ")
        assert found.keys() == {"linear"}
        assert found["linear"].detail is not None
        assert "op linear" in found["linear"].detail

    converse(talk)


def test_places_count_in_the_units_of_the_client(package: Path) -> None:
    text = (
        LIB.replace(", Way.Up)", ")")
        .replace("/// The first half.", "/// Das 𝄞 zuerst. */")
        .replace("let moved", "/* 𝄞 */ let moved")
    )

    async def talk(editor: Editor) -> None:
        lib = editor.open(package / "src" / "lib.linnet", text)
        assert "Tensor[3, 48; f32]" in await editor.hover(lib, "first.forward(x)", "x)")
        found = await editor.definition(lib, "forward(moved)", "moved")
        assert found is not None
        assert found.range.start == editor.position(lib, text.index("moved = "))

    converse(talk)


def test_a_file_outside_any_package_and_one_that_is_not_on_disk(tmp_path: Path) -> None:
    async def talk(editor: Editor) -> None:
        alone = editor.open(tmp_path / "new.linnet", "module new\n\nuse crate.x::{y}\n")
        (found,) = await editor.codes(alone, ["E1202"])
        assert "outside any package" in found.message
        broken = editor.open(tmp_path / "broken.linnet", "module broken\n\nfn f( {\n" + "(" * 2000)
        async with asyncio.timeout(PATIENCE):
            while broken not in editor.diagnostics:
                editor.news.clear()
                await editor.news.wait()
        assert editor.diagnostics[broken]
        item = lsp.TextDocumentItem("untitled:One", "linnet", 1, "module one\n")
        editor.client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))
        params = lsp.HoverParams(lsp.TextDocumentIdentifier("untitled:One"), lsp.Position(0, 8))
        assert await editor.client.text_document_hover_async(params) is None

    converse(talk)
