"""The static check of a package: everything that can be said of it without running it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from linnet.language.check import CheckResult, load
from linnet.language.diagnostics import Diagnostic
from linnet.language.program.binding import BindError, BoundProgram, bind
from linnet.language.program.checked import Program
from linnet.language.strict_toml import TOML_BYTES, BadTomlError, parse_toml
from linnet.language.words import counted
from linnet.registry.bench import BENCH_NAME, read_bench
from linnet.registry.bindings import ResolvedBindings, read_bindings
from linnet.registry.card import Card
from linnet.registry.errors import CardError, HubError, PackageError, Problem, RegistryError, bare, nearest, shown
from linnet.registry.locate import Located
from linnet.registry.match import Match, match_weights
from linnet.registry.model_card import split_head
from linnet.registry.package import (
    MANIFEST_NAME,
    README_NAME,
    human_size,
    package_files,
    package_path,
    path_problem,
    read_file,
)
from linnet.registry.parameters import STORAGE, count_parameters, human_count
from linnet.registry.recipe import with_recipe
from linnet.registry.report import CheckReport, Section, make_section, skipped
from linnet.registry.weights import locate_weights, read_tensors

README_BYTES = 1 << 20


@dataclass(slots=True)
class _Check:
    """One run. Each step adds its section, and leaves for the next ones what it read.

    `readable` is the card, or as much of a faulty one as serves to check the source.
    """

    package: Located
    strict: bool
    sections: list[Section] = field(default_factory=list)
    card: Card | None = None
    readable: Card | None = None
    contained: bool = False
    program: Program | None = None
    bound: BoundProgram | None = None
    bindings: ResolvedBindings | None = None
    match: Match | None = None

    def add(self, name: str, summary: str, errors: Iterable[Problem] = (), warnings: Iterable[Problem] = ()) -> None:
        self.sections.append(make_section(name, summary, errors, warnings, strict=self.strict))

    def skip(self, name: str, reason: str) -> None:
        self.sections.append(skipped(name, reason))


def check_package(
    package: Path | Located,
    *,
    hub: bool = True,
    strict: bool = False,
    weights: Path | None = None,
    caches: bool = True,
    load_source: Callable[[Path], CheckResult] = load,
) -> CheckReport:
    """Check a package: card, README, files, source, generics against `where`, bindings, manifest against headers.

    `weights` names a folder with the weight files, or the one file; without it they are looked for beside the card and
    in the caches, unless `caches` is False, and with `hub` the headers of those that are absent are read from the Hub.
    Under `strict` warnings are errors. `load_source` is for who checks many packages of one source. What is wrong with
    the package is in the report, never raised.
    """
    located = package if isinstance(package, Located) else Located(package)
    run = _Check(located, strict)
    _check_card(run)
    _check_readme(run)
    _check_files(run)
    _check_source(run, load_source)
    _check_generics(run)
    _check_bindings(run)
    _check_weights(run, hub, weights, caches)
    name = run.card.model.name if run.card else ""
    bound = run.bound if run.card else None
    return CheckReport(str(located.folder), name, tuple(run.sections), run.card, bound, run.match)


def _check_card(run: _Check) -> None:
    try:
        run.card = run.readable = run.package.card()
    except RegistryError as error:
        run.readable = error.partial if isinstance(error, CardError) else None
        run.add("card", f"{counted(len(error.problems), 'problem')} in the card", error.problems)
        return
    model = run.card.model
    run.add("card", f"{model.title}, {model.family}, {model.license}")


def _check_readme(run: _Check) -> None:
    if not run.package.folder.is_dir():
        run.skip("readme", "there is no folder")
        return
    where, help = README_NAME, "Begin it with a heading that names the model: # Title."
    try:
        text = read_file(run.package.folder, README_NAME, README_BYTES).decode().removeprefix("\ufeff")
        # Packages of the Hub have one, which nest push writes.
        _, text = split_head(text)
    except PackageError as error:
        run.add("readme", "the README cannot be read", error.problems)
        return
    except UnicodeDecodeError as error:
        message = f"{README_NAME} is not UTF-8 at byte {error.start}."
        run.add("readme", "not text", [Problem("readme.text", where, message, "Save it as UTF-8.")])
        return
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        run.add("readme", "empty", [Problem("readme.empty", where, f"{README_NAME} is empty.", help)])
    elif not _is_heading(lines):
        message = f"{README_NAME} does not begin with a heading."
        run.add("readme", "no heading", [Problem("readme.heading", where, message, help)])
    else:
        run.add("readme", lines[0].strip("# \t"))


def _is_heading(lines: list[str]) -> bool:
    """Whether the first line is one, either as `# Title` or underlined."""
    underlined = len(lines) > 1 and re.fullmatch(r" {0,3}(=+|-+)\s*", lines[1]) is not None
    return re.match(r" {0,3}#{1,6}[ \t]+\S", lines[0]) is not None or underlined


def _check_files(run: _Check) -> None:
    folder = run.package.folder
    if not folder.is_dir():
        run.skip("files", "there is no folder")
        return
    errors: list[Problem] = []
    summary = "files that cannot be part of a package"
    weights = frozenset(run.readable.weights.files) if run.readable else frozenset()
    try:
        files = package_files(folder, skip=weights)
        summary = f"{counted(len(files), 'file')}, {human_size(sum(file.size for file in files))}"
        summary += f", and {counted(len(weights), 'weight file')}" if weights else ""
    except PackageError as error:
        errors.extend(error.problems)
    for where, text in _named_files(run.readable) if run.readable else ():
        try:
            if not package_path(folder, text).is_file():
                message = f"{where} names the file {text}, which is not in the package."
                errors.append(Problem("package.missing", where, message, f"Add {text}, or correct {where}."))
        except PackageError as error:
            errors.extend(error.problems)
    errors += _dependency_problems(folder)
    run.contained = not errors
    errors += _bench_problems(folder, run.card)
    run.add("files", summary, dict.fromkeys(errors))


def _bench_problems(folder: Path, card: Card | None) -> list[Problem]:
    """What is wrong with the package's `bench.json`, where it has one."""
    try:
        report = read_bench(folder)
    except RegistryError as error:
        return list(error.problems)
    if report is None or card is None or report.package.name == card.model.name:
        return []
    message = f"{BENCH_NAME} has the figures of {shown(report.package.name)}, and this is {shown(card.model.name)}."
    return [Problem("bench.name", BENCH_NAME, message, "Remove it, or measure this package with nest bench.")]


