"""What can be wrong with a package, and how the registry says it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from linnet.registry.card import Card

SHOWN_CHARACTERS = 80
# Room for a path that the user gave.
PATH_CHARACTERS = 4096


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong.

    `where` is a key path (`weights.files[1]`) or a file; `message` is one sentence that names the thing; `help` is the
    next step; `kind` is a stable dotted word that scripts read (`card.unknown-key`).
    """

    kind: str
    where: str
    message: str
    help: str

    def __str__(self) -> str:
        named = "" if self.message.startswith(f"{self.where} ") else f"{self.where}: "
        return f"{named}{self.message} {self.help}".rstrip()


class RegistryError(Exception):
    """A package, or a part of one, that cannot be used. `problems` is never empty."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


class RegistryWarning(UserWarning):
    """What a user should know of a package that is used all the same: that it is yanked, that a mirror was silent."""


class CardError(RegistryError):
    """`nest.toml` does not describe a model; `problems` holds all that is wrong with it.

    `partial` is the card all the same where what it says of the source is in order: enough to check that, and no more.
    """

    def __init__(self, problems: Iterable[Problem], partial: Card | None = None) -> None:
        super().__init__(problems)
        self.partial = partial


class PackageError(RegistryError):
    """A package folder that is absent, unreadable, or holds a path that leaves it."""


class BindingsError(RegistryError):
    """`bindings.json` is not a flat object of strings, or does not fit the manifest."""


class HeaderError(RegistryError):
    """A safetensors file whose header cannot be trusted."""


class HubError(RegistryError):
    """The Hub did not give what was asked. `reasons` tell the failures apart (`hub.REASONS`), one for each problem."""

    @property
    def reasons(self) -> tuple[str, ...]:
        return tuple(problem.kind.removeprefix("hub.") for problem in self.problems)


def shown(text: str, characters: int = SHOWN_CHARACTERS) -> str:
    """Text from a package as a message may show it: quoted, on one line, control characters escaped, cut where long."""
    cut = text if len(text) <= characters else text[: characters - 1] + "…"
    if cut.isprintable():
        return f'"{cut}"'
    escaped = "".join(ch if ch.isprintable() else ch.encode("unicode_escape", "surrogatepass").decode() for ch in cut)
    return f'"{escaped}"'


def bare(text: str, characters: int = SHOWN_CHARACTERS) -> str:
    """As `shown`, without the quotes: for `where`."""
    return shown(text, characters)[1:-1]


def nearest(text: str, known: Iterable[str], *, alike: float = 0.0) -> str | None:
    """The member of `known` that is spelled most like `text`; None where none is.

    `alike` is how much it must be so, from 0 (`known` is a short list of what may be written) to 1 (the same).
    """
    # The matcher's time grows with the square of the length, and nobody mistypes a key into a novel.
    found = difflib.get_close_matches(text[:200], list(known), n=1, cutoff=alike)
    return found[0] if found else None


def listed(items: Iterable[str], most: int = 8) -> str:
    """Names for a sentence: quoted, joined by commas, the tail counted."""
    names = list(items)
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(shown, names[:most])) + rest
