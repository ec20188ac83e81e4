"""What a model's pages show, as plain values: made from a package folder and its index record."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote, urlsplit

from linnet.language.check import CheckResult
from linnet.registry.bench import BENCH_NAME, BenchReport, read_bench
from linnet.registry.index import index_text
from linnet.registry.locate import BUNDLED
from linnet.registry.model_card import split_head
from linnet.registry.package import CARD_NAME, README_NAME, name_fault, read_file
from linnet.registry.parameters import human_count
from linnet.registry.semver import is_release
from linnet.site_builder.code import Code, Symbol, read_code
from linnet.site_builder.parameters import Parameter, ParameterRow, fold_parameters
from linnet.site_builder.paths import file_pages
from linnet.site_builder.results import ResultsView, results_view
from linnet.site_builder.source_view import language_of
from linnet.site_builder.text import one_line

# Larger files are listed with their size; showing them would make a page that no browser likes.
SHOWN_BYTES = 1 << 20
_LINK_LABELS = {"huggingface": "Hugging Face", "github": "GitHub", "arxiv": "arXiv", "homepage": "Homepage"}


class SiteError(Exception):
    """A site that cannot be built from what was given; the message names the thing and the next step."""


@dataclass(frozen=True, slots=True)
class PackageSource:
    """One version of a package as the site takes it: its folder and the record that `package_record` made of it.

    `held` are the bytes of its files that pages show, by path, where they were read from elsewhere than the folder,
    which then holds the sources that are drawn, and no more.

    `published` is UTC as ISO 8601, empty for a folder that was never published; `yanked` is the reason, None where it
    stands; `bench` what was measured at publication, None where only the package's own `bench.json` tells.
    `tensor_files` says which file holds each tensor of the checkpoint, as far as that is known without the network.
    `weight_digests` are the sha256 of files of weights, in hex, as far as they are known besides the card's.
    `checked` is the source's check, where that was just made. `status` and its reason are the whole package's.
    """

    folder: Path
    record: Mapping[str, Any]
    published: str = ""
    yanked: str | None = None
    bench: BenchReport | None = None
    tensor_files: Mapping[str, str] | None = None
    weight_digests: Mapping[str, str] | None = None
    checked: CheckResult | None = None
    held: Mapping[str, bytes] | None = None
    status: str = "active"
    status_reason: str = ""

    @property
    def version(self) -> str:
        return str(self.record["version"] or "")

    def measured(self) -> BenchReport | None:
        """What was measured of this version. Raises RegistryError for a bad `bench.json`."""
        if self.bench is not None or all(file["path"] != BENCH_NAME for file in self.record["files"]):
            return self.bench
        if self.held is None:
            return read_bench(self.folder)
        return BenchReport.from_json(self.held[BENCH_NAME]) if BENCH_NAME in self.held else None

    def read(self, path: str) -> bytes:
        """A file of at most SHOWN_BYTES. Raises PackageError where it cannot be read."""
        return self.held[path] if self.held is not None else read_file(self.folder, path, SHOWN_BYTES)


@dataclass(frozen=True, slots=True)
class Link:
    label: str
    href: str


@dataclass(frozen=True, slots=True)
class FileView:
    """A file of the package. `text` is None where it is not shown, and `note` says why; `size` is in bytes.

    `page` is where the site shows it, `raw` the same as plain text; both empty where it is not shown.
    """

    path: str
    size: int
    sha256: str
    language: str
    text: str | None
    note: str
    page: str
    raw: str

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
class VersionView:
    """A version as the history lists it; `yanked` is the reason, None where the version stands."""

    version: str
    published: str
    yanked: str | None


@dataclass(frozen=True, slots=True)
class ModelPage:
    """All that the pages of one model show, of the version that its name means but for `versions`, newest first.

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
    all_parameters: tuple[Parameter, ...]
    parameters: tuple[ParameterRow, ...]
    tensor_counts: tuple[int, int]
    entries: tuple[EntryView, ...]
    symbols: tuple[Symbol, ...]
    versions: tuple[VersionView, ...]
    bench: BenchReport | None
    results: ResultsView | None
    baseline: str
    code: Code | None
    newest: VersionView
    status: str
    status_reason: str
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
    def beside(self) -> int:
        """Bytes of the weights that lie beside the card."""
        return sum(weight.size or 0 for weight in self.unkept if not weight.href)

    @property
    def unkept(self) -> tuple[WeightFile, ...]:
        """Weights that are no files of the registry: they lie at a host, or beside the card."""
        kept = {file.path for file in self.files}
        return tuple(weight for weight in self.weights if weight.path not in kept)

    @property
    def snippet(self) -> str:
        return f'from linnet import nest\n\nmodel = nest.load("{self.package}", backend="torch", numerics="fast")'


