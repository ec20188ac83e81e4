"""Conversations as text: chat templates in Jinja, in the dialect that published tokenizers are written for.

A template is text from someone else: it runs in Jinja's immutable sandbox, which keeps it from Python's internals.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linnet.runner.errors import ChatError

if TYPE_CHECKING:
    from jinja2 import Template


def read_chat_template(file: Path) -> str:
    """The template in a file: the file itself, or the `chat_template` of a `.json` file, as tokenizer_config.json has.

    Of several templates by name it is the one called "default". Raises ChatError.
    """
    try:
        text = file.read_text(encoding="utf-8")
        if file.suffix != ".json":
            return text
        found = json.loads(text).get("chat_template")
    except (UnicodeDecodeError, ValueError, AttributeError) as error:
        raise ChatError(f"{file} cannot be read as a chat template: {error}; fetch it again") from None
    if isinstance(found, list):
        named = {item.get("name"): item.get("template") for item in found if isinstance(item, dict)}
        found = named.get("default")
    if not isinstance(found, str):
        raise ChatError(f"{file} has no chat_template: name another file in the card's [tokenizer]")
    return found


def render_chat(
    template: str, messages: Sequence[Mapping[str, Any]], *, bos_token: str | None, eos_token: str | None
) -> str:
    """The conversation as the model reads it, up to where its answer begins.

    Each message is a mapping with `role` and `content`. Raises ChatError for messages of another form, and where the
    template cannot be parsed, fails, or refuses them.
    """
    from jinja2 import TemplateError

    for message in messages:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise ChatError(f'a message is a mapping such as {{"role": "user", "content": "Hello"}}, not {message!r}')
        if message.get("content") is None:
            raise ChatError(f"the message of the role {message['role']!r} has no content: give it some")
    tokens = {name: token for name, token in (("bos_token", bos_token), ("eos_token", eos_token)) if token}
    try:
        compiled = _compiled(template)
        return compiled.render(messages=messages, tools=None, documents=None, add_generation_prompt=True, **tokens)
    except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError, RecursionError) as error:
        # A template's own operations fail as Python's do.
        raise ChatError(f"the chat template fails on these messages: {error}") from None


@lru_cache(maxsize=8)
def _compiled(template: str) -> Template:
    from jinja2 import TemplateError, nodes
    from jinja2.ext import Extension
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class GenerationTag(Extension):
        """`{% generation %}` marks what the assistant said, for training; for reading it changes nothing."""

        tags = {"generation"}  # noqa: RUF012  (Jinja declares it so)

        def parse(self, parser: Parser) -> nodes.Node:
            line = next(parser.stream).lineno
            return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    def tojson(
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment.from_string(template)
