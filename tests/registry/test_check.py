"""The static check: the seed package against a local hub, and packages broken one part at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hub_server import Fault, HubServer, write_sparse
from seed_checkpoint import FILES, REPO, REVISION, write_seed_checkpoint
from tiny_package import CARD, COMMIT, SOURCE, MakePackage

from linnet.registry.check import check_package
from linnet.registry.locate import Located
from linnet.registry.report import CheckReport

SECTIONS = ["card", "readme", "files", "source", "generics", "bindings", "weights"]
HUB_CARD = CARD + f'repo = "owner/tiny"\nrevision = "{COMMIT}"\n'


def statuses(report: CheckReport) -> dict[str, str]:
    return {section.name: section.status for section in report.sections}


def only(report: CheckReport, section: str) -> str:
    """The one error of a report, which is in `section`."""
    (finding,) = report.errors()
    assert finding in report.section(section).findings
    assert report.section(section).status == "error"
    return str(finding)


def test_a_package_that_is_in_order(make_package: MakePackage) -> None:
    report = check_package(make_package())
    assert statuses(report) == dict.fromkeys(SECTIONS, "ok")
    assert report.ok
    assert not report.undone
    assert report.section("weights").summary == "16 parameters in 1 tensor, on this machine"
    assert report.section("bindings").summary == "1 required parameter, 1 optional"
    assert report.match is not None
    assert set(report.match.tensors) == {"weight"}
    document = json.loads(json.dumps(report.to_dict()))
    assert document["schema"] == 1
    assert document["ok"] is True
    assert [section["name"] for section in document["sections"]] == SECTIONS


def test_the_seed_against_a_hub(seed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_seed_checkpoint(tmp_path)
    with HubServer(tmp_path) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        report = check_package(seed / "qwen3-8b-fp8", strict=True)
        assert [str(error) for error in report.errors()] == []
        assert statuses(report) == dict.fromkeys(SECTIONS, "ok")
        assert report.section("weights").summary == "8.2B parameters in 651 tensors, headers from Qwen/Qwen3-8B-FP8"
        assert report.section("files").summary == "8 files, 97.3 KiB, and 2 weight files"
        assert server.traffic.bytes < 300_000
        assert len([line for line in server.traffic.requests if "/resolve/" in line]) == 4
    assert report.bound is not None
    assert report.match is not None
    manifest = report.bound.manifest.by_path()
    assert manifest["layers.0.attention.q_proj.weight"].shape == (4096, 4096)
    assert manifest["layers.0.attention.q_proj.scale"].shape == (32, 32)
    bindings = json.loads((seed / "qwen3-8b-fp8" / "bindings.json").read_text())
    assert {entry.path for entry in report.bound.manifest.required()} == set(bindings) == set(report.match.tensors)


def test_a_fresh_process_uses_the_endpoint_of_its_environment_and_no_torch(seed: Path, tmp_path: Path) -> None:
    write_seed_checkpoint(tmp_path)
    with HubServer(tmp_path) as server:
        code = "import sys, pathlib; from linnet.registry.check import check_package; "
        code += "r = check_package(pathlib.Path(sys.argv[1])); print(r.ok); assert 'torch' not in sys.modules"
        environment = {**os.environ, "HF_ENDPOINT": server.endpoint, "HF_HOME": str(tmp_path / "home")}
        command = [sys.executable, "-c", code, str(seed / "qwen3-8b-fp8")]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert (done.stdout.strip(), done.stderr) == ("True", "")
        assert server.traffic.requests


def test_a_shard_that_is_missing_from_the_hub(seed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_seed_checkpoint(tmp_path)
    (folder / FILES[1]).unlink()
    with HubServer(tmp_path) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        report = check_package(seed / "qwen3-8b-fp8")
        assert only(report, "weights") == (
            f"{REPO}/{FILES[1]}: {server.endpoint} answered 404: {REPO} has no {FILES[1]} at {REVISION}. Check "
            "weights.files."
        )
    assert report.undone


def test_without_the_hub_weights_elsewhere_are_skipped(make_package: MakePackage, hub: HubServer) -> None:
    package = make_package(card=HUB_CARD, tensors=None)
    report = check_package(package, hub=False)
    assert report.ok
    assert report.section("weights").status == "skipped"
    assert report.section("weights").summary == "not on this machine, and the Hub was not asked"
    assert hub.traffic.requests == []
    assert check_package(package).section("weights").summary.endswith("headers from owner/tiny")


def test_a_fault_of_the_hub_is_no_fault_of_the_package(make_package: MakePackage, hub: HubServer) -> None:
    hub.faults["model.safetensors"] = Fault("403-gated")
    report = check_package(make_package(card=HUB_CARD, tensors=None))
    assert not report.ok
    assert report.undone
    assert report.errors()[0].kind == "hub.gated"
    hub.faults["model.safetensors"] = Fault("404-repo")
    report = check_package(make_package(card=HUB_CARD, tensors=None, readme="no heading"))
    assert not report.undone


def test_weights_on_this_machine_come_before_the_hub(
    make_package: MakePackage, hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = make_package(card=HUB_CARD)
    assert check_package(package).section("weights").summary.endswith("on this machine")
    (package / "model.safetensors").unlink()
    write_sparse(tmp_path / "given" / "model.safetensors", [("layer.weight", "F32", (4, 4)), ("bias", "F32", (4,))])
    for given in (tmp_path / "given", tmp_path / "given" / "model.safetensors"):
        report = check_package(package, weights=given)
        assert report.section("weights").summary == "20 parameters in 2 tensors, on this machine"
    snapshot = tmp_path / "cache" / "models--owner--tiny" / "snapshots" / COMMIT
    write_sparse(snapshot / "model.safetensors", [("layer.weight", "F32", (4, 4))])
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    assert check_package(package).section("weights").summary == "16 parameters in 1 tensor, on this machine"
    assert hub.traffic.requests == []


def test_a_package_that_is_itself_on_the_hub(make_package: MakePackage, hub: HubServer) -> None:
    package = make_package(tensors=None)
    folder = package.rename(package.with_name(COMMIT))
    report = check_package(Located(folder, "owner/tiny", COMMIT))
    assert [str(error) for error in report.errors()] == []
    assert report.section("weights").summary.endswith("headers from owner/tiny")


def test_a_broken_card_stops_what_needs_it(make_package: MakePackage) -> None:
    broken = CARD.replace("title", "tilte").replace('"MIT"', "3").replace("entry", "entrance")
    report = check_package(make_package(card=broken))
    assert {finding.kind for finding in report.errors()} == {"card.unknown-key", "card.missing", "card.type"}
    assert report.section("card").summary == "5 problems in the card"
    assert statuses(report) == {
        "card": "error",
        "readme": "ok",
        "files": "ok",
        "source": "skipped",
        "generics": "skipped",
        "bindings": "skipped",
        "weights": "skipped",
    }


def test_a_card_that_is_wrong_elsewhere_keeps_nobody_from_the_source(make_package: MakePackage) -> None:
    card = CARD.replace('"MIT"', '"Foo"').replace('entry = "forward"', 'entry = "foward"')
    report = check_package(make_package(card=card))
    assert [finding.kind for finding in report.errors()] == ["card.license", "generics.entry"]
    assert statuses(report)["bindings"] == "ok"
    assert (report.card, report.bound, report.match) == (None, None, None)
    report = check_package(make_package(card=card, source=SOURCE.replace("return", "return absent +")))
    assert [finding.kind for finding in report.errors()][:2] == ["card.license", "source.E1201"]


def test_a_folder_that_is_no_package(tmp_path: Path) -> None:
    report = check_package(tmp_path / "absent")
    assert not report.ok
    (error,) = report.errors()
    assert error.message == f"The package {tmp_path / 'absent'} does not exist."
    assert statuses(report)["readme"] == "skipped"
    (tmp_path / "file").write_text("")
    assert not check_package(tmp_path / "file").ok
    (tmp_path / "empty").mkdir()
    assert [error.kind for error in check_package(tmp_path / "empty").errors()] == ["package.missing"] * 2


@pytest.mark.parametrize(
    ("readme", "message"),
    [
        (None, 'README.md: The file "README.md" is not in the package. Add README.md.'),
        ("", "README.md is empty. Begin it with a heading that names the model: # Title."),
        ("\n \n", "README.md is empty. Begin it with a heading that names the model: # Title."),
        ("text\n", "README.md does not begin with a heading. Begin it with a heading that names the model: # Title."),
        (
            "text\n# Title\n",
            "README.md does not begin with a heading. Begin it with a heading that names the model: # Title.",
        ),
        ("#Title\n", "README.md does not begin with a heading. Begin it with a heading that names the model: # Title."),
    ],
)
def test_a_readme_that_says_nothing(make_package: MakePackage, readme: str | None, message: str) -> None:
    assert only(check_package(make_package(readme=readme)), "readme") == message


@pytest.mark.parametrize("readme", ["# Tiny\n", "\ufeff\n## Tiny", "Tiny\n====\ntext", "\n\n# Tiny #\n"])
def test_a_readme_with_a_heading(make_package: MakePackage, readme: str) -> None:
    report = check_package(make_package(readme=readme))
    assert report.section("readme").status == "ok"
    assert report.section("readme").summary == "Tiny"


def test_a_readme_that_is_not_text(make_package: MakePackage) -> None:
    package = make_package()
    (package / "README.md").write_bytes(b"# \xff")
    assert only(check_package(package), "readme") == "README.md is not UTF-8 at byte 2. Save it as UTF-8."


def test_files_that_leave_the_package(make_package: MakePackage, tmp_path: Path) -> None:
    package = make_package()
    (tmp_path / "secret.md").write_text("secret")
    (package / "notes.md").symlink_to(tmp_path / "secret.md")
    assert only(check_package(package), "files").startswith(
        'notes.md: The path "notes.md" leaves the package through a symbolic link.'
    )


@pytest.mark.parametrize("name", ["nest.toml", "README.md", "src/lib.linnet", "bindings.json", "model.safetensors"])
def test_a_part_that_is_a_link_out_is_not_followed(make_package: MakePackage, tmp_path: Path, name: str) -> None:
    package = make_package()
    outside = tmp_path / "outside"
    (package / name).rename(outside)
    (package / name).symlink_to(outside)
    report = check_package(package)
    assert not report.ok
    assert {error.kind for error in report.errors()} == {"package.path"}


def test_files_that_the_card_names_are_there(make_package: MakePackage) -> None:
    card = CARD + '[tokenizer]\nfile = "tokenizer.json"\nchat_template = "chat.jinja"\n'
    report = check_package(make_package(card=card))
    assert [str(error) for error in report.errors()] == [
        "tokenizer.file names the file tokenizer.json, which is not in the package. Add tokenizer.json, or correct "
        "tokenizer.file.",
        "tokenizer.chat_template names the file chat.jinja, which is not in the package. Add chat.jinja, or correct "
        "tokenizer.chat_template.",
    ]


def test_a_source_that_does_not_check(make_package: MakePackage) -> None:
    package = make_package(source=SOURCE.replace("none => y", "none => z"))
    report = check_package(package)
    text = only(report, "source")
    assert "E1201" in text
    assert f"{package / 'src' / 'lib.linnet'}:11:55" in text
    assert statuses(report)["generics"] == "skipped"


def test_a_source_that_is_not_there(make_package: MakePackage) -> None:
    report = check_package(make_package(source=None))
    assert only(report, "files") == (
        "source.path names the file src/lib.linnet, which is not in the package. Add src/lib.linnet, or correct "
        "source.path."
    )
    assert statuses(report)["source"] == "skipped"


def test_a_module_that_is_a_link_out_is_never_read(make_package: MakePackage, tmp_path: Path) -> None:
    package = make_package(source=SOURCE.replace("module tiny\n", "module tiny\nuse crate.other::{x}\n"))
    (tmp_path / "secret").write_text("hunter2")
    (package / "src" / "other.linnet").symlink_to(tmp_path / "secret")
    (package / "linnet.toml").write_text('[package]\nname = "tiny"\nversion = "0.1.0"\nlanguage = "0.1"\n')
    report = check_package(package)
    assert only(report, "files").startswith('src/other.linnet: The path "src/other.linnet" leaves the package')
    assert "hunter2" not in json.dumps(report.to_dict())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[dependencies]\nother = { path = "../other" }\n',
            'linnet.toml: dependencies.other: The path "../other" is not inside the package, which must be '
            "whole by itself.",
        ),
        ("[package", "linnet.toml is not TOML: Expected ']' at the end of a table declaration"),
        (".".join(["a"] * 30_000) + " = 1", "linnet.toml is not TOML: it has a key of more than 50 parts."),
        ("#" * 140_000, 'linnet.toml: The file "linnet.toml" is larger than 128.0 KiB.'),
    ],
)
def test_a_manifest_that_leads_out_or_is_not_one(make_package: MakePackage, text: str, message: str) -> None:
    package = make_package()
    (package / "linnet.toml").write_text(text)
    assert only(check_package(package), "files").startswith(message)


def test_a_warning_of_the_source_is_an_error_under_strict(make_package: MakePackage) -> None:
    package = make_package(source=SOURCE.replace("return", "let unused = x\n        return"))
    report = check_package(package)
    assert report.ok
    assert report.section("source").status == "warning"
    assert report.section("source").findings[0].kind == "source.W1002"
    assert not check_package(package, strict=True).ok


@pytest.mark.parametrize(
    ("card", "words"),
    [
        (CARD.replace("N = 4\n", ""), ["N"]),
        (CARD.replace("N = 4", "N = 4\nM = 3"), ["M"]),
        (CARD.replace("N = 4", "N = 0"), ["N > 0"]),
        (CARD.replace('T = "f32"', 'T = "i32"'), ["T", "i32"]),
        (CARD.replace('T = "f32"', "T = 3"), ["T", "3"]),
        (CARD.replace("N = 4", 'N = "f32"'), ["N", "f32"]),
        (CARD.replace('root = "Model"', 'root = "Modle"'), ["Modle"]),
        (CARD.replace('entry = "forward"', 'entry = "foward"'), ['"foward"', "The nearest entry is forward."]),
        (CARD + "[check]\nS = 4\n", ["check.S is not a generic of the entry forward.", "The nearest is B."]),
    ],
)
def test_generics_that_do_not_fit(make_package: MakePackage, card: str, words: list[str]) -> None:
    text = only(check_package(make_package(card=card)), "generics")
    assert [word for word in words if word not in text] == []


def test_a_negative_generic_is_the_cards_problem(make_package: MakePackage) -> None:
    text = only(check_package(make_package(card=CARD.replace("N = 4", "N = -4"))), "card")
    assert text.startswith("generics.N is -4")


def test_bindings_that_do_not_fit(make_package: MakePackage) -> None:
    text = only(check_package(make_package(bindings={"weight": "layer.weight", "wieght": "x"})), "bindings")
    assert text.endswith("The nearest path is weight.")
    text = only(check_package(make_package(bindings='{"weight": "a", "weight": "b"}')), "bindings")
    assert text.startswith('weight: bindings.json has two entries for "weight".')


def test_a_binding_to_a_tensor_that_is_not_there(make_package: MakePackage) -> None:
    report = check_package(make_package(bindings={"weight": "layer.wait"}))
    assert only(report, "weights") == (
        'weight: The parameter weight reads the tensor "layer.wait", which is not in "model.safetensors". The nearest '
        'tensor that nothing binds is "layer.weight".'
    )


def test_shapes_and_dtypes_that_differ(make_package: MakePackage) -> None:
    text = only(check_package(make_package(tensors=[("layer.weight", "F32", (4, 3))])), "weights")
    assert "f32 [4, 4]" in text
    assert "F32 [4, 3]" in text
    text = only(check_package(make_package(tensors=[("layer.weight", "BF16", (4, 4))])), "weights")
    assert "f32 [4, 4]" in text
    assert "BF16 [4, 4]" in text


def test_tensors_that_nothing_binds(make_package: MakePackage) -> None:
    tensors = [("layer.weight", "F32", (4, 4)), ("layer.position_ids", "I64", (1, 4))]
    report = check_package(make_package(tensors=tensors))
    assert report.ok
    assert [str(finding) for finding in report.section("weights").findings] == [
        'model.safetensors: No parameter reads the tensor "layer.position_ids" of model.safetensors. '
        "Bind it, or list it "
        "in weights.unused."
    ]
    assert only(check_package(make_package(tensors=tensors), strict=True), "weights")
    named = make_package(card=CARD + 'unused = ["*.position_ids"]\n', tensors=tensors)
    assert check_package(named, strict=True).ok


def test_weight_files_that_are_missing_or_broken(make_package: MakePackage, tmp_path: Path) -> None:
    package = make_package(tensors=None)
    assert only(check_package(package), "weights") == (
        f"model.safetensors: The weights file model.safetensors is not in {package}. Put it there, "
        "give a folder that holds it (--weights, weights=), or name weights.repo in the card."
    )
    assert only(check_package(package, weights=tmp_path), "weights") == (
        f"model.safetensors: The weights file model.safetensors is not in {tmp_path}. Give a folder that "
        "holds every file of the card (--weights, weights=)."
    )
    (package / "model.safetensors").write_bytes(b"short")
    assert only(check_package(package), "weights").startswith("model.safetensors ends after 5 bytes")
    two = CARD.replace('["model.safetensors"]', '["model-1.safetensors", "model-2.safetensors"]')
    package = make_package(card=two)
    write_sparse(package / "model-1.safetensors", [("layer.weight", "F32", (4, 4))])
    assert only(check_package(package), "weights").startswith(
        "model-2.safetensors: The weights file model-2.safetensors"
    )
    write_sparse(package / "model-2.safetensors", [("layer.weight", "F32", (4, 4))])
    assert only(check_package(package), "weights").startswith(
        'model-2.safetensors: The tensor "layer.weight" is in model-1.safetensors and again in model-2.safetensors.'
    )


def test_the_cards_own_count(make_package: MakePackage) -> None:
    card = CARD.replace('tags = ["test"]', 'tags = ["test"]\nparameters = 17')
    report = check_package(make_package(card=card))
    assert [str(finding) for finding in report.section("weights").findings] == [
        "model.parameters: The card gives 17 parameters, but the manifest has 16. Correct it, or leave "
        "it to be counted."
    ]
    assert check_package(make_package(card=card.replace("17", "16")), strict=True).ok


def test_bindings_that_the_card_does_not_name(make_package: MakePackage) -> None:
    package = make_package(card=CARD.replace('bindings = "bindings.json"\n', ""), tensors=[("weight", "F32", (4, 4))])
    section = check_package(package).section("bindings")
    assert section.status == "warning"
    assert [finding.kind for finding in section.findings] == ["bindings.unnamed"]
