"""The tokenizer of a GGUF file as a tokenizer.json, which holds byte-level BPE in its own words."""

from __future__ import annotations

from typing import Any

from linnet.convert.errors import ConvertError
from linnet.convert.gguf_file import GgufFile
from linnet.convert.source import Tokenizer
from linnet.registry.errors import shown

# Kinds of tokens, as `tokenizer.ggml.token_type` numbers them.
_CONTROL, _USER = 3, 4
# How text is split before merges, by the name that GGUF gives it in `tokenizer.ggml.pre`.
_GPT2 = frozenset({"gpt-2", "default"})
_SINGLE_DIGITS = frozenset({"smollm", "starcoder", "refact", "command-r", "codeshell"})
_LLAMA3 = frozenset({"llama-bpe", "llama3", "llama-v3"})
_QWEN2 = frozenset({"qwen2"})
# Contractions, words with at most one sign before them, numbers of so many digits, signs, line ends, spaces.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def read_tokenizer(file: GgufFile) -> Tokenizer:
    """The file's tokenizer. Raises ConvertError where its metadata contradicts itself."""
    tokens = _strings(file, "tokens")
    template = file.metadata.get("tokenizer.chat_template")
    chat = template if isinstance(template, str) else None
    bos = _named(file, tokens, "bos")
    eos = tuple(dict.fromkeys([*_named(file, tokens, "eos"), *_named(file, tokens, "eot")]))
    model, pre = (file.metadata.get(f"tokenizer.ggml.{key}") for key in ("model", "pre"))
    if model != "gpt2":
        missing = f"its tokenizer is of a kind {_called(model)}, and only byte-level BPE (gpt2) can be rebuilt"
        return Tokenizer(None, chat, bos, eos, missing)
    splitting = _pre_tokenizer(pre)
    if splitting is None:
        missing = f"its tokenizer splits text in a way {_called(pre)}, which is not known here"
        return Tokenizer(None, chat, bos, eos, missing)
    kinds = file.metadata.get("tokenizer.ggml.token_type", [1] * len(tokens))
    if not isinstance(kinds, list) or len(kinds) != len(tokens):
        raise _bad(file, "gives another number of token kinds than of tokens")
    if len(set(tokens)) != len(tokens):
        raise _bad(file, "gives two tokens of one text")
    added = [
        {
            "id": number,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": kind == _CONTROL,
        }
        for number, (token, kind) in enumerate(zip(tokens, kinds, strict=True))
        if kind in (_CONTROL, _USER)
    ]
    described = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "NFC"} if pre in _QWEN2 else None,
        "pre_tokenizer": splitting,
        "post_processor": _post_processor(file, tokens, bos, pre in _LLAMA3),
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": pre in _LLAMA3,
            "vocab": {token: number for number, token in enumerate(tokens)},
            "merges": _merges(file, set(tokens)),
        },
    }
    return Tokenizer(described, chat, bos, eos)


def _pre_tokenizer(pre: object) -> dict[str, Any] | None:
    def byte_level(*, regex: bool) -> dict[str, Any]:
        return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": regex}

    if pre in _GPT2:
        return byte_level(regex=True)
    if pre in _SINGLE_DIGITS:
        steps = [{"type": "Digits", "individual_digits": True}, byte_level(regex=True)]
    elif pre in _LLAMA3 or pre in _QWEN2:
        pattern = _WORDS.format(digits="{1,3}" if pre in _LLAMA3 else "")
        split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        steps = [split, byte_level(regex=False)]
    else:
        return None
    return {"type": "Sequence", "pretokenizers": steps}


def _post_processor(file: GgufFile, tokens: list[str], bos: tuple[str, ...], default: bool) -> dict[str, Any] | None:
    """What puts the beginning token before a text, where the file says that it is put there."""
    if not bos or not file.metadata.get("tokenizer.ggml.add_bos_token", default):
        return None
    begin, first, second = (
        {"SpecialToken": {"id": bos[0], "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"Sequence": {"id": "B", "type_id": 1}},
    )
    return {
        "type": "TemplateProcessing",
        "single": [begin, first],
        "pair": [begin, first, begin, second],
        "special_tokens": {bos[0]: {"id": bos[0], "ids": [tokens.index(bos[0])], "tokens": [bos[0]]}},
    }


def _merges(file: GgufFile, tokens: set[str]) -> list[list[str]]:
    merges = []
    for line in _strings(file, "merges"):
        left, _, right = line.partition(" ")
        if not left or left not in tokens or right not in tokens or left + right not in tokens:
            raise _bad(file, f"gives the merge {shown(line)}, whose parts or result are no tokens")
        merges.append([left, right])
    return merges


def _strings(file: GgufFile, key: str) -> list[str]:
    value = file.metadata.get(f"tokenizer.ggml.{key}", [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _bad(file, f"gives tokenizer.ggml.{key} that is not a list of texts")
    return value


def _named(file: GgufFile, tokens: list[str], role: str) -> tuple[str, ...]:
    number = file.metadata.get(f"tokenizer.ggml.{role}_token_id")
    if number is None:
        return ()
    if not isinstance(number, int) or not 0 <= number < len(tokens):
        raise _bad(file, f"gives {number!r} as its {role} token, which is none of its {len(tokens)} tokens")
    return (tokens[number],)


def _called(value: object) -> str:
    return f"called {shown(value)}" if isinstance(value, str) else "that has no name"


def _bad(file: GgufFile, fault: str) -> ConvertError:
    return ConvertError(f"{file.path} {fault}. Download it again, or convert a transformers folder of the model.")
