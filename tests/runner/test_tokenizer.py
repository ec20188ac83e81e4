"""Text to ids and back, in pieces; chat templates against transformers'."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from text_package import SPECIAL, TEMPLATE, byte_tokenizer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from linnet.runner.chat import read_chat_template, render_chat
from linnet.runner.errors import ChatError, TokenizerError
from linnet.runner.tokenizer import StopText, TextStream, TextTokenizer

BROKEN = "\N{REPLACEMENT CHARACTER}"
MESSAGES = [
    {"role": "system", "content": "Answer briefly."},
    {"role": "user", "content": "What is <b>2 + 2</b>?\n"},
    {"role": "assistant", "content": "4"},
    {"role": "user", "content": "And 風?"},
]


def fallback_tokenizer() -> Tokenizer:
    """Letters and spaces as tokens, everything else as bytes: the kind that sentencepiece makes."""
    letters = ["▁", *"abcdefghijklmnopqrstuvwxyz"]
    vocabulary = {token: i for i, token in enumerate(["<unk>", *(f"<0x{i:02X}>" for i in range(256)), *letters])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return tokenizer


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("tokenizers")
    paths = {}
    for name, made in (("bytes", byte_tokenizer()), ("fallback", fallback_tokenizer())):
        paths[name] = folder / f"{name}.json"
        made.save(str(paths[name]))
    return paths


def pieces(tokenizer: TextTokenizer, ids: list[int]) -> list[str]:
    stream = TextStream(tokenizer)
    return [*map(stream.push, ids), stream.finish()]


@pytest.mark.parametrize("kind", ["bytes", "fallback"])
def test_pieces_join_to_the_text_and_none_ends_within_a_character(files: dict[str, Path], kind: str) -> None:
    tokenizer = TextTokenizer(files[kind])

    @given(st.text(max_size=30))
    def check(text: str) -> None:
        ids = tokenizer.encode(text, strict=False)
        whole = tokenizer.decode(ids)
        found = pieces(tokenizer, ids)
        if BROKEN not in text:
            assert not any(BROKEN in piece for piece in found)
            assert "".join(found) == whole
        # What is cut within a character ends before it.
        for n in range(len(ids)):
            assert whole.startswith("".join(pieces(tokenizer, ids[:n])).rstrip(BROKEN))

    check()


def test_broken_bytes_are_not_held_back_for_ever(files: dict[str, Path]) -> None:
    tokenizer = TextTokenizer(files["bytes"])
    # Bytes that begin a character of four, one after another: none is ever finished.
    start = tokenizer.encode("🐟")[0]
    ids = [start] * 40 + tokenizer.encode("harbour")
    stream = TextStream(tokenizer)
    shown = ""
    for n, token in enumerate(ids):
        shown += stream.push(token)
        assert len(shown) >= n - 4
    assert shown + stream.finish() == tokenizer.decode(ids)


@given(st.lists(st.integers(0, 328), max_size=40))
def test_any_ids_give_pieces_that_join_to_their_text(files: dict[str, Path], ids: list[int]) -> None:
    tokenizer = TextTokenizer(files["bytes"])
    whole, found = tokenizer.decode(ids), "".join(pieces(tokenizer, ids))
    assert whole.startswith(found)
    assert set(whole[len(found) :]) <= {BROKEN}


@given(st.lists(st.text("ab", max_size=3), max_size=8), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
def test_a_stop_text_ends_the_text_before_it(given_pieces: list[str], stops: list[str]) -> None:
    cut, shown = StopText(stops), ""
    for piece in given_pieces:
        shown += cut.push(piece)
        if cut.found:
            break
        # Nothing is shown that a stop text may begin with.
        assert not any(shown.endswith(stop) for stop in stops)
    if not cut.found:
        shown += cut.finish()
    text = "".join(given_pieces)
    places = [text.find(stop) for stop in stops if stop in text]
    # Of stop texts that overlap, the one that is whole first ends it.
    ends = [text.find(stop) + len(stop) for stop in stops if stop in text]
    assert cut.found == bool(places)
    assert text.startswith(shown)
    if places:
        assert min(places) <= len(shown) < min(ends)
    else:
        assert shown == text


def test_special_tokens_are_read_and_not_written(files: dict[str, Path]) -> None:
    tokenizer = TextTokenizer(files["bytes"], bos=["<|im_start|>"], eos=["<|endoftext|>", "<|im_end|>"])
    ids = tokenizer.encode("<|im_start|>harbour<|im_end|>")
    assert (ids[0], ids[-1]) == (1, 2)
    assert tokenizer.decode(ids) == "harbour"
    assert (tokenizer.bos, tokenizer.eos) == ({1}, {0, 2})
    assert tokenizer.size == Tokenizer.from_file(str(files["bytes"])).get_vocab_size()


def test_a_special_token_that_is_unknown_is_refused(files: dict[str, Path]) -> None:
    tokenizer = TextTokenizer(files["bytes"])
    with pytest.raises(
        TokenizerError, match=r"the text has <\|im_strat\|>, .*; the nearest is <\|im_start\|>: correct"
    ):
        tokenizer.encode("Hello <|im_strat|>user")
    assert tokenizer.decode(tokenizer.encode("Hello <|im_strat|>", strict=False)) == "Hello <|im_strat|>"
    # An operator of a programming language is none.
    assert tokenizer.decode(tokenizer.encode("x <| f y |> g")) == "x <| f y |> g"


def test_files_that_are_no_tokenizers_are_refused(files: dict[str, Path], tmp_path: Path) -> None:
    bad = tmp_path / "tokenizer.json"
    for text in ("", "{}", '{"model": 3}'):
        bad.write_text(text)
        with pytest.raises(TokenizerError, match=r"tokenizer\.json is not a file of the tokenizers library: "):
            TextTokenizer(bad)
    with pytest.raises(TokenizerError, match=r"eos is '</s>' in the card's \[tokenizer\], and .* has no such token"):
        TextTokenizer(files["bytes"], eos=["</s>"])
    with pytest.raises(TokenizerError, match="needs a chat template"):
        TextTokenizer(files["bytes"]).encode_chat([{"role": "user", "content": "Hello"}])


# Templates


TEMPLATES = {
    "chatml": TEMPLATE,
    "tokens": "{{ bos_token }}{% for m in messages %}{{ m['content'] }}{{ eos_token }}{% endfor %}",
    "json": "{% for m in messages %}{{ m | tojson }}{{ m | tojson(indent=2) }}{% endfor %}",
    "blocks": "{% for m in messages %}\n    {% if loop.first %}\n first\n    {% endif %}\n{{ m.role }}\n{% endfor %}\n",
    "loops": "{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}{{ m.role }};{% endfor %}",
    "generation": "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
    "namespace": "{% set n = namespace(k=0) %}{% for m in messages %}{% set n.k = n.k + 1 %}{% endfor %}{{ n.k }}",
    "undefined": "{% if tools %}t{% endif %}{% if documents is none %}d{% endif %}{{ enable_thinking is defined }}",
    "reversed": "{% for m in messages[::-1] %}{{ m.content.strip().split('?')[0] }}{{ loop.revindex0 }}{% endfor %}",
    "tests": "{% if messages[0].content is string and messages[-1].content.startswith('And') %}yes{% endif %}",
    "date": "{{ strftime_now('%Y') | length }}",
    "macro": "{% macro f(m) %}[{{ m.role | upper }}]{% endmacro %}{% for m in messages %}{{ f(m) }}{% endfor %}",
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_render_as_transformers_does(files: dict[str, Path], name: str) -> None:
    template = TEMPLATES[name]
    theirs = PreTrainedTokenizerFast(
        tokenizer_file=str(files["bytes"]), bos_token="<|im_start|>", eos_token="<|endoftext|>"
    )
    wanted = theirs.apply_chat_template(MESSAGES, chat_template=template, add_generation_prompt=True, tokenize=False)
    assert render_chat(template, MESSAGES, bos_token="<|im_start|>", eos_token="<|endoftext|>") == wanted
    ours = TextTokenizer(files["bytes"], chat_template=template, bos=["<|im_start|>"], eos=["<|endoftext|>"])
    encoded = theirs.apply_chat_template(MESSAGES, chat_template=template, add_generation_prompt=True)
    assert ours.encode_chat(MESSAGES) == list(encoded["input_ids"])


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{% for %}", "the chat template fails"),
        ("{{ messages[0].content + 1 }}", "the chat template fails"),
        ("{{ messages[9].content }}", "the chat template fails"),
        ("{{ 1 // 0 }}", "the chat template fails"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "the chat template fails"),
        ("{{ messages.append(1) }}", "the chat template fails"),
        ("{{ ''.__class__.__mro__ }}", "the chat template fails"),
        ("{{ messages.__class__.__base__.__subclasses__() }}", "the chat template fails"),
        ("{% for i in range(10 ** 9) %}{% endfor %}", "the chat template fails"),
    ],
)
def test_templates_that_fail_or_reach_out_are_refused(template: str, words: str) -> None:
    with pytest.raises(ChatError, match=words):
        render_chat(template, MESSAGES, bos_token=None, eos_token=None)


@pytest.mark.parametrize("message", ["Hello", {"content": "Hello"}, {"role": 1, "content": "Hello"}])
def test_messages_of_another_form_are_refused(message: object) -> None:
    with pytest.raises(ChatError, match=r"a message is a mapping such as"):
        render_chat(TEMPLATE, [message], bos_token=None, eos_token=None)  # type: ignore[list-item]


def test_a_message_without_content_is_refused() -> None:
    with pytest.raises(ChatError, match="the message of the role 'user' has no content"):
        render_chat(TEMPLATE, [{"role": "user"}], bos_token=None, eos_token=None)


def test_a_template_is_read_from_either_kind_of_file(tmp_path: Path) -> None:
    plain, config = tmp_path / "chat_template.jinja", tmp_path / "tokenizer_config.json"
    plain.write_text(TEMPLATE)
    assert read_chat_template(plain) == TEMPLATE
    config.write_text(json.dumps({"chat_template": TEMPLATE}))
    assert read_chat_template(config) == TEMPLATE
    named = [{"name": "tool_use", "template": "other"}, {"name": "default", "template": TEMPLATE}]
    config.write_text(json.dumps({"chat_template": named}))
    assert read_chat_template(config) == TEMPLATE
    config.write_text("{}")
    with pytest.raises(ChatError, match=r"tokenizer_config\.json has no chat_template"):
        read_chat_template(config)
    for bad in (b"[]", b"{", b"\xff"):
        config.write_bytes(bad)
        with pytest.raises(ChatError, match="cannot be read as a chat template"):
            read_chat_template(config)


def test_special_tokens_of_a_template_are_the_tokenizers(files: dict[str, Path]) -> None:
    tokenizer = TextTokenizer(files["bytes"], chat_template="<|start_header|>{{ messages[0].content }}")
    with pytest.raises(TokenizerError, match=r"<\|start_header\|>"):
        tokenizer.encode_chat(MESSAGES)
    assert set(SPECIAL) <= set(Tokenizer.from_file(str(files["bytes"])).get_vocab())
