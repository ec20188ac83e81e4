"""From what names a registry to its store."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from linnet.registry.errors import PATH_CHARACTERS, bare, nearest, shown
from linnet.registry.layout import FOLDERS
from linnet.registry.store.base import Store, StoreError, store_error
from linnet.registry.store.directory import DirectoryStore

OBJECT_SCHEMES = ("s3", "gs", "az")
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
SCHEMES = ("file", "https", "hf", *OBJECT_SCHEMES)


def open_store(url: str | os.PathLike[str]) -> Store:
    """The store that a path, `file://`, `https://`, `hf://`, `s3://`, `gs://` or `az://` address names.

    Nothing is asked of it yet, but a folder that holds other folders and none of a registry's is refused. `http://` is
    taken from this machine only. Raises StoreError for that, for other addresses and for one that holds a password.
    """
    text = os.fspath(url)
    if not text:
        raise _bad(text, "The registry's address is empty.", "Write a path, or an address such as hf://owner/name.")
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", text)
    if found is None:
        if "://" in text:
            raise _bad(text, f"{shown(text)} names no kind of registry.", "Write a path or an address, without more.")
        # Also from another current folder it stays the same one.
        return _folder(Path(os.path.expanduser(text)).absolute(), text)
    scheme = found[1].lower()
    if scheme not in (*SCHEMES, "http"):
        known = ", ".join(f"{name}://" for name in SCHEMES)
        close = nearest(scheme, SCHEMES, alike=0.5)
        help = f"Use {close}:// instead." if close else f"Use a path or one of {known}."
        raise _bad(text, f"{shown(text)} names no kind of registry.", help)
    parts = _parts(text)
    if parts.username is not None or parts.password is not None:
        shown_host = f"{scheme}://…@{parts.hostname or ''}"
        help = "Leave them out; tokens come from the environment (HF_TOKEN, AWS_ACCESS_KEY_ID)."
        raise _bad(shown_host, f"The registry address {shown_host} holds a user name or a password.", help)
    if scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path:
            raise _bad(text, f"{shown(text)} names no folder of this machine.", "Write file:///path/to/registry.")
        return _folder(Path(unquote(parts.path)), text)
    if parts.query or parts.fragment:
        raise _bad(text, f"{shown(text)} holds a ? or #, which no registry's address has.", "Leave it out.")
    if scheme in ("https", "http"):
        return _web(text, parts)
    if scheme == "hf":
        return _hub(text)
    from linnet.registry.store.objects import ObjectStore

    if not parts.netloc:
        raise _bad(text, f"{shown(text)} names no bucket.", f"Write {scheme}://bucket/prefix.")
    return ObjectStore(text)


def _folder(path: Path, text: str) -> Store:
    try:
        inside = {entry.name for entry in os.scandir(path) if entry.is_dir()}
    except OSError:
        # A folder that is not there yet, or may not be looked into: whoever reads or writes it says so.
        inside = set()
    if any(not name.startswith(".") for name in inside) and inside.isdisjoint(FOLDERS):
        # Against what is no registry everything would be new, and the gate would pass it.
        raise _bad(
            text,
            f"{bare(text, PATH_CHARACTERS)} holds other things and is no registry.",
            "Name its folder, or a new one.",
        )
    return DirectoryStore(path, text)


def _web(text: str, parts: SplitResult) -> Store:
    from linnet.registry.store.web import WebStore

    if not parts.hostname:
        raise _bad(text, f"{shown(text)} names no host.", "Write https://host/path.")
    if parts.scheme.lower() == "http" and parts.hostname not in _LOOPBACK:
        help = "Use https, or serve the registry from this machine."
        raise _bad(text, f"{shown(text)} is not encrypted: anyone on the way could change what it says.", help)
    return WebStore(text)


def _hub(text: str) -> Store:
    from linnet.registry.store.hub import HubStore

    repo = text[len("hf://") :].rstrip("/")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}", repo) or ".." in repo:
        raise _bad(text, f"{shown(text)} names no repository of the Hub.", "Write hf://owner/name.")
    return HubStore(repo, f"hf://{repo}")


def _parts(text: str) -> SplitResult:
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 (reading it parses it)
    except ValueError:
        raise _bad(text, f"{shown(text)} is no address.", "Check it for a port or brackets.") from None
    return parts


def _bad(text: str, message: str, help: str) -> StoreError:
    return store_error(StoreError, "address", bare(text), message, help)
