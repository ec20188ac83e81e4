"""What the Hub's failures mean: every way in which it can fail us, told apart, each with its sentence and next step."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import httpx2
from huggingface_hub import constants, hf_hub_url
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

from linnet.language.words import counted
from linnet.registry.endpoint import named_endpoint
from linnet.registry.errors import HubError, Problem, shown

# Pauses, in seconds, before a request that met 429, 5xx or a broken connection is sent again.
RETRY_DELAYS = (0.5, 1.0, 2.0)
CONNECT_SECONDS = 10.0
# A server that asks for a longer pause is told to the user instead of waited for.
LONGEST_PAUSE = 5.0
# The way out for who reads weights; who wants something else of the Hub replaces it.
OTHER_WEIGHTS = "give a folder with the weights (--weights, weights=)"
Result = TypeVar("Result")

# Every way in which the Hub can fail us, by the word that `HubError.reasons` gives.
REASONS: Mapping[str, str] = {
    "unauthorized": "no token was sent, and the repository is private or absent",
    "bad-token": "the token was refused",
    "gated": "the repository's terms have not been accepted",
    "forbidden": "the account may not read the repository",
    "repo-not-found": "no such repository",
    "revision-not-found": "no such commit in the repository",
    "file-not-found": "no such file at that commit",
    "rate-limited": "too many requests",
    "server-error": "the server failed",
    "range-ignored": "the server does not answer range requests",
    "truncated": "the answer ended early",
    "redirects": "redirects lead nowhere",
    "wrong-commit": "the server answered for another commit",
    "no-address": "HF_ENDPOINT is not an address",
    "timeout": "no answer in time",
    "unreachable": "no connection",
    "offline": "offline mode is on",
    "unexpected": "an answer outside the protocol",
}


@dataclass(frozen=True, slots=True)
class HubTarget:
    """One file of a repository at a revision, or all of it where `file` is empty, and where to ask for it."""

    repo: str
    revision: str
    file: str
    endpoint: str

    @property
    def url(self) -> str:
        return hf_hub_url(self.repo, self.file, revision=self.revision, endpoint=self.endpoint)

    @property
    def name(self) -> str:
        return f"{self.repo}/{self.file}" if self.file else self.repo

    def error(self, reason: str, message: str, help: str) -> HubError:
        return HubError([Problem(f"hub.{reason}", self.name, message, help)])


def hub_endpoint() -> str:
    """The Hub that requests go to: `HF_ENDPOINT`, else huggingface.co. Raises HubError where that is no address."""
    return named_endpoint() or constants.ENDPOINT


class PassingError(HubError):
    """A failure that may be gone in a moment; `pause` is how long, in seconds, the server asks to wait."""

    pause: float | None = None


def passing(error: HubError, pause: float | None = None) -> PassingError:
    """The same failure, marked as one that may be gone in a moment."""
    marked = PassingError(error.problems)
    marked.pause = pause
    return marked


def patiently(attempt: Callable[[], Result], delays: Sequence[float] = RETRY_DELAYS) -> Result:
    """The result of `attempt`, which is made again after each of `delays`, in seconds, where it raises PassingError.

    A server's own pause counts instead, if it is not too long. Raises HubError.
    """
    for delay in delays:
        try:
            return attempt()
        except PassingError as error:
            pause = delay * random.uniform(0.8, 1.2) if error.pause is None else error.pause
            if pause > LONGEST_PAUSE:
                raise HubError(error.problems) from None
            time.sleep(pause)
    try:
        return attempt()
    except PassingError as error:
        raise HubError(error.problems) from None


@contextmanager
def hub_errors(repo: str, revision: str | None = None, file: str | None = None) -> Iterator[None]:
    """Turns what `huggingface_hub` raises while it fetches from a repository into HubError."""
    target = HubTarget(repo, revision or "main", file or "", hub_endpoint())
    with transport_errors(target):
        try:
            yield
        except HfHubHTTPError as error:
            token = "authorization" in error.response.request.headers
            raise status_error(target, error.response, token) from None
        except LocalEntryNotFoundError as error:
            # The library hides what went wrong behind what it looked for next.
            cause = error.__cause__ or error.__context__
            if isinstance(cause, httpx2.RequestError | OfflineModeIsEnabled):
                raise cause from None
            if isinstance(cause, HfHubHTTPError):
                token = "authorization" in cause.response.request.headers
                raise status_error(target, cause.response, token) from None
            raise target.error(
                "offline",
                f"{target.name} is not on this machine, and the Hub may not be asked.",
                "Fetch it once while online.",
            ) from None


@contextmanager
def transport_errors(target: HubTarget) -> Iterator[None]:
    """Turns what the transport raises into HubError."""
    try:
        yield
    except OfflineModeIsEnabled:
        raise target.error(
            "offline",
            f"{target.name} is not on this machine, and offline mode is on.",
            f"Unset HF_HUB_OFFLINE, or {OTHER_WEIGHTS}.",
        ) from None
    except httpx2.TooManyRedirects:
        raise target.error(
            "redirects",
            f"{target.endpoint} redirects {target.name} in a circle.",
            "Check the endpoint, or use another one.",
        ) from None
    except (httpx2.UnsupportedProtocol, httpx2.InvalidURL):
        raise target.error(
            "redirects",
            f"{target.endpoint} redirects {target.name} to what is no address.",
            "Check the endpoint, or use another one.",
        ) from None
    except httpx2.TimeoutException:
        raise timeout_error(target) from None
    except (httpx2.ReadError, httpx2.RemoteProtocolError):
        raise passing(truncated_error(target)) from None
    except httpx2.RequestError as error:
        raise target.error(
            "unreachable",
            f"No connection to {target.endpoint}: {shown(str(error))}.",
            f"Check the network and HF_ENDPOINT, or {OTHER_WEIGHTS}.",
        ) from None


def timeout_error(target: HubTarget) -> HubError:
    """No answer in time."""
    return target.error(
        "timeout",
        f"{target.endpoint} did not answer for {target.name} in time.",
        f"Try again later, or {OTHER_WEIGHTS}.",
    )


def truncated_error(target: HubTarget) -> HubError:
    """An answer that ended early."""
    return target.error(
        "truncated",
        f"{target.endpoint} broke off its answer for {target.name}.",
        "Try again later, or use another endpoint.",
    )


def status_error(target: HubTarget, response: httpx2.Response, token: bool) -> HubError:
    """What an answer other than 206 means; `token` tells whether one was sent."""
    status = response.status_code
    code = response.headers.get("X-Error-Code", "")
    if status == 429:
        text = response.headers.get("Retry-After", "")
        pause = float(text) if re.fullmatch(r"[0-9]{1,6}", text) else None
        when = f"in {counted(round(pause), 'second')}" if pause is not None else "in a few minutes"
        error = target.error(
            "rate-limited",
            f"{target.endpoint} answered 429 for {target.name}: too many requests.",
            f"Try again {when}" + ("." if token else "; with a token (hf auth login) the limit is higher."),
        )
        return passing(error, pause)
    if status >= 500:
        return passing(
            target.error(
                "server-error",
                f"{target.endpoint} answered {status} for {target.name}: the server failed.",
                "Try again later, or use another endpoint.",
            )
        )
    if status == 200:
        return target.error(
            "range-ignored",
            f"{target.endpoint} ignored the range and offered all of {target.name}, which was not read.",
            f"Use an endpoint that answers range requests, or {OTHER_WEIGHTS}.",
        )
    if code == "GatedRepo":
        step = "" if token else ", then log in with: hf auth login"
        return target.error(
            "gated",
            f"{target.endpoint} answered {status}: {target.repo} is gated, and its terms have not been accepted"
            + (" by this token's account." if token else "; no token was sent."),
            f"Accept the terms at {target.endpoint}/{target.repo}{step}.",
        )
    if status == 401 and token:
        return target.error(
            "bad-token",
            f"{target.endpoint} answered 401 for {target.name}: the token is not valid.",
            "Log in again with: hf auth login, or correct HF_TOKEN.",
        )
    if status == 401:
        return target.error(
            "unauthorized",
            f"{target.endpoint} answered 401: {target.repo} does not exist, or is private and no token was sent.",
            "Check weights.repo; for a private repository, log in with: hf auth login.",
        )
    if status == 403:
        return target.error(
            "forbidden",
            f"{target.endpoint} answered 403: the account may not read {target.repo}.",
            "Use a token that has access to the repository.",
        )
    if status in (404, 410):
        return _not_found(target, status, code)
    return target.error(
        "unexpected",
        f"{target.endpoint} answered {status} for {target.name}, which is outside the protocol.",
        "Check HF_ENDPOINT.",
    )


def _not_found(target: HubTarget, status: int, code: str) -> HubError:
    if code == "RepoNotFound":
        return target.error(
            "repo-not-found",
            f"{target.endpoint} answered {status}: it has no repository {target.repo} that this account can see.",
            "Check weights.repo.",
        )
    if code == "RevisionNotFound":
        return target.error(
            "revision-not-found",
            f"{target.endpoint} answered {status}: {target.repo} has no commit {target.revision}.",
            "Check weights.revision; the commit may be gone upstream.",
        )
    return target.error(
        "file-not-found",
        f"{target.endpoint} answered {status}: {target.repo} has no {target.file or 'such file'} at {target.revision}.",
        "Check weights.files.",
    )
