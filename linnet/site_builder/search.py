"""The search of the whole site, cut so that a first result costs little however many models there are.

`site.js` loads, when the search field is first used:

- `search/directory.js`: the first word of each shard of words, and how many documents there are;
- `search/words/N.js`: for each word the documents that have it, by how much it says of them;
- `search/documents/N.js`: titles and addresses of `PER_CHUNK` documents;
- `search/items/KEY.js`: what can be found inside one document (entries, blocks, parameters), for those shown; where
  that is much, `KEY~1.js` and so on have the rest, which are loaded as long as too little was found.

A document is a model, a module of the standard library, or a page of the guide. Words are compared in lower case after
NFKC; a query's word finds all words that begin with it.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from linnet.site_builder.shards import pack_numbers, shard

# How much a word says of the document it stands in, greatest first; one digit each in the shards.
NAME, TITLE, TAG, ITEM, TEXT = 9, 8, 6, 4, 1
WORD_CHARACTERS = 40
# Words that a document may add: a README of 4 MB must not become the index.
WORDS = 2_000
# Bytes of a file of items, and files of one document; a parameter that falls off is still found by its words.
ITEM_BYTES, ITEM_FILES = 48_000, 8
# Bytes of a shard of words, and documents in a chunk: a result loads one to three shards and a chunk for each it shows.
SHARD_BYTES = 16_000
PER_CHUNK = 32
_WORD = re.compile(r"\w+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class Item:
    """Something inside a document that can be found: `kind` is `entry`, `block`, `parameter`, ...; `href` is from the
    top of the site."""

    kind: str
    label: str
    href: str


@dataclass(frozen=True, slots=True)
class Document:
    """What the index holds of one document: its words with what each says of it, greatest first.

    `key` names its file of items; `note` stands beside the title.
    """

    key: str
    kind: str
    title: str
    note: str
    href: str
    words: Mapping[str, int]

    def to_dict(self) -> dict[str, Any]:
        """JSON-able, for what is kept between builds."""
        by_weight: dict[int, list[str]] = {}
        for word, weight in self.words.items():
            by_weight.setdefault(weight, []).append(word)
        words = {str(weight): " ".join(found) for weight, found in by_weight.items()}
        return {"key": self.key, "kind": self.kind, "title": self.title, "note": self.note, "href": self.href, **words}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Document:
        """The value that `to_dict` wrote."""
        words = {word: int(key) for key, text in value.items() if key.isdecimal() for word in text.split(" ")}
        return cls(value["key"], value["kind"], value["title"], value["note"], value["href"], words)


def words_of(text: str) -> Iterator[str]:
    """The words of a text, as a query is cut too; `q_proj` and `RmsNorm` give their parts as well."""
    for found in _WORD.finditer(unicodedata.normalize("NFKC", text)):
        whole = found[0][:WORD_CHARACTERS]
        word = whole.lower()
        yield word
        parts = _HUMP.sub("_", whole).lower().split("_")
        if len(parts) > 1:
            yield from (part for part in parts if len(part) > 1)


def collect_words(texts: Iterable[tuple[int, str]]) -> dict[str, int]:
    """The words of weighted texts, each with its greatest weight; the first `WORDS` that are found."""
    words: dict[str, int] = {}
    for weight, text in texts:
        for word in words_of(text):
            if word in words:
                words[word] = max(words[word], weight)
            elif len(words) < WORDS:
                words[word] = weight
    return words


def item_files(key: str, items: Sequence[Item]) -> Iterator[tuple[str, bytes]]:
    """The files of one document's items, by their kind: `{kind: [[label, href], ...]}`, path and bytes.

    Where there are several, the first says under the empty kind how many.
    """
    parts: list[dict[str, Any]] = [{}]
    size = 0
    for item in items:
        own = len(item.label.encode()) + len(item.href.encode()) + 6
        if own > ITEM_BYTES:
            continue
        if size + own > ITEM_BYTES:
            parts.append({})
            size = 0
        size += own
        parts[-1].setdefault(item.kind, []).append((item.label, item.href))
    kept = parts[:ITEM_FILES]
    if len(kept) > 1:
        kept[0][""] = len(kept)
    for number, groups in enumerate(kept):
        name = f"search/items/{key}~{number}" if number else f"search/items/{key}"
        yield f"{name}.js", shard(name, groups)


def search_shards(documents: Sequence[Document]) -> Iterator[tuple[str, bytes]]:
    """The directory, the words and the documents; a document's number is its place in `documents`."""
    postings: defaultdict[str, list[int]] = defaultdict(list)
    for number, document in enumerate(documents):
        # A weight is one digit: both in one number, since there may be millions.
        for word, weight in document.words.items():
            postings[word].append(10 * number + weight)
    firsts: list[str] = []
    part: dict[str, str] = {}
    size = 0
    # In the order of the script's strings, which compare by UTF-16 units.
    for word in sorted(postings, key=lambda word: word.encode("utf-16-be")):
        packed = _pack(postings[word])
        if part and size + len(packed) > SHARD_BYTES:
            yield _word_shard(len(firsts), part)
            firsts.append(next(iter(part)))
            part, size = {}, 0
        part[word] = packed
        size += len(word.encode()) + len(packed) + 6
    if part:
        yield _word_shard(len(firsts), part)
        firsts.append(next(iter(part)))
    for start in range(0, len(documents), PER_CHUNK):
        name = f"search/documents/{start // PER_CHUNK}"
        rows = [[d.kind, d.title, d.note, d.href, d.key] for d in documents[start : start + PER_CHUNK]]
        yield f"{name}.js", shard(name, rows)
    directory = {"documents": len(documents), "chunk": PER_CHUNK, "words": firsts}
    yield "search/directory.js", shard("search/directory", directory)


def _pack(postings: Sequence[int]) -> str:
    """For each weight its digit and the documents that have the word by it."""
    weights = sorted({posting % 10 for posting in postings})
    return " ".join(
        f"{weight}{pack_numbers([posting // 10 for posting in postings if posting % 10 == weight])}"
        for weight in weights
    )


def _word_shard(number: int, words: Mapping[str, str]) -> tuple[str, bytes]:
    name = f"search/words/{number}"
    return f"{name}.js", shard(name, words)
