"""The one table that turns typed errors into sentences for people, each with the next thing to do."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass

from linnet.cli.codes import COULD_NOT, PROBLEMS


@dataclass(frozen=True, slots=True)
class Wording:
    """What the user reads, and the exit code."""

    text: str
    code: int


def _plain(code: int, next_step: str = "") -> Callable[[Exception], Wording]:
    """The error's own sentence, which names the thing, followed by `next_step`."""

    def word(error: Exception) -> Wording:
        return Wording(_join(str(error), next_step), code)

    return word


def _problems(next_step: str) -> Callable[[Exception], Wording]:
    """Errors that carry several sentences in `problems`: one a line."""

    def word(error: Exception) -> Wording:
        lines = [f"  {problem}" for problem in getattr(error, "problems", None) or [str(error)]]
        return Wording("\n".join(["", *lines, next_step]), PROBLEMS)

    return word


def _os_error(error: Exception) -> Wording:
    assert isinstance(error, OSError)
    name = error.filename if error.filename is not None else "the file"
    if error.errno == errno.ENOENT:
        return Wording(f"{name} is not there; check the path.", COULD_NOT)
    if error.errno in (errno.EACCES, errno.EPERM):
        return Wording(f"{name} cannot be opened: permission denied; check its owner and mode.", COULD_NOT)
    if error.errno == errno.ENOSPC:
        return Wording(f"{name} could not be written: the disk is full; free some space and run it again.", COULD_NOT)
    if error.errno == errno.EROFS:
        return Wording(f"{name} could not be written: the file system is read-only; name another folder.", COULD_NOT)
    return Wording(f"{name}: {error.strerror or error}.", COULD_NOT)


def _unexpected(error: Exception) -> Wording:
    return Wording(
        f"something went wrong that should not have ({type(error).__name__}: {error}); "
        "please report it with what LINNET_DEBUG=1 prints before this line.",
        COULD_NOT,
    )


def _join(sentence: str, next_step: str) -> str:
    if not next_step:
        return sentence
    return f"{sentence.rstrip('.;')}; {next_step}"


# Looked up by qualified name along the error's classes, so that no room is imported before it is needed.
TABLE: dict[str, Callable[[Exception], Wording]] = {
    "builtins.OSError": _os_error,
}


def describe(error: Exception) -> Wording:
    """The sentence and exit code for any error; unexpected ones ask for a report."""
    for kind in type(error).__mro__:
        word = TABLE.get(f"{kind.__module__}.{kind.__qualname__}")
        if word is not None:
            return word(error)
    return _unexpected(error)
