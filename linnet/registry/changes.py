"""Which packages of a folder changed since a git revision."""

from __future__ import annotations

import subprocess
from pathlib import Path

from linnet.registry.errors import Problem, RegistryError, shown
from linnet.registry.package import CARD_NAME


class GitError(RegistryError):
    """git is not here, the folder is in no repository, or the revision is not known there."""


def changed_packages(nests: Path, since: str) -> list[Path]:
    """The packages of `nests` that differ from where this branch left `since`, uncommitted and new files included.

    What others changed on `since` meanwhile does not count. Raises GitError.
    """
    commit = _git(nests, since, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{since}^{{commit}}").strip()
    # Without a common ancestor, as in a clone of one commit, the revision itself is what there is to compare with.
    base = _run(nests, "merge-base", commit, "HEAD").stdout.strip() or commit
    listed = _git(nests, since, "diff", "--name-only", "-z", "--no-renames", "--relative", base, "--", ".")
    listed += _git(nests, since, "ls-files", "--others", "--exclude-standard", "-z", "--", ".")
    names = sorted({path.split("/")[0] for path in listed.split("\0") if "/" in path})
    return [nests / name for name in names if (nests / name / CARD_NAME).is_file()]


def _git(nests: Path, since: str, *words: str) -> str:
    done = _run(nests, *words)
    if done.returncode == 0:
        return done.stdout
    told = (done.stderr.strip().splitlines() or [""])[-1]
    if "not a git repository" in told:
        message = f"{nests} is in no git repository, so nothing tells what changed since {shown(since)}."
        raise _error(message, "Name the packages instead of --changed-since.")
    if words[0] == "rev-parse":
        message = f"git knows no revision {shown(since)} here."
        raise _error(message, "Fetch it first (git fetch origin main; fetch-depth: 0 for actions/checkout).")
    raise _error(f"git {words[0]} failed in {nests}: {told or 'it printed nothing'}.", "Name the packages instead.")


def _run(nests: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = ["git", "-c", "core.quotePath=false", "-C", str(nests), *words]
    try:
        return subprocess.run(command, capture_output=True, encoding="utf-8", errors="surrogateescape", check=False)
    except FileNotFoundError:
        raise _error(
            "git is not installed, so nothing tells what changed.", "Install it, or name the packages."
        ) from None


def _error(message: str, help: str) -> GitError:
    return GitError([Problem("gate.git", "--changed-since", message, help)])
