"""Small texts shared by every page: anchors, and characters made harmless."""

from __future__ import annotations

import re
from urllib.parse import quote

# Bidirectional controls reorder what a reader sees; C0, C1 and the line separators have no place in one line of text.
BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
# Marks (U+200E, U+200F) only say which way a neighbour reads; these turn whatever follows around.
_TURNING = {ord(char): f"[U+{ord(char):04X}]" for char in BIDI if char not in "\u061c\u200e\u200f"}
_HIDDEN = re.compile(f"[\x00-\x1f\x7f-\x9f\u2028\u2029{BIDI}]+")
_LINE_ANCHOR = re.compile(r"-L\d+$")


def one_line(text: str) -> str:
    """`text` on one line, without controls that hide or reorder it."""
    return _HIDDEN.sub(" ", text).strip()


def without_overrides(text: str) -> str:
    """`text` with the characters that turn the direction of others around written as their code points."""
    return text.translate(_TURNING)


def slug(text: str) -> str:
    """A heading's words as an anchor: lower case, letters and digits of any script, hyphens between."""
    return re.sub(r"[^\w]+", "-", text.lower()).strip("-_") or "section"


def path_anchor(path: str) -> str:
    """The anchor of a package file: `src/lib.linnet` is `src-lib.linnet`; unusual bytes become `_` and hex digits."""
    escaped = quote(path.replace("/", "-"), safe="").replace("~", "%7E").replace("%", "_")
    # `a.linnet-L3` as a file name would read as line 3 of `a.linnet`.
    return f"{escaped}_" if _LINE_ANCHOR.search(escaped) else escaped


class Anchors:
    """The ids of one page: each is given once; a second wish for the same id gets `-2`, `-3`."""

    def __init__(self, *reserved: str) -> None:
        self._taken = set(reserved)
        # How often each id was wished for, so that ten thousand equal headings cost no search.
        self._wishes: dict[str, int] = {}

    def claim(self, wanted: str) -> str:
        """`wanted`, or the first numbered variant that is free."""
        number = self._wishes.get(wanted, 1)
        anchor = wanted if number == 1 else f"{wanted}-{number}"
        while anchor in self._taken:
            number += 1
            anchor = f"{wanted}-{number}"
        self._taken.add(anchor)
        self._wishes[wanted] = number
        return anchor


def fragment(anchor: str) -> str:
    """The link to an anchor of the same page, percent-encoded where it must be."""
    return "#" + quote(anchor, safe="-._~:")
