"""The files of one model, written to a folder: here, or in a process of its own that takes models one by one."""

from __future__ import annotations

import gc
import os
import pickle
import posixpath
import re
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from linnet.registry.errors import CardError, PackageError, Problem, RegistryError
from linnet.site_builder.collect import ModelPage, SiteError, collect_model
from linnet.site_builder.licences import is_known
from linnet.site_builder.links import LinkProblem, PageLinks, fault_of, read_links
from linnet.site_builder.model_pages import render_model
from linnet.site_builder.paths import Site, model_page
from linnet.site_builder.sources import ModelSource
from linnet.site_builder.whole import model_files, model_summary

# Pages weigh at most this, in bytes, but for sources and the list of every parameter.
PAGE_BYTES = 150_000
_NEIGHBOUR = re.compile(r"\.\./([a-z0-9][a-z0-9.-]*)")


@dataclass(slots=True)
class Rendered:
    """What was written of one model, or of another part of the site.

    `files` are paths with bytes; `links` lead to other parts, as files with anchors; `mentions` are the names of models
    that its texts would link to if the site had them, `linked` those that it had. `faults` are what strict mode
    refuses.
    """

    files: dict[str, int] = field(default_factory=dict)
    links: list[str] = field(default_factory=list)
    problems: list[LinkProblem] = field(default_factory=list)
    unresolved: list[LinkProblem] = field(default_factory=list)
    faults: list[LinkProblem] = field(default_factory=list)
    mentions: list[str] = field(default_factory=list)
    linked: list[str] = field(default_factory=list)
    summary: Mapping[str, Any] = field(default_factory=dict)


def write_model(source: ModelSource, site: Site, folder: Path) -> Rendered:
    """Write every file of a model below `folder`. Raises SiteError, RegistryError, OSError."""
    with tempfile.TemporaryDirectory(prefix="linnet-site-") as scratch:
        versions = source.packages(Path(scratch))
        page = collect_model(*versions)
        model = render_model(page, versions, site)
    done = Rendered(unresolved=model.unresolved, summary=model_summary(page))
    done.mentions = sorted(_mentions(page))
    done.linked = [name for name in done.mentions if name in site.names]
    write_part({**model.pages, **dict(model_files(page, site))}, folder, done)
    if not is_known(page.license):
        reason = "says no licence: name one of SPDX, or LicenseRef- and a name"
        done.faults.append(LinkProblem(model_page(page.name), page.license, reason))
    return done


def write_part(files: Mapping[str, bytes], folder: Path, done: Rendered) -> None:
    """Write the files of a part of the site and follow its links, those to other parts as far as they can be."""
    pages: dict[str, PageLinks] = {}
    for parent in {posixpath.dirname(path) for path in files}:
        (folder / parent).mkdir(parents=True, exist_ok=True)
    for path, data in files.items():
        with open(f"{folder}/{path}", "wb") as file:
            file.write(data)
        done.files[path] = len(data)
        if path.endswith(".html"):
            pages[path] = read_links(path, data.decode())
            if len(data) > PAGE_BYTES and is_weighed(path):
                done.faults.append(LinkProblem(path, f"{len(data):,} bytes", f"a page has at most {PAGE_BYTES:,}"))
    links: set[str] = set()
    for page in pages.values():
        done.problems += page.problems
        for written, target_path in page.targets:
            if target_path.partition("#")[0] not in done.files:
                links.add(target_path)
            elif reason := fault_of(target_path, done.files, lambda path: pages[path].ids):
                done.problems.append(LinkProblem(page.page, written, reason))
    done.links = sorted(links)


def is_weighed(path: str) -> bool:
    """Whether a page counts against PAGE_BYTES: all but sources and the list of every parameter."""
    parts = path.split("/")
    source = parts[0] == "std" or (parts[0] == "models" and parts[2:3] == ["source"] and parts[-1] != "index.html")
    return not source and parts[2:4] != ["parameters", "all"]


def _mentions(page: ModelPage) -> set[str]:
    texts = (page.readme, *(entry.doc for entry in page.entries))
    found = {name.rstrip(".-") for text in texts for name in _NEIGHBOUR.findall(text)}
    return found | ({page.baseline} if page.baseline else set())


def main() -> None:
    """Take pickled jobs from standard input, the first being the site and the folder, and answer each."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # Whatever prints must not be taken for an answer.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    settle()
    jobs = sys.stdin.buffer
    site, folder = pickle.load(jobs)
    while True:
        try:
            source = pickle.load(jobs)
        except EOFError:
            return
        pickle.dump(attempt(source, site, folder), answers)
        answers.flush()


def settle() -> None:
    """Programs live as long as their model is drawn: looking for garbage among them again and again takes a sixth of
    the time and finds none."""
    gc.set_threshold(200_000, 50, 100)


@dataclass(frozen=True, slots=True)
class Refused:
    """What keeps a model from being drawn: what was raised, and its problems, each with the model's name."""

    kind: type[RegistryError]
    problems: tuple[Problem, ...]


def attempt(source: ModelSource, site: Site, folder: Path) -> Rendered | Refused | SiteError | OSError:
    """What `write_model` made, or what it raised."""
    try:
        return write_model(source, site, folder)
    except RegistryError as error:
        # The card's error carries what was read of the card, which nobody needs here.
        kind = PackageError if isinstance(error, (PackageError, CardError)) else type(error)
        return Refused(kind, tuple(_named(source.name, problem) for problem in error.problems))
    except SiteError as error:
        return error
    except OSError as error:
        return OSError(error.errno, error.strerror, error.filename)


def _named(name: str, problem: Problem) -> Problem:
    where = problem.where if problem.where.startswith(f"{name}: ") else f"{name}: {problem.where}"
    return Problem(problem.kind, where, problem.message, problem.help)


if __name__ == "__main__":
    # Answers are of the classes that whoever asks knows, not of this script's.
    from linnet.site_builder.worker import main as work

    work()
