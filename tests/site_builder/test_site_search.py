"""The search index: what its words are, what a first result costs, and what the script finds in it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import Browser, Page

from linnet.site_builder.guide import guide_files, guide_search
from linnet.site_builder.listing import Listing
from linnet.site_builder.paths import Site
from linnet.site_builder.search import (
    ITEM_BYTES,
    ITEM_FILES,
    NAME,
    TAG,
    TEXT,
    WORDS,
    Document,
    Item,
    collect_words,
    item_files,
    search_shards,
    words_of,
)
from linnet.site_builder.shards import pack_numbers, shard
from linnet.site_builder.whole import site_files

FIRST_RESULT = 100_000  # bytes
MODELS = 10_000
MANY_ITEMS = "wren-00008"


def value_of(script: bytes) -> object:
    """What a shard hands to `nest`."""
    text = script.decode().removeprefix("nest(").removesuffix(")\n")
    return json.JSONDecoder().raw_decode(text.partition(",")[2])[0]


def unpacked(text: str) -> list[int]:
    digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    values, value, shift = [], 0, 0
    for char in text:
        value |= (digits.index(char) & 31) << shift
        shift += 5
        if digits.index(char) < 32:
            values.append(value)
            value = shift = 0
    numbers, end = [], -1
    for gap, more in zip(values[::2], values[1::2], strict=True):
        numbers += range(end + 1 + gap, end + gap + more + 2)
        end += gap + more + 1
    return numbers


@given(st.sets(st.integers(0, 100_000)))
def test_numbers_come_back(numbers: set[int]) -> None:
    assert unpacked(pack_numbers(sorted(numbers))) == sorted(numbers)


def test_runs_are_short() -> None:
    assert len(pack_numbers(range(10_000))) <= 5


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Qwen3 8B FP8", "qwen3 8b fp8"),
        ("qwen3-8b-fp8", "qwen3 8b fp8"),
        ("layers.{0..35}.q_norm.weight", "layers 0 35 q_norm norm weight"),
        ("Fp8BlockLinear", "fp8blocklinear fp8 block linear"),
        ("RmsNorm", "rmsnorm rms norm"),
        ("Größe, Übermaß", "größe übermaß"),
        ("\uff26\uff30\uff18", "fp8"),
        ("", ""),
    ],
)
def test_words(text: str, words: str) -> None:
    assert list(words_of(text)) == words.split()


def test_a_word_counts_by_its_best_place() -> None:
    assert collect_words([(TEXT, "wren tiny"), (NAME, "wren")]) == {"wren": NAME, "tiny": TEXT}


def test_a_text_of_megabytes_adds_so_many_words() -> None:
    assert len(collect_words([(TEXT, " ".join(f"w{n}" for n in range(50_000)))])) == WORDS


def test_a_document_comes_back() -> None:
    document = Document("model/a", "model", "A", "a", "models/a/index.html", {"a": NAME, "b": TEXT, "c": TEXT})
    assert Document.from_dict(json.loads(json.dumps(document.to_dict()))) == document


def test_a_shard_is_one_call() -> None:
    script = shard("x/y", {"a": "</script>\u2028'\""})
    assert script.startswith(b'nest("x/y",{')
    assert "\u2028" not in script.decode()
    assert value_of(script) == {"a": "</script>\u2028'\""}


def test_items_are_bounded() -> None:
    items = [Item("parameter", f"layers.{n}.weight", "x") for n in range(20_000)]
    files = dict(item_files("model/a", [*items[:100], Item("entry", "x" * ITEM_BYTES, "x"), *items[100:]]))
    assert list(files) == ["search/items/model/a.js", *(f"search/items/model/a~{n}.js" for n in range(1, ITEM_FILES))]
    assert all(len(data) < 1.2 * ITEM_BYTES for data in files.values())
    values = [value_of(data) for data in files.values()]
    assert values[0].pop("") == ITEM_FILES
    found = [label for value in values for label, _ in value["parameter"]]
    assert found == [item.label for item in items[: len(found)]]
    assert len(found) > 8_000
    assert list(item_files("model/a", items[:2])) == [
        (
            "search/items/model/a.js",
            shard("search/items/model/a", {"parameter": [(item.label, "x") for item in items[:2]]}),
        )
    ]


def test_every_word_is_in_the_shard_that_the_directory_names() -> None:
    random.seed(1)
    documents = [
        Document(f"model/{n}", "model", "T", "", "x", {f"w{random.randrange(900)}": TAG for _ in range(40)})
        for n in range(300)
    ]
    written = {path: value_of(data) for path, data in search_shards(documents)}
    directory = written["search/directory.js"]
    assert isinstance(directory, dict)
    firsts: list[str] = directory["words"]
    assert len(firsts) > 1
    found: dict[str, set[int]] = {}
    for number, first in enumerate(firsts):
        words = written[f"search/words/{number}.js"]
        assert isinstance(words, dict)
        assert next(iter(words)) == first
        assert all(number + 1 == len(firsts) or word < firsts[number + 1] for word in words)
        for word, packed in words.items():
            found[word] = {n for group in packed.split(" ") for n in unpacked(group[1:])}
    assert found == {
        word: {n for n, document in enumerate(documents) if word in document.words}
        for word in {word for document in documents for word in document.words}
    }


def test_the_guide_is_found_by_its_headings(tmp_path: Path) -> None:
    html = b'<nav>no</nav><article><h1 id="a">Cards</h1><p>A card says.</p><h2 id="b">Keys &amp; tables</h2></article>'
    (tmp_path / "index.html").write_bytes(html)
    (tmp_path / "sitemap.xml").write_text("x")
    assert list(guide_files(tmp_path, Site())) == [("docs/index.html", html)]
    found = guide_search("docs/index.html", html)
    assert found is not None
    document, items = found
    assert (document.key, document.kind, document.title) == ("guide/index", "guide", "Cards")
    assert {"cards", "card", "says", "keys", "tables"} <= set(document.words)
    assert "no" not in document.words
    assert {path: value_of(data) for path, data in items} == {
        "search/items/guide/index.js": {"section": [["Keys & tables", "docs/index.html#b"]]}
    }


def generated(count: int) -> Iterator[Listing]:
    random.seed(0)
    families = ("qwen3", "llama", "bert", "wren", "finch")
    for n in range(count):
        family = families[n % 5]
        yield Listing(
            name=f"{family}-{n:05}",
            title=f"{family.title()} {n}",
            summary=f"A decoder of {n % 70} layers with grouped-query attention number {random.randrange(10**6)}.",
            version="1.0.0",
            license="MIT",
            family=family,
            tags=("text-generation", "attention", f"tag{n % 40}"),
            parameters=10**6 * (n + 1),
            weights="bf16",
            published="2026-01-31",
            results=(),
        )


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The catalogue and the search of 10,000 models, without their pages."""
    site = tmp_path_factory.mktemp("large")
    summaries = []
    random.seed(2)
    common = "attention prefill decode layers weight q_norm mlp embedding rotary cache tokens logits".split()
    for listing in generated(MODELS):
        words = collect_words(
            [
                (NAME, listing.name),
                (TEXT, "2999" if listing.name == MANY_ITEMS else ""),
                (TAG, " ".join(listing.tags)),
                (TEXT, f"{listing.summary} {' '.join(common)}"),
                (TEXT, " ".join(f"{random.choice('abcdefghij')}{random.randrange(20_000):05}" for _ in range(60))),
            ]
        )
        document = Document(f"model/{listing.name}", "model", listing.title, listing.name, listing.page, words)
        summaries.append({"listing": listing.to_dict(), "search": document.to_dict(), "published": []})
        items = [Item("entry", word, f"{listing.page}#x") for word in common]
        if listing.name == MANY_ITEMS:
            items += [Item("parameter", f"layers.{n}.gate", f"{listing.page}#{n}") for n in range(3_000)]
        for path, data in item_files(document.key, items):
            (site / path).parent.mkdir(parents=True, exist_ok=True)
            (site / path).write_bytes(data)
    for path, data in site_files(summaries, {"search": []}, Site()):
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_bytes(data)
    return site


