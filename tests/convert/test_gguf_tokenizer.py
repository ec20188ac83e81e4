"""Tokenizers rebuilt from GGUF: every encoding equals a slow one that follows the definition of byte-level BPE."""

from __future__ import annotations

import json
import unicodedata
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import regex
from tiny_checkpoints import VOCAB, llama, write_gguf
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from linnet import nest
from linnet.convert.errors import ConvertError
from linnet.convert.gguf_file import GgufFile
from linnet.convert.gguf_tokenizer import read_tokenizer

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
TEXTS = (
    "What is the capital of France?",
    "  two  spaces,\ttabs\n\nand lines \n  end  ",
    "In 1969, 3 men flew 384,400 km: 100% true! I'm sure; they'll say we've won, he'd said it's 'so'.",
    "Größe, naïve café, Москва, 東京タワー, नमस्ते, 🙂👩‍👩‍👧 — “quotes” … ½²",
    "def f(x):\n    return x**2 + 0x1F  # note\r\n",
    "<|im_start|>user\nHi<|im_end|>\n",
    "",
)


@cache
def byte_letters() -> dict[int, str]:
    """GPT-2's letter for each byte: itself where it prints, else the next letter from 256 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {byte: chr(byte) for byte in printable}
    for byte in range(256):
        if byte not in letters:
            letters[byte] = chr(256 + len(letters) - len(printable))
    return letters


def encode(text: str, described: Any, split: str, digits: bool) -> list[int]:
    """Special tokens first, then pieces, then merges in the order of their rank."""
    special = {item["content"]: item["id"] for item in described["added_tokens"]}
    ranks = {tuple(pair): rank for rank, pair in enumerate(described["model"]["merges"])}
    vocab = described["model"]["vocab"]
    ids: list[int] = []
    pattern = "|".join(map(regex.escape, sorted(special, key=len, reverse=True)))
    for part in regex.split(f"({pattern})", text):
        if part in special:
            ids.append(special[part])
            continue
        for run in regex.findall(r"\p{N}|\P{N}+", part) if digits else [part]:
            for piece in regex.findall(split, run):
                symbols = [byte_letters()[byte] for byte in piece.encode()]
                while len(symbols) > 1:
                    pairs = [(ranks.get(pair, 1 << 60), at) for at, pair in enumerate(pairwise(symbols))]
                    rank, at = min(pairs)
                    if rank == 1 << 60:
                        break
                    symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
                ids += [vocab[symbol] for symbol in symbols]
    return ids


@pytest.mark.checkpoint
def test_smollm2_encodes_as_defined(smollm2_folder: Path) -> None:
    described = json.loads((smollm2_folder / "tokenizer.json").read_text())
    fast = Tokenizer.from_file(str(smollm2_folder / "tokenizer.json"))
    slow = AutoTokenizer.from_pretrained(smollm2_folder)
    for text in TEXTS:
        ids = fast.encode(text).ids
        assert ids == encode(text, described, GPT2, digits=True), text
        assert ids == slow(text)["input_ids"], text
        assert fast.decode(ids, skip_special_tokens=False) == text
    assert fast.encode("In 1969").tokens == ["In", "Ġ", "1", "9", "6", "9"]
    assert fast.get_vocab_size() == 49152


@pytest.mark.checkpoint
def test_smollm2_chats_as_its_template_says(root: Path, smollm2_gguf: Path, smollm2_folder: Path) -> None:
    """The template that the package ships writes what the file's own writes."""
    tokenizer = AutoTokenizer.from_pretrained(smollm2_folder)
    own = GgufFile(smollm2_gguf).metadata["tokenizer.chat_template"]
    assert (smollm2_folder / "chat_template.jinja").read_text() == own
    ours = (root / "nests" / "smollm2-135m-instruct" / "chat_template.jinja").read_text()
    user = {"role": "user", "content": " Hi there \n"}
    answer = {"role": "assistant", "content": "Hello."}
    system = {"role": "system", "content": "Be brief."}
    for messages in ([user], [system, user], [user, answer, user], [system]):
        for prompt in (True, False):
            wanted, got = (
                tokenizer.apply_chat_template(
                    messages, chat_template=template, add_generation_prompt=prompt, tokenize=False
                )
                for template in (own, ours)
            )
            assert got == wanted


