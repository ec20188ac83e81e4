"""The demonstration: packages checked, index and site built, and a sentence encoder run with its real weights."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

MODEL = "all-minilm-l6-v2"
SENTENCES = (
    "A cat sleeps on the warm windowsill.",
    "The kitten is napping in the sun.",
    "Interest rates rose by a quarter point.",
    "The central bank made borrowing dearer.",
)


class DemoError(Exception):
    """A step of the demonstration that failed; the message names it and the next step."""


@dataclass(frozen=True, slots=True)
class DemoResult:
    """Where the index and the catalogue page are, and the sentences' cosine similarities, row by row."""

    index: Path
    page: Path
    sentences: tuple[str, ...]
    similarity: tuple[tuple[float, ...], ...]

    def lines(self) -> Iterator[str]:
        """What the demonstration computed, for people."""
        width = max(map(len, self.sentences))
        yield f"{'Cosine similarity':{width + 2}}" + "".join(f"{i:7}" for i in range(1, len(self.sentences) + 1))
        for i, (sentence, row) in enumerate(zip(self.sentences, self.similarity, strict=True), 1):
            yield f"{i} {sentence:{width}}" + "".join(f"{value:7.2f}" for value in row)
        yield f'\nTo run it yourself, in Python: from linnet import nest; nest.load("{MODEL}")'
        yield f"The index: {self.index}\nThe pages: {self.page.as_uri()}"


def run_demo(nests: Path, output: Path, say: Callable[[str], None]) -> DemoResult:
    """Run every step, reporting to `say`. Raises DemoError, CheckpointError, and what the steps raise.

    What would stop a later step is looked for before the first.
    """
    from linnet import nest
    from linnet.checkpoint import fetch_checkpoint
    from linnet.language.words import counted
    from linnet.registry.index import write_index
    from linnet.registry.index_build import build_index
    from linnet.registry.locate import package_folders
    from linnet.registry.package import human_size
    from linnet.site_builder.build import build_site, refuse_foreign
    from linnet.site_builder.collect import PackageSource

    nest.require_torch("tokenizers")
    _refuse_output(output)
    refuse_foreign(output / "site")
    if MODEL not in [folder.name for folder in package_folders(nests)]:
        raise DemoError(f"{nests} has no package {MODEL}, which the demonstration runs; name another with --nests")
    say(f"Fetching the checkpoint of {MODEL}, or finding it in the cache")
    checkpoint = fetch_checkpoint()
    for folder in package_folders(nests):
        weights = checkpoint if folder.name == MODEL else None
        report = nest.check(folder, hub=False, smoke="full" if weights else "small", weights=weights)
        if not report.ok:
            raise DemoError(f"{folder} has problems; `nest check --no-hub {folder}` shows them")
        told = "; ".join(f"{name}: {report.section(name).summary}" for name in ("weights", "smoke"))
        say(f"Checked {folder.name}. {told}")
    output.mkdir(parents=True, exist_ok=True)
    index = build_index(nests)
    write_index(index, output / "index.json")
    records = index["packages"]
    site = build_site([PackageSource(nests / record["name"], record) for record in records], output / "site")
    if not site.ok:
        raise DemoError(f"The site has broken links: {'; '.join(map(str, site.problems))}")
    say(f"Built the index of {counted(len(records), 'package')} and {counted(len(site.pages), 'page')}")
    model = nest.load(nests / MODEL, weights=checkpoint, device="cpu")
    say(f"Loaded {MODEL}: {human_size(model.weights_report.mapped)} mapped from {checkpoint / 'model.safetensors'}")
    similarity = similarities(model, checkpoint / "tokenizer.json", SENTENCES)
    return DemoResult(output / "index.json", site.output / "index.html", SENTENCES, similarity)


def _refuse_output(output: Path) -> None:
    """Raises DemoError where the folder `output` is something else, or cannot be made."""
    there = next(path for path in (output, *output.parents) if os.path.lexists(path))
    if not there.is_dir():
        raise DemoError(f"{there} is not a folder; name another with -o")
    if not os.access(there, os.W_OK | os.X_OK):
        raise DemoError(f"{output} cannot be written; name another folder with -o")


def similarities(
    model: Callable[..., object], tokenizer_file: Path, sentences: Sequence[str]
) -> tuple[tuple[float, ...], ...]:
    """Cosine similarities of the sentences' embeddings, which the model returns as unit vectors."""
    import torch
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    # The file pads to the length the model was trained at; the longest sentence is enough.
    tokenizer.enable_padding()
    batch = tokenizer.encode_batch(list(sentences))
    tokens = torch.tensor([item.ids for item in batch], dtype=torch.int32)
    types = torch.tensor([item.type_ids for item in batch], dtype=torch.int32)
    mask = torch.tensor([item.attention_mask for item in batch], dtype=torch.bool)
    embeddings = model(tokens, types, mask)
    assert isinstance(embeddings, torch.Tensor)
    return tuple(tuple(row) for row in (embeddings @ embeddings.T).tolist())
