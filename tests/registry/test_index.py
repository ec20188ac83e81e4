"""Index records: what they hold, that they are the same each time, and that nothing is half-written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_package import CARD, COMMIT, SOURCE, MakePackage

from linnet.registry.check import check_package
from linnet.registry.errors import PackageError
from linnet.registry.index import index_text, one_line, package_record, write_index
from linnet.registry.index_build import build_index


def test_the_seed_record(seed: Path) -> None:
    record = package_record(seed / "qwen3-8b-fp8")
    assert record["name"] == "qwen3-8b-fp8"
    assert record["version"] == "0.1.0"
    assert record["file_count"] == 10
    assert record["size"] == 99597
    assert [file["path"] for file in record["files"]] == [
        "README.md",
        "bindings.json",
        "linnet.toml",
        "nest.toml",
        "src/attention.linnet",
        "src/lib.linnet",
        "src/norm.linnet",
        "src/rope.linnet",
    ]
    assert record["parameter_count"] == 8_190_735_360
    assert len(record["entries"]) == 17
    assert record["entries"][0] == {
        "name": "forward",
        "signature": "pub entry forward<B: Dim, S: Dim>(tokens: Tensor[B, S; i32]) -> Tensor[B, S, Vocab; T]",
        "doc": "Logits for every position.",
    }
    assert record["generics"]["Shards"] == 1
    assert sum(not parameter["optional"] for parameter in record["parameters"]) == 651
    assert {
        "path": "layers.0.attention.q_proj.scale",
        "tensor": "model.layers.0.self_attn.q_proj.weight_scale_inv",
        "kind": "param",
        "shape": [32, 32],
        "dtype": "bf16",
        "optional": False,
        "present": True,
        "declared": "Tensor[Out / Block, In / Block; T]",
        "owner": "std.quant::Fp8BlockLinear",
    } in record["parameters"]
    assert [module["name"] for module in record["modules"]] == ["qwen3", "qwen3.attention", "qwen3.norm", "qwen3.rope"]
    assert record["weights"]["files"][0] == "model-00001-of-00002.safetensors"


def test_a_record_in_full(make_package: MakePackage) -> None:
    package = make_package()
    record = package_record(package)
    assert record["card"]["source"] == {"path": "src/lib.linnet", "root": "Model", "entry": "forward"}
    assert record["version"] is None
    assert record["parameter_count"] == 16
    assert record["modules"][0]["blocks"] == [{"name": "Model", "doc": "One linear layer."}]
    assert record["weights"] == {
        "repo": None,
        "revision": None,
        "files": ["model.safetensors"],
        "sizes": {"model.safetensors": (package / "model.safetensors").stat().st_size},
    }
    assert [file["path"] for file in record["files"]] == ["README.md", "bindings.json", "nest.toml", "src/lib.linnet"]
    assert record["file_count"] == 5
    text = index_text(record)
    assert text.endswith("}\n")
    assert json.loads(text) == record


def test_an_optional_parameter_counts_where_the_weights_beside_the_card_have_it(make_package: MakePackage) -> None:
    for name, count in (("bias", 20), ("other", 16)):
        tensors = [("layer.weight", "F32", (4, 4)), (name, "F32", (4,))]
        package = make_package(bindings={"weight": "layer.weight"}, tensors=tensors)
        record = package_record(package)
        assert record["parameter_count"] == count
        assert [item["present"] for item in record["parameters"]] == [True, name == "bias"]
        left = "" if name == "bias" else ", 1 left out"
        tensors_read = "2 tensors" if name == "bias" else "1 tensor"
        summary = check_package(package).section("weights").summary
        assert summary == f"{count} parameters in {tensors_read}{left}, on this machine"


def test_optional_parameters_count_where_the_bindings_name_them(make_package: MakePackage) -> None:
    tensors = [("layer.weight", "F32", (4, 4)), ("layer.bias", "F32", (4,))]
    package = make_package(bindings={"weight": "layer.weight", "bias": "layer.bias"}, tensors=tensors)
    assert package_record(package)["parameter_count"] == 20


@pytest.mark.parametrize(
    ("signature", "line"),
    [
        ("pub entry f<\n  B: Dim,\n>(\n  x: Tensor[B; f32],\n) -> f32\nwhere\n  B > 0,\n  B >= 1", None),
        ("pub entry f<B: Dim>(x: Tensor[B; f32]) -> f32 where B > 0, B >= 1", None),
        ("pub entry f() -> (\n  f32,\n  f32,\n)", "pub entry f() -> (f32, f32)"),
    ],
)
def test_a_signature_in_one_line(signature: str, line: str | None) -> None:
    assert one_line(signature) == (line or "pub entry f<B: Dim>(x: Tensor[B; f32]) -> f32 where B > 0, B >= 1")


def test_versions_and_counts_of_the_card_come_first(make_package: MakePackage) -> None:
    package = make_package()
    (package / "linnet.toml").write_text('[package]\nname = "tiny"\nversion = "0.3.0"\nlanguage = "0.1"\n')
    assert package_record(package)["version"] == "0.3.0"
    card = CARD.replace('tags = ["test"]', 'tags = ["test"]\nversion = "2.0.0"\nparameters = 99')
    record = package_record(make_package(card=card))
    assert (record["version"], record["parameter_count"]) == ("2.0.0", 99)


def test_a_record_does_not_depend_on_the_machine(make_package: MakePackage, tmp_path: Path) -> None:
    card = CARD + f'repo = "owner/tiny"\nrevision = "{COMMIT}"\n'
    package = make_package(card=card)
    with_weights = index_text(package_record(package))
    (package / "model.safetensors").unlink()
    assert index_text(package_record(package)) == with_weights
    copy = tmp_path / "elsewhere" / "tiny"
    shutil.copytree(package, copy)
    assert index_text(package_record(copy)) == with_weights


def test_an_index_of_several_packages(make_package: MakePackage, tmp_path: Path) -> None:
    package = make_package()
    nests = tmp_path / "nests"
    for name in ("b-model", "a-model"):
        shutil.copytree(package, nests / name)
        (nests / name / "nest.toml").write_text(CARD.replace('"tiny"', f'"{name}"'))
    (nests / "not-a-package").mkdir()
    index = build_index(nests)
    assert index["schema"] == 1
    assert [record["name"] for record in index["packages"]] == ["a-model", "b-model"]
    (nests / "a-model" / "README.md").write_text("")
    (nests / "b-model" / "src" / "lib.linnet").write_text(SOURCE.replace("none => y", "none => z"))
    with pytest.raises(PackageError) as caught:
        build_index(nests)
    assert [problem.where.split(":")[0] for problem in caught.value.problems] == ["a-model", "b-model"]
    readme, source = map(str, caught.value.problems)
    assert readme.startswith("a-model: README.md is empty.")
    assert source.startswith("b-model: src/lib.linnet:")
    assert (readme + source).count("-model") == 2
    with pytest.raises(PackageError, match="holds no package"):
        build_index(tmp_path / "nothing")


def test_an_index_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "index.json"
    write_index({"b": 1, "a": "é"}, path)
    assert path.read_text(encoding="utf-8") == '{\n "a": "é",\n "b": 1\n}\n'
    assert path.stat().st_mode & 0o777 == 0o644

    def fail(source: object, target: object) -> None:
        raise OSError("no")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no"):
        write_index({"c": 2}, path)
    with pytest.raises(TypeError):
        write_index({"c": object()}, path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["index.json"]
    assert '"a"' in path.read_text(encoding="utf-8")


def test_an_index_needs_no_torch(make_package: MakePackage) -> None:
    code = "import sys, pathlib; from linnet.registry.index_build import build_index; "
    code += "build_index(pathlib.Path(sys.argv[1])); print(sorted({'torch', 'httpx2'} & set(sys.modules)))"
    command = [sys.executable, "-c", code, str(make_package().parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
