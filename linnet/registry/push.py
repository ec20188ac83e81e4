"""A package put at the root of a Hub repository, in one commit."""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from linnet.registry.card import Card, read_card
from linnet.registry.card_reader import UnfitError, repository
from linnet.registry.check import check_package
from linnet.registry.endpoint import named_endpoint
from linnet.registry.errors import HubError, PackageError, Problem, bare, shown
from linnet.registry.model_card import model_card
from linnet.registry.package import CARD_NAME, MANIFEST_NAME, README_NAME, package_files, package_path, read_file

if TYPE_CHECKING:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

README_BYTES = 1 << 20
# What a package is made of: where an earlier push left such a file and the package has it no more, it is removed.
# Whatever else the repository holds is left as it is.
_OWN_FILES = frozenset({MANIFEST_NAME, "bindings.json", "recipe.json", "bench.json"})
_LICENSE = re.compile(r"licen[cs]e(\.\w+)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PushPlan:
    """What a push would do: `files` (path -> bytes, or the file on this machine), `removed` paths, the `model_card`.

    `head` is the repository's commit, None where there is no repository yet.
    """

    repo: str
    private: bool
    files: Mapping[str, bytes | Path]
    removed: tuple[str, ...]
    head: str | None

    @property
    def model_card(self) -> str:
        card = self.files[README_NAME]
        assert isinstance(card, bytes)
        return card.decode()

    def sizes(self) -> dict[str, int]:
        """Bytes of each file."""
        return {
            path: len(data) if isinstance(data, bytes) else data.stat().st_size for path, data in self.files.items()
        }


@dataclass(frozen=True, slots=True)
class PushResult:
    """A push that was made: `commit` is what `nest.load("repo@commit")` takes; `changed` is False where the repository
    held all of it already."""

    repo: str
    commit: str
    url: str
    changed: bool


def plan_push(package: Path, repo: str, *, private: bool = False) -> PushPlan:
    """What it takes to make `repo` (`org/name`) hold the package in the folder `package`; nothing is written.

    Its files go there as they are, its README under a head for the Hub's pages (`model_card`), and weights that lie
    beside the card, which the repository then has. Raises PackageError where the package does not pass the static check
    or weights that it needs are not here, HubError.
    """
    named_endpoint()
    _refuse_name(repo)
    report = check_package(package)
    if not report.ok:
        raise PackageError(Problem(e.kind, e.where, e.message, e.help) for e in report.errors())
    card = read_card(package)
    files = _files(package, card, repo)
    head, there = _repository(repo, private)
    removed = tuple(sorted(path for path in there if path not in files and _is_own(path)))
    return PushPlan(repo, private, files, removed, head)


def push(plan: PushPlan, message: str | None = None) -> PushResult:
    """Carry out a plan: the repository is made where there is none, and gets one commit, or none where it holds all.

    The commit names the head that the plan was made for, so that nobody's commit in between is overwritten. Returns
    once the package can be read back from it. Raises HubError.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    from linnet.registry.hub import hub_endpoint

    api, name = _api(), plan.repo
    with push_errors(name):
        if plan.head is None:
            api.create_repo(name, private=plan.private, exist_ok=True)
        operations: list[CommitOperationAdd | CommitOperationDelete] = [
            CommitOperationAdd(path, data if isinstance(data, bytes) else str(data))
            for path, data in sorted(plan.files.items())
        ]
        operations += [CommitOperationDelete(path) for path in plan.removed]
        made = api.create_commit(
            name,
            operations,
            commit_message=message or f"Package {name.partition('/')[2]}",
            parent_commit=plan.head,
        )
    _read_back(plan, made.oid)
    url = f"{hub_endpoint()}/{name}/tree/{made.oid}"
    return PushResult(name, made.oid, url, made.oid != plan.head)


def _files(package: Path, card: Card, repo: str) -> dict[str, bytes | Path]:
    names = [file.path for file in package_files(package, skip=frozenset(card.weights.files))]
    files: dict[str, bytes | Path] = {name: package_path(package, name) for name in names}
    license_file = next((name for name in names if _LICENSE.fullmatch(name)), None)
    readme = read_file(package, README_NAME, README_BYTES).decode().removeprefix("\ufeff")
    files[README_NAME] = model_card(card, readme, repo, license_file=license_file).encode()
    if card.weights.repo is None:
        # Seen by the check: weights without a repository are beside the card, or the package does not pass.
        files.update({name: package_path(package, name) for name in card.weights.files})
    missing = [name for name, data in files.items() if isinstance(data, Path) and not data.is_file()]
    if missing:
        help = "Put it there, or name weights.repo in the card."
        raise PackageError(
            Problem("weights.missing-file", name, f"The weights file {name} is not in {package}.", help)
            for name in missing
        )
    return files


def _repository(repo: str, private: bool) -> tuple[str | None, list[str]]:
    """The head of a repository and its files; None where there is no repository."""
    from huggingface_hub.errors import RepositoryNotFoundError

    with push_errors(repo):
        try:
            info = _api().model_info(repo)
        except RepositoryNotFoundError as error:
            # To who sends no token a private repository is as good as absent, and none can be made.
            if error.response.status_code == 401:
                raise
            return None, []
    if private and info.private is False:
        message = f"{repo} is there already, and is public."
        help = "Make it private on its page, name another, or leave --private out."
        raise PackageError([Problem("push.public", repo, message, help)])
    return info.sha, [file.rfilename for file in info.siblings or ()]


def _is_own(path: str) -> bool:
    return path in _OWN_FILES or PurePosixPath(path).suffix == ".linnet"


def _read_back(plan: PushPlan, commit: str) -> None:
    """Compare what the repository gives for the commit with what was sent. Raises HubError."""
    from huggingface_hub import get_token, hf_hub_download

    from linnet.registry.hub import hub_endpoint

    for path in (CARD_NAME, README_NAME):
        # Not through the user's cache, where it would be half a package.
        with tempfile.TemporaryDirectory(prefix="linnet-push-") as scratch, push_errors(plan.repo):
            settings: Any = {"revision": commit, "endpoint": hub_endpoint(), "token": get_token()}
            found = Path(str(hf_hub_download(plan.repo, path, local_dir=scratch, **settings))).read_bytes()
        data = plan.files[path]
        sent = data if isinstance(data, bytes) else data.read_bytes()
        if found != sent:
            message = (
                f"{plan.repo} gives another {path} at {commit} than was sent: sha256 "
                f"{hashlib.sha256(found).hexdigest()} instead of {hashlib.sha256(sent).hexdigest()}."
            )
            raise HubError([Problem("hub.unexpected", f"{plan.repo}/{path}", message, "Push again.")])


@contextmanager
def push_errors(repo: str) -> Iterator[None]:
    """Turns what `huggingface_hub` raises while it writes to a repository into HubError."""
    from huggingface_hub.errors import HfHubHTTPError

    from linnet.registry.hub import OTHER_WEIGHTS, hub_endpoint, hub_errors

    with _without(f", or {OTHER_WEIGHTS}"), hub_errors(repo):
        try:
            yield
        except HfHubHTTPError as error:
            raise _status_error(repo, error) from None
        except (ConnectionError, RuntimeError) as error:
            # What sends large files has errors of its own, and may say the Hub's as their cause.
            if isinstance(error.__cause__, HfHubHTTPError):
                raise _status_error(repo, error.__cause__) from None
            reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
            message = f"Files could not be sent to {hub_endpoint()}: {shown(reason)}."
            raise HubError([Problem("hub.unreachable", repo, message, "Push again.")]) from None


@contextmanager
def _without(advice: str) -> Iterator[None]:
    """Leaves out of an error's next steps what helps only who reads from the Hub."""
    try:
        yield
    except HubError as error:
        if not any(advice in item.help for item in error.problems):
            raise
        raise HubError(replace(item, help=item.help.replace(advice, "")) for item in error.problems) from None


def _status_error(repo: str, error: HfHubHTTPError) -> HubError | HfHubHTTPError:
    """What an answer to a push means; the error itself where it means what it does to who reads."""
    from linnet.registry.hub import hub_endpoint

    status = error.response.status_code
    token = "authorization" in error.response.request.headers
    login = "log in with a token that may write: hf auth login"
    unauthorized = ("unauthorized", "no token was sent", f"To push, {login}.")
    said = {
        401: ("bad-token", "the token is not valid", f"For another one, {login}.") if token else unauthorized,
        403: ("forbidden", f"the account may not write to {repo}", f"Name a repository of yours, or {login}."),
        409: ("conflict", "it is being changed", "Push again."),
        412: ("conflict", f"{repo} was changed by someone else meanwhile", "Look at it, and push again."),
        413: ("too-large", "a file is too large", "Keep large data in weights."),
    }.get(status)
    if said is None or error.response.headers.get("X-Error-Code") == "GatedRepo":
        return error
    kind, fault, help = said
    message = f"{hub_endpoint()} answered {status} to the push: {fault}."
    return HubError([Problem(f"hub.{kind}", repo, message, help)])


def _api() -> HfApi:
    from huggingface_hub import HfApi, get_token

    from linnet.registry.hub import hub_endpoint

    # Named, for who keeps the Hub's client from sending it unasked.
    return HfApi(endpoint=hub_endpoint(), token=get_token())


def _refuse_name(repo: str) -> None:
    try:
        if "/" in repository(repo):
            return
    except UnfitError:
        pass
    message = f"{shown(repo)} is no name of a repository on the Hub."
    raise PackageError([Problem("push.repository", bare(repo), message, "Write org/name.")])
