"""`nest site build`: packages to a folder of pages that opens from the file system."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

from linnet.site_builder.collect import ModelPage, PackageSource, SiteError, collect_model
from linnet.site_builder.links import LinkProblem, check_links
from linnet.site_builder.paths import Site, model_page
from linnet.site_builder.render import render_model
from linnet.site_builder.whole import model_files, model_summary, site_files

# A folder that holds this file is a site of ours and may be replaced.
MARKER = ".nest-site"
_MARKER_TEXT = "Written by `nest site build`, which replaces this whole folder.\n"


@dataclass(frozen=True, slots=True)
class SiteReport:
    """What was built: the folder, its HTML pages (paths in the site) with their bytes, and links that lead nowhere.

    `problems` holds the broken links and anchors of the pages themselves, which are faults; `unresolved` the relative
    links of READMEs and doc comments to what the site lacks, which are shown as plain text.
    """

    output: Path
    pages: tuple[tuple[str, int], ...]
    problems: tuple[LinkProblem, ...]
    unresolved: tuple[LinkProblem, ...]

    @property
    def ok(self) -> bool:
        return not self.problems


def build_site(packages: Sequence[PackageSource], output: Path, *, base_url: str | None = None) -> SiteReport:
    """Write the site of `packages` to `output`, whole or not at all; the same packages give the same bytes.

    `base_url` is where the site will be published (`https://example.org/nest`); pages then name their canonical
    address. The site is built in a temporary folder beside `output`, which it then replaces. Raises SiteError where
    `output` holds something that is not a site, or a package cannot be shown; RegistryError where a package's file
    cannot be read; OSError that names `output` where it cannot be written.
    """
    if base_url is not None and urlsplit(base_url).scheme not in ("http", "https"):
        raise SiteError(
            f"The base URL {base_url!r} is not an http or https address; write one such as https://example.org/nest."
        )
    output = output.resolve()
    refuse_foreign(output)
    pages = sorted((collect_model(source) for source in packages), key=lambda page: page.name)
    for one, other in pairwise(pages):
        if one.name == other.name:
            raise SiteError(f'Two packages have the name "{one.name}"; give each its own.')
    try:
        return _build(pages, output, base_url)
    except OSError as error:
        # The system names the temporary folder, which says nothing to a user.
        raise OSError(error.errno, error.strerror, str(output)) from None


def _build(pages: Sequence[ModelPage], output: Path, base_url: str | None) -> SiteReport:
    output.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{output.name}.", dir=output.parent))
    try:
        unresolved = _write_pages(building, pages, base_url)
        _write(building / MARKER, _MARKER_TEXT.encode())
        problems = check_links(building)
        sizes = tuple(
            (path.relative_to(building).as_posix(), path.stat().st_size) for path in sorted(building.rglob("*.html"))
        )
        building.chmod(0o755)  # a temporary folder is its owner's alone
        _swap(building, output)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return SiteReport(output, sizes, problems, unresolved)


def refuse_foreign(output: Path) -> None:
    """Raises SiteError where the folder `output` is something else, or holds something else than a site."""
    for path in (output, *output.parents):
        if path.exists() and not path.is_dir():
            raise SiteError(f"{path} is not a folder; name another with -o.")
    if output.is_dir() and any(output.iterdir()) and not (output / MARKER).is_file():
        raise SiteError(f"{output} is not empty and holds no site; name another folder with -o, or empty it.")


def _write_pages(output: Path, pages: Sequence[ModelPage], base_url: str | None) -> tuple[LinkProblem, ...]:
    site = Site((base_url or "").rstrip("/"), frozenset(page.name for page in pages))
    unresolved: list[LinkProblem] = []
    for page in pages:
        rendered = render_model(page, site)
        path = model_page(page.name)
        _write(output / path, rendered.html)
        for extra, data in model_files(page, site):
            _write(output / extra, data)
        unresolved += [LinkProblem(path, link, "leads to nothing in the site") for link in rendered.unresolved]
    for extra, data in site_files([model_summary(page) for page in pages], site):
        _write(output / extra, data)
    return tuple(unresolved)


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
