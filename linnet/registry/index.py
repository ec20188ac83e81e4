"""Index records, one a package: what lists and pages are made of."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from linnet.language.check import CheckResult, load
from linnet.language.program.binding import BoundProgram
from linnet.language.program.checked import CheckedModule
from linnet.language.strict_toml import TOML_BYTES, parse_toml
from linnet.registry.bindings import ResolvedBindings, read_bindings
from linnet.registry.card import Card
from linnet.registry.check import check_package
from linnet.registry.errors import PackageError, Problem
from linnet.registry.locate import Located
from linnet.registry.package import MANIFEST_NAME, package_files, read_file
from linnet.registry.parameters import count_parameters
from linnet.registry.weights import locate_weights

SCHEMA = 1


def package_record(
    package: Path | Located, load_source: Callable[[Path], CheckResult] = load, *, weights: Path | None = None
) -> dict[str, Any]:
    """What lists and pages need of one package, JSON-able; the same bytes for the same package.

    Keys: `schema`, `name`, `version` (the card's, else linnet.toml's, else null), `card` (as written), `files` (`path`,
    `size` in bytes, `sha256`) and their total `size`, `file_count` (with the weight files), `generics` (defaults filled
    in), `parameter_count`, `parameters` (`path`, `tensor`, `kind`, `shape`, `dtype`, `optional`, `present`, `declared`,
    `owner`), `entries` (`name`, `signature`, `doc`), `modules` (`name`, `blocks`, `functions`) and `weights` (`repo`,
    `revision`, `files`, and the `sizes` in bytes of those beside the card). Neither the Hub nor its cache is
    asked. `load_source` is for who makes many records of one source; `weights` has those that are not beside the card.

    An optional parameter is `present` where weights that lie beside the card have it, and where the card names a
    repository, if the bindings name it: what counts then is the same on every machine.

    Raises PackageError where the package does not pass the static check.
    """
    report = check_package(package, hub=False, caches=False, load_source=load_source, weights=weights)
    folder = package.folder if isinstance(package, Located) else package
    card, bound = report.card, report.bound
    errors = report.errors()
    if errors or card is None or bound is None:
        raise PackageError(Problem(e.kind, e.where, e.message, e.help) for e in errors)
    files = package_files(folder, skip=frozenset(card.weights.files))
    bindings = read_bindings(folder, card).resolve(bound.manifest)
    present = bindings.written
    if report.match is not None and card.weights.repo is None:
        present = report.match.present
    return {
        "schema": SCHEMA,
        "name": card.model.name,
        "version": package_version(folder, card),
        "card": card.to_dict(),
        "files": [{"path": file.path, "size": file.size, "sha256": file.sha256} for file in files],
        "size": sum(file.size for file in files),
        "file_count": len(files) + len(card.weights.files),
        "generics": dict(bound.generics),
        "parameter_count": _parameter_count(card, bound, bindings, present),
        "parameters": _parameters(bound, bindings, present),
        "entries": [
            {"name": name, "signature": _signature(entry.signature.text), "doc": entry.doc or ""}
            for name, entry in bound.entries().items()
        ],
        "modules": _modules(bound),
        "weights": _weights(folder, card, weights),
    }


def package_version(package: Path, card: Card) -> str | None:
    """The card's version, else that of `linnet.toml`; None where neither gives one."""
    if card.model.version is not None or not (package / MANIFEST_NAME).is_file():
        return card.model.version
    # The check has refused a broken linnet.toml by now.
    table = parse_toml(read_file(package, MANIFEST_NAME, TOML_BYTES))
    version = table.get("package", {}).get("version")
    return version if isinstance(version, str) else None


def one_line(signature: str) -> str:
    """A signature of a record in one line, without the commas and spaces that its line breaks stand for."""
    text = ""
    for line in map(str.strip, signature.splitlines()):
        if line[:1] in (")", "]", ">"):
            text = text.removesuffix(",") + line
        else:
            text += line if not text or text[-1] in "([<" else f" {line}"
    return text


