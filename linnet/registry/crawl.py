"""Headers of weight files from the Hub: two ranged requests a file, and never a tensor's byte.

URL, session and token are `huggingface_hub`'s own. The first request asks for the eight bytes that hold the header's
length, the second for the header. Both name the pinned commit.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import httpx2
from huggingface_hub import get_session
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

from linnet.registry.errors import HeaderError, HubError, RegistryError, shown
from linnet.registry.headers import PREFIX_BYTES, TensorInfo, header_length, parse_header
from linnet.registry.hub import (
    CONNECT_SECONDS,
    RETRY_DELAYS,
    HubTarget,
    hub_endpoint,
    passing,
    patiently,
    status_error,
    timeout_error,
    transport_errors,
    truncated_error,
)

READ_SECONDS = 20.0
REQUEST_SECONDS = 120.0
THREADS = 4


@dataclass(frozen=True, slots=True)
class _Answer:
    """The bytes of a range, and the whole file's size where the server tells it."""

    data: bytes
    file_size: int | None


def crawl_headers(
    repo: str, revision: str, files: Sequence[str], *, delays: Sequence[float] = RETRY_DELAYS
) -> dict[str, tuple[TensorInfo, ...]]:
    """The tensors that each safetensors file of `repo` declares at the commit `revision`.

    `delays` are the pauses, in seconds, before a request that met 429, 5xx or a broken connection is sent again.
    Raises HubError where the Hub does not give a header, HeaderError where it gives a bad one.
    """
    headers = build_hf_headers(library_name="linnet-nest")
    targets = [HubTarget(repo, revision, file, hub_endpoint()) for file in files]

    def read(target: HubTarget) -> tuple[TensorInfo, ...] | RegistryError:
        try:
            return _read_header(target, headers, delays)
        except RegistryError as error:
            return error

    with ThreadPoolExecutor(max_workers=min(THREADS, len(targets)) or 1) as pool:
        results = list(pool.map(read, targets))
    failures = [result for result in results if isinstance(result, RegistryError)]
    if failures:
        # What is wrong with the Hub comes first, and once: an endpoint out of reach is one problem, not one a file.
        kind = HubError if any(isinstance(failure, HubError) for failure in failures) else HeaderError
        problems = [problem for failure in failures if isinstance(failure, kind) for problem in failure.problems]
        raise kind({problem.message: problem for problem in reversed(problems)}.values())
    return {
        target.file: result
        for target, result in zip(targets, results, strict=True)
        if not isinstance(result, RegistryError)
    }


def _read_header(target: HubTarget, headers: Mapping[str, str], delays: Sequence[float]) -> tuple[TensorInfo, ...]:
    prefix = _fetch(target, headers, 0, PREFIX_BYTES, delays)
    length = header_length(prefix.data, target.file, prefix.file_size)
    header = _fetch(target, headers, PREFIX_BYTES, PREFIX_BYTES + length, delays)
    return parse_header(header.data, target.file, length, header.file_size or prefix.file_size)


def _fetch(target: HubTarget, headers: Mapping[str, str], start: int, stop: int, delays: Sequence[float]) -> _Answer:
    """Bytes `start` to `stop` (exclusive), or to the file's end if that comes first; passing failures are retried."""
    return patiently(lambda: _fetch_once(target, headers, start, stop), delays)


def _fetch_once(target: HubTarget, headers: Mapping[str, str], start: int, stop: int) -> _Answer:
    # Encoded bytes have other positions than the file's.
    wanted = {**headers, "Range": f"bytes={start}-{stop - 1}", "Accept-Encoding": "identity"}
    timeout = httpx2.Timeout(READ_SECONDS, connect=CONNECT_SECONDS)
    with (
        transport_errors(target),
        get_session().stream("GET", target.url, headers=wanted, timeout=timeout) as response,
    ):
        _check_commit(target, response)
        if response.status_code == 416:
            # The file is shorter than where the range begins; the header's reader says so.
            return _Answer(b"", _total(response))
        if response.status_code != 206:
            raise status_error(target, response, "authorization" in headers)
        total, sent = _content_range(target, response, start, stop)
        return _Answer(_body(target, response, sent), total)


def _body(target: HubTarget, response: httpx2.Response, expected: int) -> bytes:
    """The body, which must have `expected` bytes; not one more is kept."""
    chunks: list[bytes] = []
    got, deadline = 0, time.monotonic() + REQUEST_SECONDS
    for chunk in response.iter_raw():
        got += len(chunk)
        chunks.append(chunk)
        if got > expected:
            raise target.error(
                "unexpected",
                f"The server sent more bytes of {target.name} than were asked for.",
                f"Try another endpoint than {target.endpoint}.",
            )
        if time.monotonic() > deadline:
            raise timeout_error(target)
    if got < expected:
        raise passing(truncated_error(target))
    return b"".join(chunks)


def _content_range(target: HubTarget, response: httpx2.Response, start: int, stop: int) -> tuple[int | None, int]:
    """The file's size and how many bytes of the range are sent, both from `Content-Range: bytes 0-7/1234`."""
    text = response.headers.get("Content-Range", "")
    found = re.fullmatch(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19}|\*)", text.strip())
    if found is None or int(found[1]) != start or int(found[2]) >= stop or int(found[2]) < start:
        raise target.error(
            "range-ignored",
            f"The server was asked for bytes {start} to {stop - 1} of {target.name} and sent other ones.",
            f"Use an endpoint that answers range requests instead of {target.endpoint}.",
        )
    return _total(response), int(found[2]) - start + 1


def _total(response: httpx2.Response) -> int | None:
    """The whole file's size in bytes: what Content-Range ends in, else the Hub's own header."""
    _, _, text = response.headers.get("Content-Range", "").rpartition("/")
    candidates = [text, *(answer.headers.get("X-Linked-Size", "") for answer in response.history)]
    sizes = [int(size) for size in candidates if re.fullmatch(r"[0-9]{1,19}", size)]
    return sizes[0] if sizes else None


def _check_commit(target: HubTarget, response: httpx2.Response) -> None:
    for answer in (*response.history, response):
        commit = answer.headers.get("X-Repo-Commit")
        if commit and commit != target.revision:
            raise target.error(
                "wrong-commit",
                f"{target.endpoint} answered for commit {shown(commit)} of {target.repo} instead of {target.revision}.",
                "Check weights.revision, or use an endpoint that serves pinned commits.",
            )
