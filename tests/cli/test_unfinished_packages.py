"""`nest convert` and `nest quantize` that are stopped half-way: a sentence, an exit code, nothing is left behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

Run = Callable[..., CompletedProcess[str]]
FULL = "package could not be written: the disk is full; free some space and run it again."
# What the library raises: the system's error is in its text alone.
NO_ROOM = """\
import safetensors.torch
from safetensors import SafetensorError
def save_file(*words, **named):
    raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")
safetensors.torch.save_file = save_file
"""
# When the card is to be written, the weights already are.
AT_THE_CARD = """\
import errno, os, signal
from pathlib import Path
write = Path.write_text
def stop(path, *words, **named):
    if path.name == "nest.toml":
        {}
    return write(path, *words, **named)
Path.write_text = stop
"""
FILLS_UP = AT_THE_CARD.format("raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))")
INTERRUPTS = AT_THE_CARD.format("os.kill(os.getpid(), signal.SIGINT)")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 48, "num_hidden_layers": 1}
    path = tmp_path_factory.mktemp("llama") / "source"
    LlamaForCausalLM(LlamaConfig(vocab_size=64, max_position_embeddings=32, **sizes)).save_pretrained(path)
    return path


@pytest.mark.parametrize(
    ("before", "code", "said"), [(FILLS_UP, 3, FULL), (INTERRUPTS, 130, "Interrupted.")], ids=["full", "interrupted"]
)
def test_convert(run: Run, checkpoint: Path, tmp_path: Path, before: str, code: int, said: str) -> None:
    done = run("nest", "convert", checkpoint, "-o", "package", before=before)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.strip().endswith(said)
    assert len(done.stderr.strip().splitlines()) == 1
    assert list((tmp_path / "here").iterdir()) == []


@pytest.mark.parametrize(
    ("before", "code", "said"),
    [(NO_ROOM, 3, FULL), (FILLS_UP, 3, FULL), (INTERRUPTS, 130, "Interrupted.")],
    ids=["no room for weights", "full", "interrupted"],
)
def test_quantize(run: Run, root: Path, tmp_path: Path, before: str, code: int, said: str) -> None:
    done = run("nest", "quantize", root / "nests" / "qwen3-tiny", "--fp8-block", "128", "-o", "package", before=before)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.strip().endswith(said)
    assert len(done.stderr.strip().splitlines()) == 1
    assert list((tmp_path / "here").iterdir()) == []