def current_version(versions: Sequence[PackageSource]) -> PackageSource:
    """What a bare name means: the newest release that is not yanked, else the newest pre-release, else the newest."""
    standing = [version for version in versions if version.yanked is None]
    releases = [version for version in standing if is_release(version.version)]
    return (*releases, *standing, *versions)[0]


def collect_model(*versions: PackageSource) -> ModelPage:
    """What the pages of one model show, its versions given newest first.

    The record gives the card, the list of files with their digests, and what the checked program says of entries and
    parameters; texts come from the folder. Raises SiteError where the two disagree, RegistryError where a file cannot
    be read.
    """
    source = current_version(versions)
    record = source.record
    card: Mapping[str, Any] = record["card"]
    model: Mapping[str, Any] = card["model"]
    name = str(model["name"])
    if fault := name_fault(name):
        raise SiteError(f"The package name {name!r} {fault}; rename the package.")
    weights: Mapping[str, Any] = card["weights"]
    files = _file_views(source, name)
    shown = {file.path: file.page for file in files if file.page}
    # The folder may have changed since: what is drawn and linked must be what was checked.
    code = read_code(
        source.folder,
        str(card["source"]["path"]),
        card["source"].get("root"),
        record["generics"],
        shown.get,
        checked=source.checked,
    )
    parameters = tuple(_parameters(record["parameters"], _shards(source), code))
    bench = source.measured()
    return ModelPage(
        name=name,
        package=_package(source, name),
        title=one_line(str(model["title"])),
        summary=one_line(str(model["summary"])),
        version=source.version,
        license=one_line(str(model["license"])),
        family=one_line(str(model["family"])),
        tags=tuple(one_line(str(tag)) for tag in model.get("tags", ())),
        parameter_count=record["parameter_count"],
        links=_links(card.get("links", {})),
        entry=str(card["source"]["entry"]),
        generics=tuple((str(key), str(value)) for key, value in record["generics"].items()),
        repo=str(weights.get("repo", "")),
        revision=str(weights.get("revision", "")),
        # Packages of the Hub have a head, which only the Hub reads.
        readme=split_head(next((file.text or "" for file in files if file.path == README_NAME), ""))[1],
        files=files,
        weights=_weight_files(weights, record["weights"]["sizes"], source.weight_digests or {}),
        all_parameters=parameters,
        parameters=fold_parameters(parameters),
        tensor_counts=_tensor_counts(record["parameters"]),
        entries=_entries(record["entries"]),
        symbols=tuple(code.symbols()) if code is not None else (),
        versions=tuple(VersionView(item.version, item.published, item.yanked) for item in versions),
        bench=bench,
        results=results_view(bench, record),
        baseline=one_line(bench.baseline.name) if bench is not None and bench.baseline is not None else "",
        code=code,
        newest=VersionView(source.version, source.published, source.yanked),
        status=source.status,
        status_reason=one_line(source.status_reason),
        record=index_text(record),
    )


def _file_views(source: PackageSource, name: str) -> tuple[FileView, ...]:
    items = sorted(source.record["files"], key=_file_order)
    texts = {str(item["path"]): _text(source, item) for item in items}
    shown = [path for path, (text, _) in texts.items() if text is not None]
    pages = file_pages(f"models/{name}/source", shown, ".html")
    raw = file_pages(f"models/{name}/files/raw", shown, ".txt")
    return tuple(
        FileView(
            path=path,
            size=int(item["size"]),
            sha256=str(item["sha256"]),
            language=language_of(path),
            text=texts[path][0],
            note=texts[path][1],
            page=pages.get(path, ""),
            raw=raw.get(path, ""),
        )
        for path, item in ((str(item["path"]), item) for item in items)
    )


