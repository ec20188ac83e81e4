"""The files of a local transformers folder: JSON, safetensors shards, tokenizer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from linnet.convert.config import Config
from linnet.convert.errors import ConvertError
from linnet.convert.source import Tokenizer
from linnet.registry.errors import shown
from linnet.registry.package import path_fault
from linnet.registry.strict_json import BadJsonError, parse_json

CONFIG, INDEX, WEIGHTS = "config.json", "model.safetensors.index.json", "model.safetensors"
TOKENIZER, TOKENIZER_CONFIG, CHAT_TEMPLATE = "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"
# What transformers reads beside config and weights: kept, so that it loads the package's folder too.
COMPANIONS = (
    TOKENIZER,
    TOKENIZER_CONFIG,
    CHAT_TEMPLATE,
    "generation_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
)


def read_tokenizer(path: Path, config: Config) -> Tokenizer:
    """The tokenizer of a folder: its chat template, and the tokens that begin and end a text. Raises ConvertError."""
    if not (path / TOKENIZER).is_file():
        return Tokenizer(None, None, (), (), f"the checkpoint came without {TOKENIZER}")
    described = read_json(path / TOKENIZER)
    settings = read_json(path / TOKENIZER_CONFIG) if (path / TOKENIZER_CONFIG).is_file() else {}
    texts = _texts(described)
    ends = config.data.get("eos_token_id")
    if (path / "generation_config.json").is_file():
        ends = read_json(path / "generation_config.json").get("eos_token_id", ends)
    numbers = ends if isinstance(ends, list) else [ends]
    by_number = [texts[number] for number in numbers if isinstance(number, int) and number in texts]
    # A token that the tokenizer does not have cannot be what ends a text.
    known = set(texts.values())
    bos = tuple(token for token in _token(settings.get("bos_token")) if token in known)
    eos = dict.fromkeys([*(token for token in _token(settings.get("eos_token")) if token in known), *by_number])
    return Tokenizer(described, _chat_template(path, settings), bos, tuple(eos))


def weight_files(path: Path) -> dict[str, Path]:
    if (path / INDEX).is_file():
        table = read_json(path / INDEX).get("weight_map")
        if not isinstance(table, dict) or not table or not all(isinstance(name, str) for name in table.values()):
            raise ConvertError(f"{path / INDEX} has no weight_map of file names. Fetch it again.")
        names = sorted(set(table.values()))
    elif (path / WEIGHTS).is_file():
        names = [WEIGHTS]
    else:
        pickled = next((found.name for form in ("*.bin", "*.pt", "*.pth") for found in sorted(path.glob(form))), None)
        help = "Fetch the weights as safetensors."
        if pickled:
            help = f"{pickled} could run code when it is read: save the model as safetensors with save_pretrained."
        raise ConvertError(f"{path} has neither {WEIGHTS} nor {INDEX}. {help}")
    for name in names:
        if path_fault(name) is not None or "/" in name:
            raise ConvertError(f"{path / INDEX} names the file {shown(name)}, which is no plain name. Fetch it again.")
    absent = [name for name in names if not (path / name).is_file()]
    if absent:
        rest = f", nor are {len(absent) - 1} more" if len(absent) > 1 else ""
        raise ConvertError(f"{path / absent[0]}, which {INDEX} names, is not there{rest}. Fetch every shard.")
    return {name: path / name for name in names}


def _chat_template(path: Path, settings: Mapping[str, Any]) -> str | None:
    if (path / CHAT_TEMPLATE).is_file():
        try:
            return (path / CHAT_TEMPLATE).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ConvertError(f"{path / CHAT_TEMPLATE} is not UTF-8 at byte {error.start}. Fetch it again.") from None
    template = settings.get("chat_template")
    if isinstance(template, list):
        named = {item.get("name"): item.get("template") for item in template if isinstance(item, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else None


def _token(value: object) -> tuple[str, ...]:
    """A token as tokenizer_config.json writes it: its text, or an object that has it."""
    if isinstance(value, dict):
        value = value.get("content")
    return (value,) if isinstance(value, str) and value else ()


def _texts(described: Mapping[str, Any]) -> dict[int, str]:
    """Token number -> text, of the vocabulary and of what was added to it."""
    model, added = described.get("model"), described.get("added_tokens")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    numbered = vocab.items() if isinstance(vocab, dict) else ()
    texts = {number: text for text, number in numbered if isinstance(number, int)}
    for item in _objects(added):
        if isinstance(item.get("id"), int) and isinstance(item.get("content"), str):
            texts[item["id"]] = item["content"]
    return texts


def _objects(value: object) -> Iterable[dict[str, Any]]:
    return (item for item in value if isinstance(item, dict)) if isinstance(value, list) else ()


def read_json(path: Path) -> dict[str, Any]:
    """The object that a JSON file holds. Raises ConvertError."""
    if not path.is_file():
        raise ConvertError(
            f"{path} is not there, so {path.parent} is no transformers folder. Name one, or a .gguf file."
        )
    try:
        value = parse_json(path.read_bytes())
    except BadJsonError as error:
        raise ConvertError(f"{path} {error}. Fetch it again.") from None
    if not isinstance(value, dict):
        raise ConvertError(f"{path} is not a JSON object. Fetch it again.")
    return value
