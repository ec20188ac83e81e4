"""What users import: `nest.load` for a running model, `nest.check`, `nest.index` and `nest.demo` for packages.

Importing this module imports nothing heavy; each function imports what it needs. The rooms do the work, and this
module hands plain values from one to the next.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from linnet.language.diagnostics import Diagnostic
    from linnet.language.program.binding import BoundProgram
    from linnet.language.program.checked import Program
    from linnet.registry.bindings import Bindings
    from linnet.registry.card import Card
    from linnet.runner.torch.module import Model
    from linnet.runner.torch.weights import WeightSource

Generics = Mapping[str, int | str]
NUMERICS = ("exact", "equivalent", "fast")


class NestError(Exception):
    """What `nest` itself refuses; the message names the thing and the next step."""


class UnsupportedError(NestError):
    """An argument that a later version gives a meaning."""


class SourceError(NestError):
    """A package's source that does not check. `diagnostics` says why."""

    def __init__(self, file: Path, diagnostics: Iterable[Diagnostic]) -> None:
        self.file = file
        self.diagnostics = tuple(diagnostics)
        errors = [item for item in self.diagnostics if item.severity == "error"]
        first = f": {errors[0].span.location()}: {errors[0].code} {errors[0].message}" if errors else ""
        super().__init__(f"{file} does not check{first}; `linnet check {file}` shows all of it")


def load(
    name_or_dir: str | os.PathLike[str],
    *,
    backend: str = "torch",
    numerics: str = "equivalent",
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    generics: Generics | None = None,
    weights: str | os.PathLike[str] | None = None,
    compile: bool | str | None = None,
    registry: str | None = None,
    trainable: bool = False,
    offline: bool | None = None,
) -> Model:
    """A package as a running model, a `torch.nn.Module`.

    `name_or_dir` is a package's folder, `org/name[@revision]` on the Hub, or the name of a package that ships with
    this distribution; they are tried in that order. `numerics` is "exact" (every op by its definition),
    "equivalent" (native kernels that keep the accumulation of the definitions), or "fast" (the kernels people use;
    in this version those of "equivalent", which keep what "fast" promises). `device` "meta" needs no weights and
    takes no memory; None is the GPU where there is one, else the CPU. `dtype` rebinds the card's floating generics,
    and floating weights are converted as they load. `generics` replaces values of the card's. `weights` is a local
    file or folder used instead of the Hub; otherwise weights are looked for beside the card, then in the Hub's
    cache, then fetched at the card's commit. A sha256 that the card gives is verified. With `trainable` floating
    weights have gradients. `offline` True opens no socket.

    Raises UnsupportedError for what a later version brings, SourceError for a source that does not check,
    RegistryError (with `problems`) for the package, its card, bindings, headers and the Hub, BindError for
    generics, and WeightsError for bytes that cannot be used.
    """
    _refuse_unsupported(backend, numerics, compile, registry)
    from linnet.registry.bindings import read_bindings
    from linnet.registry.fetch import fetch_weights
    from linnet.registry.locate import find_package

    package = find_package(name_or_dir, offline=offline)
    card = package.card()
    program = _checked_program(package.folder, card)
    bindings = read_bindings(package.folder, card)
    stored, bound = _bind(program, card, dtype, generics or {}, bindings)

    from linnet.runner.torch.module import load_model

    place = _device(device)
    settings: dict[str, Any] = {
        "entry": card.source.entry,
        "numerics": "equivalent" if numerics == "fast" else numerics,
        "device": place,
        "trainable": trainable,
    }
    if place == "meta" and weights is None:
        return load_model(bound, None, **settings)
    given = Path(weights).expanduser() if weights is not None else None
    files = fetch_weights(package.folder, card, given, offline=offline)
    source = _weight_source(card, files, stored, bindings, shrunk=bool(generics))
    return load_model(bound, source, convert=dtype is not None, **settings)


def _refuse_unsupported(backend: str, numerics: str, compile: bool | str | None, registry: str | None) -> None:
    if backend == "mlx":
        raise UnsupportedError('backend="mlx" comes in a later version; this one runs backend="torch"')
    if backend != "torch":
        raise NestError(f'backend={backend!r} is not known; write backend="torch"')
    if numerics not in NUMERICS:
        raise NestError(f"numerics={numerics!r} is not known; write one of {', '.join(NUMERICS)}")
    if compile not in (None, False):
        raise UnsupportedError("compile= comes in a later version; this one runs eagerly, with compile=None")
    if registry is not None:
        raise UnsupportedError(
            "registry= comes in a later version; name a folder, org/name, or a package that ships here"
        )


def _checked_program(folder: Path, card: Card) -> Program:
    from linnet.language.check import load as check_source
    from linnet.registry.package import package_path

    file = package_path(folder, card.source.path)
    checked = check_source(file)
    if checked.program is None or not checked.ok:
        raise SourceError(file, checked.diagnostics)
    return checked.program


def _bind(
    program: Program, card: Card, dtype: str | torch.dtype | None, generics: Generics, bindings: Bindings
) -> tuple[BoundProgram, BoundProgram]:
    """The program with the dtypes that its weights are stored in, and with those that it runs in."""
    from linnet.language.program.binding import bind

    own = bind(program, card.source.root, card.generics)
    # A binding to a path that the package does not have is an error, whatever the generics of this load.
    bindings.resolve(own.manifest)
    stored = bind(program, card.source.root, {**card.generics, **generics}) if generics else own
    if dtype is None:
        return stored, stored
    name = _dtype_name(dtype)
    floating = {
        decl.name: name
        for decl in stored.block.generics
        if decl.kind != "Dim" and stored.generics.get(decl.name) in _FLOATS
    }
    return stored, bind(program, card.source.root, {**stored.generics, **floating, **generics})


_FLOATS = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}


def _dtype_name(dtype: str | torch.dtype) -> str:
    """Linnet's name of a floating dtype, given in Linnet's words ("bf16") or in torch's."""
    text = str(dtype).removeprefix("torch.")
    for name, native in _FLOATS.items():
        if text in (name, native):
            return name
    raise NestError(f"dtype={text!r} is not a floating dtype; write one of {', '.join(_FLOATS)}")


def _device(device: str | torch.device | None) -> str:
    if device is not None:
        return str(device)
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _weight_source(
    card: Card, files: Mapping[str, Path], stored: BoundProgram, bindings: Bindings, *, shrunk: bool
) -> WeightSource:
    """Where each parameter's tensor lies, once headers and manifest agree. Raises RegistryError where they do not."""
    from linnet.registry.errors import RegistryError
    from linnet.registry.headers import join_headers, read_header
    from linnet.registry.match import match_weights
    from linnet.runner.torch.weights import TensorLocation, WeightSource

    table = join_headers({file: read_header(path, file) for file, path in files.items()})
    resolved = bindings.resolve(stored.manifest, shrunk=shrunk)
    match = match_weights(stored.manifest, resolved, table, card.weights.unused)
    if match.problems:
        raise RegistryError(match.problems)
    found = match.tensors
    places = {info.name: TensorLocation(files[info.file], info.name, info.dtype, info.shape) for info in found.values()}
    return WeightSource({path: info.name for path, info in found.items()}, places)
