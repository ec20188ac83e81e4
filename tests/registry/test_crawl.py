"""The crawl against a local hub: what crosses the wire, and every failure told apart."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from hub_server import ACTED_FAULTS, STATUS_FAULTS, Fault, HubServer, write_sparse
from huggingface_hub import close_session, constants, hf_hub_download
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
from seed_checkpoint import FILES, REPO, REVISION, write_seed_checkpoint
from tiny_package import COMMIT

from linnet.registry import crawl
from linnet.registry import hub as hub_module
from linnet.registry.crawl import crawl_headers
from linnet.registry.errors import HeaderError, HubError
from linnet.registry.headers import TensorInfo
from linnet.registry.hub import REASONS, hub_endpoint, hub_errors

FILE = "model.safetensors"
NO_PAUSES = (0.0, 0.0)


@pytest.fixture(autouse=True)
def _fresh_session() -> Iterator[None]:
    yield
    close_session()


def read(repo: str = "owner/tiny", revision: str = COMMIT, *files: str) -> dict[str, tuple[TensorInfo, ...]]:
    return crawl_headers(repo, revision, files or (FILE,), delays=NO_PAUSES)


def failure(repo: str = "owner/tiny", revision: str = COMMIT, *files: str) -> HubError:
    with pytest.raises(HubError) as caught:
        read(repo, revision, *files)
    return caught.value


def test_two_ranged_requests_a_file(hub: HubServer) -> None:
    (info,) = read()[FILE]
    assert (info.name, info.dtype, info.shape, info.file) == ("layer.weight", "F32", (4, 4), FILE)
    length = info.start - 8
    ranges = [line.split()[-1] for line in hub.traffic.requests]
    assert ranges == ["bytes=0-7", "bytes=0-7", f"bytes=8-{7 + length}", f"bytes=8-{7 + length}"]
    fronts = [line for line in hub.traffic.requests if "/resolve/" in line]
    assert fronts[0] == f"GET /owner/tiny/resolve/{COMMIT}/{FILE} bytes=0-7"
    assert len(fronts) == 2


def test_every_declared_file_is_read(hub: HubServer) -> None:
    folder = hub.root / "owner" / "tiny" / COMMIT
    names = [f"sub dir/model-{i}.safetensors" for i in range(6)]
    for name in names:
        write_sparse(folder / name, [(name, "BF16", (2,))])
    headers = read("owner/tiny", COMMIT, *names)
    assert list(headers) == names
    assert [infos[0].name for infos in headers.values()] == names
    assert len([line for line in hub.traffic.requests if "/resolve/" in line]) == 12


def test_the_seed_checkpoint_in_less_than_300_kb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_seed_checkpoint(tmp_path)
    with HubServer(tmp_path) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        headers = read(REPO, REVISION, *FILES)
        assert sum(map(len, headers.values())) == 651
        assert server.traffic.bytes < 300_000
        assert sum(info.end - info.start for infos in headers.values() for info in infos) > 9_000_000_000


def test_the_token_goes_to_the_hub_alone(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_IMPLICIT_TOKEN", False)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    read()
    assert hub.traffic.tokens_at_content == 0
    hub.faults[FILE] = Fault("401-bad-token")
    error = failure()
    assert error.reasons == ("bad-token",)
    assert str(error) == (
        f"owner/tiny/{FILE}: {hub.endpoint} answered 401 for owner/tiny/{FILE}: the token is not valid. Log in again "
        "with: hf auth login, or correct HF_TOKEN."
    )
    hub.faults[FILE] = Fault("403-gated")
    assert str(failure()) == (
        f"owner/tiny/{FILE}: {hub.endpoint} answered 403: owner/tiny is gated, and its terms have not been accepted by "
        f"this token's account. Accept the terms at {hub.endpoint}/owner/tiny."
    )
    hub.faults[FILE] = Fault("429-long")
    assert str(failure()).endswith("Try again in 600 seconds.")


@pytest.mark.parametrize(
    ("fault", "reason", "message", "help"),
    [
        (
            "401",
            "unauthorized",
            "{hub} answered 401: owner/tiny does not exist, or is private and no token was sent.",
            "Check weights.repo; for a private repository, log in with: hf auth login.",
        ),
        (
            "401-bad-token",
            "unauthorized",
            "{hub} answered 401: owner/tiny does not exist, or is private and no token was sent.",
            "Check weights.repo; for a private repository, log in with: hf auth login.",
        ),
        (
            "401-gated",
            "gated",
            "{hub} answered 401: owner/tiny is gated, and its terms have not been accepted; no token was sent.",
            "Accept the terms at {hub}/owner/tiny, then log in with: hf auth login.",
        ),
        (
            "403",
            "forbidden",
            "{hub} answered 403: the account may not read owner/tiny.",
            "Use a token that has access to the repository.",
        ),
        (
            "403-gated",
            "gated",
            "{hub} answered 403: owner/tiny is gated, and its terms have not been accepted; no token was sent.",
            "Accept the terms at {hub}/owner/tiny, then log in with: hf auth login.",
        ),
        (
            "404-repo",
            "repo-not-found",
            "{hub} answered 404: it has no repository owner/tiny that this account can see.",
            "Check weights.repo.",
        ),
        (
            "404-revision",
            "revision-not-found",
            "{hub} answered 404: owner/tiny has no commit {commit}.",
            "Check weights.revision; the commit may be gone upstream.",
        ),
        (
            "404-file",
            "file-not-found",
            "{hub} answered 404: owner/tiny has no model.safetensors at {commit}.",
            "Check weights.files.",
        ),
        (
            "429",
            "rate-limited",
            "{hub} answered 429 for owner/tiny/model.safetensors: too many requests.",
            "Try again in 1 second; with a token (hf auth login) the limit is higher.",
        ),
        (
            "429-long",
            "rate-limited",
            "{hub} answered 429 for owner/tiny/model.safetensors: too many requests.",
            "Try again in 600 seconds; with a token (hf auth login) the limit is higher.",
        ),
        (
            "500",
            "server-error",
            "{hub} answered 500 for owner/tiny/model.safetensors: the server failed.",
            "Try again later, or use another endpoint.",
        ),
        (
            "503",
            "server-error",
            "{hub} answered 503 for owner/tiny/model.safetensors: the server failed.",
            "Try again later, or use another endpoint.",
        ),
        (
            "418",
            "unexpected",
            "{hub} answered 418 for owner/tiny/model.safetensors, which is outside the protocol.",
            "Check HF_ENDPOINT.",
        ),
        (
            "ignore-range",
            "range-ignored",
            "{hub} ignored the range and offered all of owner/tiny/model.safetensors, which was not read.",
            "Use an endpoint that answers range requests, or give a folder with the weights (--weights, weights=).",
        ),
        (
            "wrong-range",
            "range-ignored",
            "The server was asked for bytes 0 to 7 of owner/tiny/model.safetensors and sent other ones.",
            "Use an endpoint that answers range requests instead of {hub}.",
        ),
        (
            "too-much",
            "unexpected",
            "The server sent more bytes of owner/tiny/model.safetensors than were asked for.",
            "Try another endpoint than {hub}.",
        ),
        (
            "truncate",
            "truncated",
            "{hub} broke off its answer for owner/tiny/model.safetensors.",
            "Try again later, or use another endpoint.",
        ),
        (
            "stall",
            "timeout",
            "{hub} did not answer for owner/tiny/model.safetensors in time.",
            "Try again later, or give a folder with the weights (--weights, weights=).",
        ),
        (
            "redirect-loop",
            "redirects",
            "{hub} redirects owner/tiny/model.safetensors in a circle.",
            "Check the endpoint, or use another one.",
        ),
        (
            "redirect-nowhere",
            "redirects",
            "{hub} redirects owner/tiny/model.safetensors to what is no address.",
            "Check the endpoint, or use another one.",
        ),
        (
            "wrong-commit",
            "wrong-commit",
            '{hub} answered for commit "0000000000000000000000000000000000000000" of owner/tiny instead of {commit}.',
            "Check weights.revision, or use an endpoint that serves pinned commits.",
        ),
    ],
)
def test_each_failure_is_told_apart(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch, fault: str, reason: str, message: str, help: str
) -> None:
    assert set(STATUS_FAULTS) | set(ACTED_FAULTS) >= {fault}
    monkeypatch.setattr(crawl, "READ_SECONDS", 0.3)
    monkeypatch.setattr(hub_module, "LONGEST_PAUSE", 0.5)
    hub.faults[FILE] = Fault(fault)
    error = failure()
    (problem,) = error.problems
    assert error.reasons == (reason,)
    assert reason in REASONS
    assert problem.kind == f"hub.{reason}"
    assert problem.message == message.format(hub=hub.endpoint, commit=COMMIT)
    assert problem.help == help.format(hub=hub.endpoint)
    # Not the whole file, whatever the server offers.
    assert hub.traffic.bytes < 60_000


def test_what_the_server_itself_does_not_have(hub: HubServer) -> None:
    assert failure("owner/absent").reasons == ("repo-not-found",)
    assert failure("owner/tiny", "f" * 40).reasons == ("revision-not-found",)
    assert failure("owner/tiny", COMMIT, "a.safetensors", "b.safetensors").reasons == ("file-not-found",) * 2


def test_a_body_that_goes_on_is_not_read_to_its_end(hub: HubServer) -> None:
    path = hub.root / "owner" / "tiny" / COMMIT / FILE
    with path.open("r+b") as file:
        file.truncate(1 << 32)
    hub.faults[FILE] = Fault("ignore-range")
    assert failure().reasons == ("range-ignored",)
    # What the two kernels buffer before the connection is dropped may be sent, no more.
    assert hub.traffic.bytes < 16_000_000


def test_what_passes_is_asked_again(hub: HubServer) -> None:
    for fault in ("500", "503", "truncate"):
        hub.faults[FILE] = Fault(fault, times=2)
        assert len(read()[FILE]) == 1
    hub.faults[FILE] = Fault("500", times=3)
    assert failure().reasons == ("server-error",)


def test_the_pause_that_the_server_asks_for(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(crawl.time, "sleep", pauses.append)
    hub.faults[FILE] = Fault("429", times=1)
    assert len(read()[FILE]) == 1
    assert pauses == [1.0]
    hub.faults[FILE] = Fault("429-long", times=1)
    assert failure().reasons == ("rate-limited",)
    assert pauses == [1.0]


def test_an_endpoint_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9/")
    error = failure("owner/tiny", COMMIT, "a.safetensors", "b.safetensors")
    assert error.reasons == ("unreachable",)
    assert re.fullmatch(
        r"owner/tiny/a\.safetensors: No connection to http://127\.0\.0\.1:9: \".+\"\. Check the network and "
        r"HF_ENDPOINT, or give a folder with the weights \(--weights, weights=\)\.",
        str(error),
    )


@pytest.mark.parametrize("endpoint", ["nonsense", "ftp://x", "http://", "http://[", "http://a b", "http://a:b"])
def test_an_endpoint_that_is_no_address(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    assert failure().reasons == ("no-address",)


def test_an_endpoint_that_is_no_address_is_told_before_the_library_is_imported() -> None:
    code = "import sys, pathlib; from linnet.registry.fetch import fetch_package; fetch_package('owner/tiny', None)"
    environment = {**os.environ, "HF_ENDPOINT": "http://["}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.stderr.splitlines()[-1] == (
        'linnet.registry.errors.HubError: HF_ENDPOINT is "http://[", which is not an http or https address. Set it to '
        "an address such as https://huggingface.co, or unset it."
    )


def test_offline_mode_opens_no_connection(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert str(failure()) == (
        f"owner/tiny/{FILE} is not on this machine, and offline mode is on. Unset HF_HUB_OFFLINE, or give a folder "
        "with the weights (--weights, weights=)."
    )
    assert hub.traffic.requests == []


def test_bad_headers_from_the_hub(hub: HubServer) -> None:
    folder = hub.root / "owner" / "tiny" / COMMIT
    broken = {
        "empty": b"",
        "short": b"\x08\0\0",
        "huge": b"\xff" * 8 + b"{}",
        "cut": (100).to_bytes(8, "little") + b"{}",
        "text": (2).to_bytes(8, "little") + b"[]",
        "more": (2).to_bytes(8, "little") + b"{}" + b"trailing",
    }
    for name, data in broken.items():
        (folder / f"{name}.safetensors").write_bytes(data)
        with pytest.raises(HeaderError) as caught:
            read("owner/tiny", COMMIT, f"{name}.safetensors")
        assert caught.value.problems[0].where == f"{name}.safetensors"
    with pytest.raises(HeaderError) as caught:
        read("owner/tiny", COMMIT, *(f"{name}.safetensors" for name in broken))
    assert len(caught.value.problems) == len(broken)


def test_what_the_library_raises_is_told_apart_too(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch() -> tuple[str, ...]:
        with pytest.raises(HubError) as caught, hub_errors("owner/tiny", COMMIT, FILE):
            hf_hub_download("owner/tiny", FILE, revision=COMMIT, endpoint=hub_endpoint(), cache_dir=tmp_path / "cache")
        return caught.value.reasons

    for fault, reason in {
        "404-repo": "repo-not-found",
        "404-revision": "revision-not-found",
        "404-file": "file-not-found",
        "403-gated": "gated",
        "403": "forbidden",
    }.items():
        hub.faults[FILE] = Fault(fault)
        assert fetch() == (reason,)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert fetch() == ("offline",)


def test_what_the_library_hides_behind_an_absent_file() -> None:
    def reasons(cause: Exception | None) -> tuple[str, ...]:
        with pytest.raises(HubError) as caught, hub_errors("owner/tiny"):
            raise LocalEntryNotFoundError("not in the cache") from cause
        return caught.value.reasons

    request = httpx2.Request("GET", "http://127.0.0.1:9/owner/tiny")
    gone = HfHubHTTPError("gone", response=httpx2.Response(503, request=request))
    assert reasons(httpx2.ConnectError("refused", request=request)) == ("unreachable",)
    assert reasons(gone) == ("server-error",)
    assert reasons(None) == ("offline",)


def test_every_reason_is_named_in_the_tests() -> None:
    text = Path(__file__).read_text()
    assert [reason for reason in REASONS if f'"{reason}"' not in text] == []
