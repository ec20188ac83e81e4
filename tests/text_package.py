"""A package that reads and writes text, small enough for a test: a random GPT-2, and a tokenizer of its own."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel

ROOT = Path(__file__).resolve().parent.parent
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEXT = """\
The harbour was quiet before dawn. Three boats lay against the wall, and the keeper of the light walked down to them
with a lantern and a list. "Naïve as ever," said the oldest of the fishermen, and he counted the crates: one, two,
three, four. By noon the wind had turned; the café on the quay was full, and somebody had drawn a fish 🐟 in the dust of
the window. Nobody knew what the letters meant — 風, पवन — but the keeper copied them into the book of the harbour.
"""
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SIZES = {"Positions": 64, "MaxSeq": 64, "H": 32, "Heads": 2, "Inner": 64, "Layers": 2}


@dataclass(frozen=True)
class TextPackage:
    """The package's folder, its weights beside the card, and the same model in transformers."""

    folder: Path
    reference: GPT2LMHeadModel

    @property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer.from_file(str(self.folder / "tokenizer.json"))

    def edit(self, old: str, new: str) -> None:
        """Change the card."""
        card = self.folder / "nest.toml"
        text = card.read_text()
        assert old in text
        card.write_text(text.replace(old, new))


def byte_tokenizer() -> Tokenizer:
    """A byte-level BPE of some 330 tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=330, special_tokens=list(SPECIAL), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([TEXT], trainer)
    return tokenizer


def write_text_package(folder: Path, *, seed: int = 0, chat: bool = False) -> TextPackage:
    """`nests/gpt2` at small sizes as the package `folder`, with seeded random weights beside its card."""
    shutil.copytree(ROOT / "nests" / "gpt2", folder)
    tokenizer = byte_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    vocabulary = tokenizer.get_vocab_size()
    card = (folder / "nest.toml").read_text()
    for name, value in {**SIZES, "Vocab": vocabulary}.items():
        card = re.sub(rf"^{name} = \d+$", f"{name} = {value}", card, flags=re.MULTILINE)
    card = re.sub(r'^name = "gpt2"$', f'name = "{folder.name}"', card, flags=re.MULTILINE)
    card = re.sub(r"^(repo|revision|eos) = .*\n", "", card, flags=re.MULTILINE)
    extra = 'eos = ["<|endoftext|>", "<|im_end|>"]\n'
    if chat:
        (folder / "chat_template.jinja").write_text(TEMPLATE)
        extra += 'chat_template = "chat_template.jinja"\n'
    assert card.rstrip().endswith('file = "tokenizer.json"')
    (folder / "nest.toml").write_text(card + extra)
    reference = GPT2LMHeadModel(
        GPT2Config(
            n_layer=SIZES["Layers"],
            n_head=SIZES["Heads"],
            n_embd=SIZES["H"],
            n_inner=SIZES["Inner"],
            vocab_size=vocabulary,
            n_positions=SIZES["Positions"],
            attn_implementation="eager",
            bos_token_id=0,
            eos_token_id=0,
            pad_token_id=0,
        )
    ).eval()
    generator = torch.Generator().manual_seed(seed)
    for parameter in reference.parameters():
        torch.nn.init.normal_(parameter, std=0.3, generator=generator)
    weights = {
        name.removeprefix("transformer."): tensor.contiguous()
        for name, tensor in reference.state_dict().items()
        if name != "lm_head.weight"
    }
    save_file(weights, folder / "model.safetensors")
    return TextPackage(folder, reference)
