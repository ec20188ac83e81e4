"""Reading over HTTP as a registry needs it: bounded small files, streams that resume, no fault taken for content."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TypeVar

import httpx2

from linnet.registry.errors import shown
from linnet.registry.store.base import Fetched, StoreError, beyond_end, ended_early, store_error, too_large

# Pauses, in seconds, before what met 429, 5xx, a stall or a broken connection is tried again.
RETRY_DELAYS = (0.5, 1.0, 2.0)
# A server that asks for a longer pause is told to the user instead of waited for.
LONGEST_PAUSE = 10.0
CONNECT_SECONDS = 10.0
READ_SECONDS = 20.0
# All of a small file.
READ_TOTAL_SECONDS = 120.0
# A stream that brings less than this, in bytes, in so many seconds of waiting is given up: it would never end.
SLOW_BYTES = 64 << 10
SLOW_SECONDS = 120.0

Result = TypeVar("Result")


class PassingError(StoreError):
    """A failure that may be gone in a moment; `pause` is how long, in seconds, the server asks to wait."""

    pause: float | None = None


@dataclass(frozen=True, slots=True)
class HttpReader:
    """Reads the files of one store.

    `store` is its name in messages, `address` gives a path's URL, `session` a client, `headers` what is sent with each
    request, `status_error` what an answer other than 200, 206, 304, 416, 429 and 5xx means.
    """

    store: str
    address: Callable[[str], str]
    session: Callable[[], httpx2.Client]
    headers: Callable[[], Mapping[str, str]]
    status_error: Callable[[httpx2.Response, str], StoreError]

    def read(self, path: str, *, limit: int, tag: str | None = None) -> Fetched | None:
        """As `Store.read`. Caches on the way are told to ask the server again."""
        return patiently(lambda: self._read_once(path, limit, tag))

    def stream(self, path: str, start: int = 0) -> Iterator[bytes]:
        """As `Store.stream`; a body that breaks off is resumed where it broke."""
        body, failures = _Body(start), 0
        while True:
            before = body.position
            try:
                yield from self._stream_once(path, body)
                return
            except PassingError as error:
                failures = 0 if body.position > before else failures
                if failures == len(RETRY_DELAYS):
                    raise
                wait_for(error, RETRY_DELAYS[failures])
                failures += 1

    def _read_once(self, path: str, limit: int, tag: str | None) -> Fetched | None:
        # Of the encodings gzip is the one that cannot make more than a thousand bytes of one before the limit is seen.
        asked = {"Cache-Control": "no-cache", "Accept-Encoding": "gzip"}
        asked |= {"If-None-Match": tag} if tag is not None else {}
        deadline = time.monotonic() + READ_TOTAL_SECONDS
        with self._answer(path, asked) as response:
            if response.status_code == 304 and tag is not None:
                return None
            if response.status_code != 200:
                raise self._error(response, path)
            if response.headers.get("Content-Encoding", "identity") not in ("identity", "gzip"):
                raise self._outside(path, "sent it in an encoding that was not asked for")
            data = bytearray()
            for chunk in response.iter_bytes():
                data += chunk
                if len(data) > limit:
                    raise too_large(self.store, path, limit)
                if time.monotonic() > deadline:
                    raise self._timeout(path)
            return Fetched(bytes(data), response.headers.get("ETag"))

    def _stream_once(self, path: str, body: _Body) -> Iterator[bytes]:
        # Encoded bytes have other positions than the file's.
        asked = {"Accept-Encoding": "identity"}
        if body.position:
            asked["Range"] = f"bytes={body.position}-"
        with self._answer(path, asked) as response:
            if response.status_code == 416:
                self._end(path, body, _total(response))
                return
            if response.status_code not in (200, 206):
                raise self._error(response, path)
            skip, expected = self._framed(path, body, response)
            got, came, waited, asked_at = 0, 0, 0.0, time.monotonic()
            for chunk in response.iter_raw():
                got, came = got + len(chunk), came + len(chunk)
                # What whoever reads does with the bytes takes its own time.
                waited += time.monotonic() - asked_at
                if waited > SLOW_SECONDS:
                    if came < SLOW_BYTES:
                        raise self._slow(path)
                    came, waited = 0, 0.0
                if expected is not None and got > expected:
                    raise self._outside(path, "sent more bytes than it declared")
                kept = chunk[max(0, len(chunk) - (got - skip)) :] if got > skip else b""
                if kept:
                    body.position += len(kept)
                    yield kept
                asked_at = time.monotonic()
            if expected is not None and got < expected:
                raise _passing(ended_early(self.store, path, got, expected))
            if got < skip:
                raise beyond_end(self.store, path, skip, got)

    def _framed(self, path: str, body: _Body, response: httpx2.Response) -> tuple[int, int | None]:
        """How many bytes of the answer come before the wanted ones, and how many it declares."""
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise self._outside(path, "sent encoded bytes where plain ones were asked for")
        length = response.headers.get("Content-Length", "")
        declared = int(length) if re.fullmatch(r"[0-9]{1,19}", length) else None
        if response.status_code == 200:
            # Also the answer of a server that ignores ranges: what is had already is read again, and dropped.
            body.found(declared, self._outside(path, "changed while it was read"))
            if declared is not None and declared < body.position:
                raise beyond_end(self.store, path, body.position, declared)
            return body.position, declared
        found = re.fullmatch(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19}|\*)", response.headers.get("Content-Range", ""))
        if found is None or int(found[1]) != body.position or int(found[2]) < body.position:
            raise self._outside(path, "sent another range than it was asked for")
        body.found(_total(response), self._outside(path, "changed while it was read"))
        return 0, int(found[2]) - body.position + 1

    def _end(self, path: str, body: _Body, total: int | None) -> None:
        if total is None:
            raise self._outside(path, "refused a range and did not say how long the file is")
        if total < body.position:
            raise beyond_end(self.store, path, body.position, total)
        if total > body.position:
            raise self._outside(path, "refused a range that lies in the file")

    @contextmanager
    def _answer(self, path: str, asked: Mapping[str, str]) -> Iterator[httpx2.Response]:
        address = self.address(path)
        timeout = httpx2.Timeout(READ_SECONDS, connect=CONNECT_SECONDS)
        headers = {**self.headers(), **asked}
        with (
            transport_errors(self.store, path),
            self.session().stream("GET", address, headers=headers, timeout=timeout, follow_redirects=True) as response,
        ):
            if address.startswith("https:") and any(
                answer.url.scheme != "https" for answer in (*response.history, response)
            ):
                raise self._outside(path, "is redirected from https to an address that is not")
            yield response

    def _error(self, response: httpx2.Response, path: str) -> StoreError:
        return busy_error(self.store, path, response) or self.status_error(response, path)

    def _timeout(self, path: str) -> StoreError:
        return _timeout(self.store, path)

    def _slow(self, path: str) -> StoreError:
        message = f"{self.store} sends {path} so slowly that it would not end."
        help = "Use another mirror, or try again later; what was read so far is resumed."
        return store_error(StoreError, "slow", path, message, help)

    def _outside(self, path: str, what: str) -> StoreError:
        message = f"{path} in {self.store} cannot be trusted: the server {what}."
        return store_error(StoreError, "protocol", path, message, "Use another mirror of the registry.")


@dataclass(slots=True)
class _Body:
    """How far a stream has come, and the whole file's size once a server has told it."""

    position: int
    total: int | None = None

    def found(self, total: int | None, changed: StoreError) -> None:
        if total is not None and self.total is not None and total != self.total:
            raise changed
        self.total = self.total if total is None else total