def search(page: Page, words: str) -> list[str]:
    """The titles that the search lists."""
    page.keyboard.press("Escape")
    page.get_by_role("searchbox", name="Search models").fill(words)
    page.locator("#found .status").filter(has_text="result").wait_for()
    return page.locator("#found .what").all_inner_texts()


@pytest.mark.browser
@pytest.mark.parametrize("query", ["finch-04999", "q", "at", "attention", "finch attention tag3", "q_norm wren"])
def test_a_first_result_of_ten_thousand_costs_little(browser: Browser, large: Path, query: str) -> None:
    page = browser.new_page()
    page.goto((large / "index.html").as_uri())
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    titles = search(page, query)
    assert titles
    paths = [Path(url.removeprefix("file://")) for url in asked]
    # The items within results follow the results; one of them is counted with the first.
    items = [path.stat().st_size for path in paths if "items" in path.parts]
    cost = sum(path.stat().st_size for path in paths if "items" not in path.parts) + max(items, default=0)
    assert cost <= FIRST_RESULT, f"{cost} bytes: {[path.name for path in paths]}"
    page.close()


@pytest.mark.browser
def test_what_is_in_a_later_file_is_found(browser: Browser, large: Path) -> None:
    page = browser.new_page()
    page.goto((large / "index.html").as_uri())
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    search(page, MANY_ITEMS)
    page.wait_for_load_state("networkidle")
    assert not [url for url in asked if "~" in url]
    search(page, f"{MANY_ITEMS} layers 2999")
    page.locator("#found code").filter(has_text="layers.2999.gate").wait_for()
    assert [url for url in asked if "~" in url]
    page.close()


@pytest.mark.browser
def test_the_right_model_of_ten_thousand_stands_first(browser: Browser, large: Path) -> None:
    page = browser.new_page()
    page.goto((large / "index.html").as_uri())
    assert search(page, "finch-04999") == ["Finch 4999"]
    assert search(page, "finch")[0].startswith("Finch ")
    assert page.locator("#found .status").inner_text() == "2,000 results"
    assert all(title.startswith("Finch ") for title in search(page, "attention finch"))
    page.get_by_role("searchbox", name="Search models").fill("nosuchword")
    page.get_by_text("Nothing begins with “nosuchword”.").wait_for()
    page.close()


@pytest.mark.browser
def test_the_catalogue_of_ten_thousand_filters(browser: Browser, large: Path) -> None:
    page = browser.new_page()
    page.goto((large / "index.html").as_uri())
    assert page.locator(".model").count() == 50
    page.get_by_role("checkbox", name="finch", exact=True).check()
    page.get_by_text("2,000 of 10,000 models").wait_for()
    page.get_by_label("Filter", exact=True).fill("finch-04999")
    page.get_by_text("1 of 10,000 models").wait_for()
    assert page.locator(".model h2").all_inner_texts() == ["Finch 4999"]
    page.close()
