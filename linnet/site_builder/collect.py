"""What a page shows, as plain values: built from a package folder and its index record."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote, urlsplit

from linnet.registry.index import index_text
from linnet.registry.locate import BUNDLED
from linnet.registry.package import CARD_NAME, README_NAME, name_fault, read_file
from linnet.registry.parameters import human_count
from linnet.site_builder.parameters import Parameter, ParameterRow, fold_parameters
from linnet.site_builder.results import ResultsView, results_view
from linnet.site_builder.source_view import language_of
from linnet.site_builder.text import Anchors, one_line, path_anchor

# Larger files are listed with their size; showing them would make a page that no browser likes.
SHOWN_BYTES = 1 << 20
# Files whose lines say little to a reader, or that the page shows in another form: folded.
FOLDED_LINES = 2_000
# The ids of the page's own sections; a file of such a name gets another anchor.
SECTIONS = ("content", "card", "load", "facts", "results", "parameters", "entries", "files")
_LINK_LABELS = {"huggingface": "Hugging Face", "github": "GitHub", "arxiv": "arXiv", "homepage": "Homepage"}


class SiteError(Exception):
    """A site that cannot be built from what was given; the message names the thing and the next step."""


@dataclass(frozen=True, slots=True)
class PackageSource:
    """A package as the site takes it: its folder and the record that `package_record` made of it."""

    folder: Path
    record: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Link:
    label: str
    href: str


@dataclass(frozen=True, slots=True)
class FileView:
    """A file of the package. `text` is None where it is not shown, and `note` says why; `size` is in bytes."""

    path: str
    anchor: str
    size: int
    sha256: str
    language: str
    text: str | None
    note: str
    folded: bool

    @property
    def name(self) -> str:
        return PurePosixPath(self.path).name

    @property
    def folder(self) -> str:
        folder = PurePosixPath(self.path).parent.as_posix()
        return "" if folder == "." else folder


@dataclass(frozen=True, slots=True)
class WeightFile:
    """A file of weights; `href` leads to its host, empty where it lies beside the card."""

    path: str
    href: str
    size: int | None
    sha256: str


@dataclass(frozen=True, slots=True)
class EntryView:
    """An entry of the root block: its signature as source text, its doc comment as Markdown."""

    name: str
    anchor: str
    signature: str
    doc: str


@dataclass(frozen=True, slots=True)
class ModelPage:
    """All that one model's page shows.

    `package` is what `nest.load` takes; `tensor_counts` are how many tensors the model reads and how many optional ones
    it does without; `record` is the registry entry as JSON text.
    """

    name: str
    package: str
    title: str
    summary: str
    version: str
    license: str
    family: str
    tags: tuple[str, ...]
    parameter_count: int
    links: tuple[Link, ...]
    entry: str
    generics: tuple[tuple[str, str], ...]
    repo: str
    revision: str
    readme: str
    files: tuple[FileView, ...]
    weights: tuple[WeightFile, ...]
    parameters: tuple[ParameterRow, ...]
    tensor_counts: tuple[int, int]
    entries: tuple[EntryView, ...]
    results: ResultsView | None
    record: str

    @property
    def chips(self) -> tuple[str, ...]:
        """`8.2B parameters`, family, licence, tags."""
        return (f"{human_count(self.parameter_count)} parameters", self.family, self.license, *self.tags)

    @property
    def size(self) -> int:
        """Bytes of all files in the registry: weights live at their host and do not count."""
        return sum(file.size for file in self.files)

    @property
    def folders(self) -> tuple[tuple[str, tuple[FileView, ...]], ...]:
        """The files by folder, in their order; the top folder is the empty text."""
        return tuple((folder, tuple(group)) for folder, group in groupby(self.files, key=lambda file: file.folder))

    @property
    def unkept(self) -> tuple[WeightFile, ...]:
        """Weights that are no files of the registry: they lie at a host, or beside the card."""
        kept = {file.path for file in self.files}
        return tuple(weight for weight in self.weights if weight.path not in kept)

    @property
    def snippet(self) -> str:
        return f'from linnet import nest\n\nmodel = nest.load("{self.package}", backend="torch", numerics="fast")'


def collect_model(source: PackageSource) -> ModelPage:
    """The page of one package.

    The record gives the card, the list of files with their digests, and what the checked program says of entries and
    parameters; texts come from the folder. Raises SiteError where the two disagree, RegistryError where a file cannot
    be read.
    """
    record = source.record
    card: Mapping[str, Any] = record["card"]
    model: Mapping[str, Any] = card["model"]
    name = str(model["name"])
    if fault := name_fault(name):
        raise SiteError(f"The package name {name!r} {fault}; rename the package.")
    anchors = Anchors(*SECTIONS)
    weights: Mapping[str, Any] = card["weights"]
    files = _file_views(source, anchors)
    readme = next((file.text for file in files if file.path == README_NAME and file.text is not None), "")
    return ModelPage(
        name=name,
        package=_package(source.folder, name),
        title=one_line(str(model["title"])),
        summary=one_line(str(model["summary"])),
        version=str(record["version"] or ""),
        license=one_line(str(model["license"])),
        family=one_line(str(model["family"])),
        tags=tuple(one_line(str(tag)) for tag in model.get("tags", ())),
        parameter_count=record["parameter_count"],
        links=_links(card.get("links", {})),
        entry=str(card["source"]["entry"]),
        generics=tuple((str(key), str(value)) for key, value in record["generics"].items()),
        repo=str(weights.get("repo", "")),
        revision=str(weights.get("revision", "")),
        readme=readme,
        files=files,
        weights=_weight_files(weights, record["weights"]["sizes"]),
        parameters=fold_parameters(_parameters(record["parameters"])),
        tensor_counts=_tensor_counts(record["parameters"]),
        entries=_entries(record["entries"], anchors),
        results=results_view(source.folder, record),
        record=index_text(record),
    )


def page_anchors(page: ModelPage) -> Anchors:
    """The ids that the page has before its texts are rendered: sections, files, entries."""
    taken = (*(file.anchor for file in page.files), *(entry.anchor for entry in page.entries))
    return Anchors(*SECTIONS, *taken)


def _file_views(source: PackageSource, anchors: Anchors) -> tuple[FileView, ...]:
    views = []
    for item in sorted(source.record["files"], key=_file_order):
        path, size, sha256 = str(item["path"]), int(item["size"]), str(item["sha256"])
        text, note = None, "Too large to show here."
        if size <= SHOWN_BYTES:
            data = read_file(source.folder, path, SHOWN_BYTES)
            if hashlib.sha256(data).hexdigest() != sha256:
                raise SiteError(f"{source.folder / path} is not the file that was indexed; build the index again.")
            text, note = _decoded(data)
        language = language_of(path)
        views.append(
            FileView(
                path=path,
                anchor=anchors.claim(path_anchor(path)),
                size=size,
                sha256=sha256,
                language=language,
                text=text,
                note=note,
                folded=text is not None
                and (path == README_NAME or language == "json" or text.count("\n") > FOLDED_LINES),
            )
        )
    return tuple(views)


def _file_order(item: Mapping[str, Any]) -> tuple[bool, tuple[str, ...], str]:
    """README first, then the other files of the top folder, then folder by folder."""
    *folder, name = PurePosixPath(item["path"]).parts
    return (item["path"] != README_NAME, tuple(folder), name)


def _decoded(data: bytes) -> tuple[str | None, str]:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None, "Not text."
    return (None, "Not text.") if "\0" in text else (text.removeprefix("\ufeff"), "")


def _weight_files(weights: Mapping[str, Any], sizes: Mapping[str, int]) -> tuple[WeightFile, ...]:
    repo, revision = str(weights.get("repo", "")), str(weights.get("revision", ""))
    digests: Mapping[str, Any] = weights.get("sha256", {})
    host = f"https://huggingface.co/{quote(repo)}/blob/{quote(revision)}/" if repo else ""
    return tuple(
        WeightFile(
            path=str(file),
            href=host + quote(str(file)) if host else "",
            size=sizes.get(file),
            sha256=str(digests.get(file, "")),
        )
        for file in weights["files"]
    )


def _links(links: Mapping[str, Any]) -> tuple[Link, ...]:
    """The card's links under their usual names; the card's reader lets https alone through, and so does this."""
    known = {key: str(links[key]) for key in _LINK_LABELS if key in links}
    return tuple(Link(_LINK_LABELS[key], href) for key, href in known.items() if urlsplit(href).scheme == "https")


def _parameters(items: Iterable[Mapping[str, Any]]) -> list[Parameter]:
    return [
        Parameter(
            path=str(item["path"]),
            tensor=str(item["tensor"]),
            kind=str(item["kind"]),
            shape=tuple(map(int, item["shape"])),
            dtype=str(item["dtype"]),
            declared=str(item["declared"]),
            optional=bool(item["optional"]),
        )
        for item in items
    ]


def _tensor_counts(items: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    present = {str(item["tensor"]) for item in items if item["present"]}
    return len(present), sum(not item["present"] for item in items)


def _package(folder: Path, name: str) -> str:
    """What `nest.load` takes: the name of a package that ships with the distribution, else its folder."""
    if (BUNDLED / name / CARD_NAME).is_file():
        return name
    return f"{folder.parent.name or '.'}/{folder.name}"


def _entries(items: Sequence[Mapping[str, Any]], anchors: Anchors) -> tuple[EntryView, ...]:
    return tuple(
        EntryView(
            str(item["name"]),
            anchors.claim(f"entry-{item['name']}"),
            str(item["signature"]),
            str(item["doc"]),
        )
        for item in items
    )
