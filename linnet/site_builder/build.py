"""`nest site build`: packages to a folder of pages that opens from the file system."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from urllib.parse import urlsplit

from linnet.registry.errors import PackageError
from linnet.site_builder.collect import PackageSource, SiteError
from linnet.site_builder.feeds import sitemaps
from linnet.site_builder.links import LinkProblem, PageLinks, check_targets, fault_of, read_links
from linnet.site_builder.paths import Site
from linnet.site_builder.pool import Watch, write_models
from linnet.site_builder.sources import ModelSource, given_sources
from linnet.site_builder.state import MARKER, Part, State, marker_text, read_state, site_code, write_state
from linnet.site_builder.std_pages import std_modules, std_pages
from linnet.site_builder.whole import library_files, library_summary, site_files
from linnet.site_builder.worker import PAGE_BYTES, Refused, Rendered, is_weighed, write_part

# The part of the site that shows the standard library; no model has such a name.
STD = "std:"
_WHOLE_PAGES_UNWEIGHED = ("docs/",)


@dataclass(frozen=True, slots=True)
class SiteReport:
    """What was built: the folder, its HTML pages (paths in the site) with their bytes, and links that lead nowhere.

    `problems` holds the broken links and anchors of the pages themselves, which are faults, and under strict mode all
    else that it refuses; `unresolved` the relative links of READMEs and doc comments to what the site lacks, which are
    shown as plain text. `rendered` names the models that were drawn, the others being as they were.
    """

    output: Path
    pages: tuple[tuple[str, int], ...]
    problems: tuple[LinkProblem, ...]
    unresolved: tuple[LinkProblem, ...]
    rendered: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.problems


def build_site(
    models: Sequence[PackageSource] | Sequence[ModelSource],
    output: Path,
    *,
    base_url: str | None = None,
    strict: bool = False,
    jobs: int | None = None,
    fresh: bool = False,
    guide: Path | None = None,
    watch: Watch = iter,
) -> SiteReport:
    """Write the site of `models` to `output`, whole or not at all; the same models give the same bytes.

    `base_url` is where the site will be published (`https://example.org/nest`); pages then name their canonical
    address. `guide` is a folder that MkDocs wrote, which becomes a part of the site. Only models that changed since the
    site was last built here are drawn, all with `fresh`, in `jobs` processes. What is drawn goes to a temporary folder
    beside `output` first and takes its place when all of it is there; under `strict` only where nothing is wrong.
    Raises SiteError where `output` holds something that is not a site, or a package cannot be shown; RegistryError with
    what is wrong with all packages; OSError that names `output` where it cannot be written.
    """
    if base_url is not None and urlsplit(base_url).scheme not in ("http", "https"):
        raise SiteError(
            f"The base URL {base_url!r} is not an http or https address; write one such as https://example.org/nest."
        )
    output = output.resolve()
    refuse_foreign(output)
    given = [model for model in models if isinstance(model, PackageSource)]
    sources = [*given_sources(given), *(model for model in models if not isinstance(model, PackageSource))]
    sources.sort(key=lambda source: source.name)
    sections = ("models", "compare", "std", *(("guide",) if guide else ()))
    site = Site((base_url or "").rstrip("/"), frozenset(source.name for source in sources), sections)
    if len(site.names) < len(sources):
        names = [source.name for source in sources]
        twice = next(name for name in names if names.count(name) > 1)
        raise SiteError(f'Two packages have the name "{twice}"; give each its own.')
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{output.name}.", dir=output.parent))
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(output)) from None
    try:
        return _Build(site, output, staging, strict, guide).run(sources, fresh, jobs, watch)
    except OSError as error:
        # The system names the temporary folder, which says nothing to a user.
        shown = error.filename if error.filename and str(staging) not in str(error.filename) else str(output)
        raise OSError(error.errno, error.strerror, shown) from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def refuse_foreign(output: Path) -> None:
    """Raises SiteError where the folder `output` is something else, or holds something else than a site."""
    for path in (output, *output.parents):
        if path.exists() and not path.is_dir():
            raise SiteError(f"{path} is not a folder; name another with -o.")
    if output.is_dir() and any(output.iterdir()) and not (output / MARKER).is_file():
        raise SiteError(f"{output} is not empty and holds no site; name another folder with -o, or empty it.")


@dataclass(slots=True)
class _Build:
    site: Site
    output: Path
    staging: Path
    strict: bool
    guide: Path | None

    def run(self, sources: Sequence[ModelSource], fresh: bool, jobs: int | None, watch: Watch) -> SiteReport:
        known = None if fresh else read_state(self.output)
        kept = known.parts if known is not None else {}
        now = State(site_code())
        missing: list[ModelSource] = []
        for source in sources:
            part = kept.get(source.name)
            if part is not None and self._same(source, part):
                now.parts[source.name] = part
            else:
                missing.append(source)
        now.parts[STD] = kept[STD] if STD in kept and kept[STD].key == self._key("") else self._std()
        for source, rendered in self._draw(missing, jobs, watch):
            now.parts[source.name] = Part(self._key(source.key) if source.key is not None else "", rendered)
        pages = self._whole(now, known, sources)
        problems = self._problems(now, pages)
        unresolved = [item for _, part in sorted(now.parts.items()) for item in part.rendered.unresolved]
        if self.strict:
            problems += unresolved
        drawn = tuple(sorted(source.name for source in missing))
        sizes = tuple(sorted((path, size) for path, size in now.files().items() if path.endswith(".html")))
        report = SiteReport(self.output, sizes, tuple(problems), tuple(unresolved), drawn)
        if report.ok or not self.strict:
            self._publish(now, known)
        return report

    def _key(self, key: str) -> str:
        parts = (key, self.site.base_url, *self.site.sections)
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def _same(self, source: ModelSource, part: Part) -> bool:
        if source.key is None or part.key != self._key(source.key):
            return False
        return part.rendered.linked == [name for name in part.rendered.mentions if name in self.site.names]

    def _std(self) -> Part:
        modules = std_modules()
        done = Rendered(summary=library_summary(modules))
        write_part(dict((*std_pages(modules, self.site), *library_files(modules))), self.staging, done)
        return Part(self._key(""), done)

    def _draw(
        self, missing: Sequence[ModelSource], jobs: int | None, watch: Watch
    ) -> Iterable[tuple[ModelSource, Rendered]]:
        """What was drawn of each model. Raises all that is wrong with the packages together."""
        refused: list[Refused] = []
        for source, outcome in write_models(missing, self.site, self.staging, jobs, watch):
            if isinstance(outcome, Rendered):
                yield source, outcome
            elif isinstance(outcome, Refused):
                refused.append(outcome)
            else:
                raise outcome
        if refused:
            problems = [problem for item in refused for problem in item.problems]
            # A registry out of reach is another matter than packages that are wrong.
            kinds = {item.kind for item in refused}
            kind = kinds.pop() if len(kinds) == 1 else PackageError
            raise kind(sorted(problems, key=lambda problem: problem.where))

    def _whole(self, now: State, known: State | None, sources: Sequence[ModelSource]) -> list[PageLinks]:
        """Write what is made of all models together, where it is not there already; the links of its pages."""
        pages = []
        summaries = [now.parts[source.name].rendered.summary for source in sources]
        library = now.parts[STD].rendered.summary
        written = chain(site_files(summaries, library, self.site, self.guide), self._sitemaps(now))
        for path, data in written:
            now.whole[path] = len(data)
            if path.endswith(".html"):
                pages.append(read_links(path, data.decode()))
            if known is None or known.whole.get(path) != len(data) or (self.output / path).read_bytes() != data:
                _write(self.staging / path, data)
        return pages

    def _sitemaps(self, now: State) -> Iterator[tuple[str, bytes]]:
        """The maps of all pages that `now` has by the time they are asked for."""
        if self.site.base_url:
            yield from sitemaps((path for path in now.files() if path.endswith(".html")), self.site).items()

    def _problems(self, now: State, pages: Sequence[PageLinks]) -> list[LinkProblem]:
        """Every broken link, and under strict mode what else is wrong."""
        files = now.files()
        known: dict[str, Container[str]] = {page.page: page.ids for page in pages}

        def ids_of(path: str) -> Container[str]:
            if path not in known:
                place = self.staging / path
                text = (place if place.is_file() else self.output / path).read_text(encoding="utf-8")
                known[path] = read_links(path, text).ids
            return known[path]

        problems = [problem for page in pages for problem in page.problems]
        problems += check_targets(pages, files, ids_of)
        faults: dict[str, str] = {}
        for name, part in sorted(now.parts.items()):
            problems += part.rendered.problems
            for target in part.rendered.links:
                if target not in faults:
                    faults[target] = fault_of(target, files, ids_of)
                if faults[target]:
                    problems.append(LinkProblem(f"models/{name}" if name != STD else "std", target, faults[target]))
            if self.strict:
                problems += part.rendered.faults
        if self.strict:
            problems += [
                LinkProblem(path, f"{size:,} bytes", f"a page has at most {PAGE_BYTES:,}")
                for path, size in now.whole.items()
                if path.endswith(".html") and size > PAGE_BYTES and is_weighed(path)
                if not path.startswith(_WHOLE_PAGES_UNWEIGHED)
            ]
        return problems

    def _publish(self, now: State, known: State | None) -> None:
        """Put what was written in the place of what is there."""
        text = now.text()
        marker = marker_text(hashlib.sha256(text.encode()).hexdigest())
        self.staging.chmod(0o755)  # a temporary folder is its owner's alone
        if known is None:
            _write(self.staging / MARKER, marker)
            _swap(self.staging, self.output)
        else:
            files = now.files()
            staged = _files_below(self.staging)
            fresh = [path for path in files if path in staged]
            gone = [path for path in known.files() if path not in files]
            _exchange(self.staging, self.output, fresh, gone, marker)
        write_state(self.output, text)


def _files_below(folder: Path) -> set[str]:
    """Every file below a folder, as its path there with slashes."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _swap(building: Path, output: Path) -> None:
    """Put `building` in the place of `output`; on failure the old site stands again."""
    if not output.exists():
        os.rename(building, output)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{output.name}.", dir=output.parent))
    os.rename(output, old)  # onto the empty folder just made
    try:
        os.rename(building, output)
    except OSError:
        os.rename(old, output)
        raise
    shutil.rmtree(old)


def _exchange(staging: Path, output: Path, fresh: Sequence[str], gone: Sequence[str], marker: bytes) -> None:
    """Put the files `fresh` of `staging` into `output` and take `gone` away; on failure all is as it was.

    Until the marker names the new state, a process that is killed leaves a site that the next build makes anew.
    """
    old = staging / ".old"
    before = (output / MARKER).read_bytes()
    done: list[Callable[[], object]] = []
    _replace(output / MARKER, marker_text(""))
    try:
        for path in (*gone, *fresh):
            target = output / path
            if target.is_file():
                _move(target, old / path)
                done.append(lambda path=path: _move(old / path, output / path))  # type: ignore[misc]
        for path in fresh:
            _move(staging / path, output / path)
            done.append(lambda path=path: (output / path).unlink())  # type: ignore[misc]
    except OSError:
        for undo in reversed(done):
            undo()
        _replace(output / MARKER, before)
        raise
    for folder in sorted({parent for path in gone for parent in (output / path).parents}, reverse=True):
        if folder.is_relative_to(output) and folder != output and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
    _replace(output / MARKER, marker)


def _move(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    os.rename(source, target)


def _replace(path: Path, data: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    os.chmod(name, 0o644)
    os.replace(name, path)
