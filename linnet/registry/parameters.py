"""How many parameters a model has."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from linnet.language.program.manifest import Manifest

# Dtypes that a quantised weight is stored in, as bytes or words that its `scale` gives a meaning.
STORAGE = frozenset({"u8", "i8", "u32", "i32"})


def count_parameters(manifest: Manifest, tensors: Mapping[str, str], present: Collection[str] = ()) -> int:
    """The number of trained weights, as a page shows it.

    `tensors` says which tensor each path reads: tied paths count once. Buffers are not trained and the scales of
    quantised weights are no weights of their own: neither counts. Optional parameters count where `present` names them.
    """
    entries = manifest.by_path()
    sizes: dict[str, int] = {}
    for path, entry in entries.items():
        owner, _, member = path.rpartition(".")
        sibling = entries.get(f"{owner}.weight" if owner else "weight")
        is_scale = member == "scale" and sibling is not None and sibling.dtype in STORAGE
        if entry.kind != "param" or is_scale or (entry.optional and path not in present):
            continue
        size = 1
        for n in entry.shape:
            size *= n
        sizes[tensors[path]] = size
    return sum(sizes.values())


def human_count(count: int) -> str:
    """A count for people: `135`, `4.1K`, `22.7M`, `8.2B`, `1.0T`."""
    if count < 1000:
        return str(count)
    amount, units = count / 1000, ["K", "M", "B", "T"]
    while amount >= 999.95 and len(units) > 1:
        amount /= 1000
        units.pop(0)
    return f"{amount:.1f}{units[0]}"
