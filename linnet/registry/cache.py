"""The folder where downloads are kept, and the weights that are in it under their digests."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import platformdirs


def cache_folder() -> Path:
    """Where downloads are kept: `LINNET_CACHE`, else the user's cache folder."""
    named = os.environ.get("LINNET_CACHE")
    return Path(named).expanduser() if named else Path(platformdirs.user_cache_dir("linnet"))


def kept_weights(sha256: str) -> Path | None:
    """The weight file of that digest, from wherever it came; None where none was kept. Its bytes are not read here."""
    path = _place(sha256)
    return path if path.is_file() else None


def keep_weights(file: Path, sha256: str) -> None:
    """Let every package whose card gives that digest find `file`, whose bytes have it. Nothing is copied.

    Where the cache cannot hold a link, nothing is kept: who needs the file names its folder.
    """
    path = _place(sha256)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink() and not path.exists():
            path.unlink()
        if not path.exists():
            path.symlink_to(file.resolve())


def _place(sha256: str) -> Path:
    return cache_folder() / "weights" / f"{sha256}.safetensors"
