"""A transformers folder as the source of a package: its weights linked or written anew in another dtype."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections.abc import Collection, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from linnet.convert.config import Config
from linnet.convert.errors import ConvertError
from linnet.convert.families import Design
from linnet.convert.folder import COMPANIONS, CONFIG, INDEX, read_json, read_tokenizer, weight_files
from linnet.convert.source import Watch
from linnet.language.program.types import SAFETENSORS
from linnet.registry.headers import TensorInfo, join_headers, read_headers

CONVERTIBLE = ("BF16", "F16", "F32")


class FolderSource:
    """A local folder as transformers saves one."""

    def __init__(self, path: Path) -> None:
        """Reads all but the weights' bytes. Raises ConvertError, HeaderError."""
        self.path = path
        self.config = Config(read_json(path / CONFIG), str(path / CONFIG))
        self.files = weight_files(path)
        self.table = join_headers(read_headers(self.files))
        self.tokenizer = read_tokenizer(path, self.config)
        # A snapshot of the Hub's cache is named after its commit, which names no model.
        self.title = "" if re.fullmatch(r"[0-9a-f]{40}", path.resolve().name) else path.resolve().name
        self.license = _license(path)

    @property
    def names(self) -> Collection[str]:
        return self.table.tensors.keys()

    def choose_dtype(self, design: Design, wanted: str | None) -> str:
        stored = self._stored(design)
        if design.fp8:
            if wanted is not None:
                raise ConvertError(f"{self.path} holds FP8 weights, which keep their dtypes. Leave out --dtype.")
            stored -= {"F8_E4M3"}
        elif wanted is not None:
            if other := stored - set(CONVERTIBLE):
                what = f"{self.path} holds tensors in {', '.join(sorted(other))}"
                raise ConvertError(f"{what}, which are not converted. Name a checkpoint in bf16, f16 or f32.")
            return wanted
        if len(stored) != 1:
            what = f"{self.path} holds tensors in several dtypes, {', '.join(sorted(stored))}"
            if design.fp8:
                raise ConvertError(f"{what}, beside FP8. Name a checkpoint whose scales are in the dtype of the rest.")
            raise ConvertError(f"{what}. Choose one with --dtype.")
        (only,) = stored
        return SAFETENSORS.get(only, only)

    def origin(self, dtype: str) -> str:
        return (
            f"The weights are those of the folder `{self.path.resolve().name}`, in {dtype}.\n"
            "They are under transformers' tensor names, so that `transformers` loads this folder too."
        )

    def write(self, folder: Path, design: Design, dtype: str, watch: Watch) -> tuple[str, ...]:
        anew = not design.fp8 and {SAFETENSORS.get(stored, stored) for stored in self._stored(design)} != {dtype}
        for name in watch(tuple(self.files)):
            if anew:
                self._rewrite(name, folder / name, dtype)
            else:
                _link(self.files[name], folder / name)
        for name in (*COMPANIONS, INDEX):
            if (self.path / name).is_file():
                shutil.copyfile(self.path / name, folder / name)
        config = dict(self.config.data)
        if anew:
            if (folder / INDEX).is_file():
                _write_json(folder / INDEX, self._index(dtype))
            config["torch_dtype"] = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}[dtype]
            config.pop("dtype", None)
        _write_json(folder / CONFIG, config)
        return tuple(self.files)

    def _stored(self, design: Design) -> set[str]:
        """The dtypes of the tensors that something reads."""
        read = (
            info
            for name, info in self.table.tensors.items()
            if not any(fnmatchcase(name, pattern) for pattern in design.unused)
        )
        return {info.dtype for info in read}

    def _rewrite(self, file: str, target: Path, dtype: str) -> None:
        from linnet.convert.numbers import write_safetensors

        infos = [info for info in self._floating() if info.file == file]
        shapes = {info.name: info.shape for info in infos}
        write_safetensors(target, shapes, dtype, self._converted(infos, dtype))

    def _floating(self) -> Iterator[TensorInfo]:
        """What is written anew: integers that nothing reads, such as stored masks, are left out."""
        return (info for info in self.table.tensors.values() if info.dtype in CONVERTIBLE)

    def _index(self, dtype: str) -> dict[str, Any]:
        size = 4 if dtype == "f32" else 2
        total = sum(math.prod(info.shape) * size for info in self._floating())
        return {"metadata": {"total_size": total}, "weight_map": {info.name: info.file for info in self._floating()}}

    def _converted(self, infos: list[TensorInfo], dtype: str) -> Iterator[tuple[str, bytes]]:
        from linnet.convert.numbers import decode, encode

        for info in infos:
            with self.files[info.file].open("rb") as file:
                file.seek(info.start)
                data = file.read(info.end - info.start)
            yield info.name, encode(decode(data, info.dtype), dtype, info.name)


def _link(source: Path, target: Path) -> None:
    """A second name of the same file where the file system has those, else a copy."""
    real = source.resolve()
    try:
        os.link(real, target)
    except OSError:
        shutil.copyfile(real, target)


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _license(path: Path) -> str | None:
    """The licence that the front matter of the folder's README names, as the Hub writes them."""
    try:
        text = (path / "README.md").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    front = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)
    found = re.search(r"^license:[ \t]*(\S+)[ \t]*$", front[1], re.MULTILINE) if front else None
    return found[1].strip("'\"") if found else None
