"""The card: what `nest.toml` says about a model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from linnet.language.strict_toml import TOML_BYTES, BadTomlError, parse_toml
from linnet.registry.card_reader import (
    Table,
    dtype_or_integer,
    fraction,
    git_commit,
    https_url,
    license_expression,
    line_of_text,
    package_name,
    plain_path,
    positive,
    repository,
    sha256_hex,
    string_or_strings,
    version_number,
    weights_file,
)
from linnet.registry.errors import CardError, PackageError, Problem
from linnet.registry.package import CARD_NAME, read_file


@dataclass(frozen=True, slots=True)
class Model:
    """`license` is an SPDX expression or `other`; `parameters` is the author's own count, shown instead of ours."""

    name: str
    title: str
    summary: str
    license: str
    family: str
    tags: tuple[str, ...]
    version: str | None = None
    parameters: int | None = None


@dataclass(frozen=True, slots=True)
class Links:
    """Pages about the model, https only."""

    huggingface: str | None = None
    github: str | None = None
    arxiv: str | None = None
    homepage: str | None = None


@dataclass(frozen=True, slots=True)
class SourceTable:
    """`path`: the Linnet file; `root`: its block (None: the one that has entries); `entry`: what `model(...)` calls."""

    path: str
    root: str | None
    entry: str


@dataclass(frozen=True, slots=True)
class Weights:
    """Where the checkpoint is.

    `repo` None: `files` lie beside the card. `bindings` None: each path binds to the tensor of its own name. `recipe`
    is the file that says which tensors are packed; `unused` are patterns of tensors that nothing binds on purpose;
    `sha256` maps a file to its digest.
    """

    files: tuple[str, ...]
    repo: str | None = None
    revision: str | None = None
    bindings: str | None = None
    recipe: str | None = None
    unused: tuple[str, ...] = ()
    sha256: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """`file` in the package, or in `repo` at `revision`; `bos` and `eos` as token strings."""

    file: str
    repo: str | None = None
    revision: str | None = None
    chat_template: str | None = None
    bos: tuple[str, ...] = ()
    eos: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bench:
    """What `nest bench` measures. `window`, `stride`, `prompt` and `new` count tokens."""

    baseline: str | None = None
    dataset: str | None = None
    split: str | None = None
    dataset_revision: str | None = None
    window: int | None = None
    stride: int | None = None
    prompt: int | None = None
    new: int | None = None


@dataclass(frozen=True, slots=True)
class Gate:
    """The changes that a publish may bring, as fractions of the earlier figure; `allow` names accepted ones."""

    perplexity_increase: float | None = None
    decode_ratio_drop: float | None = None
    prompt_ratio_drop: float | None = None
    memory_increase: float | None = None
    allow: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Card:
    """`nest.toml`, read and checked: one field a table. `generics` and `check` map a name to an integer or a dtype."""

    model: Model
    source: SourceTable
    weights: Weights
    links: Links = Links()
    generics: Mapping[str, int | str] = dataclasses.field(default_factory=dict)
    check: Mapping[str, int | str] = dataclasses.field(default_factory=dict)
    tokenizer: Tokenizer | None = None
    bench: Bench = Bench()
    gate: Gate = Gate()

    def to_dict(self) -> dict[str, Any]:
        """JSON-able, keys as in the card; what the card leaves out is absent."""
        filled = {name: _filled(value) for name, value in dataclasses.asdict(self).items() if value is not None}
        return {name: value for name, value in filled.items() if value}


# Keys of each table, for unknown-key messages: those of the dataclasses, so that the two cannot drift apart.
KEYS: Mapping[str, tuple[str, ...]] = {
    "model": tuple(field.name for field in dataclasses.fields(Model)),
    "links": tuple(field.name for field in dataclasses.fields(Links)),
    "source": tuple(field.name for field in dataclasses.fields(SourceTable)),
    "weights": tuple(field.name for field in dataclasses.fields(Weights)),
    "tokenizer": tuple(field.name for field in dataclasses.fields(Tokenizer)),
    "bench": tuple(field.name for field in dataclasses.fields(Bench)),
    "gate": tuple(field.name for field in dataclasses.fields(Gate)),
}
TABLES = tuple(field.name for field in dataclasses.fields(Card))


def read_card(package: Path, *, folder_name: bool = True) -> Card:
    """The card of the package folder `package`. With `folder_name`, the model's name must be the folder's.

    Raises CardError with every problem of the card, PackageError where there is no card to read.
    """
    if not package.is_dir():
        fault = "is not a folder" if package.exists() else "does not exist"
        help = "Name a folder that holds a nest.toml."
        raise PackageError([Problem("package.folder", str(package), f"The package {package} {fault}.", help)])
    return parse_card(read_file(package, CARD_NAME, TOML_BYTES), package.resolve().name if folder_name else None)


