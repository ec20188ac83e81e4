"""What users type to find, fetch, pin and verify packages of registries, and what they read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Nest = Callable[..., CompletedProcess[str]]


@pytest.fixture
def registry(tmp_path: Path) -> Path:
    return tmp_path / "registry"


@pytest.fixture
def nest(run: Callable[..., CompletedProcess[str]], tmp_path: Path, registry: Path) -> Nest:
    """`nest` with a registry, a cache and a memory of its own."""
    places = {"LINNET_REGISTRY": str(registry), "LINNET_CACHE": str(tmp_path / "cache")}
    places["LINNET_DATA"] = str(tmp_path / "data")

    def command(*words: object, **more: str) -> CompletedProcess[str]:
        return run("nest", *words, **{**places, **more})

    return command


@pytest.fixture
def published(nest: Nest, tiny: Path, registry: Path) -> Path:
    """The package `tiny`, published as 1.0.0 and 1.1.0; its folder."""
    card = tiny / "nest.toml"
    text = card.read_text()
    for version in ("1.0.0", "1.1.0"):
        card.write_text(text.replace('tags = ["test"]', f'tags = ["test"]\nversion = "{version}"'))
        done = nest("publish", tiny, "--smoke", "none", "--no-gate", "--registry", registry)
        assert done.returncode == 0, done.stderr
    return tiny


def test_list_and_search(nest: Nest, published: Path, registry: Path) -> None:
    done = nest("list")
    assert done.returncode == 0, done.stderr
    assert next(line for line in done.stdout.splitlines() if line.startswith("tiny ")).split() == [
        *("tiny", "1.1.0", "mlp", "Apache-2.0", "Tiny"),
        str(registry),
    ]
    assert any(line.startswith("gpt2 ") and line.endswith("ships here") for line in done.stdout.splitlines())
    (listed,) = json.loads(nest("list", "--registry", registry, "--json").stdout)
    assert (listed["name"], listed["version"], listed["versions"], listed["parameter_count"]) == (
        "tiny",
        "1.1.0",
        2,
        28,
    )
    assert listed["weights_size"] == (published / "model.safetensors").stat().st_size

    def names(*words: str) -> list[str]:
        return [item["name"] for item in json.loads(nest("search", *words, "--json").stdout)]

    assert names("linear", "layers") == ["tiny"]
    assert names("--family", "mlp", "--tag", "TEST", "--license", "apache") == ["tiny"]
    assert names("--max-parameters", "28", "--min-parameters", "28") == ["tiny"]
    assert names("linear", "--min-parameters", "29") == []
    assert names("gpt2", "--max-parameters", "1k") == []
    assert names("gpt2") == ["gpt2"]
    # Those that ship here have versions and counts as well.
    assert names("fp8", "--max-parameters", "8B") == ["qwen3-tiny-fp8"]
    (found,) = json.loads(nest("search", "gpt2", "--min-parameters", "124M", "--json").stdout)
    assert (found["version"], found["parameter_count"]) == ("0.1.0", 124_439_808)
    none = nest("search", "tyni")
    assert (none.returncode, none.stdout) == (0, "")
    assert "is like that. The nearest name is tiny." in none.stderr
    wrong = nest("search", "--max-parameters", "many")
    assert wrong.returncode == 2
    assert "'many' is no count of parameters, such as 600M or 8B." in wrong.stderr


def test_show(nest: Nest, published: Path, registry: Path) -> None:
    nest("alias", "tiny@stable", "1.0.0", "--registry", registry)
    nest("yank", "tiny@1.0.0", "--reason", "old", "--registry", registry)
    done = nest("show", "tiny")
    assert done.returncode == 0, done.stderr
    for words in (
        ["version", "1.1.0"],
        ["registry", str(registry)],
        ["versions", "1.1.0"],
        ["aliases", "stable", "=", "1.0.0"],
    ):
        assert any(line.split() == words for line in done.stdout.splitlines()), words
    assert "1.0.0, yanked: old" in done.stdout
    shown = json.loads(nest("show", "tiny@1.1.0", "--json").stdout)
    assert shown["parameter_count"] == 28
    assert shown["registry"]["url"] == str(registry)
    assert [item["version"] for item in shown["registry"]["versions"]] == ["1.0.0", "1.1.0"]
    assert shown["registry"]["weights"][0]["path"] == "model.safetensors"


def test_pull_lock_and_verify(nest: Nest, published: Path, registry: Path, tmp_path: Path) -> None:
    done = nest("pull", "tiny@1.0.0", "--lock")
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first.startswith(f"tiny 1.0.0 from {registry}: 4 files of ")
    assert ", 1 weight file of " in first
    assert second == "Pinned in nest.lock."
    lock = json.loads((tmp_path / "here" / "nest.lock").read_text())
    assert lock["packages"]["tiny"]["version"] == "1.0.0"
    (pulled,) = json.loads(nest("pull", "--json", "--offline").stdout)
    assert (pulled["version"], pulled["sha256"]) == ("1.0.0", lock["packages"]["tiny"]["sha256"])
    refused = nest("pull", "tiny@1.1.0")
    assert refused.returncode == 1
    assert "nest.lock pins tiny to 1.0.0, and tiny@1.1.0 was asked for. Ask for tiny, " in refused.stderr
    done = nest("verify")
    assert done.returncode == 0
    assert done.stdout.count("all as it should be") == 2
    readme = Path(pulled["folder"]) / "README.md"
    readme.chmod(0o644)
    readme.write_text("# Evil\n")
    done = nest("verify")
    assert done.returncode == 1
    assert (
        "is not what its version's record says. Set it aside and fetch it again: nest verify --repair." in done.stdout
    )
    done = nest("verify", "--repair")
    assert done.returncode == 0
    assert "is not what its version's record says. That is repaired." in done.stdout
    assert nest("verify", "tiny", "--repair").returncode == 0
    assert nest("verify", "--registry", registry).returncode == 0
    (found,) = json.loads(nest("verify", "--registry", registry, "--json").stdout)
    assert (found["problems"], found["repaired"]) == ([], 0)


def test_a_warning_is_a_sentence(nest: Nest, published: Path, registry: Path) -> None:
    nest("yank", "tiny@1.1.0", "--reason", "wrong", "--registry", registry)
    done = nest("pull", "tiny@1.1.0", before="import warnings\nwarnings.simplefilter('default')\n")
    assert done.returncode == 0
    assert done.stderr == "Warning: tiny 1.1.0 was yanked (wrong). Move to 1.0.0, the newest.\n"
    done = nest("pull", "tiny@1.1.0", "tiny@1.1.0", before="import warnings\nwarnings.simplefilter('always')\n")
    assert done.stderr.count("Warning: ") == 1
    assert "(yanked)" not in nest("list").stdout
    nest("yank", "tiny@1.0.0", "--registry", registry, "--reason", "wrong")
    assert next(line for line in nest("list").stdout.splitlines() if line.startswith("tiny ")).split()[4:6] == [
        *("Tiny", "(yanked)"),
    ]


def test_other_commands_take_names_of_registries(nest: Nest, published: Path, registry: Path, tmp_path: Path) -> None:
    assert nest("check", "tiny@1.0.0", "--smoke", "none", "--registry", registry, LINNET_REGISTRY="").returncode == 0
    done = nest("bench", "tiny@1.0.0")
    assert done.returncode == 2
    assert "tiny@1.0.0 is not a folder of yours to write to: name a file, -o bench.json" in done.stderr
    done = nest("run", "tiny", "x")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


def test_what_went_back_can_be_forgotten(nest: Nest, published: Path, registry: Path) -> None:
    assert nest("pull", "tiny").returncode == 0
    registry.rename(registry.with_name("old"))
    assert nest("publish", published, "--smoke", "none", "--no-gate", "--registry", registry).returncode == 0
    done = nest("pull", "tiny")
    assert done.returncode == 1
    assert f"nest verify --registry {registry} --forget." in done.stderr
    assert nest("verify", "--forget").returncode == 2
    assert nest("verify", "--registry", registry, "--forget").stdout == f"What was seen of {registry} is forgotten.\n"
    assert nest("pull", "tiny").returncode == 0


def test_what_cannot_be_done_is_one_sentence(nest: Nest, published: Path, registry: Path) -> None:
    nowhere = "http://127.0.0.1:9/r"
    rows: list[tuple[list[str], str, int, str]] = [
        (["pull", "nothing-like-it"], "", 1, 'There is no folder "nothing-like-it", and no package of that name in'),
        (["pull", "tiny@9.9.9"], "", 1, 'tiny has no version "9.9.9" in '),
        (["pull"], "", 2, "There is no nest.lock here that pins anything: name what to pull."),
        (["pull", "gpt2", "--no-weights", "--lock"], "", 1, "gpt2 comes from no registry, so it cannot be pinned."),
        (["pull", "tiny"], nowhere, 3, f"No connection to {nowhere}"),
        (["list"], nowhere, 3, f"No connection to {nowhere}"),
        (["pull", "tiny"], "htps://example.org", 3, "names no kind of registry. Use https:// instead."),
        (["pull", "tiny"], "/no/such/registry", 3, 'There is no registry "/no/such/registry"'),
        (["list", "--nests", "..", "--registry", "x"], "", 2, "give one of them"),
        (["verify", "nothing-like-it"], "", 1, "No registry has a package 'nothing-like-it'."),
    ]
    for words, url, code, said in rows:
        done = nest(*words, LINNET_REGISTRY=url or str(registry))
        assert said in done.stderr
        assert (done.returncode, done.stderr.count("Traceback")) == (code, 0)


def test_what_a_record_says_does_not_steer_the_terminal(nest: Nest, published: Path, registry: Path) -> None:
    record = registry / "versions" / "tiny" / "1.1.0.json"
    table = json.loads(record.read_bytes())
    table["check"]["sections"] = [{"name": "source", "status": "ok", "summary": "\x1b]0;title\x07 \u202e fine"}]
    record.write_text(json.dumps(table))
    assert nest("index", "rebuild").returncode == 0
    shown = nest("show", "tiny", LINNET_DATA=str(registry.parent / "new"))
    assert shown.returncode == 0, shown.stderr
    (line,) = (line for line in shown.stdout.splitlines() if line.startswith("checked"))
    assert line.split() == ["checked", "source:", "]0;title", "fine"]
    assert all(ch.isprintable() or ch == "\n" for ch in shown.stdout)
