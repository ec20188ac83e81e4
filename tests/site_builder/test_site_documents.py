"""What the site is made of besides the pages of models: catalogue, lists for machines, pictures for links."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
from PIL import Image

from linnet.site_builder.build import SiteReport, build_site
from linnet.site_builder.catalogue import NAMED_VALUES, PER_PAGE, catalogue_files, facets
from linnet.site_builder.collect import PackageSource, SiteError
from linnet.site_builder.feeds import FEED_ENTRIES, Publication, atom_feed, index_document, json_ld, sitemaps
from linnet.site_builder.guide import guide_files
from linnet.site_builder.listing import Listing, weight_format
from linnet.site_builder.paths import Site
from linnet.site_builder.share import HEIGHT, WIDTH, share_image

ATOM = "{http://www.w3.org/2005/Atom}"
SITEMAP = "{http://www.sitemaps.org/schemas/sitemap/0.9}"
SITE = Site("https://example.org/nest")
WREN = Listing(
    name="tiny-wren",
    title="Tiny Wren",
    summary="A model.",
    version="1.0.0",
    license="MIT",
    family="wren",
    tags=("tiny", "fp8"),
    parameters=3_400_000,
    weights="fp8",
    published="2026-01-31",
    results=(("Decoding", "238 tokens/s"),),
)


def schema(root: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root / "docs" / "schemas" / f"{name}.v1.schema.json").read_text())
    return found


def test_a_listing_comes_back() -> None:
    assert Listing.from_dict(json.loads(json.dumps(WREN.to_dict()))) == WREN


@pytest.mark.parametrize(
    ("parameters", "size"),
    [
        (0, "under 100M"),
        (10**8, "100M to 1B"),
        (10**9, "1B to 10B"),
        (10**10, "10B to 100B"),
        (10**11, "100B and more"),
    ],
)
def test_sizes(parameters: int, size: str) -> None:
    assert replace(WREN, parameters=parameters).size == size


def test_chips_stand_once() -> None:
    assert WREN.chips == ("wren", "MIT", "fp8", "tiny")


def parameter(dtype: str, elements: int, owner: str = "crate::Model", path: str = "a.weight") -> dict[str, Any]:
    return {"path": path, "dtype": dtype, "shape": [elements], "present": True, "owner": owner}


def test_the_format_of_most_weights() -> None:
    assert weight_format([parameter("bf16", 9), parameter("f32", 10)]) == "f32"
    quantised = [
        parameter("u8", 10, "std.quant::Fp8BlockLinear"),
        parameter("bf16", 9, "std.quant::Fp8BlockLinear", "a.scale"),
    ]
    assert weight_format(quantised) == "fp8"
    assert weight_format([parameter("u8", 10, "std.quant::Int4GroupLinear")]) == "int4"
    assert weight_format([{**parameter("f32", 10), "present": False}, parameter("bf16", 1)]) == "bf16"
    assert weight_format([]) == ""


def test_the_catalogue_is_cut_into_pages() -> None:
    listings = [replace(WREN, name=f"wren-{n:03}", title=f"Wren {n}") for n in range(2 * PER_PAGE + 1)]
    written = dict(catalogue_files(listings, Site()))
    assert set(written) == {"index.html", "page/2/index.html", "page/3/index.html", "catalogue/0.js"}
    titles = [re.findall(r"<bdi>(Wren \d+)</bdi>", written[page].decode()) for page in written if page.endswith("html")]
    assert [len(found) for found in titles] == [PER_PAGE, PER_PAGE, 1]
    assert [title for found in titles for title in found] == [listing.title for listing in listings]
    assert 'rel="next" href="../../page/3/index.html"' in written["page/2/index.html"].decode()
    assert 'rel="prev" href="../../index.html"' in written["page/2/index.html"].decode()


def test_facets_name_the_most_frequent_first() -> None:
    listings = [
        replace(WREN, name=f"w{n}", family=f"f{n % 300}", tags=("a",) if n % 2 else ("a", "b")) for n in range(600)
    ]
    found = {facet.key: facet for facet in facets(listings)}
    assert found["tag"].values == (("a", 600), ("b", 300))
    assert len(found["family"].values) == NAMED_VALUES
    assert found["size"].values == (("under 100M", 600),)
    assert found["family"].shown + found["family"].folded == found["family"].values


def test_the_index_keeps_its_schema(root: Path, shipped: SiteReport) -> None:
    written = json.loads((shipped.output / "index.json").read_text())
    jsonschema.validate(written, schema(root, "site-index"))
    jsonschema.validate(json.loads(index_document([WREN])), schema(root, "site-index"))
    assert len(written["models"]) > 1
    for model in written["models"]:
        assert (shipped.output / model["page"]).is_file()
        record = json.loads((shipped.output / model["record"]).read_text())
        jsonschema.validate(record, schema(root, "model"))
        assert record["name"] == model["name"]
        assert record["parameter_count"] == model["parameters"]


def test_the_feed_holds_the_newest_publications() -> None:
    publications = [
        Publication("a&b", "A <b>", "x & y", f"1.0.{n}", f"2026-01-{1 + n // 10:02}T00:00:0{n % 10}Z")
        for n in range(200)
    ]
    feed = ElementTree.fromstring(atom_feed(publications, SITE))
    entries = feed.findall(f"{ATOM}entry")
    assert len(entries) == FEED_ENTRIES
    first = {child.tag.removeprefix(ATOM): child for child in entries[0]}
    assert first["title"].text == "A <b> 1.0.199"
    assert first["link"].get("href") == "https://example.org/nest/models/a%26b/"
    assert feed.findtext(f"{ATOM}updated") == first["updated"].text == publications[-1].at
    assert len({entry.findtext(f"{ATOM}id") for entry in entries}) == FEED_ENTRIES


def test_a_feed_without_a_publication_is_a_feed() -> None:
    feed = ElementTree.fromstring(atom_feed([], SITE))
    assert feed.findtext(f"{ATOM}updated") == "1970-01-01T00:00:00Z"


def test_a_sitemap_too_long_is_several() -> None:
    assert list(sitemaps(["index.html"], SITE)) == ["sitemap.xml"]
    maps = sitemaps((f"{n}/index.html" for n in range(50_001)), SITE)
    top = ElementTree.fromstring(maps["sitemap.xml"])
    assert [item.text for item in top.iter(f"{SITEMAP}loc")] == [
        "https://example.org/nest/sitemap-1.xml",
        "https://example.org/nest/sitemap-2.xml",
    ]
    assert sum(len(ElementTree.fromstring(maps[f"sitemap-{n}.xml"])) for n in (1, 2)) == 50_001


def test_every_page_is_in_the_sitemap(whole: SiteReport) -> None:
    found = ElementTree.fromstring((whole.output / "sitemap.xml").read_bytes())
    addresses = {str(item.text) for item in found.iter(f"{SITEMAP}loc")}
    canonical = {
        address
        for path, _ in whole.pages
        for address in re.findall(r'<link rel="canonical" href="([^"]+)"', (whole.output / path).read_text("utf-8"))
    }
    assert canonical == addresses
    assert len(addresses) == len(whole.pages)


def test_a_model_is_described_to_search_engines() -> None:
    hostile = replace(WREN, title="</script><script>alert(1)</script>\u2028")
    text = str(json_ld(hostile, SITE))
    assert "<" not in text
    assert "\u2028" not in text
    value = json.loads(text)
    assert value["name"] == hostile.title
    assert value["url"] == "https://example.org/nest/models/tiny-wren/"
    assert value["license"] == "https://spdx.org/licenses/MIT.html"


def test_pages_name_their_picture(whole: SiteReport) -> None:
    page = (whole.output / "models/gpt2/history/index.html").read_text(encoding="utf-8")
    (address,) = re.findall(r'<meta property="og:image" content="https://example.org/nest/([^"]+)"', page)
    image = Image.open(io.BytesIO((whole.output / address).read_bytes()))
    assert (image.format, image.size) == ("PNG", (WIDTH, HEIGHT))


@pytest.mark.parametrize(
    ("title", "summary"),
    [("Tiny Wren", "A model."), ("x" * 400, "y " * 4000), ("", ""), ("日本語", "\u202eabc"), ("a\x00b", "c")],
)
def test_a_picture_is_drawn_of_anything(title: str, summary: str) -> None:
    data = share_image(title, summary, ("8.2B parameters", "", "日本語"), "tiny-wren")
    image = Image.open(io.BytesIO(data))
    assert image.size == (WIDTH, HEIGHT)
    assert len(image.convert("RGB").getcolors(1 << 16) or []) > 2
    assert len(data) < 60_000
    assert data == share_image(title, summary, ("8.2B parameters", "", "日本語"), "tiny-wren")


def test_a_title_in_other_letters_gives_way_to_the_name() -> None:
    assert share_image("日本語", "", (), "tiny-wren") == share_image("tiny-wren", "", ())


def test_without_an_address_there_is_no_feed(
    make_package: Callable[..., PackageSource], build: Callable[..., SiteReport]
) -> None:
    report = build(make_package())
    for name in ("feed.xml", "sitemap.xml", "share.png"):
        assert not (report.output / name).exists()
    assert "og:" not in (report.output / "index.html").read_text(encoding="utf-8")


def test_a_folder_that_holds_no_guide_is_refused(make_package: Callable[..., PackageSource], tmp_path: Path) -> None:
    with pytest.raises(SiteError, match="holds no guide; build it with mkdocs build -d"):
        list(guide_files(tmp_path, Site()))
    with pytest.raises(SiteError, match="holds no guide"):
        build_site([make_package()], tmp_path / "site", guide=tmp_path / "none")
