"""A GGUF file as the source of a package: its weights decoded and rounded to one dtype."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path

from linnet.convert.config import Config
from linnet.convert.families import Design
from linnet.convert.folder import CHAT_TEMPLATE, CONFIG, TOKENIZER, TOKENIZER_CONFIG, WEIGHTS
from linnet.convert.gguf_file import GgufFile
from linnet.convert.gguf_model import read_model
from linnet.convert.gguf_tokenizer import read_tokenizer
from linnet.convert.numbers import encode, write_safetensors
from linnet.convert.source import Watch

# Most models that are quantised were published in bf16, and their packages declare it: weights decoded to it take the
# place of the published ones, and the rounding (2^-9 of a weight) is small beside that of the quantisation.
DEFAULT_DTYPE = "bf16"


class GgufSource:
    """A GGUF file of one of `gguf_model.ARCHITECTURES`."""

    def __init__(self, path: Path) -> None:
        """Reads all but the tensors' bytes. Raises ConvertError; OSError where the file cannot be read."""
        self.path = path
        self.file = GgufFile(path)
        self.model = read_model(self.file)
        self.config = Config(self.model.config, str(path))
        self.tokenizer = read_tokenizer(self.file)
        title, license = (self.file.metadata.get(f"general.{key}") for key in ("name", "license"))
        self.title = title if isinstance(title, str) else path.stem
        self.license = license if isinstance(license, str) else None

    @property
    def names(self) -> Collection[str]:
        return self.model.tensors.keys()

    def choose_dtype(self, design: Design, wanted: str | None) -> str:
        return wanted or DEFAULT_DTYPE

    def origin(self, dtype: str) -> str:
        counts = Counter(tensor.kind.name for tensor in self.model.tensors.values())
        kinds = ", ".join(f"{count} in {kind}" for kind, count in counts.most_common())
        return (
            f"The weights were decoded from `{self.path.name}` (of its tensors {kinds}) and rounded to {dtype}.\n"
            "Figures measured with them are that file's, and not those of the checkpoint that it was quantised from.\n"
            "They are under transformers' tensor names, so that `transformers` loads this folder too."
        )

    def write(self, folder: Path, design: Design, dtype: str, watch: Watch) -> tuple[str, ...]:
        shapes = {name: tensor.shape for name, tensor in self.model.tensors.items()}
        write_safetensors(folder / WEIGHTS, shapes, dtype, self._encoded(dtype, watch))
        native = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}[dtype]
        _write_json(folder / CONFIG, {**self.model.config, "torch_dtype": native})
        tokenizer = self.tokenizer
        if tokenizer.json is not None:
            _write_json(folder / TOKENIZER, tokenizer.json)
            settings = {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "model_max_length": self.model.config["max_position_embeddings"],
                "clean_up_tokenization_spaces": False,
                **({"bos_token": tokenizer.bos[0]} if tokenizer.bos else {}),
                **({"eos_token": tokenizer.eos[0]} if tokenizer.eos else {}),
            }
            _write_json(folder / TOKENIZER_CONFIG, settings)
        if tokenizer.chat_template is not None:
            (folder / CHAT_TEMPLATE).write_text(tokenizer.chat_template, encoding="utf-8")
        return (WEIGHTS,)

    def _encoded(self, dtype: str, watch: Watch) -> Iterator[tuple[str, bytes]]:
        for name in watch(tuple(self.model.tensors)):
            yield name, encode(self.model.values(name), dtype, name)


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
