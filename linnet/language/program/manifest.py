"""The manifest: every weight a root block reads, by path."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One `param` or `buffer`.

    `path` joins member names and array positions (`layers.3.attention.q_proj.weight`). `shape` holds concrete sizes
    once generics are bound; `symbolic` is the declared type as a reader writes it, in the owning block's generics
    (`Tensor[Out, In; u8]`). `optional` is true for `T? = none` weights and for weights under an optional child whose
    absence the program allows; `owner` is the block that declares it (`std.quant::Fp8BlockLinear`).
    """

    path: str
    kind: str
    shape: tuple[int, ...]
    dtype: str
    optional: bool
    symbolic: str
    owner: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """All weights of a bound root block, in declaration order, paths unique."""

    entries: tuple[ManifestEntry, ...]

    def __getitem__(self, path: str) -> ManifestEntry:
        return self.by_path()[path]

    def by_path(self) -> dict[str, ManifestEntry]:
        return {entry.path: entry for entry in self.entries}

    def required(self) -> list[ManifestEntry]:
        return [entry for entry in self.entries if not entry.optional]
