"""`nest convert` as a user runs it: what it prints, exit codes, and nothing half-written."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

Run = Callable[..., CompletedProcess[str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small Llama as transformers saves it."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 48, "num_hidden_layers": 1}
    path = tmp_path_factory.mktemp("llama") / "source"
    LlamaForCausalLM(LlamaConfig(vocab_size=64, max_position_embeddings=32, **sizes)).save_pretrained(path)
    return path


def test_a_folder_becomes_a_package(run: Run, folder: Path, tmp_path: Path) -> None:
    done = run("nest", "convert", folder, "-o", "tiny-llama")
    assert (done.returncode, done.stderr) == (0, "")
    first, second, *_ = done.stdout.splitlines()
    assert "tiny-llama: llama, weights in f32, 12.9K parameters in 12 tensors" in first
    assert second.startswith("It has no tokenizer: the checkpoint came without tokenizer.json.")
    assert done.stdout.splitlines()[-1] == "Check it: nest check tiny-llama"
    checked = run("nest", "check", "--no-hub", "--strict", "tiny-llama")
    assert checked.returncode == 0, checked.stdout
    assert sorted(path.name for path in (tmp_path / "here").iterdir()) == ["tiny-llama"]
    quiet = run("nest", "convert", "--quiet", "--dtype", "bf16", folder, "-o", "again")
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")
    again = run("nest", "convert", folder, "-o", "again")
    assert again.returncode == 2
    assert "again is not empty. Name another with -o." in again.stderr


def test_the_folder_that_one_stands_in(run: Run, folder: Path, tmp_path: Path) -> None:
    here = tmp_path / "here"
    before = here.stat().st_ino
    done = run("nest", "convert", "--quiet", folder, "-o", ".")
    assert done.returncode == 0, done.stderr
    assert here.stat().st_ino == before
    assert 'name = "here"\n' in (here / "nest.toml").read_text()


def truncated(folder: Path) -> list[str]:
    (folder / "model.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 1, 5) + b"\0" * 8)
    return ["model.gguf"]


def no_gguf(folder: Path) -> list[str]:
    (folder / "model.gguf").write_text("<!DOCTYPE html><title>Not found</title>")
    return ["model.gguf"]


def safetensors(folder: Path) -> list[str]:
    (folder / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    return ["model.safetensors"]


def gemma(folder: Path) -> list[str]:
    (folder / "gemma").mkdir()
    (folder / "gemma" / "config.json").write_text(json.dumps({"model_type": "gemma3"}))
    header = b"{}      "
    (folder / "gemma" / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    return ["gemma"]


def damaged(folder: Path) -> list[str]:
    words = gemma(folder)
    (folder / "gemma" / "model.safetensors").write_bytes(b"\xff" * 20)
    return words


def no_config(folder: Path) -> list[str]:
    (folder / "empty").mkdir()
    return ["empty"]


@pytest.mark.parametrize(
    ("prepare", "code", "said"),
    [
        (truncated, 1, "model.gguf is truncated: it ends at byte 32, inside its header. Download it again."),
        (no_gguf, 1, "model.gguf is not a GGUF file: it does not begin with the letters GGUF. Name a .gguf file"),
        (
            safetensors,
            1,
            "model.safetensors is neither a GGUF file nor a folder that transformers can load. Name a .gguf",
        ),
        (gemma, 1, "names the model_type 'gemma3'. Known are gpt2, llama, mistral, qwen2, qwen3"),
        (damaged, 1, "model.safetensors declares a header of"),
        (
            no_config,
            1,
            "empty/config.json is not there, so empty is no transformers folder. Name one, or",
        ),
        (lambda _: ["nowhere"], 2, "'nowhere' does not exist"),
    ],
)
def test_what_cannot_be_converted_is_a_sentence(
    run: Run, tmp_path: Path, prepare: Callable[[Path], list[str]], code: int, said: str
) -> None:
    here = tmp_path / "here"
    here.mkdir(exist_ok=True)
    words = prepare(here)
    before = sorted(path.name for path in here.iterdir())
    done = run("nest", "convert", *words, "-o", "made")
    assert done.returncode == code
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in here.iterdir()) == before


def test_what_is_not_installed_is_named(run: Run, folder: Path) -> None:
    before = "import sys; sys.modules['numpy'] = None\n"
    (folder.parent / "model.gguf").write_bytes(b"GGUF" + b"\0" * 40)
    done = run("nest", "convert", folder.parent / "model.gguf", "-o", "made", before=before)
    assert done.returncode == 3
    assert "which is not installed: pip install gguf numpy" in done.stderr


@pytest.mark.checkpoint
def test_the_real_file_becomes_a_package(run: Run, smollm2_gguf: Path, tmp_path: Path) -> None:
    done = run("nest", "convert", smollm2_gguf, "-o", "smollm2-q4")
    assert (done.returncode, done.stderr) == (0, "")
    assert "smollm2-q4: llama, weights in bf16, 134.5M parameters in 272 tensors" in done.stdout
    readme = " ".join((tmp_path / "here" / "smollm2-q4" / "README.md").read_text().split())
    assert "`SmolLM2-135M-Instruct.Q4_1.gguf` (of its tensors 210 in Q4_1, 61 in F32, 1 in Q8_0)" in readme
    assert "Figures measured with them are that file's" in readme
    checked = run("nest", "check", "--no-hub", "--strict", "--smoke", "meta", "smollm2-q4")
    assert checked.returncode == 0, checked.stdout
