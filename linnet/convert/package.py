"""The files that make a converted checkpoint a package: card, README, bindings and source."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from linnet.convert.families import Design
from linnet.convert.folder import CHAT_TEMPLATE, TOKENIZER
from linnet.convert.source import Source
from linnet.registry.locate import BUNDLED
from linnet.registry.package import CARD_NAME, MANIFEST_NAME, README_NAME

BINDINGS_NAME = "bindings.json"
VERSION = "0.1.0"
TITLE_CHARACTERS = 200


def write_package(folder: Path, source: Source, design: Design, dtype: str, weights: tuple[str, ...]) -> None:
    """Write all of a package but its weights and its tokenizer's JSON into `folder`, which is named after it."""
    name = folder.name
    _write_source(folder, design)
    template = source.tokenizer.chat_template
    if template is not None and not (folder / CHAT_TEMPLATE).is_file():
        (folder / CHAT_TEMPLATE).write_text(template, encoding="utf-8")
    (folder / BINDINGS_NAME).write_text(json.dumps(design.bindings, indent=2) + "\n", encoding="utf-8")
    manifest = f'[package]\nname = "{name}"\nversion = "{VERSION}"\nlanguage = "0.1"\n'
    (folder / MANIFEST_NAME).write_text(manifest, encoding="utf-8")
    title = _line(source.title) or name
    (folder / CARD_NAME).write_text(_card(name, title, source, design, dtype, weights), encoding="utf-8")
    (folder / README_NAME).write_text(_readme(title, source, design, dtype), encoding="utf-8")


def _write_source(folder: Path, design: Design) -> None:
    """The template's source with this model's constants."""
    template = BUNDLED / design.template
    for path in sorted(template.glob("src/**/*.linnet")):
        # Only the text: where the distribution is installed its files may be read-only.
        copy = folder / path.relative_to(template)
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(path.read_bytes())
    if design.llama3_rotary:
        text = (files("linnet.convert") / "llama3_rotary.linnet").read_text(encoding="utf-8")
        (folder / "src" / "rotary.linnet").write_text(text, encoding="utf-8")
    for file, constants in design.constants.items():
        path = folder / file
        text = path.read_text(encoding="utf-8")
        for constant, value in constants.items():
            line = f"const {constant}: f32 = {_literal(value)}"
            text, count = re.subn(rf"^const {constant}: f32 = .*$", line, text, flags=re.MULTILINE)
            assert count == 1, f"{design.template}/{file} has no constant {constant}"
        path.write_text(text, encoding="utf-8")


def _literal(value: float) -> str:
    """A float literal of Linnet: `1e-05` is written 1e-5."""
    return re.sub(r"e([+-]?)0*(\d)", lambda found: f"e{found[1].strip('+')}{found[2]}", repr(float(value)))


def _card(name: str, title: str, source: Source, design: Design, dtype: str, weights: tuple[str, ...]) -> str:
    return "\n".join(_card_lines(name, title, source, design, dtype, weights)) + "\n"


def _card_lines(
    name: str, title: str, source: Source, design: Design, dtype: str, weights: tuple[str, ...]
) -> Iterator[str]:
    layers, positions = design.generics["Layers"], design.generics["MaxSeq"]
    summary = f"A decoder of the {design.family} family, {layers} layers, for text up to {positions:,} tokens."
    yield "[model]"
    yield f"name = {_text(name)}"
    yield f"title = {_text(title)}"
    yield f"summary = {_text(summary)}"
    yield f"license = {_text(spdx(source.license))}"
    yield f"family = {_text(design.family)}"
    yield f"tags = {_list(design.tags)}"
    yield '\n[source]\npath = "src/lib.linnet"\nroot = "Model"\nentry = "forward"'
    yield "\n[generics]"
    for generic, value in design.generics.items():
        yield f"{generic} = {value}"
    yield f"T = {_text(dtype)}"
    yield "\n[check]\nB = 1\nS = 8"
    yield "\n[weights]"
    yield f"files = {_list(weights)}"
    yield f"bindings = {_text(BINDINGS_NAME)}"
    if design.unused:
        yield f"unused = {_list(design.unused)}"
    tokenizer = source.tokenizer
    if tokenizer.json is not None:
        yield "\n[tokenizer]"
        yield f"file = {_text(TOKENIZER)}"
        if tokenizer.chat_template is not None:
            yield f"chat_template = {_text(CHAT_TEMPLATE)}"
        for key, tokens in (("bos", tokenizer.bos), ("eos", tokenizer.eos)):
            if tokens:
                yield f"{key} = {_text(tokens[0]) if len(tokens) == 1 else _list(tokens)}"


def _readme(title: str, source: Source, design: Design, dtype: str) -> str:
    tokenizer = source.tokenizer
    text = f"Its tokenizer is `{TOKENIZER}`"
    text += f", its chat template `{CHAT_TEMPLATE}`." if tokenizer.chat_template is not None else "."
    if tokenizer.json is None:
        text = f"It has no tokenizer: {tokenizer.missing}.\nPut one beside the card and name it in `[tokenizer]`."
    licence = "" if spdx(source.license) != "other" else "\n\nThe checkpoint names no licence that SPDX lists."
    head = "\n\nThe output head is the token table." if design.tied else ""
    return f"""# {title}

A decoder of the {design.family} family, made a package by `nest convert`. The source is that of
`{design.template}`, with this model's constants; `nest show` lists its entries.{head}

## Loading

```python
from linnet import nest

model = nest.load("path/to/this/folder")
logits = model.run_entry("prefill", [tokens, 0])   # [Batch, Vocab], after a prompt of ids [Batch, S]
logits = model.run_entry("decode", [logits.argmax(-1)[:, None], tokens.shape[1]])
```

`Batch` and `MaxSeq` size the KV cache; choose less with `generics={{"MaxSeq": 4096}}`.

## Weights

{source.origin(dtype)}

{text}{licence}

## Numerics

Nothing was measured on this checkpoint yet.
"""


def spdx(text: str | None) -> str:
    """The licence in SPDX's spelling; `other` where none is given or SPDX does not list it."""
    try:
        return str(canonicalize_license_expression(text or "other"))
    except (InvalidLicenseExpression, RecursionError):
        return "other"


def _line(text: str) -> str:
    """Text of a checkpoint on one line that a card takes."""
    return " ".join("".join(ch if ch.isprintable() else " " for ch in text).split())[:TITLE_CHARACTERS]


def _text(text: str) -> str:
    # What JSON escapes is written the same in TOML, which also wants DEL escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _list(items: tuple[str, ...]) -> str:
    inline = f"[{', '.join(map(_text, items))}]"
    return inline if len(inline) <= 100 else "[\n" + "".join(f"    {_text(item)},\n" for item in items) + "]"