def parse_card(data: bytes, folder: str | None = None) -> Card:
    """The card written in `data`; `folder`, where given, is what `model.name` must be. Raises CardError."""
    try:
        document = parse_toml(data)
    except BadTomlError as error:
        help = "Correct that line; the form is at https://toml.io."
        raise CardError([Problem("card.toml", CARD_NAME, f"The card is not TOML: {error}.", help)]) from None
    problems: list[Problem] = []
    top = Table(document, "", TABLES, KEYS, problems)
    model = _model(top.table("model", required=True), folder)
    source_table = top.table("source", required=True)
    source = SourceTable(
        path=source_table.required("path", plain_path(".linnet")),
        root=source_table.optional("root", line_of_text),
        entry=source_table.required("entry", line_of_text),
    )
    weights = _weights(top.table("weights", required=True))
    links_table = top.table("links")
    links = Links(**{key: links_table.optional(key, https_url) for key in KEYS["links"]})
    generics = top.free_table("generics", dtype_or_integer)
    check = top.free_table("check", dtype_or_integer)
    tokenizer = _tokenizer(top.table("tokenizer")) if "tokenizer" in top.data else None
    bench = _bench(top.table("bench"))
    gate_table = top.table("gate")
    gate = Gate(
        **{key: gate_table.optional(key, fraction) for key in KEYS["gate"] if key != "allow"},
        allow=gate_table.strings("allow", line_of_text),
    )
    card = Card(model, source, weights, links, generics, check, tokenizer, bench, gate)
    if problems:
        doubtful = {problem.where.split(".")[0] for problem in problems}
        raise CardError(problems, card if doubtful.isdisjoint(("source", "generics", "check", "weights")) else None)
    return card


def _model(table: Table, folder: str | None) -> Model:
    name = table.required("name", package_name)
    if name and folder is not None and name != folder:
        table.problem(
            "name",
            "folder-name",
            f'The name "{name}" is not the name of its folder, "{folder}".',
            "Rename one of the two.",
        )
    return Model(
        name=name,
        title=table.required("title", line_of_text),
        summary=table.required("summary", line_of_text),
        license=table.required("license", license_expression),
        family=table.required("family", line_of_text),
        tags=table.strings("tags", line_of_text, required=True),
        version=table.optional("version", version_number),
        parameters=table.optional("parameters", positive),
    )


def _weights(table: Table) -> Weights:
    repo = table.optional("repo", repository)
    revision = table.optional("revision", git_commit)
    if "repo" in table.data and "revision" not in table.data:
        table.missing("revision", "Pin the repository: write the full commit hash that the weights were read at.")
    if "revision" in table.data and "repo" not in table.data:
        table.missing("repo", "Name the repository that the revision belongs to, or remove the revision.")
    files = table.strings("files", weights_file, required=True, empty=False)
    sha256 = table.sub("sha256").free(sha256_hex) if "sha256" in table.data else {}
    for file in sha256:
        if file not in files:
            table.problem(
                f"sha256.{file}",
                "sha256",
                f'A digest is given for "{file}", which is not among the files.',
                "Name the file in weights.files or remove its digest.",
            )
    return Weights(
        files=files,
        repo=repo,
        revision=revision,
        bindings=table.optional("bindings", plain_path(".json")),
        recipe=table.optional("recipe", plain_path(".json")),
        unused=table.strings("unused", line_of_text),
        sha256=sha256,
    )


def _tokenizer(table: Table) -> Tokenizer:
    if "repo" in table.data and "revision" not in table.data:
        table.missing("revision", "Pin the repository: write the full commit hash that the tokenizer was read at.")
    if "revision" in table.data and "repo" not in table.data:
        table.missing("repo", "Name the repository that the revision belongs to, or remove the revision.")
    return Tokenizer(
        file=table.required("file", plain_path(".json")),
        repo=table.optional("repo", repository),
        revision=table.optional("revision", git_commit),
        chat_template=table.optional("chat_template", plain_path()),
        bos=table.optional("bos", string_or_strings) or (),
        eos=table.optional("eos", string_or_strings) or (),
    )


def _bench(table: Table) -> Bench:
    return Bench(
        baseline=table.optional("baseline", package_name),
        dataset=table.optional("dataset", line_of_text),
        split=table.optional("split", line_of_text),
        dataset_revision=table.optional("dataset_revision", line_of_text),
        window=table.optional("window", positive),
        stride=table.optional("stride", positive),
        prompt=table.optional("prompt", positive),
        new=table.optional("new", positive),
    )


def _filled(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    kept = {key: item for key, item in value.items() if item not in (None, (), {})}
    return {key: list(item) if isinstance(item, tuple) else item for key, item in kept.items()}
