"""`nest push`: a package as a repository of the Hub, in one commit, and what is refused."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from hub_server import Fault, HubServer, running
from tiny_package import CARD, COMMIT, SOURCE, MakePackage

from linnet.cli.nest_push import command
from linnet.registry.card import parse_card
from linnet.registry.check import check_package
from linnet.registry.discover import discover
from linnet.registry.errors import HubError, PackageError
from linnet.registry.fetch import fetch_weights
from linnet.registry.index import package_record
from linnet.registry.index_build import index_records
from linnet.registry.locate import find_package
from linnet.registry.model_card import model_card, split_head
from linnet.registry.push import plan_push, push

TOKEN = "hf_writes"


@pytest.fixture
def writable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """A hub without repositories, and a token that may write to it."""
    (tmp_path / "hub").mkdir()
    monkeypatch.setenv("LINNET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub-cache"))
    with running(tmp_path / "hub") as server:
        server.tokens[TOKEN] = "write"
        server.tokens["hf_reads"] = "read"
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        yield server


def held(server: HubServer, repo: str = "org/tiny") -> dict[str, bytes]:
    commit = server.repositories.find(repo, "main")
    assert commit is not None
    return {path: file.read_bytes() for path, file in commit.files.items()}


def test_a_package_is_pushed_in_one_commit_and_loads_from_there(make_package: MakePackage, writable: HubServer) -> None:
    package = make_package()
    (package / "linnet.toml").write_text('[package]\nname = "tiny"\nversion = "0.3.0"\nlanguage = "0.1"\n')
    plan = plan_push(package, "org/tiny")
    assert (plan.head, plan.removed) == (None, ())
    assert not writable.repositories.known("org/tiny")
    done = push(plan, "First")
    assert len(writable.repositories.history("org/tiny")) == 1
    files = held(writable)
    names = ["README.md", "bindings.json", "linnet.toml", "model.safetensors", "nest.toml", "src/lib.linnet"]
    assert sorted(files) == [".gitattributes", *names]
    for name in names[1:]:
        assert files[name] == (package / name).read_bytes()
    readme = files["README.md"].decode()
    assert readme == ("---\nlibrary_name: linnet\nlicense: mit\ntags:\n- linnet\n- nest\n- test\n---\n\n# Tiny\n")
    assert (done.repo, done.changed) == ("org/tiny", True)
    assert done.url == f"{writable.endpoint}/org/tiny/tree/{done.commit}"

    located = find_package(f"org/tiny@{done.commit}")
    card = located.card()
    assert (card.weights.repo, card.weights.revision) == ("org/tiny", done.commit)
    weights = fetch_weights(located.folder, card)
    assert weights["model.safetensors"].read_bytes() == (package / "model.safetensors").read_bytes()
    assert check_package(located).ok
    record = package_record(located)
    assert (record["version"], record["weights"]["repo"]) == ("0.3.0", "org/tiny")


def test_pushing_again_makes_no_commit_and_a_change_makes_one(make_package: MakePackage, writable: HubServer) -> None:
    package = make_package()
    (package / "src" / "old.linnet").write_text("module old\n")
    first = push(plan_push(package, "org/tiny"))
    again = push(plan_push(package, "org/tiny"))
    assert (again.commit, again.changed) == (first.commit, False)
    (package / "src" / "old.linnet").unlink()
    (package / "README.md").write_text("# Tiny\n\nMore.\n")
    plan = plan_push(package, "org/tiny")
    assert (plan.head, plan.removed) == (first.commit, ("src/old.linnet",))
    last = push(plan)
    assert last.changed
    assert len(writable.repositories.history("org/tiny")) == 2
    assert "src/old.linnet" not in held(writable)
    assert held(writable)["README.md"].endswith(b"# Tiny\n\nMore.\n")


def test_what_else_a_repository_holds_stays(make_package: MakePackage, writable: HubServer, tmp_path: Path) -> None:
    folder = tmp_path / "hub" / "org" / "tiny" / COMMIT
    folder.mkdir(parents=True)
    for name in ("config.json", "pytorch_model.bin", "other.linnet", "bench.json"):
        (folder / name).write_text(name)
    plan = plan_push(make_package(), "org/tiny")
    assert (plan.head, plan.removed) == (COMMIT, ("bench.json", "other.linnet"))
    push(plan)
    assert {"config.json", "pytorch_model.bin"} <= held(writable).keys()


def test_weights_of_another_repository_stay_there(make_package: MakePackage, writable: HubServer) -> None:
    pin = f'repo = "owner/base"\nrevision = "{COMMIT}"\n'
    package = make_package(card=CARD.replace("[weights]\n", f"[weights]\n{pin}"))
    plan = plan_push(package, "org/tiny")
    assert "model.safetensors" not in plan.files
    assert "base_model: owner/base\n" in plan.model_card
    push(plan)
    assert "model.safetensors" not in held(writable)
    # A model whose weights are in the very repository is based on no other.
    assert "base_model" not in plan_push(package, "owner/base").model_card


@pytest.mark.parametrize(
    ("license", "file", "lines"),
    [
        ("Apache-2.0", None, ["license: apache-2.0"]),
        ("GPL-3.0-or-later", "LICENSE", ["license: gpl-3.0"]),
        ("LicenseRef-Gemma", "LICENSE", ["license: other", "license_name: licenseref-gemma", "license_link: LICENSE"]),
        ("MIT OR Apache-2.0", None, ["license: other", "license_name: mit-or-apache-2.0"]),
        ("other", None, ["license: other"]),
    ],
)
def test_licences_in_the_words_of_the_hub(license: str, file: str | None, lines: list[str]) -> None:
    card = parse_card(CARD.replace('"MIT"', f'"{license}"').encode())
    head, _ = split_head(model_card(card, "# Tiny\n", "org/tiny", license_file=file))
    assert [line for line in head.splitlines() if line.startswith("license")] == lines


def test_a_head_that_the_readme_has_is_kept_but_for_what_the_card_says() -> None:
    card = parse_card(CARD.replace('["test"]', '["small", "text-generation"]').encode())
    readme = (
        "---\nlicense: gpl-3.0\ndatasets:\n- some/data\nbase_model: old/one\ntags: [x]\n---\n# Tiny\n\n---\nA rule.\n"
    )
    made = model_card(card, readme, "org/tiny")
    head, text = split_head(made)
    assert text == "# Tiny\n\n---\nA rule.\n"
    assert set(head.splitlines()) == {
        *("library_name: linnet", "license: mit", "pipeline_tag: text-generation", "datasets:", "- some/data"),
        *("tags:", "- linnet", "- nest", "- test", "- small", "- text-generation"),
    }
    assert model_card(card, made, "org/tiny") == made
    assert split_head("# Tiny\n---\na: 1\n---\n") == ("", "# Tiny\n---\na: 1\n---\n")
    assert split_head("---\n---\r\n# Tiny") == ("", "# Tiny")


@pytest.mark.parametrize("head", ["- a", "a: [", "text", "? " * 5000])
def test_a_head_that_is_no_table_is_refused(head: str) -> None:
    with pytest.raises(PackageError, match=r"^README\.md: The head of README\.md is no YAML table: "):
        model_card(parse_card(CARD.encode()), f"---\n{head}\n---\n# Tiny\n", "org/tiny")


def test_nothing_is_pushed_of_a_package_that_does_not_check(make_package: MakePackage, writable: HubServer) -> None:
    package = make_package(source=SOURCE.replace("none => y", "none => z"))
    with pytest.raises(PackageError, match="z"):
        plan_push(package, "org/tiny")
    for repo in ("tiny", "a/b/c", "org/ti ny", ""):
        with pytest.raises(PackageError, match=r"is no name of a repository on the Hub\. Write org/name\."):
            plan_push(make_package(), repo)
    assert writable.traffic.requests == []


def refused(package: Path) -> tuple[str, str]:
    with pytest.raises(HubError) as caught:
        push(plan_push(package, "org/tiny"))
    (problem,) = caught.value.problems
    return problem.kind, str(problem)


def test_tokens_that_may_not(make_package: MakePackage, writable: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    package = make_package()
    monkeypatch.setenv("HF_TOKEN", "hf_reads")
    kind, said = refused(package)
    assert kind == "hub.forbidden"
    assert said.endswith(
        "answered 403 to the push: the account may not write to org/tiny. "
        "Name a repository of yours, or log in with a token that may write: hf auth login."
    )
    monkeypatch.setenv("HF_TOKEN", "hf_unknown")
    assert refused(package)[0] == "hub.bad-token"
    monkeypatch.delenv("HF_TOKEN")
    assert refused(package) == (
        "hub.unauthorized",
        f"org/tiny: {writable.endpoint} answered 401 to the push: no token was sent. "
        "To push, log in with a token that may write: hf auth login.",
    )


def test_a_hub_that_is_not_there(make_package: MakePackage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(HubError) as caught:
        plan_push(make_package(), "org/tiny")
    (problem,) = caught.value.problems
    assert problem.message.startswith("No connection to http://127.0.0.1:9: ")
    # Weights from elsewhere do not help who pushes.
    assert problem.help == "Check the network and HF_ENDPOINT."


def test_a_commit_in_between_is_not_overwritten(make_package: MakePackage, writable: HubServer) -> None:
    package = make_package()
    push(plan_push(package, "org/tiny"))
    (package / "README.md").write_text("# Mine\n")
    mine = plan_push(package, "org/tiny")
    (package / "README.md").write_text("# Theirs\n")
    push(plan_push(package, "org/tiny"))
    with pytest.raises(HubError, match=r"was changed by someone else meanwhile\. Look at it, and push again"):
        push(mine)
    assert held(writable)["README.md"].endswith(b"# Theirs\n")


@pytest.mark.parametrize("fault", ["500", "drop"])
def test_a_lost_answer_is_no_lost_push(make_package: MakePackage, writable: HubServer, fault: str) -> None:
    package = make_package()
    push(plan_push(package, "org/tiny"))
    (package / "README.md").write_text("# Changed\n")
    writable.faults["api/commit-answer"] = Fault(fault, times=1)
    with pytest.raises(HubError):
        push(plan_push(package, "org/tiny"))
    done = push(plan_push(package, "org/tiny"))
    assert not done.changed
    assert held(writable)["README.md"].endswith(b"# Changed\n")
    assert len(writable.repositories.history("org/tiny")) == 2


@pytest.mark.parametrize("error", [ConnectionError("Network error: 404.\nmore"), RuntimeError("Data processing error")])
def test_large_files_that_cannot_be_sent(
    make_package: MakePackage, writable: HubServer, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    plan = plan_push(make_package(), "org/tiny")
    monkeypatch.setattr("huggingface_hub.HfApi.preupload_lfs_files", fail)
    with pytest.raises(HubError) as caught:
        push(plan)
    said = str(error).partition(".")[0]
    assert str(caught.value) == f'org/tiny: Files could not be sent to {writable.endpoint}: "{said}". Push again.'
    assert writable.repositories.history("org/tiny") == []


def test_a_private_repository(make_package: MakePackage, writable: HubServer) -> None:
    package = make_package()
    push(plan_push(package, "org/tiny", private=True))
    assert writable.closed == {"org/tiny": "private"}
    assert not push(plan_push(package, "org/tiny", private=True)).changed
    push(plan_push(package, "org/open"))
    with pytest.raises(PackageError, match=r"org/open is there already, and is public\. Make it private on its page"):
        plan_push(package, "org/open", private=True)


def test_two_first_pushes_at_once(make_package: MakePackage, writable: HubServer) -> None:
    package = make_package()
    plans = [plan_push(package, "org/tiny") for _ in range(2)]
    results: list[str] = []
    threads = [threading.Thread(target=lambda plan=plan: results.append(push(plan).commit)) for plan in plans]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 2
    assert set(held(writable)) == {".gitattributes", *plans[0].files}


def test_the_command(make_package: MakePackage, writable: HubServer) -> None:
    package = str(make_package())
    run = CliRunner().invoke
    planned = run(command, [package, "org/tiny", "--dry-run", "--private"], standalone_mode=False)
    assert planned.stdout.splitlines() == [
        "org/tiny: a new private repository",
        "  write  README.md          79 B",
        "  write  bindings.json      26 B",
        "  write  model.safetensors  176 B",
        f"  write  nest.toml          {len(CARD)} B",
        f"  write  src/lib.linnet     {len(SOURCE)} B",
        "README.md begins with:",
        *("  library_name: linnet", "  license: mit", "  tags:", "  - linnet", "  - nest", "  - test"),
        "Nothing was done.",
    ]
    told = json.loads(run(command, [package, "org/tiny", "--dry-run", "--json"], standalone_mode=False).stdout)
    assert (told["head"], told["removed"], told["files"]["bindings.json"]) == (None, [], 26)
    assert not writable.repositories.known("org/tiny")
    done = run(command, [package, "org/tiny", "--message", "Words"], standalone_mode=False)
    commit = writable.repositories.history("org/tiny")[-1].oid
    assert done.stdout.splitlines() == [
        f"Pushed to {writable.endpoint}/org/tiny/tree/{commit}",
        f'Load it: nest.load("org/tiny@{commit}")',
    ]
    again = run(command, [package, "org/tiny", "--json"], standalone_mode=False)
    assert json.loads(again.stdout)["commit"] == commit
    assert run(command, [package, "org/tiny"], standalone_mode=False).stdout.startswith("Nothing has changed in ")


def test_an_organisation_is_indexed(make_package: MakePackage, writable: HubServer, tmp_path: Path) -> None:
    package = make_package()
    first = push(plan_push(package, "org/tiny")).commit
    other = tmp_path / "other"
    package.rename(other)
    (other / "nest.toml").write_text(CARD.replace('"tiny"', '"other"'))
    push(plan_push(other, "org/renamed"))
    push(plan_push(other, "elsewhere/other"))
    plain = tmp_path / "hub" / "org" / "plain" / COMMIT
    plain.mkdir(parents=True)
    (plain / "config.json").write_text("{}")
    records = index_records(["hf://org"])
    assert [(record["name"], record["weights"]["repo"]) for record in records] == [
        ("other", "org/renamed"),
        ("tiny", "org/tiny"),
    ]
    # A commit that is here already is asked for no more.
    before = len(writable.traffic.requests)
    assert index_records(["hf://org"]) == records
    assert [line.split("?")[0] for line in writable.traffic.requests[before:]] == ["GET /api/models"]
    found = discover(["hf://org"])
    assert [(package.repo, package.revision) for package in found.packages][1] == ("org/tiny", first)


def test_an_organisation_that_the_hub_does_not_give(writable: HubServer) -> None:
    assert [problem.kind for problem in discover(["hf://nobody"]).problems] == ["package.folder"]
    for fault, kind in (("401", "hub.unauthorized"), ("403", "hub.forbidden"), ("418", "hub.unexpected")):
        writable.faults["api/models"] = Fault(fault)
        assert [problem.kind for problem in discover(["hf://org"]).problems] == [kind]


def test_one_repository_that_cannot_be_read_is_told_beside_the_others(
    make_package: MakePackage, writable: HubServer
) -> None:
    package = make_package()
    for name in ("one", "two"):
        push(plan_push(package, f"org/{name}"))
    writable.closed["org/one"] = "gated"
    found = discover(["hf://org"])
    assert [package.repo for package in found.packages] == ["org/two"]
    assert [problem.kind for problem in found.problems] == ["hub.gated"]
