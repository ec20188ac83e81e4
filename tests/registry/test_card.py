"""Cards: what is accepted, and every problem's whole sentence."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_package import CARD

from linnet.registry.card import KEYS, TABLES, Card, parse_card, read_card
from linnet.registry.errors import CardError, PackageError

HUB = """
repo = "owner/tiny"
revision = "0123456789abcdef0123456789abcdef01234567"
"""


def problems(text: str | bytes, folder: str | None = None) -> list[str]:
    with pytest.raises(CardError) as caught:
        parse_card(text if isinstance(text, bytes) else text.encode(), folder)
    return [str(problem) for problem in caught.value.problems]


def only(text: str, folder: str | None = None) -> str:
    (problem,) = problems(text, folder)
    return problem


def replaced(old: str, new: str) -> str:
    assert old in CARD
    return CARD.replace(old, new)


def test_the_seed_card(seed: Path) -> None:
    card = read_card(seed / "qwen3-8b-fp8")
    assert card.model.title == "Qwen3 8B FP8"
    assert card.model.tags[-1] == "fp8"
    assert card.source.root == "Model"
    assert card.generics["Vocab"] == 151936
    assert card.generics["T"] == "bf16"
    assert card.check == {"B": 1, "S": 8}
    assert card.weights.repo == "Qwen/Qwen3-8B-FP8"
    assert card.weights.files[1] == "model-00002-of-00002.safetensors"
    assert card.links.arxiv == "https://arxiv.org/abs/2505.09388"
    assert card.to_dict()["model"]["tags"] == list(card.model.tags)
    assert "tokenizer" not in card.to_dict()
    json.dumps(card.to_dict())


def test_every_key_is_read() -> None:
    text = (
        CARD.replace('tags = ["test"]', 'tags = ["test"]\nversion = "1.2.3-rc.1"\nparameters = 16')
        + HUB
        + 'recipe = "recipe.json"\nunused = ["*.position_ids"]\n'
        + f'[weights.sha256]\n"model.safetensors" = "{"0a" * 32}"\n'
        + '[links]\nhuggingface = "https://huggingface.co/owner/tiny"\ngithub = "https://github.com/o/t"\n'
        + 'arxiv = "https://arxiv.org/abs/1"\nhomepage = "https://example.org:8443/a?b=c#d"\n'
        + "[check]\nB = 2\n"
        + '[tokenizer]\nfile = "tokenizer.json"\nrepo = "gpt2"\nrevision = "0123456789abcdef0123456789abcdef01234567"\n'
        + 'chat_template = "chat.jinja"\nbos = "<s>"\neos = ["</s>", "<|end|>"]\n'
        + '[bench]\nbaseline = "other"\ndataset = "wikitext"\nsplit = "test"\ndataset_revision = "main"\n'
        + "window = 2048\nstride = 512\nprompt = 512\nnew = 128\n"
        + "[gate]\nperplexity_increase = 0.01\ndecode_ratio_drop = 0\nprompt_ratio_drop = 0.1\nmemory_increase = 0.2\n"
        + 'allow = ["slower prompt"]\n'
    )
    card = parse_card(text.encode(), "tiny")
    tables = card.to_dict()
    assert set(tables) == set(TABLES)
    assert {name: set(table) for name, table in tables.items() if name in KEYS} == {k: set(v) for k, v in KEYS.items()}
    assert card.tokenizer is not None
    assert card.tokenizer.bos == ("<s>",)
    assert card.tokenizer.eos == ("</s>", "<|end|>")
    assert card.gate.decode_ratio_drop == 0.0
    assert card.weights.unused == ("*.position_ids",)
    with pytest.raises(dataclasses.FrozenInstanceError):
        card.model.name = "x"  # type: ignore[misc]


def test_a_byte_order_mark_is_passed_over() -> None:
    assert parse_card(b"\xef\xbb\xbf" + CARD.encode()).model.name == "tiny"


def test_optional_tables_may_be_absent() -> None:
    card = parse_card(CARD.encode())
    assert isinstance(card, Card)
    assert card.tokenizer is None
    assert card.check == {}
    assert card.weights.repo is None


def test_all_problems_are_told_together() -> None:
    text = '[modle]\n[model]\nname = "A"\nlicense = "apache 2"\n[source]\npath = "../x.linnet"\n[generics]\nN = true\n'
    assert problems(text) == [
        "modle is not a table of the card. The nearest known table is model; known are model, source, weights, links, "
        "generics, check, tokenizer, bench, gate.",
        'model.name "A" may hold only the letters a-z, digits, dots and hyphens. Write a name such as qwen3-8b-fp8.',
        "model.title is missing. Add title to the [model] table.",
        "model.summary is missing. Add summary to the [model] table.",
        'model.license is "apache 2", which is not an SPDX licence expression. The nearest common '
        "one is Apache-2.0; one "
        "without an SPDX name is written LicenseRef-its-name, or other.",
        "model.family is missing. Add family to the [model] table.",
        "model.tags is missing. Add tags to the [model] table.",
        'source.path is "../x.linnet", a path that leaves the package. Write a path inside the package with forward '
        "slashes.",
        "source.entry is missing. Add entry to the [source] table.",
        "weights is missing. Add a [weights] table.",
        'generics.N must be an integer or a dtype, not a boolean. Write a number, or a dtype such as "bf16".',
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            CARD + 'binding = "b.json"\n',
            "weights.binding is not a key of the card. The nearest known key is bindings; known are "
            "files, repo, revision, "
            "bindings, recipe, unused, sha256.",
        ),
        (
            replaced("[model]", '[model]\nentry = "f"'),
            "model.entry is not a key of the card. entry belongs in [source].",
        ),
        (
            replaced("[source]", '[source]\nrevision = "x"'),
            "source.revision is not a key of the card. revision belongs in [weights] or [tokenizer].",
        ),
        (
            CARD + '[links]\n"odd key\\u0007" = "x"\n',
            'links."odd key\\x07" is not a key of the card. The nearest known key is homepage; known are huggingface, '
            "github, arxiv, homepage.",
        ),
        ("links = 3\n" + CARD, "links must be a table, not an integer. Write it as [links]."),
        (
            "generics = []\n" + CARD.replace('[generics]\nN = 4\nT = "f32"\n', ""),
            "generics must be a table, not an array. Write it as [generics].",
        ),
        (replaced('title = "Tiny"', "title = 3"), "model.title must be a string, not an integer. Write it in quotes."),
        (replaced('title = "Tiny"', 'title = " "'), "model.title is empty. Write at least one word."),
        (
            replaced('title = "Tiny"', "title = 1979-05-27"),
            "model.title must be a string, not a date or time. Write it in quotes.",
        ),
        (
            replaced('title = "Tiny"', 'title = "a\\nb"'),
            "model.title holds a line break or a control character. Write it on one line of plain text.",
        ),
        (
            replaced('title = "Tiny"', 'title = "a\u202eb"'),
            "model.title holds a line break or a control character. Write it on one line of plain text.",
        ),
        (
            replaced('title = "Tiny"', f'title = "{"a" * 1001}"'),
            "model.title has 1001 characters, more than 1000. Shorten it; the README has room.",
        ),
        (
            replaced('tags = ["test"]', 'tags = "test"'),
            'model.tags must be a list of strings, not a string. Write ["a", "b"].',
        ),
        (
            replaced('tags = ["test"]', 'tags = ["a", 1]'),
            "model.tags[1] must be a string, not an integer. Write it in quotes.",
        ),
        (replaced('tags = ["test"]', 'tags = ["a", "a"]'), 'model.tags names "a" more than once. Name it once.'),
        (
            replaced('license = "MIT"', 'license = "MIT OR"'),
            'model.license is "MIT OR", which is not an SPDX licence expression. The nearest common '
            "one is MIT; one without "
            "an SPDX name is written LicenseRef-its-name, or other.",
        ),
        (
            replaced('tags = ["test"]', 'tags = []\nversion = "1.2"'),
            'model.version is "1.2", which is not a version. Write three numbers such as 0.1.0.',
        ),
        (
            replaced('tags = ["test"]', "tags = []\nparameters = 0"),
            "model.parameters is 0, less than 1. Write a positive whole number.",
        ),
        (
            replaced('tags = ["test"]', "tags = []\nparameters = 1.5"),
            "model.parameters must be an integer, not a float. Write a whole number without quotes.",
        ),
        (
            replaced("N = 4", "N = -1"),
            "generics.N is -1, and a dimension is at least 0. Write a number that is not negative.",
        ),
        (
            replaced("N = 4", 'N = "float32"'),
            'generics.N is "float32", which is not a dtype. The nearest dtype is f32; dimensions are '
            "written without quotes.",
        ),
        (
            replaced("N = 4", "N = 4.0"),
            'generics.N must be an integer or a dtype, not a float. Write a number, or a dtype such as "bf16".',
        ),
        (
            replaced("N = 4", "N = 9223372036854775808"),
            "generics.N is larger than 64 bits hold. Write a smaller number.",
        ),
        (
            replaced("N = 4", '"N x" = 4'),
            'generics."N x": "N x" is not a Linnet name. Use letters, digits and underscores.',
        ),
        (
            CARD + '[links]\ngithub = "http://github.com/o/t"\n',
            'links.github is "http://github.com/o/t", which does not begin with https://. Write a link such as '
            "https://github.com/owner/project.",
        ),
        (
            CARD + '[links]\ngithub = "https://user:secret@github.com/"\n',
            'links.github is "https://user:secret@github.com/", which names no host. Write a link such as '
            "https://github.com/owner/project.",
        ),
        (
            CARD + '[links]\ngithub = "https://[::1"\n',
            'links.github is "https://[::1", which is not a link. Write a link such as '
            "https://github.com/owner/project.",
        ),
        (
            CARD + "[links]\ngithub = 'https://a/\"><script>'\n",
            'links.github is "https://a/"><script>", which holds a character that a link cannot have. '
            "Write a link such as "
            "https://github.com/owner/project.",
        ),
        (
            CARD + 'repo = "owner/tiny"\n',
            "weights.revision is missing. Pin the repository: write the full commit hash that the weights "
            "were read at.",
        ),
        (
            CARD + 'revision = "0123456789abcdef0123456789abcdef01234567"\n',
            "weights.repo is missing. Name the repository that the revision belongs to, or remove the revision.",
        ),
        (
            CARD + 'repo = "owner/tiny"\nrevision = "main"\n',
            'weights.revision is "main", which is not a full commit hash. Write the 40 hexadecimal '
            "digits of the commit: "
            "branches and tags move.",
        ),
        (
            CARD + HUB.replace("owner/tiny", "a/b/c"),
            'weights.repo is "a/b/c", which is not a Hub repository. Write owner/name as the Hub shows it.',
        ),
        (replaced('files = ["model.safetensors"]', "files = []"), "weights.files is empty. Name at least one."),
        (
            replaced('files = ["model.safetensors"]', 'files = ["model.bin"]'),
            'weights.files[0] is "model.bin", which does not end in .safetensors. Name a .safetensors file.',
        ),
        (
            CARD + '[weights.sha256]\n"model.safetensors" = "12"\n',
            'weights.sha256.model.safetensors is "12", which is not a sha256. Write the 64 hexadecimal '
            "digits that sha256sum "
            "prints.",
        ),
        (
            CARD + f'[weights.sha256]\n"x.safetensors" = "{"0" * 64}"\n',
            'weights.sha256.x.safetensors: A digest is given for "x.safetensors", which is not among '
            "the files. Name the "
            "file in weights.files or remove its digest.",
        ),
        (CARD + 'sha256 = "00"\n', "weights.sha256 must be a table, not a string. Write it as [weights.sha256]."),
        (CARD + "[tokenizer]\n", "tokenizer.file is missing. Add file to the [tokenizer] table."),
        (
            CARD + '[tokenizer]\nfile = "t.json"\nbos = 3\n',
            'tokenizer.bos must be a string or a list of strings. Write a token such as "<s>", not an integer.',
        ),
        (
            CARD + "[gate]\nmemory_increase = nan\n",
            "gate.memory_increase is nan, which is not a fraction. Write a number such as 0.01, at least 0.",
        ),
        (
            CARD + "[gate]\nmemory_increase = true\n",
            "gate.memory_increase must be a number, not a boolean. Write a fraction such as 0.01.",
        ),
        (CARD + "[bench]\nwindow = 0\n", "bench.window is 0, less than 1. Write a positive whole number."),
    ],
)
def test_one_problem(text: str, message: str) -> None:
    assert only(text) == message


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("../lib.linnet", "leaves the package"),
        ("src/../../lib.linnet", "leaves the package"),
        ("/etc/lib.linnet", "is not relative to the package"),
        ("C:lib.linnet", "is not relative to the package"),
        ("C:/lib.linnet", "is not relative to the package"),
        ("src\\\\lib.linnet", "holds a backslash"),
        ("src/\\u0000lib.linnet", "holds a NUL character"),
        ("src//lib.linnet", "has an empty segment"),
        ("./lib.linnet", "has an empty segment"),
        ("src./lib.linnet", "has a segment with a space at an end or a dot at its end"),
        ("src/aux.linnet", "has a segment that is a device name on Windows"),
        ("src/a:b.linnet", 'holds one of the characters < > : " | ? *'),
        ("src/a\\u200bb.linnet", "holds a control or invisible character"),
        ("src/e\\u0301.linnet", "is not in Unicode's composed form (NFC)"),
        ("a/" * 600 + "lib.linnet", "has 1210 characters, more than 1024"),
    ],
)
def test_a_path_that_is_not_plain(path: str, fault: str) -> None:
    message = only(replaced("src/lib.linnet", path))
    assert message.endswith(f"a path that {fault}. Write a path inside the package with forward slashes.")
    weights = only(replaced("model.safetensors", path.replace(".linnet", ".safetensors")))
    assert weights.startswith("weights.files[0] is ")
    assert fault.split("1210")[0] in weights


@pytest.mark.parametrize(
    "name", ["", "a" * 65, "Tiny", "tiny_x", "tïny", "-tiny", "tiny.", "ti..ny", "con", "nul.txt", "com1", "a b", "a/b"]
)
def test_a_name_that_cannot_be_a_package(name: str) -> None:
    assert only(replaced('"tiny"', f'"{name}"')).startswith("model.name ")


def test_the_name_is_the_folders() -> None:
    assert only(CARD, "other") == (
        'model.name: The name "tiny" is not the name of its folder, "other". Rename one of the two.'
    )


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("apache-2.0", "Apache-2.0"),
        ("mit or Apache-2.0", "MIT OR Apache-2.0"),
        ("other", "other"),
        ("LicenseRef-Llama-3", "LicenseRef-Llama-3"),
    ],
)
def test_licences_in_their_canonical_spelling(written: str, kept: str) -> None:
    assert parse_card(replaced('"MIT"', f'"{written}"').encode()).model.license == kept


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"[model", "The card is not TOML: Expected ']' at the end of a table declaration (at end of document)."),
        (b'title = "\xff"', "The card is not TOML: byte 9 is not UTF-8."),
        (b"a = " + b"[" * 100_000, "The card is not TOML: "),
        (b"a = " + b"9" * 5000, "The card is not TOML: "),
        (b"#" * (1 << 20) + b"\n", "The card is not TOML: it is larger than 128 KiB."),
        (b".".join([b"a"] * 60_000) + b" = 1", "The card is not TOML: it has a key of more than 50 parts."),
        (b"x = {" + b" . ".join([b'"a"'] * 60) + b" = 1}", "The card is not TOML: it has a key of more than 50 parts."),
        (b"a = 1\na = 2\n", "The card is not TOML: Cannot overwrite a value (at line 2, column 6)."),
    ],
)
def test_what_is_not_toml(data: bytes, reason: str) -> None:
    (message,) = problems(data)
    assert reason in message
    assert message.startswith("nest.toml: ")


def test_a_card_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(PackageError, match=r"The file \"nest\.toml\" is not in the package\. Add nest\.toml\."):
        read_card(tmp_path)
    with pytest.raises(PackageError, match=r"does not exist\. Name a folder that holds a nest\.toml\."):
        read_card(tmp_path / "absent")
    (tmp_path / "file").write_text("")
    with pytest.raises(PackageError, match=r"is not a folder\."):
        read_card(tmp_path / "file")


def test_a_card_of_enormous_size_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "nest.toml").open("wb") as file:
        file.truncate(1 << 33)
    with pytest.raises(PackageError, match=r"is larger than 128\.0 KiB"):
        read_card(tmp_path)


@given(st.binary(max_size=200))
def test_any_bytes_give_a_card_error(data: bytes) -> None:
    with pytest.raises(CardError):
        parse_card(data)


VALUES = st.recursive(
    st.one_of(
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(),
        st.text(max_size=12),
        st.sampled_from(["../x", "a.linnet", "x.safetensors", "https://a/b", "MIT", "bf16", "0.1.0"]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=6,
)


def toml(value: object) -> str:
    """A value as inline TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quoted(key)} = {toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else quoted(value) if isinstance(value, str) else repr(value)


def quoted(text: str) -> str:
    return '"' + "".join(f"\\U{ord(ch):08x}" if not "a" <= ch <= "z" else ch for ch in text) + '"'


@given(st.data())
def test_any_values_give_a_card_or_a_card_error(data: st.DataObject) -> None:
    tables = data.draw(
        st.fixed_dictionaries(
            {
                name: st.dictionaries(st.sampled_from((*KEYS[name], "odd")), VALUES, max_size=len(KEYS[name]))
                if name in KEYS
                else VALUES
                for name in TABLES
            }
        )
    )
    text = "\n".join(f"{name} = {toml(value)}" for name, value in tables.items()).encode("utf-8", "surrogatepass")
    try:
        found = json.dumps(parse_card(text, "tiny").to_dict())
    except CardError as error:
        found = [problem.message and problem.help and problem.where for problem in error.problems]
    assert found
    assert all(found)
