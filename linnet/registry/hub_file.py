"""One large file of a Hub repository as a stream that begins anywhere: what a pinned digest lets the cache resume."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import httpx2
from huggingface_hub import constants, get_session
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]
from tqdm import tqdm

from linnet.registry.errors import HubError, Problem
from linnet.registry.hub import CONNECT_SECONDS, REASONS, HubTarget, hub_endpoint, status_error, transport_errors
from linnet.registry.store.base import StoreError
from linnet.registry.store.http import HttpReader


def hub_target(repo: str, revision: str | None, file: str) -> HubTarget:
    """A file at a revision of a repository, on the Hub that is configured."""
    return HubTarget(repo, revision or "main", file, hub_endpoint())


def ask_hub(target: HubTarget) -> int | None:
    """Ask for the head of a file once, and give its size in bytes where the Hub tells it.

    The library's own download tries a Hub that cannot be reached for half a minute; this raises HubError at once.
    """
    if constants.HF_HUB_OFFLINE:
        return None
    with transport_errors(target):
        headers = build_hf_headers(library_name="linnet-nest")
        answer = get_session().head(target.url, headers=headers, timeout=CONNECT_SECONDS, follow_redirects=False)
    size = answer.headers.get("X-Linked-Size", "")
    return int(size) if re.fullmatch(r"[0-9]{1,19}", size) else None


def stream_file(target: HubTarget, start: int, size: int | None) -> Iterator[bytes]:
    """The bytes of a file from `start` on; what breaks off is resumed. Shows a bar of `size` bytes on a terminal.

    Raises HubError; StoreError where the file is shorter than `start`.
    """

    def refuse(response: httpx2.Response, path: str) -> NoReturn:
        raise status_error(target, response, "authorization" in response.request.headers)

    def headers() -> Mapping[str, str]:
        found: Mapping[str, str] = build_hf_headers(library_name="linnet-nest")
        return found

    reader = HttpReader(target.endpoint, lambda path: target.url, get_session, headers, refuse)
    # None: where there is no terminal.
    hidden = True if constants.HF_HUB_DISABLE_PROGRESS_BARS else None
    counts: dict[str, Any] = {"total": size, "initial": start, "unit": "B", "unit_scale": True}
    bar = tqdm(desc=target.file, delay=1, leave=False, disable=hidden, **counts)
    try:
        with transport_errors(target), bar:
            for block in reader.stream(target.name, start):
                yield block
                bar.update(len(block))
    except StoreError as error:
        if error.problems[0].kind == "store.beyond-end":
            raise
        raise HubError(map(_of_hub, error.problems)) from None


def _of_hub(problem: Problem) -> Problem:
    """A failure of a store in the words that tell the Hub's apart."""
    word = problem.kind.removeprefix("store.")
    return Problem(f"hub.{word if word in REASONS else 'unexpected'}", problem.where, problem.message, problem.help)