def patiently(attempt: Callable[[], Result]) -> Result:
    """The result of `attempt`, which is tried again where it raises PassingError; the last one is raised."""
    for delay in RETRY_DELAYS:
        try:
            return attempt()
        except PassingError as error:
            wait_for(error, delay)
    return attempt()


def wait_for(error: PassingError, delay: float) -> None:
    """Sleep as long as the server asked, else about `delay` seconds; raises `error` where it asked for too long."""
    pause = delay * random.uniform(0.7, 1.3) if error.pause is None else error.pause
    if pause > LONGEST_PAUSE:
        raise error
    time.sleep(pause)


def busy_error(store: str, path: str, response: httpx2.Response) -> PassingError | None:
    """What 429 and 5xx mean; None for another status."""
    status = response.status_code
    if status != 429 and status < 500:
        return None
    pause = retry_after(response)
    when = f"in {max(1, round(pause))} s" if pause is not None else "in a few minutes"
    what = "too many requests" if status == 429 else "the server failed"
    message = f"{store} answered {status} for {path}: {what}."
    word = "rate-limited" if status == 429 else "server-error"
    error = store_error(PassingError, word, path, message, f"Try again {when}, or use another mirror.")
    error.pause = pause
    return error


def retry_after(response: httpx2.Response) -> float | None:
    """The pause that a server asks for, in seconds: a number, or a date that is read by the server's own clock."""
    text = response.headers.get("Retry-After", "").strip()
    if re.fullmatch(r"[0-9]{1,6}", text):
        return float(text)
    try:
        wanted, now = (parsedate_to_datetime(date) for date in (text, response.headers.get("Date", "")))
        return max(0.0, (wanted - now).total_seconds())
    except (ValueError, TypeError):
        return None


@contextmanager
def transport_errors(store: str, path: str) -> Iterator[None]:
    """Turns what the transport raises into StoreError; what may be gone in a moment into PassingError."""
    try:
        yield
    except httpx2.TooManyRedirects:
        message = f"{store} redirects {path} in a circle."
        raise store_error(StoreError, "redirects", path, message, "Check the address, or use another mirror.") from None
    except (httpx2.UnsupportedProtocol, httpx2.InvalidURL):
        message = f"{store} redirects {path} to what is no address."
        raise store_error(StoreError, "redirects", path, message, "Check the address, or use another mirror.") from None
    except httpx2.ConnectTimeout:
        raise StoreError(_timeout(store, path).problems) from None
    except httpx2.TimeoutException:
        raise _timeout(store, path) from None
    except httpx2.DecodingError:
        message = f"{store} sent {path} in an encoding that cannot be undone."
        raise store_error(PassingError, "garbled", path, message, "Try again, or use another mirror.") from None
    except (httpx2.ReadError, httpx2.WriteError, httpx2.CloseError, httpx2.RemoteProtocolError):
        message = f"{store} broke off its answer for {path}."
        raise store_error(PassingError, "truncated", path, message, "Try again, or use another mirror.") from None
    except httpx2.RequestError as error:
        message = f"No connection to {store}: {shown(str(error))}."
        help = "Check the network and the registry's address, or use another mirror."
        raise store_error(StoreError, "unreachable", path, message, help) from None


def _timeout(store: str, path: str) -> PassingError:
    message = f"{store} did not answer for {path} in time."
    return store_error(PassingError, "timeout", path, message, "Try again later, or use another mirror.")


def _passing(error: StoreError) -> PassingError:
    return PassingError(error.problems)


def _total(response: httpx2.Response) -> int | None:
    """The whole file's size in bytes, which Content-Range ends in."""
    _, _, text = response.headers.get("Content-Range", "").rpartition("/")
    return int(text) if re.fullmatch(r"[0-9]{1,19}", text) else None