def bpe(pre: str, **more: Any) -> dict[str, Any]:
    """The metadata of a BPE over all bytes with a few merges."""
    letters = list(byte_letters().values())
    merges = ["Ġ t", "h e", "Ġt he", "1 2", "12 3", "i n"]
    made = [merge.replace(" ", "") for merge in merges]
    tokens = [*letters, *made, "<s>", "</s>", "<|eot|>", "<user>"]
    kinds = [1] * (len(tokens) - 4) + [3, 3, 3, 4]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": len(tokens) - 4,
        "tokenizer.ggml.eos_token_id": len(tokens) - 3,
        "tokenizer.ggml.eot_token_id": len(tokens) - 2,
        **more,
    }


def rebuilt(tmp_path: Path, metadata: dict[str, Any]) -> Tokenizer:
    write_gguf(tmp_path / "model.gguf", llama(vocab_size=VOCAB), metadata=metadata)
    found = read_tokenizer(GgufFile(tmp_path / "model.gguf"))
    assert found.bos == ("<s>",)
    assert found.eos == ("</s>", "<|eot|>")
    return Tokenizer.from_str(json.dumps(found.json))


@pytest.mark.parametrize(
    ("pre", "text", "tokens"),
    [
        ("gpt-2", "in the 1234", ["in", "Ġthe", "Ġ", "123", "4"]),
        ("smollm", "in the 1234", ["in", "Ġthe", "Ġ", "1", "2", "3", "4"]),
        # Numbers stand apart from the space before them, three digits at most to a piece or one.
        ("llama-bpe", "in the 1234", ["<s>", "in", "Ġthe", "Ġ", "123", "4"]),
        ("qwen2", "in the 1234", ["in", "Ġthe", "Ġ", "1", "2", "3", "4"]),
        # The accent that stands alone is composed with its letter under NFC, which has another two bytes.
        ("qwen2", "e\u0301", ["Ã", "©"]),
        ("gpt-2", "e\u0301", ["e", "Ì", "ģ"]),
        ("gpt-2", "<user>in</s>", ["<user>", "in", "</s>"]),
    ],
)
def test_text_is_split_as_its_kind_says(pre: str, text: str, tokens: list[str], tmp_path: Path) -> None:
    tokenizer = rebuilt(tmp_path, bpe(pre))
    assert tokenizer.encode(text).tokens == tokens
    plain = tokenizer.encode(text, add_special_tokens=False)
    composed = unicodedata.normalize("NFC", text) if pre == "qwen2" else text
    assert tokenizer.decode(plain.ids, skip_special_tokens=False) == composed


def test_a_first_token_is_added_where_the_file_says(tmp_path: Path) -> None:
    metadata = bpe("gpt-2", **{"tokenizer.ggml.add_bos_token": True})
    assert rebuilt(tmp_path, metadata).encode("in").tokens == ["<s>", "in"]
    metadata = bpe("llama-bpe", **{"tokenizer.ggml.add_bos_token": False})
    assert rebuilt(tmp_path, metadata).encode("in").tokens == ["in"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tokenizer.ggml.model": "llama"}, 'its tokenizer is of a kind called "llama", and only byte-level BPE'),
        ({"tokenizer.ggml.pre": "tekken"}, 'its tokenizer splits text in a way called "tekken", which is not known'),
    ],
)
def test_a_tokenizer_that_cannot_be_rebuilt_is_said(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf", llama(), metadata={**bpe("gpt-2"), **change})
    converted = nest.convert(tmp_path / "model.gguf", tmp_path / "made")
    assert said in converted.missing
    assert said in "\n".join(converted.lines())
    assert said in (converted.folder / "README.md").read_text()
    assert not (converted.folder / "tokenizer.json").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tokenizer.ggml.token_type": [1]}, "gives another number of token kinds than of tokens"),
        ({"tokenizer.ggml.merges": ["a"]}, 'gives the merge "a", whose parts or result are no tokens'),
        ({"tokenizer.ggml.merges": ["q q"]}, 'gives the merge "q q", whose parts'),
        ({"tokenizer.ggml.tokens": ["a", "a"], "tokenizer.ggml.bos_token_id": 0}, "which is none of its 2 tokens"),
    ],
)
def test_metadata_that_contradicts_itself_is_refused(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf", llama(), metadata={**bpe("gpt-2"), **change})
    with pytest.raises(ConvertError) as raised:
        nest.convert(tmp_path / "model.gguf", tmp_path / "made")
    assert said in str(raised.value)
