"""Cards written as text are read back as they were."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from linnet.registry.card import Bench, Card, Gate, Model, SourceTable, Tokenizer, Weights, parse_card, read_card
from linnet.registry.card_writer import card_text
from linnet.registry.locate import package_folders


def test_every_package_that_ships(root: Path) -> None:
    for folder in package_folders(root / "nests"):
        card = read_card(folder)
        assert parse_card(card_text(card).encode()) == card, folder.name


def test_what_no_package_has() -> None:
    card = Card(
        model=Model(
            "a.b-1", 'A "title" \\ with é', "Sum.", "MIT", "f", tuple(f"a tag {i}" for i in range(20)), "1.0.0", 7
        ),
        source=SourceTable("src/lib.linnet", None, "forward"),
        weights=Weights(
            ("deep/a.safetensors",),
            "owner/name",
            "0" * 40,
            "bindings.json",
            "recipe.json",
            ("*.ids", '"quoted"'),
            {"deep/a.safetensors": "f" * 64},
        ),
        generics={"T": "bf16", "N": 3},
        tokenizer=Tokenizer("tokenizer.json", chat_template="chat.jinja", bos=("<s>",), eos=("</s>", "<\\end>")),
        bench=Bench("other", "wikitext-2", "test", "1" * 40, 256, 128, 10, 5),
        gate=Gate(0.01, 1e-05, 0.0, 2.0, ("one", "two")),
    )
    assert parse_card(card_text(card).encode()) == card
    bare = dataclasses.replace(card, tokenizer=None, bench=Bench(), gate=Gate(), generics={})
    assert parse_card(card_text(bare).encode()) == bare
    assert card_text(bare).splitlines()[-1] == '"deep/a.safetensors" = "' + "f" * 64 + '"'
