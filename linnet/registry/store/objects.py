"""A registry in an object store (S3 and what speaks like it, Google Cloud Storage, Azure), by way of `obstore`.

create-if-absent is a conditional put. Some stores ignore the condition and overwrite: each process tries it on a path
of its own before its first write, and refuses such a store. The answer to a put can be lost after the put has
succeeded, and a put that is repeated then finds its own object there: "it is there" is settled by reading it back.
"""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

from linnet.registry.errors import shown
from linnet.registry.store.base import (
    AbsentError,
    Fetched,
    ReadOnlyError,
    StoreError,
    UncertainError,
    beyond_end,
    checked_path,
    checked_prefix,
    ended_early,
    is_path,
    store_error,
    too_large,
)

PROBE_FOLDER = "probes"
CREATE_ATTEMPTS = 2
UPLOAD_THREADS = 8
BLOCK = 1 << 20
RETRIES = {"max_retries": 4, "retry_timeout": timedelta(seconds=60)}
TIMES = {"timeout": "10m", "read_timeout": "20s", "connect_timeout": "10s"}
# What each kind takes its keys from.
_KEYS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_SKIP_SIGNATURE=true for a public bucket",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS, or GOOGLE_SKIP_SIGNATURE=true for a public bucket",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}
_EXPIRED = ("ExpiredToken", "RequestExpired", "TokenRefreshRequired")
_BAD_KEYS = ("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "AuthenticationFailed")


class ObjectStore:
    """A bucket, or a prefix in one. Keys come from the environment, as the store's own tools take them."""

    writable = True

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._probed = False
        self._keys = _KEYS[self.url.partition(":")[0].lower()]
        try:
            import obstore
            from obstore.store import from_url
        except ImportError:
            message = f"{self.url} is reached with obstore, which is not installed."
            raise store_error(
                StoreError, "extra-missing", self.url, message, "Install it: pip install obstore."
            ) from None
        self._obs = obstore
        try:
            self._store = from_url(self.url, client_options=_client_options(), retry_config=RETRIES)  # type: ignore[call-overload]
        except (obstore.exceptions.BaseError, ValueError) as error:
            message = f"{self.url} cannot be opened: {shown(str(error).splitlines()[0])}."
            help = f"Check the address, and set {self._keys}."
            raise store_error(StoreError, "address", self.url, message, help) from None

    def create(self, path: str, data: bytes | Path) -> bool:
        self._probe()
        return self._create(checked_path(path), data)

    def create_all(self, files: Mapping[str, bytes | Path]) -> set[str]:
        self._probe()
        paths = [checked_path(path) for path in files]
        with ThreadPoolExecutor(UPLOAD_THREADS) as pool:
            made = pool.map(lambda path: not self._exists(path) and self._create(path, files[path]), paths)
            return {path for path, mine in zip(paths, made, strict=True) if not mine}

    def replace(self, path: str, data: bytes) -> None:
        with self._errors(checked_path(path), writing=True):
            self._obs.put(self._store, path, data, use_multipart=False)

    def read(self, path: str, *, limit: int, tag: str | None = None) -> Fetched | None:
        with self._errors(checked_path(path)):
            try:
                answer = self._obs.get(self._store, path, options={} if tag is None else {"if_none_match": tag})
            except self._obs.exceptions.NotModifiedError:
                return None
            if answer.meta["size"] > limit:
                raise too_large(self.url, path, limit)
            return Fetched(bytes(answer.bytes()), answer.meta["e_tag"])

    def stream(self, path: str, start: int = 0) -> Iterator[bytes]:
        with self._errors(checked_path(path)):
            if start:
                size = self._obs.head(self._store, path)["size"]
                if start >= size:
                    if start > size:
                        raise beyond_end(self.url, path, start, size)
                    return
            answer = self._obs.get(self._store, path, options={"range": {"offset": start}} if start else {})
            first, stop = answer.range
            if first != start:
                raise self._other_range(path)
            for chunk in answer.stream(min_chunk_size=BLOCK):
                start += len(chunk)
                yield bytes(chunk)
            if start != stop:
                raise ended_early(self.url, path, start, stop)

    def list(self, prefix: str) -> Iterator[str]:
        with self._errors(checked_prefix(prefix) or self.url):
            for chunk in self._obs.list(self._store, prefix or None):
                for meta in chunk:
                    if is_path(path := meta["path"]):
                        yield path

    def remove(self, path: str) -> None:
        with self._errors(checked_path(path), writing=True), contextlib.suppress(FileNotFoundError):
            self._obs.delete(self._store, path)

    def _create(self, path: str, data: bytes | Path) -> bool:
        """Puts where nothing is; a put that failed in a way that may have succeeded is repeated, then looked at."""
        lost: StoreError | None = None
        for _ in range(CREATE_ATTEMPTS):
            try:
                with self._errors(path, writing=True):
                    self._put(path, data)
                return True
            except _ThereError:
                # What was there and is gone when it is read back was not written by this call.
                return bool(self._holds(path, data))
            except _LostError as error:
                lost = error
        try:
            held = self._holds(path, data)
        except StoreError:
            held = None
        if held is None and lost is not None:
            message = f"Whether {path} was written to {self.url} is not known: {lost.problems[0].message}"
            raise store_error(UncertainError, "uncertain", path, message, "Do the same again.")
        return bool(held)

    def _put(self, path: str, data: bytes | Path) -> None:
        self._obs.put(self._store, path, data, mode="create", use_multipart=False)

    def _holds(self, path: str, data: bytes | Path) -> bool | None:
        """Whether what lies there is `data`; None where nothing does."""
        wanted = data if isinstance(data, bytes) else data.read_bytes()
        with self._errors(path):
            try:
                answer = self._obs.get(self._store, path)
            except FileNotFoundError:
                return None
            return answer.meta["size"] == len(wanted) and bytes(answer.bytes()) == wanted

    def _exists(self, path: str) -> bool:
        with self._errors(path):
            try:
                self._obs.head(self._store, path)
            except FileNotFoundError as error:
                if "NoSuchBucket" in str(error):
                    raise
                return False
            return True

    def _probe(self) -> None:
        """Raises StoreError where the store overwrites what is there although it is asked not to."""
        if self._probed:
            return
        path = f"{PROBE_FOLDER}/{uuid.uuid4().hex}"
        try:
            self._create(path, b"one")
        except UncertainError as error:
            # Of the probe's own file it does not matter.
            raise StoreError(error.problems) from None
        try:
            overwritten = self._create(path, b"two")
        finally:
            self.remove(path)
        if overwritten:
            message = f"{self.url} overwrites what is there although it is asked not to (If-None-Match is ignored)."
            help = "Keep the registry elsewhere: publishers would overwrite each other's versions here."
            raise store_error(StoreError, "no-conditions", self.url, message, help)
        self._probed = True

    @contextlib.contextmanager
    def _errors(self, path: str, *, writing: bool = False) -> Iterator[None]:
        """Turns what `obstore` raises into StoreError; it tells statuses and codes in its text only."""
        errors = self._obs.exceptions
        try:
            yield
        except errors.AlreadyExistsError:
            message = f"{self.url} holds {path} already."
            raise store_error(_ThereError, "there", path, message, "Read it.") from None
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error):
                raise self._no_bucket() from None
            raise AbsentError(self.url, path) from None
        except (errors.BaseError, OSError, ValueError) as error:
            raise self._error(path, error, writing) from None

    def _error(self, path: str, error: Exception, writing: bool) -> StoreError:
        text = str(error)
        found = re.search(r"status code: (\d{3})", text) or re.search(r"\bstatus: (\d{3})", text)
        code = re.search(r"<Code>(\w{1,64})</Code>", text)
        status = int(found[1]) if found else None
        what = f"{status or ''} {code[1] if code else ''}".strip()
        if code and code[1] == "NoSuchBucket":
            return self._no_bucket()
        # Without keys, `obstore` asks the machines that hand them out in the cloud.
        if re.search(r"latest/(api/token|meta-data)|[Mm]issing.*credential|computeMetadata", text):
            message = f"{self.url} was asked for {path} without keys: none are in the environment."
            return store_error(StoreError, "no-token", path, message, f"Set {self._keys}.")
        if code and code[1] in _EXPIRED:
            message = f"{self.url} answered {what} for {path}: the token has expired."
            return store_error(StoreError, "expired-token", path, message, "Log in again, then do the same again.")
        if (code and code[1] in _BAD_KEYS) or isinstance(error, self._obs.exceptions.UnauthenticatedError):
            message = f"{self.url} answered {what} for {path}: the keys are not valid."
            return store_error(StoreError, "bad-token", path, message, f"Check {self._keys}.")
        if code and code[1] == "RequestTimeTooSkewed":
            message = f"{self.url} answered {what} for {path}: this machine's clock is wrong."
            return store_error(StoreError, "clock", path, message, "Set the clock, then do the same again.")
        if isinstance(error, self._obs.exceptions.PermissionDeniedError) or status == 403:
            if writing:
                message = f"{self.url} answered {what} for {path}: these keys may not write."
                help = "Use keys that may, or name another registry (--registry, LINNET_REGISTRY)."
                return store_error(ReadOnlyError, "read-only", path, message, help)
            message = f"{self.url} answered {what} for {path}: these keys may not read it, or it is not there."
            return store_error(StoreError, "forbidden", path, message, "Check the keys and the address.")
        if status is not None and status < 500 and status not in (408, 429):
            message = f"{self.url} answered {what} for {path}."
            return store_error(StoreError, "unexpected", path, message, "Check the address and the region.")
        if status is not None:
            message = f"{self.url} answered {what} for {path}, again and again."
            return store_error(_LostError, "server-error", path, message, "Try again later.")
        if "error following redirect" in text:
            message = f"{self.url} redirects {path} in a circle, or to what is no address."
            return store_error(StoreError, "redirects", path, message, "Check the endpoint.")
        if "non-partial response" in text:
            return self._other_range(path)
        message = f"{self.url} gave no whole answer for {path}: {shown(_first_line(text))}."
        return store_error(_LostError, "unreachable", path, message, "Check the network and the endpoint; try again.")

    def _other_range(self, path: str) -> StoreError:
        message = f"{self.url} sent another range of {path} than it was asked for."
        return store_error(StoreError, "protocol", path, message, "Fetch it from its beginning, or from another store.")

    def _no_bucket(self) -> StoreError:
        message = f"{self.url} names a bucket that does not exist."
        return store_error(StoreError, "no-bucket", self.url, message, "Make the bucket, or correct the address.")


class _ThereError(StoreError):
    """A conditional put that found something there."""


class _LostError(StoreError):
    """A request whose answer did not come: it may have been carried out."""


def _client_options() -> dict[str, Any]:
    """Limits on time; plain http where the environment asks for it, as object stores on this machine need."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    allowed = os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("true", "1") or endpoint.startswith("http://")
    return {**TIMES, "allow_http": allowed}


def _first_line(text: str) -> str:
    line = text.strip().splitlines()[0] if text.strip() else "no reason given"
    return re.sub(r"https?://\S+", "its address", line.rpartition(" - ")[2])