def index_text(index: Mapping[str, Any]) -> str:
    """An index or a record as the bytes of a file: keys sorted, a newline at the end."""
    return json.dumps(index, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def record_bytes(record: Mapping[str, Any]) -> bytes:
    """A record as the bytes that it has within an index, between `[` or `,` and what follows it."""
    return f"\n{index_text(record)[:-1]}".replace("\n", "\n  ").encode()


def index_bytes(records: Iterable[bytes]) -> Iterator[bytes]:
    """An index, piece by piece, of records that `record_bytes` wrote: what `index_text` makes of all of them."""
    before = b'{\n "packages": ['
    for record in records:
        yield before + record
        before = b","
    end = b'],\n "schema": %d\n}\n' % SCHEMA
    yield b"\n " + end if before == b"," else before + end


def write_index(index: Mapping[str, Any], path: Path) -> None:
    """Write an index to a file, whole or not at all. Raises OSError that names `path`."""
    write_text(index_text(index), path)


def write_text(text: str, path: Path) -> None:
    """Write a file for everyone to read, whole or not at all. Raises OSError that names `path`."""
    write_chunks([text.encode()], path)


def write_chunks(chunks: Iterable[bytes], path: Path) -> None:
    """As `write_text`, of a text that comes in pieces; nothing is written where one does not come."""
    prefix = f".{path.name[:100]}."
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=prefix)
        try:
            with os.fdopen(handle, "wb") as file:
                file.writelines(chunks)
            # mkstemp makes files that only their owner reads.
            os.chmod(name, 0o644)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        # The system names the temporary file, which says nothing to a user; a piece may name a file of its own.
        named = str(error.filename or "")
        own = not named or os.path.basename(named).startswith(prefix)
        raise OSError(error.errno, error.strerror, str(path) if own else named) from None


def _parameter_count(card: Card, bound: BoundProgram, bindings: ResolvedBindings, present: Collection[str]) -> int:
    """The author's count, else the manifest's; optional parameters count where `present` names them."""
    if card.model.parameters is not None:
        return card.model.parameters
    return count_parameters(bound.manifest, bindings.tensors, present)


def _parameters(bound: BoundProgram, bindings: ResolvedBindings, present: Collection[str]) -> list[dict[str, Any]]:
    return [
        {
            "path": entry.path,
            "tensor": bindings.tensors[entry.path],
            "kind": entry.kind,
            "shape": list(entry.shape),
            "dtype": entry.dtype,
            "optional": entry.optional,
            "present": not entry.optional or entry.path in present,
            "declared": entry.symbolic,
            "owner": entry.owner,
        }
        for entry in bound.manifest.entries
    ]


def _modules(bound: BoundProgram) -> list[dict[str, Any]]:
    """The package's own modules, the root first."""
    program = bound.program
    own = [module for key, module in sorted(program.modules.items()) if key.split(".")[0] == "crate"]
    return [_module(module) for module in (program.root, *(m for m in own if m is not program.root))]


def _module(module: CheckedModule) -> dict[str, Any]:
    return {
        "name": module.name,
        "blocks": [{"name": block.name, "doc": block.doc or ""} for block in module.blocks.values()],
        "functions": [
            {"name": item.name, "kind": item.kind, "signature": _signature(item.signature.text), "doc": item.doc or ""}
            for item in module.functions.values()
        ],
    }


def _weights(package: Path, card: Card, given: Path | None) -> dict[str, Any]:
    sizes: dict[str, int] = {}
    if card.weights.repo is None:
        # With a repository the record must not depend on what this machine happens to hold.
        located = locate_weights(package, card, given, caches=False)
        sizes = {file: path.stat().st_size for file, path in located.local.items()}
    return {
        "repo": card.weights.repo,
        "revision": card.weights.revision,
        "files": list(card.weights.files),
        "sizes": sizes,
    }


def _signature(text: str) -> str:
    """A signature as written, its continuation lines moved left by their common indent."""
    first, *rest = text.rstrip().splitlines()
    indents = [len(line) - len(line.lstrip()) for line in rest if line.strip()]
    cut = min(indents, default=0)
    # The closing parenthesis stands where the signature began; the parameters keep their step from it.
    return "\n".join([first, *(line[cut:] for line in rest)])
