"""A package as a running model: found, checked, bound, its weights matched, and handed to a backend."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linnet.generation import open_tokenizer
from linnet.runner.garbage import own_garbage

if TYPE_CHECKING:
    import torch

    from linnet.language.diagnostics import Diagnostic
    from linnet.language.program.binding import BoundProgram
    from linnet.language.program.checked import Program
    from linnet.load_options import LoadOptions
    from linnet.registry.bindings import Bindings
    from linnet.registry.card import Card
    from linnet.registry.match import Match
    from linnet.runner.loaded import LoadedModel
    from linnet.runner.torch.weights import WeightSource

Generics = Mapping[str, int | str]
NUMERICS = ("exact", "equivalent", "fast", "engine")


class NestError(Exception):
    """What `nest` itself refuses; the message names the thing and the next step."""


class DeviceError(NestError):
    """A device that torch does not know, or that this machine does not have."""


class TorchMissingError(NestError):
    """torch, or what is used beside it, is not installed."""

    def __init__(self, missing: str) -> None:
        super().__init__(
            f"running a model needs {missing}, which is not installed: pip install numpy safetensors tokenizers torch "
            "(the README says how to get a CPU-only torch)"
        )


class MlxMissingError(NestError):
    """MLX is not installed."""

    def __init__(self) -> None:
        super().__init__(
            'backend="mlx" needs mlx, which is not installed: pip install mlx on a Mac with Apple silicon, '
            "pip install 'mlx[cpu]' on Linux"
        )


class SourceError(NestError):
    """A package's source that does not check. `diagnostics` says why."""

    def __init__(self, file: Path, diagnostics: Iterable[Diagnostic]) -> None:
        self.file = file
        self.diagnostics = tuple(diagnostics)
        errors = [item for item in self.diagnostics if item.severity == "error"]
        first = f": {errors[0].span.location()}: {errors[0].code} {errors[0].message}" if errors else ""
        super().__init__(f"{file} does not check{first}; `linnet check {file}` shows all of it")


def load_package(name_or_dir: str | os.PathLike[str], options: LoadOptions, *, trainable: bool = False) -> LoadedModel:
    """See `linnet.nest.load`."""
    _refuse_unsupported(options.backend, options.numerics)
    from linnet.checking import weight_source
    from linnet.registry.bindings import read_bindings
    from linnet.registry.fetch import fetch_weights
    from linnet.registry.locate import find_package
    from linnet.runner.backend import find_backend

    package = find_package(name_or_dir, offline=options.offline, registry=options.registry)
    card = package.card()
    generics = _with_capacity(card, options.generics or {}, options.capacity)
    with own_garbage():
        program = _checked_program(package.folder, card)
        bindings = read_bindings(package.folder, card)
        stored, bound, resized = _bind(program, card, options.dtype, generics, bindings)
    place = backend_device(options.backend, options.device)
    runner = find_backend(options.backend)
    # Before any weight is fetched.
    runner.choose_mode(options.compile, options.fp8, options.numerics, place, trainable)
    settings: dict[str, Any] = {
        "entry": card.source.entry,
        "numerics": options.numerics,
        "device": place,
        "trainable": trainable,
        "compile": options.compile,
        "fp8": options.fp8,
    }
    tensors: Mapping[str, torch.Tensor] | WeightSource
    if place == "meta" and options.weights is None:
        tensors = _shapes(bound, bindings, shrunk=bool(generics))
    else:
        places: Any = {"offline": options.offline, "registry": options.registry}
        files = fetch_weights(package.folder, card, options.weights, **places)
        # A model of other sizes than the card's leaves tensors over.
        strict = options.backend == "mlx" and not resized
        match = _matched(package.folder, card, files, stored, bindings, generics, strict=strict)
        tensors = weight_source(match, files)
    model = runner.load_model(bound, tensors, convert=options.dtype is not None, **settings)
    model.tokenizer_source = partial(open_tokenizer, package.folder, card, options.weights, options.offline)
    return model


def _refuse_unsupported(backend: str, numerics: str) -> None:
    from linnet.runner.backend import BACKENDS

    if backend not in BACKENDS:
        raise NestError(f"backend={backend!r} is not known; write one of {', '.join(BACKENDS)}")
    if numerics not in NUMERICS:
        raise NestError(f"numerics={numerics!r} is not known; write one of {', '.join(NUMERICS)}")


def _with_capacity(card: Card, generics: Generics, capacity: int | None) -> Generics:
    """The generics with `MaxSeq` as `capacity` says. Raises NestError for a capacity that cannot be."""
    if capacity is None:
        return generics
    if isinstance(capacity, bool) or not isinstance(capacity, int) or capacity < 1:
        raise NestError(f"capacity={capacity!r} is not a count of positions from 1 up")
    if "MaxSeq" not in card.generics:
        raise NestError(
            f"capacity={capacity} is the size of a cache (MaxSeq), which {card.model.name} does not have: leave it out"
        )
    given = generics.get("MaxSeq", capacity)
    if given != capacity:
        raise NestError(f"capacity={capacity} and generics={{'MaxSeq': {given}}} differ: give one of them")
    return {**generics, "MaxSeq": capacity}


def require_mlx() -> None:
    """Import MLX. Raises MlxMissingError."""
    try:
        import_module("mlx.core")
    except ModuleNotFoundError:
        raise MlxMissingError from None


