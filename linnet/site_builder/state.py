"""What is known of a site that was built here before: which files are of which part, made of what.

It is kept in the user's cache, not in the site. A site and what is kept of it belong together by the digest in the
site's marker, so that a site that someone else built is never taken for the one that is known.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

from linnet.registry.cache import cache_folder
from linnet.registry.contents import LINNET, code_digest
from linnet.site_builder.links import LinkProblem
from linnet.site_builder.worker import Rendered

SCHEMA = 1
# A folder that holds this file is a site of ours and may be replaced.
MARKER = ".nest-site"
_MARKER_TEXT = "Written by `nest site build`, which replaces this whole folder.\n"
# Other releases of these write other pages.
_LIBRARIES = ("jinja2", "markdown-it-py", "markupsafe", "nh3", "pygments")


@dataclass(slots=True)
class Part:
    """A part of the site, a model or the standard library, and the digest of what it was made of."""

    key: str
    rendered: Rendered


@dataclass(slots=True)
class State:
    """The parts by name, and the files that are of all of them together, each with its size."""

    code: str
    parts: dict[str, Part] = field(default_factory=dict)
    whole: dict[str, int] = field(default_factory=dict)

    def files(self) -> dict[str, int]:
        """Every file of the site with its size, but for the marker."""
        found = dict(self.whole)
        for part in self.parts.values():
            found.update(part.rendered.files)
        return found

    def text(self) -> str:
        """All that is known, as JSON."""
        parts = {name: {"key": part.key, **_plain(part.rendered)} for name, part in sorted(self.parts.items())}
        return json.dumps({"schema": SCHEMA, "code": self.code, "whole": self.whole, "parts": parts}, sort_keys=True)


def marker_text(digest: str) -> bytes:
    """The marker of the site that a state of this digest tells of; empty while one is being written."""
    return f"{_MARKER_TEXT}{digest}\n".encode()


@functools.cache
def site_code() -> str:
    """The digest of the code that makes pages: the language, its library, the registry, this room, its libraries."""
    digest = hashlib.sha256(code_digest().encode())
    for name in _LIBRARIES:
        digest.update(f"{name} {version(name)}\n".encode())
    folder = LINNET / "site_builder"
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            data = path.read_bytes()
            digest.update(f"{path.relative_to(folder)} {len(data)}\n".encode())
            digest.update(data)
    return digest.hexdigest()


def read_state(output: Path) -> State | None:
    """What is known of the site in `output`; None where it is not the one that is known, or lacks a file."""
    try:
        text = _place(output).read_text(encoding="utf-8")
        if (output / MARKER).read_bytes() != marker_text(hashlib.sha256(text.encode()).hexdigest()):
            return None
        found = json.loads(text)
        if found["schema"] != SCHEMA or found["code"] != site_code():
            return None
        parts = {name: Part(item.pop("key"), _rendered(item)) for name, item in found["parts"].items()}
        state = State(found["code"], parts, found["whole"])
        root = f"{output}{os.sep}"
        if any(os.stat(root + path).st_size != size for path, size in state.files().items()):
            return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return state


def write_state(output: Path, text: str) -> None:
    """Keep what is known of the site in `output`. Where it cannot be kept, the next build makes everything again."""
    place = _place(output)
    with contextlib.suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=place.parent, prefix=".site-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(name, place)
        except BaseException:
            os.unlink(name)
            raise


def _place(output: Path) -> Path:
    return cache_folder() / "sites" / f"{hashlib.sha256(str(output).encode()).hexdigest()[:32]}.json"


def _plain(rendered: Rendered) -> dict[str, Any]:
    """What `_rendered` reads. Not `asdict`, which copies every word of the search index."""
    shallow = {item.name: getattr(rendered, item.name) for item in fields(Rendered)}
    return {**shallow, **{key: [asdict(problem) for problem in shallow[key]] for key in _PROBLEMS}}


def _rendered(item: Mapping[str, Any]) -> Rendered:
    problems = {key: [LinkProblem(**problem) for problem in item[key]] for key in _PROBLEMS}
    return Rendered(**{**item, **problems})


_PROBLEMS = ("problems", "unresolved", "faults")
