"""The one table that turns typed errors into sentences for people, each with the next thing to do."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from dataclasses import dataclass

from linnet.cli.codes import COULD_NOT, PROBLEMS, USAGE


@dataclass(frozen=True, slots=True)
class Wording:
    """What the user reads, and the exit code."""

    text: str
    code: int


def _plain(code: int) -> Callable[[Exception], Wording]:
    """The error's own sentence, which names the thing and the next step."""

    def word(error: Exception) -> Wording:
        return Wording(str(error), code)

    return word


def _with(next_step: str) -> Callable[[Exception], Wording]:
    """The error's own words, then the next step."""

    def word(error: Exception) -> Wording:
        return Wording(f"{error}. {next_step}", PROBLEMS)

    return word


def _problems(next_step: str) -> Callable[[Exception], Wording]:
    """Errors that carry several sentences in `problems`: one a line."""

    def word(error: Exception) -> Wording:
        lines = [f"  {problem}" for problem in getattr(error, "problems", None) or [str(error)]]
        return Wording("\n".join(["", *lines, next_step]), PROBLEMS)

    return word


def _registry(code: int) -> Callable[[Exception], Wording]:
    """Errors of the registry: each of their problems has its own next step."""

    def word(error: Exception) -> Wording:
        problems = [str(problem) for problem in getattr(error, "problems", ())]
        return Wording(problems[0] if len(problems) == 1 else "\n".join(["", *(f"  {p}" for p in problems)]), code)

    return word


def _os_error(error: Exception) -> Wording:
    assert isinstance(error, OSError)
    name = error.filename if error.filename is not None else "the file"
    if error.errno == errno.ENOENT:
        return Wording(f"{name} is not there; check the path.", COULD_NOT)
    if error.errno == errno.ENOTDIR:
        return Wording(f"{name} cannot be: a part of its path is a file; check the path.", COULD_NOT)
    if error.errno in (errno.EACCES, errno.EPERM):
        return Wording(f"{name} cannot be opened: permission denied; check its owner and mode.", COULD_NOT)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Wording(f"{name} could not be written: the disk is full; free some space and run it again.", COULD_NOT)
    if error.errno == errno.EROFS:
        return Wording(f"{name} could not be written: the file system is read-only; name another folder.", COULD_NOT)
    return Wording(f"{name}: {error.strerror or error}.", COULD_NOT)


def _out_of_memory(error: Exception) -> Wording:
    """torch's own error on a GPU, which says how much it wanted and how much is free among much else."""
    wanted = re.search(r"[Tt]ried to allocate ([\d.]+ \w+)", str(error))
    free = re.search(r"of which ([\d.]+ \w+) is free", str(error))
    sizes = "".join(
        f"{lead}{found[1]}{rest}"
        for lead, found, rest in ((": it was asked for ", wanted, ""), (" and has ", free, " free"))
        if found
    )
    return Wording(
        f"the device is out of memory{sizes}; take a shorter cache (MaxSeq), a smaller batch, or another device.",
        COULD_NOT,
    )


def _runtime_error(error: Exception) -> Wording:
    """torch's own error where a CPU is out of memory, which has no class of its own."""
    return _out_of_memory(error) if "tried to allocate" in str(error) else _unexpected(error)


def _unexpected(error: Exception) -> Wording:
    return Wording(
        f"something went wrong that should not have ({type(error).__name__}: {error}); "
        "please report it with what LINNET_DEBUG=1 prints before this line.",
        COULD_NOT,
    )


# Looked up by qualified name along the error's classes, so that no room is imported before it is needed.
TABLE: dict[str, Callable[[Exception], Wording]] = {
    "builtins.MemoryError": _out_of_memory,
    "builtins.OSError": _os_error,
    "builtins.RuntimeError": _runtime_error,
    "linnet.benchmark.BenchMemoryError": _plain(COULD_NOT),
    "linnet.checkpoint.CheckpointError": _plain(COULD_NOT),
    "linnet.convert.errors.ConvertError": _plain(PROBLEMS),
    "linnet.convert.errors.LibraryMissingError": _plain(COULD_NOT),
    "linnet.convert.errors.OutputError": _plain(USAGE),
    "linnet.demo.DemoError": _plain(PROBLEMS),
    "linnet.language.program.binding.BindError": _problems(
        "Correct the generics: those of a card are in its [generics], others are given with --generic (nest), --bind "
        "(linnet) or generics=."
    ),
    "linnet.language.program.lower_values.LowerError": _with("Give other generics with --bind, or change the source."),
    "linnet.language.program.small.SmallGenericsError": _with("Give values with --bind."),
    "linnet.language.syntax.formatter.FormatError": _plain(COULD_NOT),
    "linnet.loading.MlxMissingError": _plain(COULD_NOT),
    "linnet.loading.NestError": _plain(USAGE),
    "linnet.loading.SourceError": _plain(PROBLEMS),
    "linnet.loading.TorchMissingError": _plain(COULD_NOT),
    "linnet.quantize.errors.QuantizeError": _plain(PROBLEMS),
    "linnet.registry.changes.GitError": _registry(COULD_NOT),
    "linnet.registry.datasets.ParquetMissingError": _registry(COULD_NOT),
    "linnet.registry.errors.HubError": _registry(COULD_NOT),
    "linnet.registry.errors.RegistryError": _registry(PROBLEMS),
    "linnet.registry.resolve.UnreachableError": _registry(COULD_NOT),
    "linnet.registry.store.base.AbsentError": _registry(PROBLEMS),
    "linnet.registry.store.base.StoreError": _registry(COULD_NOT),
    "linnet.runner.errors.AllocationError": _plain(COULD_NOT),
    "linnet.runner.errors.ModeError": _plain(USAGE),
    "linnet.runner.errors.RunnerError": _plain(PROBLEMS),
    "linnet.runner.errors.WeightsError": _problems("Fetch the file again, or correct the bindings."),
    "linnet.site_builder.collect.SiteError": _plain(PROBLEMS),
    "torch.OutOfMemoryError": _out_of_memory,
}


def describe(error: Exception) -> Wording:
    """The sentence and exit code for any error; unexpected ones ask for a report."""
    for kind in type(error).__mro__:
        word = TABLE.get(f"{kind.__module__}.{kind.__qualname__}")
        if word is not None:
            return word(error)
    return _unexpected(error)
