"""Which registries are asked, and where this machine keeps its own."""

from __future__ import annotations

import os
from pathlib import Path

from linnet.registry.errors import Problem, RegistryError

VARIABLE = "LINNET_REGISTRY"


def data_folder() -> Path:
    """What is not a cache and must last: `LINNET_DATA`, else the user's data folder."""
    named = os.environ.get("LINNET_DATA")
    if named:
        return Path(os.path.expanduser(named))
    import platformdirs

    return Path(platformdirs.user_data_dir("linnet"))


def default_registry() -> Path:
    """The registry that is used where none is named: a folder of this user, which need not be there yet."""
    return data_folder() / "registry"


def configured_registries(named: str | os.PathLike[str] | None = None) -> tuple[str, ...]:
    """The registries to ask, in order: those that `named` gives (`registry=`, `--registry`), else `LINNET_REGISTRY`,
    else the default one. Several are separated by commas; none is opened here. Raises RegistryError for an empty name.
    """
    text, source = named, "--registry"
    if text is None:
        text, source = os.environ.get(VARIABLE) or None, VARIABLE
    if text is None:
        return (str(default_registry()),)
    found = tuple(dict.fromkeys(part.strip() for part in os.fspath(text).split(",")))
    if not all(found):
        message = f"{source} names a registry by an empty text."
        raise RegistryError([Problem("registry.address", source, message, "Name a folder or an address.")])
    return found
