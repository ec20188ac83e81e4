"""GGUF files as packages: names, row order and number formats; and files that nobody vouches for."""

from __future__ import annotations

import contextlib
import os
import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from tiny_checkpoints import POSITIONS, VOCAB, llama, make, write_gguf
from transformers import AutoModelForCausalLM, PreTrainedModel

from linnet import nest
from linnet.convert.errors import ConvertError
from linnet.convert.gguf_file import GgufFile
from linnet.convert.gguf_model import read_model
from linnet.convert.gguf_tokenizer import read_tokenizer
from linnet.convert.numbers import decode, encode
from linnet.convert.rope_scaling import find_llama3_scaling, llama3_factors


@pytest.fixture(scope="module")
def tiny() -> PreTrainedModel:
    return llama()


@pytest.fixture(scope="module")
def tiny_gguf(tiny: PreTrainedModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write_gguf(path, tiny)
    return path


def stored(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


@pytest.mark.parametrize("kind", ["llama", "llama-tied-biased-wide-heads", "qwen2", "qwen3"])
def test_full_precision_is_kept_to_the_bit(kind: str, tmp_path: Path) -> None:
    model = make(kind)
    write_gguf(tmp_path / "model.gguf", model)
    converted = nest.convert(tmp_path / "model.gguf", tmp_path / "made", dtype="f32")
    weights = dict(model.state_dict())
    if model.config.tie_word_embeddings:
        del weights["lm_head.weight"]
    written = stored(converted.folder)
    assert written.keys() == weights.keys()
    for name, value in weights.items():
        assert torch.equal(written[name], value), name
    tokens = torch.randint(0, VOCAB, (1, 24), generator=torch.Generator().manual_seed(1))
    again = AutoModelForCausalLM.from_pretrained(converted.folder, attn_implementation="eager")
    with torch.no_grad():
        expected = model(tokens).logits
        assert torch.equal(again(tokens).logits, expected)
    logits = nest.load(converted.folder, device="cpu")(tokens)
    assert (logits - expected).abs().max() <= 1e-4 * expected.abs().max()


# What a number format of so many bits may cost, of the largest weight.
@pytest.mark.parametrize(
    ("kind", "loss"),
    [(Kind.F16, 4e-3), (Kind.BF16, 8e-3), (Kind.Q8_0, 8e-3), (Kind.Q5_1, 0.05), (Kind.Q4_1, 0.1), (Kind.Q4_0, 0.13)],
)
def test_quantised_weights_are_decoded(kind: Kind, loss: float, tiny: PreTrainedModel, tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf", tiny, kind=kind)
    converted = nest.convert(tmp_path / "model.gguf", tmp_path / "made")
    assert converted.dtype == "bf16"
    assert kind.name in (converted.folder / "README.md").read_text()
    written = stored(converted.folder)
    for name, value in tiny.state_dict().items():
        assert written[name].dtype == torch.bfloat16
        assert (written[name] - value).abs().max() <= loss * value.abs().max(), name


def test_q4_1_by_hand(tmp_path: Path) -> None:
    """A block of 32: scale 0.5, least value -3, then the low four bits of 16 bytes and the high four."""
    block = struct.pack("<ee", 0.5, -3.0) + bytes(low | (15 - low) << 4 for low in range(16))
    data = header([("x", (32,), Kind.Q4_1, 0)]) + block
    (tmp_path / "one.gguf").write_bytes(data)
    file = GgufFile(tmp_path / "one.gguf")
    values = file.values(file.tensors["x"]).tolist()
    assert values == [0.5 * n - 3 for n in [*range(16), *range(15, -1, -1)]]


def test_q4_k_and_q6_k_by_hand(tmp_path: Path) -> None:
    """256 numbers to a block. Q4_K: 0.5 times a scale of 2 for each 32, times the low four bits of 32 bytes and then
    the high four. Q6_K: 0.5 times a scale of 3 for each 16, times six bits less 32."""
    scales = bytes([2] * 4 + [0] * 4 + [2] * 4)
    q4_k = struct.pack("<ee", 0.5, 0.0) + scales + bytes([0x53] * 128)
    q6_k = bytes([0] * 128) + bytes([0] * 64) + struct.pack("16b", *[3] * 16) + struct.pack("<e", 0.5)
    data = header([("a", (1, 256), Kind.Q4_K, 0), ("b", (256,), Kind.Q6_K, 160)]) + q4_k.ljust(160, b"\0") + q6_k
    (tmp_path / "one.gguf").write_bytes(data)
    file = GgufFile(tmp_path / "one.gguf")
    assert file.values(file.tensors["a"]).tolist() == [([3.0] * 32 + [5.0] * 32) * 4]
    assert file.values(file.tensors["b"]).tolist() == [-48.0] * 256


def header(tensors: list[tuple[str, tuple[int, ...], int, int]], *, pairs: bytes = b"", count: int = 0) -> bytes:
    """The start of a GGUF file up to its first tensor's bytes; `pairs` are `count` metadata entries."""
    data = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), count) + pairs
    for name, shape, kind, offset in tensors:
        data += text(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", n) for n in reversed(shape))
        data += struct.pack("<IQ", kind, offset)
    return data + b"\0" * (-len(data) % 32)


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def test_llama3_scaling_is_found_in_its_factors(tmp_path: Path) -> None:
    """Llama 3.2's: factor 32 at head size 64, base 500,000."""
    factors = llama3_factors(5e5, 64, 32.0, 1.0, 4.0, 8192)
    assert (factors[0], factors[-1]) == (1, 32)
    assert ((factors > 1) & (factors < 32)).any()
    found = find_llama3_scaling(factors, 5e5, 64)
    assert found is not None
    assert (found["rope_type"], found["factor"]) == ("llama3", 32)
    assert find_llama3_scaling(factors + 0.1, 5e5, 64) is None
    settings = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 32.0, "low_freq_factor": 1.0}
    settings |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    model = llama(rope_parameters=settings, head_dim=64, max_position_embeddings=4096)
    inverse = model.model.rotary_emb.inv_freq.numpy()
    plain = 5e5 ** (-np.arange(0, 64, 2) / 64)
    assert np.allclose(plain / inverse, factors, rtol=1e-5)
    write_gguf(tmp_path / "model.gguf", model, extra={"rope_freqs.weight": factors})
    package = nest.convert(tmp_path / "model.gguf", tmp_path / "made", dtype="f32").folder
    tokens = torch.randint(0, VOCAB, (1, 600), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = model(tokens).logits
    logits = nest.load(package, device="cpu")(tokens)
    assert (logits - expected).abs().max() <= 1e-4 * expected.abs().max()
    write_gguf(tmp_path / "other.gguf", model, extra={"rope_freqs.weight": factors * 1.5})
    with pytest.raises(ConvertError, match=r"by factors that no known rule gives \(rope_freqs\.weight\)"):
        nest.convert(tmp_path / "other.gguf", tmp_path / "again")


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"llama.expert_count": 8}, "is a mixture of experts. Name a model with one feed-forward layer."),
        ({"llama.attention.sliding_window": 16}, "attends within a sliding window of 16 positions"),
        ({"llama.rope.scaling.type": "yarn"}, "stretches its rotary positions by the rule 'yarn'"),
        ({"llama.rope.dimension_count": 8}, "rotates only a part of each head"),
        ({"general.alignment": 24}, "has the alignment 24, no power of two"),
        ({"tokenizer.ggml.tokens": [1, 2]}, "gives tokenizer.ggml.tokens that is not a list of texts"),
        (
            {"tokenizer.ggml.tokens": ["a"], "tokenizer.ggml.eos_token_id": 1},
            "as its eos token, which is none of",
        ),
    ],
)
def test_features_that_are_refused(metadata: dict[str, Any], said: str, tiny: PreTrainedModel, tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf", tiny, metadata=metadata)
    refused(tmp_path / "model.gguf", said)


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (
            {"blk.0.ffn_gate_exps.weight": np.zeros(4, np.float32)},
            'the tensor "blk.0.ffn_gate_exps.weight", which',
        ),
        ({"blk.2.attn_norm.weight": np.zeros(64, np.float32)}, "does not hold what its configuration says"),
        ({"output_norm.bias": np.zeros(64, np.float32)}, 'holds the tensor "output_norm.bias", which the architecture'),
    ],
)
def test_tensors_that_are_refused(extra: dict[str, Any], said: str, tiny: PreTrainedModel, tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf", tiny, extra=extra)
    refused(tmp_path / "model.gguf", said)


def test_weights_with_nan_are_refused(tmp_path: Path) -> None:
    model = llama()
    with torch.no_grad():
        model.model.norm.weight[3] = float("nan")
    write_gguf(tmp_path / "model.gguf", model)
    refused(tmp_path / "model.gguf", 'holds NaN or infinity in the tensor "output_norm.weight". Download it again')


def refused(path: Path, said: str) -> None:
    """The conversion says so and leaves nothing."""
    before = os.listdir(path.parent)
    with pytest.raises(ConvertError) as raised:
        nest.convert(path, path.parent / "made")
    assert said in str(raised.value)
    assert os.listdir(path.parent) == before


DOWNLOAD = "Download it again."


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is 0 bytes long, too short for a GGUF file. " + DOWNLOAD),
        (b"PK\3\4" + b"\0" * 40, "is not a GGUF file: it does not begin with the letters GGUF. Name a .gguf file"),
        (b"GGUF" + struct.pack("<I", 9) + b"\0" * 40, "is GGUF version 9, but 2 and 3 are known"),
        (b"GGUF" + struct.pack(">I", 3) + b"\0" * 40, "is a big-endian GGUF file"),
        (header([], count=2**60), "is truncated: it ends at byte 32, inside its header. " + DOWNLOAD),
        (header([], pairs=struct.pack("<Q", 2**62), count=1), "is truncated: it ends at byte 32, inside its header"),
        # Arrays of a length that no file has, of numbers and of texts: neither memory nor time is spent on them.
        (header([], pairs=text("k") + struct.pack("<IIQ", 9, 4, 2**61), count=1), "inside its header"),
        (header([], pairs=text("k") + struct.pack("<IIQ", 9, 8, 2**61), count=1), "inside its header"),
        (header([], pairs=text("k") + struct.pack("<I", 77), count=1), "has metadata of the unknown type 77"),
        (header([], pairs=struct.pack("<Q", 2) + b"\xff\xfe" + b"\0" * 20, count=1), "holds text that is not UTF-8"),
        (header([("x", (4,), Kind.F32, 0)]), "but the tensor \"x\" reaches to byte"),
        (header([("x", (4,), 99, 0)]), 'holds the tensor "x" in the unknown number format 99. Convert'),
        (header([("x", (33,), Kind.Q4_1, 0)]) + b"\0" * 64, 'the tensor "x" [33] as Q4_1, whose blocks hold 32'),
        (header([("x", (1, 1, 1, 1, 1), Kind.F32, 0)]) + b"\0" * 64, "with 5 axes, more than 4"),
        (header([("x", (2**40, 2**40), Kind.F32, 0)]), "is truncated"),
        (header([("x", (4,), Kind.F32, 0)] * 2) + b"\0" * 64, 'holds the tensor "x" twice'),
        (header([("x", (4,), Kind.F32, 0)]) + b"\0" * 64, "holds no architecture; those of llama, qwen2, qwen3 can be"),
    ],
)  # fmt: skip
def test_damaged_files_are_refused(data: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(data)
    refused(tmp_path / "model.gguf", said)


def test_a_number_format_that_cannot_be_decoded(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(header([("x", (4,), Kind.I32, 0)]) + b"\0" * 64)
    file = GgufFile(tmp_path / "model.gguf")
    with pytest.raises(ConvertError, match='holds the tensor "x" as I32, which cannot be decoded'):
        file.values(file.tensors["x"])


def test_every_truncation_is_refused(tiny_gguf: Path, tmp_path: Path) -> None:
    data = tiny_gguf.read_bytes()
    first = min(tensor.start for tensor in GgufFile(tiny_gguf).tensors.values())
    cuts = [*range(0, first, 7), first, (first + len(data)) // 2]
    for cut in cuts:
        (tmp_path / "cut.gguf").write_bytes(data[:cut])
        with pytest.raises(ConvertError, match=r"is truncated|too short"):
            GgufFile(tmp_path / "cut.gguf")


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_bytes_that_changed_never_crash(tiny_gguf: Path, tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    """A file with a few header bytes changed is read, or refused with a ConvertError."""
    content = bytearray(tiny_gguf.read_bytes())
    first = min(tensor.start for tensor in GgufFile(tiny_gguf).tensors.values())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, first - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "changed.gguf"
    path.write_bytes(content)
    with contextlib.suppress(ConvertError):
        file = GgufFile(path)
        assert all(tensor.end <= len(content) for tensor in file.tensors.values())
        read_model(file)
        read_tokenizer(file)


def test_positions_and_epsilon_are_the_metadata_s(tiny_gguf: Path, tmp_path: Path) -> None:
    package = nest.convert(tiny_gguf, tmp_path / "made").folder
    card = nest.check(package, hub=False, smoke="none").card
    assert card is not None
    assert (card.model.title, card.model.license) == ("Tiny of tests", "Apache-2.0")
    assert card.generics["MaxSeq"] == POSITIONS
    # In f32 the file holds 9.999999747378752e-06.
    assert "const EPS: f32 = 1e-5\n" in (package / "src" / "norm.linnet").read_text()
    assert card.tokenizer is None
    assert "It has no tokenizer: its tokenizer is of a kind" in (package / "README.md").read_text()


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
def test_numbers_are_rounded_as_torch_rounds_them(dtype: str) -> None:
    generator = torch.Generator().manual_seed(0)
    scales = torch.logspace(-7, 4, 500)
    values = torch.cat([torch.randn(500, 8, generator=generator) * scales[:, None], torch.zeros(1, 8)])
    # Halfway cases of both kinds, and numbers too small for f16 to hold but as subnormals.
    values[0] = torch.tensor([1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8, 2**-24, 2**-25, 3 * 2**-25, 1 + 2**-11, 0.0])
    native = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[dtype]
    data = encode(values.numpy(), dtype, "x")
    assert torch.equal(torch.frombuffer(bytearray(data), dtype=native).reshape(values.shape), values.to(native))
    back = decode(data, {"bf16": "BF16", "f16": "F16", "f32": "F32"}[dtype])
    assert np.array_equal(back, values.to(native).float().numpy().ravel())


@pytest.mark.parametrize(("dtype", "value"), [("f16", 7e4), ("bf16", 3.4e38), ("bf16", np.nan), ("f32", np.inf)])
def test_numbers_that_do_not_fit_are_refused(dtype: str, value: float) -> None:
    with pytest.raises(ConvertError, match=f'The tensor "x" holds a number that {dtype} cannot'):
        encode(np.array([1.0, value], np.float32), dtype, "x")


def test_the_reader_agrees_with_the_library(tiny_gguf: Path) -> None:
    ours, theirs = GgufFile(tiny_gguf), gguf.GGUFReader(tiny_gguf)
    assert list(ours.tensors) == [tensor.name for tensor in theirs.tensors]
    for tensor in theirs.tensors:
        mine = ours.tensors[tensor.name]
        assert (mine.start, mine.end) == (tensor.data_offset, tensor.data_offset + tensor.n_bytes)
        assert mine.shape == tuple(reversed(tensor.shape.tolist()))
    for key, field in theirs.fields.items():
        if not key.startswith("GGUF."):
            assert ours.metadata[key] == field.contents(), key