def require_torch(*also: str) -> None:
    """Import what the runner needs, and the modules `also`. Raises TorchMissingError."""
    try:
        for name in ("torch", "safetensors", *also):
            import_module(name)
    except ModuleNotFoundError as error:
        raise TorchMissingError(error.name or "torch") from None


def _checked_program(folder: Path, card: Card) -> Program:
    from linnet.language.check import load as check_source
    from linnet.registry.package import FILE_BYTES, package_path, read_file

    # Says what is wrong with a file that is absent, no file, or cannot be read.
    read_file(folder, card.source.path, FILE_BYTES)
    file = package_path(folder, card.source.path)
    checked = check_source(file)
    if checked.program is None or not checked.ok:
        raise SourceError(file, checked.diagnostics)
    return checked.program


def _bind(
    program: Program, card: Card, dtype: str | torch.dtype | None, generics: Generics, bindings: Bindings
) -> tuple[BoundProgram, BoundProgram, bool]:
    """The program with the dtypes that its weights are stored in, and with those that it runs in; whether
    `generics` make its weights others than the card's."""
    from linnet.language.program.binding import bind

    own = bind(program, card.source.root, card.generics)
    # A binding to a path that the package does not have is an error, whatever the generics of this load.
    bindings.resolve(own.manifest)
    stored = bind(program, card.source.root, {**card.generics, **generics}) if generics else own
    resized = stored.manifest.entries != own.manifest.entries
    if dtype is None:
        return stored, stored, resized
    name = dtype_name(dtype)
    floating = {
        decl.name: name
        for decl in stored.block.generics
        if decl.kind != "Dim" and stored.generics.get(decl.name) in _FLOATS
    }
    return stored, bind(program, card.source.root, {**stored.generics, **floating, **generics}), resized


_FLOATS = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}
_MLX_FLOATS = ("bf16", "f32")


def dtype_name(dtype: str | torch.dtype, backend: str = "torch") -> str:
    """Linnet's name of a floating dtype, given in Linnet's words ("bf16") or in torch's. Raises NestError, which names
    those that the backend runs in."""
    text = str(dtype).removeprefix("torch.")
    for name, native in _FLOATS.items():
        if text in (name, native):
            return name
    known = _MLX_FLOATS if backend == "mlx" else tuple(_FLOATS)
    raise NestError(f"dtype={text!r} is not a floating dtype; write one of {', '.join(known)}")


def backend_device(backend: str, device: str | torch.device | None) -> str:
    """The name of a backend's device; None is the best there is. Raises DeviceError, ModeError for one it has not,
    TorchMissingError, MlxMissingError."""
    require_torch()
    if backend != "mlx":
        return find_device(device)
    require_mlx()
    from linnet.runner.mlx.module import find_device as mlx_device

    return mlx_device(device)


def find_device(device: str | torch.device | None) -> str:
    """A device that torch can put tensors on; None is the GPU where there is one. Raises DeviceError, which names those
    that there are."""
    import torch

    if device is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        place = torch.device(str(device))
    except RuntimeError:
        raise DeviceError(
            f"device={str(device)!r} is not known to torch; this machine has {', '.join(_devices())} and meta"
        ) from None
    try:
        torch.empty(1, device=place)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, AssertionError, ImportError) as error:
        # Builds of torch without a device's code say so with any of these, some at great length.
        reason = (str(error).splitlines() or ["it cannot hold a tensor"])[0].partition(". ")[0].rstrip(".")
        raise DeviceError(
            f"device={str(device)!r} cannot be used here ({reason}); this machine has {', '.join(_devices())}: "
            "name one of them, or leave device= out"
        ) from None
    return str(place)


def _devices() -> list[str]:
    """The devices that compute here, as torch names them."""
    import torch

    kind = torch.accelerator.current_accelerator(check_available=True)
    count = torch.accelerator.device_count() if kind is not None else 0
    return ["cpu", *(f"{kind.type}:{i}" for i in range(count) if kind is not None)]


def _shapes(bound: BoundProgram, bindings: Bindings, *, shrunk: bool) -> dict[str, torch.Tensor]:
    """Shapes of the weights that a checkpoint nobody has read is known to hold: those that the bindings name."""
    import torch

    named = bindings.resolve(bound.manifest, shrunk=shrunk).written
    return {e.path: torch.empty(e.shape, device="meta") for e in bound.manifest.entries if e.path in named}


def _matched(
    package: Path,
    card: Card,
    files: Mapping[str, Path],
    stored: BoundProgram,
    bindings: Bindings,
    generics: Generics,
    *,
    strict: bool,
) -> Match:
    """The tensor of each parameter. Raises RegistryError where headers and manifest do not agree, and with `strict`
    where nothing reads a tensor."""
    from linnet.registry.errors import RegistryError
    from linnet.registry.headers import join_headers, read_headers
    from linnet.registry.match import few, match_weights, under_other_generics, unread
    from linnet.registry.recipe import with_recipe

    table = with_recipe(package, card, join_headers(read_headers(files)))
    resolved = bindings.resolve(stored.manifest, shrunk=bool(generics))
    match = match_weights(stored.manifest, resolved, table, card.weights.unused)
    other = [name for name, value in generics.items() if card.generics.get(name) != value]
    if match.problems:
        problems = few(match.problems)
        raise RegistryError(under_other_generics(problems, other) if other else problems)
    if strict and match.unused:
        raise RegistryError([unread(match, table)])
    return match
