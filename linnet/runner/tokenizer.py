"""Text to token ids and back, by Hugging Face's `tokenizers`, with the end tokens and the chat template of a card."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from linnet.runner.chat import render_chat
from linnet.runner.errors import TokenizerError

# What people take for a special token: `<|im_start|>`. A tokenizer without one of that name would spell it out.
_SPECIAL = re.compile(r"<\|[^\s<>|]{1,64}\|>")
# A character of UTF-8 has at most four bytes, and a token at least one.
_CHARACTER_TOKENS = 4
_BROKEN = "\N{REPLACEMENT CHARACTER}"


class TextTokenizer:
    """A tokenizer file, and what its card adds.

    `size` is one more than the highest id, `bos` and `eos` are the ids of tokens that begin and end a text;
    `chat_template` is a Jinja template, or None. The file alone decides which tokens encoding adds at a text's ends.
    """

    def __init__(
        self, file: Path, *, chat_template: str | None = None, bos: Sequence[str] = (), eos: Sequence[str] = ()
    ) -> None:
        """Raises TokenizerError for a file that is no tokenizer, or that lacks one of `bos` and `eos`."""
        from tokenizers import Tokenizer

        self.file = file
        self.chat_template = chat_template
        try:
            self._tokenizer: Any = Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises no narrower class
            raise TokenizerError(f"{file} is not a file of the tokenizers library: {error}; fetch it again") from None
        # Files carry the lengths their model was trained at; a prompt has its own.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._vocabulary: dict[str, int] = self._tokenizer.get_vocab(with_added_tokens=True)
        self.size = max(self._vocabulary.values(), default=-1) + 1
        self._tokens = {"bos_token": next(iter(bos), None), "eos_token": next(iter(eos), None)}
        self.bos = self._ids("bos", bos)
        self.eos = self._ids("eos", eos)

    def encode(self, text: str, *, special: bool = True, strict: bool = True) -> list[int]:
        """The ids of `text`; with `special`, also those that the file adds at its ends.

        Raises TokenizerError for a text with half a surrogate pair, as undecodable arguments of a command are, and
        with `strict` for what looks like a special token, `<|name|>`, and is none of this tokenizer's.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise TokenizerError(f"character {error.start} of the text is none that UTF-8 has: correct it") from None
        if strict:
            self._refuse_unknown(text)
        return list(self._tokenizer.encode(text, add_special_tokens=special).ids)

    def encode_chat(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """The ids of a conversation under the chat template, up to where the model's answer begins.

        Raises TokenizerError where there is no template, ChatError for one that fails or messages that it refuses.
        """
        if self.chat_template is None:
            raise TokenizerError("a list of messages needs a chat template, and the card's [tokenizer] names none")
        return self.encode(render_chat(self.chat_template, messages, **self._tokens), special=False)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`, without special tokens; bytes that are no UTF-8 become U+FFFD."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))

    def _ids(self, key: str, tokens: Sequence[str]) -> frozenset[int]:
        absent = [token for token in tokens if token not in self._vocabulary]
        if absent:
            raise TokenizerError(f"{key} is {absent[0]!r} in the card's [tokenizer], and {self.file} has no such token")
        return frozenset(self._vocabulary[token] for token in tokens)

    def _refuse_unknown(self, text: str) -> None:
        for found in _SPECIAL.findall(text):
            if found not in self._vocabulary:
                known = [token for token in self._vocabulary if _SPECIAL.fullmatch(token)]
                close = get_close_matches(found, known, 1)
                nearest = f"; the nearest is {close[0]}" if close else ""
                raise TokenizerError(
                    f"the text has {found}, which looks like a special token, and the tokenizer has none of that name"
                    f"{nearest}: correct it, or write it apart, as < |..| >, where it is meant as text"
                )


class TextStream:
    """Ids one by one into pieces of text that never end within a character.

    Pieces joined are what decoding all ids gives, but for broken bytes at its very end: a character that is not
    finished.
    """

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        # Ids before `_read` are in the text already. Those from `_start` on are decoded with each new one, since what
        # a token's text is (a leading space, say) can depend on the one before.
        self._start = 0
        self._read = 0

    def push(self, token: int) -> str:
        """The text that `token` completes."""
        self._ids.append(token)
        before = self._text(self._read)
        text = self._text(len(self._ids))
        if not text.endswith(_BROKEN):
            return self._take(len(self._ids), before, text)
        # What lies further back than any character can reach stays broken whatever comes.
        settled = len(self._ids) - _CHARACTER_TOKENS
        if settled > self._read:
            shorter = self._text(settled)
            if text.startswith(shorter):
                return self._take(settled, before, shorter)
        return ""

    def finish(self) -> str:
        """The text that is left, without a character that is not finished."""
        before, text = self._text(self._read), self._text(len(self._ids))
        return self._take(len(self._ids), before, text).rstrip(_BROKEN)

    def _text(self, stop: int) -> str:
        return self._tokenizer.decode(self._ids[self._start : stop])

    def _take(self, stop: int, before: str, text: str) -> str:
        piece = text[len(before) :]
        if piece:
            self._start, self._read = self._read, stop
        return piece


class StopText:
    """Cuts a text that comes in pieces before the first of `stops`."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.found = False

    def push(self, piece: str) -> str:
        """The text that cannot be a part of a stop string any more; `found` tells whether one has come."""
        text = self._held + piece
        places = [place for place in map(text.find, self._stops) if place >= 0]
        if places:
            self.found, self._held = True, ""
            return text[: min(places)]
        longest = min(max(map(len, self._stops), default=0) - 1, len(text))
        held = next((n for n in range(longest, 0, -1) if any(stop.startswith(text[-n:]) for stop in self._stops)), 0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def finish(self) -> str:
        """What was held back."""
        held, self._held = self._held, ""
        return held
