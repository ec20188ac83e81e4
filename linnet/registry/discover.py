"""Which packages there are: under folders, in git checkouts, in the repositories of an organisation on the Hub."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from linnet.registry.endpoint import named_endpoint
from linnet.registry.errors import HubError, Problem, RegistryError, bare, shown
from linnet.registry.locate import Located
from linnet.registry.package import CARD_NAME, LEFTOVERS

HUB_SCHEME = "hf://"
# What marks a folder as a virtual environment, whatever its name.
ENVIRONMENT_MARK = "pyvenv.cfg"
GIT_SECONDS = 60.0


@dataclass(slots=True)
class Discovery:
    """Packages in the order in which they were met, each once; and what kept others from being looked at."""

    packages: list[Located] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def discover(roots: Iterable[str | os.PathLike[str]]) -> Discovery:
    """Every package under each root: a folder, or `hf://org`.

    A folder that holds a `nest.toml` is a package, and nothing inside it is another. Folders are walked to their end;
    hidden ones, `node_modules`, `__pycache__` and virtual environments are passed over, and links to folders are not
    followed, except one that leads straight to a package. Of a git checkout, what git ignores is passed over too,
    unless the root itself is ignored; without git nothing is. A root that holds no package is a problem.
    """
    found = Discovery()
    seen: set[tuple[int, int]] = set()
    for root in roots:
        text = os.fspath(root)
        packages = (
            _on_hub(text.removeprefix(HUB_SCHEME), found.problems)
            if text.startswith(HUB_SCHEME)
            else _in_folder(Path(text).expanduser(), found.problems)
        )
        for package in packages:
            # Two roots may overlap.
            try:
                status = os.stat(package.folder)
            except OSError:
                # Gone already: the check says so.
                found.packages.append(package)
                continue
            if (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                found.packages.append(package)
    return found


def _in_folder(root: Path, problems: list[Problem]) -> Iterator[Located]:
    if not root.is_dir():
        fault = "is not a folder" if root.exists() else "does not exist"
        problems.append(_problem(str(root), f"{root} {fault}.", f"Name a folder, or {HUB_SCHEME}org."))
        return
    if os.path.lexists(root / CARD_NAME):
        yield Located(root)
        return
    before = len(problems)
    checkouts: dict[Path | None, list[Path]] = {}
    for folder, checkout in _walk(root, problems):
        checkouts.setdefault(checkout, []).append(folder)
    # One question a checkout, whatever it holds.
    kept = [
        folder
        for checkout, folders in checkouts.items()
        for folder in (folders if checkout is None else _unignored(root, checkout, folders))
    ]
    if not kept and len(problems) == before:
        help = f"Name a folder with folders in it that each hold a {CARD_NAME}."
        problems.append(_problem(str(root), f"{root} holds no package.", help))
    yield from map(Located, sorted(kept))


def _walk(root: Path, problems: list[Problem]) -> Iterator[tuple[Path, Path | None]]:
    """Every folder below `root` that has a card, with the git checkout that it is in."""
    pending: list[tuple[str, Path | None]] = [(str(root), _enclosing_checkout(root))]
    while pending:
        folder, checkout = pending.pop()
        try:
            entries = list(os.scandir(folder))
        except OSError as error:
            reason = (error.strerror or "unknown error").lower()
            message = f"{folder} cannot be listed: {reason}."
            problems.append(_problem(folder, message, "Make it readable, or name the folders beside it."))
            continue
        if any(entry.name == ENVIRONMENT_MARK for entry in entries):
            continue
        if any(entry.name == ".git" for entry in entries):
            checkout = Path(folder)
        for entry in entries:
            if entry.name.startswith(".") or entry.name in LEFTOVERS or not entry.is_dir():
                continue
            if os.path.lexists(f"{entry.path}/{CARD_NAME}"):
                # Git knows a link, and not what lies behind it.
                yield Path(entry.path), None if entry.is_symlink() else checkout
            elif not entry.is_symlink():
                pending.append((entry.path, checkout))


def _enclosing_checkout(folder: Path) -> Path | None:
    resolved = folder.resolve()
    return next((parent for parent in (resolved, *resolved.parents) if os.path.lexists(parent / ".git")), None)


def _unignored(root: Path, checkout: Path, folders: Sequence[Path]) -> Sequence[Path]:
    """Those packages of a checkout that git tracks, or that it would offer to add."""
    if _git(checkout, "check-ignore", "--quiet", "--no-index", "--", str(root.resolve())) is not None:
        return folders
    listed = _git(
        checkout, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", f":(glob)**/{CARD_NAME}"
    )
    if listed is None:
        return folders
    base = os.path.realpath(checkout)
    known = {os.path.join(base, os.fsdecode(path)) for path in listed.split(b"\0")}
    return [folder for folder in folders if os.path.join(os.path.realpath(folder), CARD_NAME) in known]


def _git(checkout: Path, *arguments: str) -> bytes | None:
    """What git prints; None where it fails or is not there.

    A checkout is a stranger's: its configuration may name programs, which none of these settings let git start.
    """
    settings = ("core.fsmonitor=false", "core.hooksPath=/dev/null", "protocol.allow=never")
    command = ["git", *(part for setting in settings for part in ("-c", setting)), "-C", str(checkout), *arguments]
    # Variables such as GIT_DIR, set where a hook runs, would lead git to another repository.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment = {**kept, "GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(command, capture_output=True, env=environment, timeout=GIT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _on_hub(organisation: str, problems: list[Problem]) -> Iterator[Located]:
    """The packages at the root of an organisation's model repositories, each fetched at its newest commit."""
    named_endpoint()
    from huggingface_hub import HfApi

    from linnet.registry.fetch import fetch_package
    from linnet.registry.hub import hub_endpoint, hub_errors

    name = organisation.strip("/")
    if not name or "/" in name:
        help = f"Write {HUB_SCHEME}org; one repository is named org/name, without {HUB_SCHEME}."
        problems.append(_problem(f"{HUB_SCHEME}{organisation}", f"{shown(organisation)} is no organisation.", help))
        return
    try:
        with hub_errors(name):
            listed = HfApi(endpoint=hub_endpoint()).list_models(author=name, full=True)
            repos = sorted(
                (model.id, model.sha)
                for model in listed
                if model.sha and any(file.rfilename == CARD_NAME for file in model.siblings or ())
            )
    except HubError as error:
        problems.extend(error.problems)
        return
    if not repos:
        message = f"The organisation {name} has no model repository with a {CARD_NAME} at its root."
        problems.append(_problem(f"{HUB_SCHEME}{name}", message, "Check its name; private ones need a token."))
    for repo, commit in repos:
        try:
            yield Located(fetch_package(repo, commit)[0], repo, commit)
        except RegistryError as error:
            problems.extend(error.problems)


def _problem(where: str, message: str, help: str) -> Problem:
    return Problem("package.folder", bare(where), message, help)
