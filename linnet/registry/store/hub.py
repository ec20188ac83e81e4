"""A registry in a model repository of the Hub, by way of `huggingface_hub`.

create-if-absent is a commit on the branch's head: the path is looked up at that commit, and the commit names it as its
parent, which the Hub refuses with 412 where the branch has moved on. A commit can answer 500, or not at all, and have
landed; everything is then looked up again at the new head, so a commit that arrives late is refused by its own parent.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TypeVar

import httpx2
from huggingface_hub import (
    CommitOperationAdd,
    CommitOperationDelete,
    HfApi,
    constants,
    get_session,
    get_token,
    hf_hub_url,
)
from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

from linnet.registry.endpoint import named_endpoint
from linnet.registry.errors import shown
from linnet.registry.store.base import (
    AbsentError,
    Fetched,
    ReadOnlyError,
    StoreError,
    UncertainError,
    checked_path,
    checked_prefix,
    is_path,
    store_error,
)
from linnet.registry.store.http import HttpReader, PassingError, busy_error, patiently, transport_errors

BRANCH = "main"
# Of many publishers one a round gets its commit in: the others wait a random while, longer each time.
COMMIT_ATTEMPTS = 120
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 4.0
# A server that asks for a longer pause is told to the user instead of waited for.
LONGEST_RETRY_AFTER = 10.0
# Failures of the server, in contrast, are not waited out for ever: 1, 2, 4 seconds.
SERVER_FAILURES = 4
SERVER_PAUSE = 1.0
PATHS_A_REQUEST = 500
FILES_A_COMMIT = 1000
# The library's own requests have no limit on time; the Hub may take long over a large commit.
CALL_SECONDS = 120.0
CONNECT_SECONDS = 10.0

Result = TypeVar("Result")


class HubStore:
    """The branch `main` of a model repository. Writing needs a token, found as the Hub's own tools find it."""

    def __init__(self, repo: str, url: str) -> None:
        self.repo, self.url = repo, url
        self._endpoint = named_endpoint() or constants.ENDPOINT
        self._api = HfApi(endpoint=self._endpoint, library_name="linnet-nest")
        self._reader = self._reader_at(BRANCH)

    @property
    def writable(self) -> bool:
        return get_token() is not None

    def create(self, path: str, data: bytes | Path) -> bool:
        return not self._commit({checked_path(path): data})

    def create_all(self, files: Mapping[str, bytes | Path]) -> set[str]:
        waiting = iter([(checked_path(path), data) for path, data in files.items()])
        there: set[str] = set()
        while batch := dict(islice(waiting, FILES_A_COMMIT)):
            there |= self._commit(batch)
        return there

    def replace(self, path: str, data: bytes) -> None:
        def attempt() -> None:
            # A commit that changes nothing is none.
            if not self._holds(BRANCH, path, data):
                self._send(path, [CommitOperationAdd(path, data)], None)

        checked_path(path)
        self._repeatedly(path, attempt)

    def remove(self, path: str) -> None:
        def attempt() -> None:
            head = self._head(path)
            if self._present(head, [checked_path(path)]):
                self._send(path, [CommitOperationDelete(path, is_folder=False)], head)

        self._repeatedly(path, attempt)

    def read(self, path: str, *, limit: int, tag: str | None = None) -> Fetched | None:
        with self._errors(path):
            return self._reader.read(checked_path(path), limit=limit, tag=tag)

    def stream(self, path: str, start: int = 0) -> Iterator[bytes]:
        with self._errors(path):
            yield from self._reader.stream(checked_path(path), start)

    def list(self, prefix: str) -> Iterator[str]:
        folder = checked_prefix(prefix).removesuffix("/")
        # Pages of one commit, so that nothing is missed or told twice while others write.
        head = patiently(lambda: self._head(folder))
        try:
            with self._errors(folder):
                tree = self._api.list_repo_tree(self.repo, folder or None, recursive=True, revision=head)
                yield from (entry.path for entry in tree if isinstance(entry, RepoFile) and is_path(entry.path))
        except AbsentError:
            return

    def _commit(self, files: Mapping[str, bytes | Path]) -> set[str]:
        """Commits those of `files` that are absent; the paths of the others."""
        uncertain = False
        first = next(iter(files))

        def attempt() -> set[str]:
            nonlocal uncertain
            head = self._head(first)
            there = self._present(head, [*files])
            missing = {path: data for path, data in files.items() if path not in there}
            if missing:
                operations = [CommitOperationAdd(path, data) for path, data in missing.items()]
                try:
                    self._send(first, operations, head)
                except PassingError as error:
                    uncertain = uncertain or error.problems[0].kind != "store.rate-limited"
                    raise
            elif uncertain:
                # They may be there because an earlier commit of this call landed and its answer was lost.
                there = {path for path in there if not self._holds(head, path, files[path])}
            return there

        try:
            return self._repeatedly(first, attempt)
        except StoreError as error:
            if not uncertain:
                raise
            message = f"Whether {first} was written to {self.url} is not known: {error.problems[0].message}"
            raise store_error(UncertainError, "uncertain", first, message, "Do the same again.") from None

    def _repeatedly(self, path: str, attempt: Callable[[], Result]) -> Result:
        """The result of `attempt`; tried again where another commit came first, or the answer did not come."""
        failures = 0
        for number in range(COMMIT_ATTEMPTS):
            try:
                return attempt()
            except _OvertakenError:
                pause = min(LONGEST_PAUSE, FIRST_PAUSE * 1.5**number) * random.uniform(0.3, 1.0)
            except PassingError as error:
                failures += 1
                if failures == SERVER_FAILURES:
                    raise StoreError(error.problems) from None
                pause = error.pause if error.pause is not None else SERVER_PAUSE * 2 ** (failures - 1)
                if pause > LONGEST_RETRY_AFTER:
                    raise StoreError(error.problems) from None
            time.sleep(pause)
        message = f"Other commits came first to {self.url} each of {COMMIT_ATTEMPTS} times."
        raise store_error(StoreError, "overtaken", path, message, "Do the same again when fewer write to it.")

    def _send(
        self, path: str, operations: Sequence[CommitOperationAdd | CommitOperationDelete], parent: str | None
    ) -> None:
        """One commit. Raises _OvertakenError where `parent` is not the head, PassingError if it may have landed."""
        token = get_token()
        if token is None:
            message = f"{self.url} takes writes with a token only, and there is none."
            raise store_error(ReadOnlyError, "no-token", path, message, "Log in with: hf auth login, or set HF_TOKEN.")
        additions = [operation for operation in operations if isinstance(operation, CommitOperationAdd)]
        with self._errors(path, writing=True):
            # With its own answer for .gitignore: one in the repository would leave files out of the commit, silently.
            self._api.preupload_lfs_files(self.repo, additions, token=token, gitignore_content="")
            self._api.create_commit(
                self.repo,
                operations,
                commit_message=_summary(operations),
                parent_commit=parent,
                revision=BRANCH,
                token=token,
            )

    def _head(self, path: str) -> str:
        """The commit that the branch is at now."""
        with self._errors(path):
            found = self._api.model_info(self.repo, revision=BRANCH, expand=["sha"], timeout=CONNECT_SECONDS)
            if not found.sha:
                message = f"{self.url} has no commit yet."
                raise store_error(StoreError, "no-commit", self.url, message, "Add a README.md to the repository.")
            return found.sha

    def _present(self, commit: str, paths: Sequence[str]) -> set[str]:
        """Those of `paths` that are there at `commit`."""
        found: set[str] = set()
        for start in range(0, len(paths), PATHS_A_REQUEST):
            with self._errors(paths[start]):
                asked = [*paths[start : start + PATHS_A_REQUEST]]
                found |= {info.path for info in self._api.get_paths_info(self.repo, asked, revision=commit)}
        return found

    def _holds(self, commit: str, path: str, data: bytes | Path) -> bool:
        wanted = data if isinstance(data, bytes) else data.read_bytes()
        try:
            return b"".join(self._reader_at(commit).stream(path)) == wanted
        except AbsentError:
            return False

    def _reader_at(self, revision: str) -> HttpReader:
        return HttpReader(
            self.url,
            lambda path: hf_hub_url(self.repo, path, revision=revision, endpoint=self._endpoint),
            get_session,
            lambda: build_hf_headers(library_name="linnet-nest"),
            self._status_error,
        )

    @contextmanager
    def _errors(self, path: str, *, writing: bool = False) -> Iterator[None]:
        """Turns what `huggingface_hub` and its transport raise into StoreError."""
        session = get_session()
        if session.timeout == httpx2.Timeout(None):
            session.timeout = httpx2.Timeout(CALL_SECONDS, connect=CONNECT_SECONDS)
        with transport_errors(self.url, path or self.url):
            try:
                yield
            except HfHubHTTPError as error:
                raise self._answer_error(error.response, path, writing) from None
            except OfflineModeIsEnabled:
                message = f"{self.url} was asked for {path}, and offline mode is on."
                raise store_error(StoreError, "offline", path, message, "Unset HF_HUB_OFFLINE.") from None
            except (RuntimeError, ValueError) as error:
                # Uploads of large files say no more than that they failed; the cause is what they met.
                if isinstance(cause := error.__cause__, HfHubHTTPError):
                    raise self._answer_error(cause.response, path, writing) from None
                if isinstance(cause, httpx2.RequestError):
                    raise cause from None
                message = f"{path} could not be sent to {self.url}: {shown(str(cause or error))}."
                raise store_error(PassingError, "upload", path, message, "Try again.") from None

    def _answer_error(self, response: httpx2.Response, path: str, writing: bool) -> StoreError:
        if response.status_code in (409, 412):
            message = f"Another commit came first to {self.url}."
            return store_error(_OvertakenError, "overtaken", path, message, "Do the same again.")
        if response.status_code == 403 and writing and response.headers.get("X-Error-Code") != "GatedRepo":
            message = f"{self.url} answered 403 for {path}: the token may not write to it."
            help = "Use a token with write access, or name another registry (--registry, LINNET_REGISTRY)."
            return store_error(ReadOnlyError, "read-only", path, message, help)
        return busy_error(self.url, path, response) or self._status_error(response, path)

    def _status_error(self, response: httpx2.Response, path: str) -> StoreError:
        status, code = response.status_code, response.headers.get("X-Error-Code", "")
        token = "authorization" in response.request.headers
        answered = f"{self._endpoint} answered {status} for {self.repo}"
        if code == "GatedRepo":
            who = "this token's account has" if token else "no token was sent, so nobody has"
            message = f"{answered}: it is gated, and {who} not accepted its terms."
            help = f"Accept them at {self._endpoint}/{self.repo}" + ("." if token else ", and log in: hf auth login")
            return store_error(StoreError, "gated", self.url, message, help)
        if status == 401 and token:
            message = f"{answered}: the token is not valid, or has expired."
            help = "Log in again with: hf auth login, or correct HF_TOKEN."
            return store_error(StoreError, "bad-token", self.url, message, help)
        if status == 401:
            message = f"{answered}: it does not exist, or is private and no token was sent."
            help = "Check the address; for a private registry, log in with: hf auth login."
            return store_error(StoreError, "no-token", self.url, message, help)
        if status == 403:
            message = f"{answered}: the account may not read it."
            return store_error(StoreError, "forbidden", self.url, message, "Use a token that has access to it.")
        if code == "RepoNotFound":
            message = f"{answered}: this account can see no such repository."
            help = f"Check the address, or make it with: hf repo create {self.repo}"
            return store_error(StoreError, "no-repository", self.url, message, help)
        if code == "RevisionNotFound":
            message = f"{answered}: it has no branch {BRANCH}."
            return store_error(StoreError, "no-commit", self.url, message, "Add a README.md to the repository.")
        if status in (404, 410):
            return AbsentError(self.url, path)
        message = f"{answered} and {path}, which is outside the protocol."
        return store_error(StoreError, "unexpected", path, message, "Check HF_ENDPOINT.")


class _OvertakenError(StoreError):
    """A commit whose parent is the head no more."""


def _summary(operations: Sequence[CommitOperationAdd | CommitOperationDelete]) -> str:
    first = operations[0]
    verb = "Add" if isinstance(first, CommitOperationAdd) else "Remove"
    rest = f" and {len(operations) - 1} more" if len(operations) > 1 else ""
    return f"{verb} {first.path_in_repo}{rest}"