def _dependency_problems(folder: Path) -> list[Problem]:
    """What in `linnet.toml` would lead the checker out of the package; the rest is the checker's to judge."""
    if not (folder / MANIFEST_NAME).is_file():
        return []
    try:
        table = parse_toml(read_file(folder, MANIFEST_NAME, TOML_BYTES))
    except PackageError as error:
        return list(error.problems)
    except BadTomlError as error:
        message = f"{MANIFEST_NAME} is not TOML: {error}."
        return [Problem("package.toml", MANIFEST_NAME, message, "Correct that line; the form is at https://toml.io.")]
    dependencies = table.get("dependencies")
    problems: list[Problem] = []
    for key, value in dependencies.items() if isinstance(dependencies, dict) else ():
        path = value.get("path") if isinstance(value, dict) else None
        if isinstance(path, str):
            try:
                package_path(folder, path)
            except PackageError:
                where = f"{MANIFEST_NAME}: dependencies.{bare(key)}"
                problems.append(path_problem(path, "is not inside the package, which must be whole by itself", where))
    return problems


def _named_files(card: Card) -> Iterable[tuple[str, str]]:
    """The files that the card says are in the package, each with its key path."""
    yield "source.path", card.source.path
    if card.weights.bindings is not None:
        yield "weights.bindings", card.weights.bindings
    if card.weights.recipe is not None:
        yield "weights.recipe", card.weights.recipe
    if card.tokenizer is not None and card.tokenizer.repo is None:
        yield "tokenizer.file", card.tokenizer.file
        if card.tokenizer.chat_template is not None:
            yield "tokenizer.chat_template", card.tokenizer.chat_template


def _check_source(run: _Check, load_source: Callable[[Path], CheckResult]) -> None:
    if run.readable is None:
        run.skip("source", "the card could not be read")
        return
    if not run.contained:
        # The checker follows links and dependencies, and quotes what it reads.
        run.skip("source", "the files are not in order")
        return
    # Opened as the card writes it, so that diagnostics name it so.
    result = load_source(run.package.folder / run.readable.source.path)
    errors = [_diagnosed(item) for item in result.diagnostics if item.severity == "error"]
    warnings = [_diagnosed(item) for item in result.diagnostics if item.severity == "warning"]
    if result.program is None or not result.ok:
        run.add("source", f"{counted(len(errors), 'error')} in the source", errors, warnings)
        return
    run.program = result.program
    modules = sum(1 for key in run.program.modules if key.split(".")[0] == "crate") or 1
    run.add("source", f"{counted(modules, 'module')} checked", errors, warnings)


def _diagnosed(item: Diagnostic) -> Problem:
    return Problem(
        f"source.{item.code}", item.span.location(), f"{item.code}: {_sentence(item.message)}", item.help or ""
    )


