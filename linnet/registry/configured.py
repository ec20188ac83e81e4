"""Which registries are asked, and where this machine keeps its own."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

VARIABLE = "LINNET_REGISTRY"


def data_folder() -> Path:
    """What is not a cache and must last: `LINNET_DATA`, else the user's data folder."""
    named = os.environ.get("LINNET_DATA")
    return Path(named).expanduser() if named else Path(platformdirs.user_data_dir("linnet"))


def default_registry() -> Path:
    """The registry that is used where none is named: a folder of this user, which need not be there yet."""
    return data_folder() / "registry"


def configured_registries(named: str | os.PathLike[str] | None = None) -> tuple[str, ...]:
    """The registries to ask, in order: those that `named` gives (`registry=`, `--registry`), else `LINNET_REGISTRY`,
    else the default one. Several are separated by commas; none is opened here.
    """
    text = os.fspath(named) if named is not None else os.environ.get(VARIABLE, "")
    found = dict.fromkeys(part.strip() for part in text.split(",") if part.strip())
    return tuple(found) or (str(default_registry()),)