def _text(source: PackageSource, item: Mapping[str, Any]) -> tuple[str | None, str]:
    """A file's text, or why it is not shown."""
    path = str(item["path"])
    if int(item["size"]) > SHOWN_BYTES:
        return None, "Too large to show here."
    data = source.read(path)
    if hashlib.sha256(data).hexdigest() != item["sha256"]:
        raise SiteError(f"{source.folder / path} is not the file that was indexed; build the index again.")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None, "Not text."
    return (None, "Not text.") if "\0" in text else (text.removeprefix("\ufeff"), "")


def _file_order(item: Mapping[str, Any]) -> tuple[bool, tuple[str, ...], str]:
    """README first, then the other files of the top folder, then folder by folder."""
    *folder, name = PurePosixPath(item["path"]).parts
    return (item["path"] != README_NAME, tuple(folder), name)


def _shards(source: PackageSource) -> Mapping[str, str]:
    """Which file holds each tensor; without a header, what a single file of weights must hold."""
    if source.tensor_files is not None:
        return source.tensor_files
    files = source.record["card"]["weights"]["files"]
    if len(files) != 1:
        return {}
    return {str(item["tensor"]): str(files[0]) for item in source.record["parameters"] if item["present"]}


def _weight_files(
    weights: Mapping[str, Any], sizes: Mapping[str, int], known: Mapping[str, str]
) -> tuple[WeightFile, ...]:
    repo, revision = str(weights.get("repo", "")), str(weights.get("revision", ""))
    digests: Mapping[str, Any] = weights.get("sha256", {})
    host = f"https://huggingface.co/{quote(repo)}/blob/{quote(revision)}/" if repo else ""
    return tuple(
        WeightFile(
            path=str(file),
            href=host + quote(str(file)) if host else "",
            size=sizes.get(file),
            sha256=str(digests.get(file) or known.get(file, "")),
        )
        for file in weights["files"]
    )


def _links(links: Mapping[str, Any]) -> tuple[Link, ...]:
    """The card's links under their usual names; the card's reader lets https alone through, and so does this."""
    known = {key: str(links[key]) for key in _LINK_LABELS if key in links}
    return tuple(Link(_LINK_LABELS[key], href) for key, href in known.items() if urlsplit(href).scheme == "https")


def _parameters(
    items: Iterable[Mapping[str, Any]], shards: Mapping[str, str], code: Code | None
) -> Iterable[Parameter]:
    blocks = code.blocks() if code is not None else {}
    places: dict[tuple[str, str], str] = {}
    for item in items:
        path, tensor, owner = str(item["path"]), str(item["tensor"]), str(item.get("owner", ""))
        key = (owner, path.rpartition(".")[2])
        if key not in places:
            member = blocks[owner].members.get(key[1]) if owner in blocks else None
            places[key] = code.place(member.span) if code is not None and member is not None else ""
        yield Parameter(
            path=path,
            tensor=tensor,
            kind=str(item["kind"]),
            shape=tuple(map(int, item["shape"])),
            dtype=str(item["dtype"]),
            declared=str(item["declared"]),
            optional=bool(item["optional"]),
            present=bool(item["present"]),
            shard=shards.get(tensor, ""),
            place=places[key],
        )


def _tensor_counts(items: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    present = {str(item["tensor"]) for item in items if item["present"]}
    return len(present), sum(not item["present"] for item in items)


def _package(source: PackageSource, name: str) -> str:
    """What `nest.load` takes: the name of a package that was published or ships with this distribution, or a folder."""
    if source.published or (BUNDLED / name / CARD_NAME).is_file():
        return name
    return f"{source.folder.parent.name or '.'}/{source.folder.name}"


def _entries(items: Sequence[Mapping[str, Any]]) -> tuple[EntryView, ...]:
    return tuple(
        EntryView(str(item["name"]), f"entry-{item['name']}", str(item["signature"]), str(item["doc"]))
        for item in items
    )