def _check_generics(run: _Check) -> None:
    if run.readable is None or run.program is None:
        run.skip("generics", "the source did not check")
        return
    card = run.readable
    try:
        bound = bind(run.program, card.source.root, card.generics)
    except BindError as error:
        help = "Correct [generics] in the card."
        problems = [Problem("generics.bind", "generics", _sentence(text), help) for text in error.problems]
        run.add("generics", f"{counted(len(problems), 'problem')} in the generics", problems)
        return
    run.bound = bound
    errors: list[Problem] = []
    entries = bound.entries()
    entry = entries.get(card.source.entry)
    if entry is None:
        message = f"The source has no entry {shown(card.source.entry)}."
        close = nearest(card.source.entry, entries)
        help = f"The nearest entry is {close}." if close else "Add an entry to the root block."
        errors.append(Problem("generics.entry", "source.entry", message, help))
    else:
        own = [decl.name for decl in entry.generics]
        for name in card.check:
            if name not in own:
                message = f"check.{name} is not a generic of the entry {entry.name}."
                close = nearest(name, own)
                help = f"The nearest is {close}." if close else f"Remove it: {entry.name} has no generics of its own."
                errors.append(Problem("generics.check", f"check.{name}", message, help))
    values = ", ".join(f"{name} = {value}" for name, value in card.generics.items())
    run.add("generics", values or "no generics", errors)


def _check_bindings(run: _Check) -> None:
    if run.readable is None or run.bound is None:
        run.skip("bindings", "the manifest is not known")
        return
    try:
        bindings = read_bindings(run.package.folder, run.readable)
        run.bindings = bindings.resolve(run.bound.manifest)
    except RegistryError as error:
        run.add("bindings", f"{counted(len(error.problems), 'problem')} in the bindings", error.problems)
        return
    required = len(run.bound.manifest.required())
    optional = len(run.bound.manifest.entries) - required
    warnings = []
    if run.readable.weights.bindings is None and (run.package.folder / "bindings.json").is_file():
        message, help = "The card does not name bindings.json, which is not read.", "Name it there, or remove it."
        warnings.append(Problem("bindings.unnamed", "weights.bindings", message, help))
    run.add("bindings", f"{counted(required, 'required parameter')}, {optional} optional", warnings=warnings)


def _check_weights(run: _Check, hub: bool, weights: Path | None, caches: bool) -> None:
    card, bound, bindings = run.card, run.bound, run.bindings
    if card is None or bound is None or bindings is None:
        run.skip("weights", "what they bind to is not known" if run.card else "the card has problems")
        return
    try:
        located = locate_weights(run.package.folder, card, weights, caches=caches)
        if located.remote and not hub:
            run.skip("weights", "not on this machine, and the Hub was not asked")
            return
        table = with_recipe(run.package.folder, card, read_tensors(located, card))
    except HubError as error:
        run.add("weights", "the Hub did not give the headers", error.problems)
        return
    except RegistryError as error:
        run.add("weights", f"{counted(len(error.problems), 'problem')} in the weight files", error.problems)
        return
    place = f"headers from {card.weights.repo}" if located.remote else "on this machine"
    match = run.match = match_weights(bound.manifest, bindings, table, card.weights.unused)
    warnings = [
        Problem(
            "weights.unused",
            table[name].file,
            f"No parameter reads the tensor {shown(name)} of {table[name].file}.",
            "Bind it, or list it in weights.unused.",
        )
        for name in match.unused
    ]
    warnings += _count_differs(card, bound, bindings, match)
    count = count_parameters(bound.manifest, bindings.tensors, match.present)
    read = {info.stored for info in match.tensors.values()}
    left = f", {len(table) - len(read)} left out" if len(table) > len(read) else ""
    summary = f"{human_count(count)} parameters in {counted(len(read), 'tensor')}{left}, {place}"
    run.add("weights", summary, match.problems, warnings)


def _count_differs(card: Card, bound: BoundProgram, bindings: ResolvedBindings, match: Match) -> list[Problem]:
    """A warning where the card's own count is not what the manifest has.

    Quantised weights may be packed, several in a byte, so that only the author can count them.
    """
    wanted = card.model.parameters
    packed = any(entry.dtype in STORAGE for entry in bound.manifest.entries)
    count = count_parameters(bound.manifest, bindings.tensors, match.present)
    if wanted is None or packed or wanted == count:
        return []
    message = f"The card gives {wanted} parameters, but the manifest has {count}."
    return [Problem("weights.parameters", "model.parameters", message, "Correct it, or leave it to be counted.")]


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
