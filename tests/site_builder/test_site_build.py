"""The site as a whole: what is written, where, and what is refused."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from linnet.registry.errors import PackageError
from linnet.registry.package import human_size
from linnet.site_builder import build as build_module
from linnet.site_builder.build import MARKER, SiteReport, build_site
from linnet.site_builder.collect import PackageSource, SiteError, collect_model
from linnet.site_builder.worker import PAGE_BYTES, is_weighed

SOURCE = (
    Path(__file__).with_name("conftest.py").read_text(encoding="utf-8").partition('SOURCE = """')[2].partition('"""')[0]
)
Make = Callable[..., PackageSource]
Build = Callable[..., SiteReport]


def page_of(report: SiteReport, tab: str = "", name: str = "tiny-wren") -> str:
    return (report.output / "models" / name / tab / "index.html").read_text(encoding="utf-8")


def tree(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_head_that_a_readme_has_for_the_hub_is_not_shown(make_package: Make, build: Build) -> None:
    page = page_of(build(make_package(files={"README.md": "---\nlicense: mit\n---\n\n# Tiny wren\n\nSings.\n"})))
    assert "<p>Sings.</p>" in page
    assert "license: mit" not in page


def test_as_many_files_are_listed_as_are_counted(make_package: Make, build: Build) -> None:
    page = page_of(build(make_package()), "files")
    listed = page.partition("<tbody>")[2].partition("</tbody>")[0]
    assert f"{listed.count('<tr>')} files · " in page
    assert '<code>model.safetensors</code></a></th><td class="right"><span class="why">at its host</span>' in listed


def test_a_package_is_loaded_by_what_finds_it(make_package: Make) -> None:
    assert collect_model(make_package("tiny-wren")).package == "nests/tiny-wren"
    assert collect_model(make_package("qwen3-8b")).package == "qwen3-8b"


def test_tensors_that_are_absent_are_counted_apart(make_package: Make, build: Build) -> None:
    source = make_package()
    assert "in 2 tensors, 256 B. <a" in page_of(build(source), "parameters")
    source.record["parameters"][1].update(optional=True, present=False)
    report = build(source)
    page = page_of(report, "parameters")
    assert "in 1 tensor, 128 B, and 1 optional that is absent. <a" in page
    rows = [line for line in page.partition('id="parameter-table"')[2].splitlines() if line.startswith("<tr><th")]
    assert [row.count('<td class="right">—</td>') for row in rows] == [0, 3]
    every = page_of(report, "parameters/all")
    assert "1 parameter, and 1 optional that is absent, in the order of the source." in every
    assert [row.count('<td class="right">—</td>') for row in every.splitlines() if row.startswith("<tr id")] == [0, 1]


def test_a_model_has_these_pages(make_package: Make, build: Build) -> None:
    report = build(make_package("tiny-wren"), make_package("big-wren"))
    pages = [name.removeprefix("models/tiny-wren/") for name, _ in report.pages if name.startswith("models/tiny-wren/")]
    assert pages == [
        "architecture/index.html",
        "benchmarks/index.html",
        "entries/index.html",
        "files/index.html",
        "history/index.html",
        "index.html",
        "parameters/all/index.html",
        "parameters/index.html",
        "source/README.md.html",
        "source/bindings.json.html",
        "source/index.html",
        "source/nest.toml.html",
        "source/src/lib.linnet.html",
    ]
    files = tree(report.output)
    assert files["models/tiny-wren/files/raw/src/lib.linnet.txt"] == SOURCE.encode()
    assert {".nest-site", "index.html", "models/big-wren/index.html", "static/site.css", "std/index.html"} <= set(files)
    assert report.ok
    assert report.problems == ()


def test_the_model_pages_say_what_the_package_says(make_package: Make, build: Build) -> None:
    source = make_package()
    report = build(source)
    size = sum(file["size"] for file in source.record["files"])
    said = {
        "": (
            "<h1><bdi>Tiny Wren</bdi></h1>",
            "maps tokens to tokens &amp; nothing more.",
            "<li><bdi>128 parameters</bdi></li>",
            "<li><bdi>MIT</bdi></li>",
            'href="https://github.com/example/wren" rel="noopener noreferrer">GitHub</a>',
            '<a href="model.json">Registry entry</a>',
            '<a href="https://spdx.org/licenses/MIT.html" rel="license noopener noreferrer">MIT</a>',
            '<a href="source/src/lib.linnet.html#L3">the source</a>',
            '<a href="#readme-loading">loading</a>',
            '<span class="s">"fast"</span>',
        ),
        "architecture": ('aria-label="The entry forward of Tiny Wren"', "[B, 64]"),
        "parameters": ("<code>layers.{0..1}.weight</code>", "100.0%"),
        "entries": (
            '<section class="entry" id="entry-forward"',
            "<code>Tensor[B, 64; bf16]</code></td><td><code>Tensor[B, H; T]</code>",
            '<a class="to-source" href="../source/src/lib.linnet.html#L7">source</a>',
        ),
        "files": (
            f"5 files · {human_size(size)} in the registry",
            "https://huggingface.co/example/wren/blob/0123456789abcdef0123456789abcdef01234567/model.safetensors",
        ),
        "history": ("1 version, newest first", "<code>1.2.0</code>"),
        "benchmarks": ("Nothing was measured yet.",),
    }
    for tab, texts in said.items():
        page = page_of(report, tab)
        for text in texts:
            assert text in page, (tab, text)
    assert [link.target for link in report.unresolved] == ["#loading"]  # a doc comment has no headings of the README


def test_names_lead_to_their_definitions(make_package: Make, build: Build) -> None:
    report = build(make_package())
    page = (report.output / "models/tiny-wren/source/src/lib.linnet.html").read_text(encoding="utf-8")
    assert '<span data-type="block Model&lt;H, T&gt;">' in page
    assert '<a href="#L5" data-type="param weight: Tensor[H; T] = Tensor[64; bf16]">weight</a>' in page
    assert '<a href="#L4" data-type="H: Dim = 64"><span class="t">H</span></a>' in page


def test_files_stand_in_order(make_package: Make, build: Build) -> None:
    page = page_of(build(make_package(files={"src/a/b.linnet": "", "src/z.linnet": "", "LICENSE": "MIT\n"})), "files")
    assert re.findall(r'<th scope="row"><a href="[^"]*"><code>([^<]+)', page) == [
        "README.md",
        "LICENSE",
        "bindings.json",
        "nest.toml",
        "src/lib.linnet",
        "src/z.linnet",
        "src/a/b.linnet",
    ]


def test_the_registry_entry_is_the_record(make_package: Make, build: Build) -> None:
    source = make_package()
    report = build(source)
    assert json.loads((report.output / "models/tiny-wren/model.json").read_text(encoding="utf-8")) == source.record


def test_two_builds_are_byte_identical(make_package: Make, tmp_path: Path) -> None:
    one, two = make_package("tiny-wren"), make_package("big-wren")
    build_site([one, two], tmp_path / "first")
    build_site([two, one], tmp_path / "second")
    assert tree(tmp_path / "first") == tree(tmp_path / "second")


def test_building_again_replaces_the_whole_site(make_package: Make, build: Build) -> None:
    report = build(make_package("tiny-wren"), make_package("big-wren"))
    build(make_package("tiny-wren"))
    assert not (report.output / "models/big-wren").exists()
    assert [path.name for path in report.output.parent.iterdir() if path.name.startswith(".")] == []


def test_an_empty_folder_is_filled(make_package: Make, build: Build, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    assert build(make_package()).ok


def test_no_packages_are_a_page_that_says_so(build: Build) -> None:
    report = build()
    assert "No model has been published here yet." in (report.output / "index.html").read_text(encoding="utf-8")


def test_a_folder_that_is_no_site_is_left_alone(make_package: Make, tmp_path: Path) -> None:
    output = tmp_path / "home"
    output.mkdir()
    (output / "thesis.txt").write_text("years", encoding="utf-8")
    with pytest.raises(SiteError, match="is not empty and holds no site; name another folder with -o, or empty it"):
        build_site([make_package()], output)
    assert tree(output) == {"thesis.txt": b"years"}


def test_a_file_is_left_alone(make_package: Make, tmp_path: Path) -> None:
    output = tmp_path / "site"
    output.write_text("text", encoding="utf-8")
    with pytest.raises(SiteError, match="is not a folder; name another with -o"):
        build_site([make_package()], output)
    assert output.read_text(encoding="utf-8") == "text"


def test_a_failed_build_leaves_the_old_site(make_package: Make, build: Build) -> None:
    source = make_package()
    report = build(source)
    before = tree(report.output)
    (source.folder / "src/lib.linnet").write_text("changed", encoding="utf-8")
    with pytest.raises(SiteError, match=r"lib\.linnet is not the file that was indexed; build the index again"):
        build(source)
    assert tree(report.output) == before
    assert sorted(path.name for path in report.output.parent.iterdir()) == ["nests", "site"]


@pytest.mark.parametrize("failing_move", [1, 4, 9])
def test_a_failed_exchange_leaves_the_old_site(
    make_package: Make, build: Build, monkeypatch: pytest.MonkeyPatch, failing_move: int
) -> None:
    report = build(make_package("tiny-wren"), make_package("small-wren"))
    before = tree(report.output)
    rename, calls = os.rename, []

    def failing(source: Any, target: Any) -> None:
        calls.append(target)
        if len(calls) == failing_move:
            raise OSError(28, "No space left on device")
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(build_module.os, "rename", failing)
        with pytest.raises(OSError, match="No space left"):
            build(make_package("big-wren"))
    assert tree(report.output) == before
    assert sorted(path.name for path in report.output.parent.iterdir()) == ["nests", "site"]
    build(make_package("big-wren"))
    assert sorted(path.name for path in (report.output / "models").iterdir()) == ["big-wren"]


def test_two_packages_of_one_name_are_refused(make_package: Make, build: Build) -> None:
    source = make_package()
    with pytest.raises(SiteError, match='Two packages have the name "tiny-wren"; give each its own'):
        build(source, source)


def test_a_name_that_is_no_name_is_refused(make_package: Make, build: Build) -> None:
    source = make_package()
    source.record["card"]["model"]["name"] = "../../evil"
    with pytest.raises(SiteError, match="rename the package"):
        build(source)


def test_a_base_url_that_is_none_is_refused(make_package: Make, tmp_path: Path) -> None:
    with pytest.raises(SiteError, match="is not an http or https address"):
        build_site([make_package()], tmp_path / "site", base_url="example.org")


def test_a_base_url_makes_canonical_links(make_package: Make, tmp_path: Path) -> None:
    report = build_site([make_package()], tmp_path / "site", base_url="https://example.org/nest/")
    assert report.ok
    assert '<link rel="canonical" href="https://example.org/nest/models/tiny-wren/">' in page_of(report)


@pytest.mark.parametrize("path", ["../outside.txt", "/etc/hostname", "a\0b", "C:/x"])
def test_a_record_cannot_name_files_outside(make_package: Make, path: str) -> None:
    source = make_package()
    source.record["files"].append({"path": path, "size": 3, "sha256": "0" * 64})
    with pytest.raises(PackageError):
        collect_model(source)


def test_files_that_are_no_text_or_too_large_are_named_only(make_package: Make, build: Build) -> None:
    report = build(make_package(files={"logo.bin": b"\xff\xfe\x00", "big.txt": "x" * ((1 << 20) + 1)}))
    page = page_of(report, "files")
    for name, size, why in (("logo.bin", "3 B", "Not text."), ("big.txt", "1.0 MiB", "Too large to show here.")):
        row = next(line for line in page.splitlines() if f"<code>{name}</code>" in line)
        assert f'<td class="right">{size}</td>' in row
        assert f'<span class="why">{why}</span>' in row
        assert not (report.output / f"models/tiny-wren/files/raw/{name}.txt").exists()


def test_hostile_packages_render_harmless(make_package: Make, build: Build) -> None:
    evil = '"><script>alert(1)</script>'
    source = make_package(
        files={
            "README.md": f"# {evil}\n\n[x](javascript:alert(1))\n\n![x](https://evil.example/x.png)\n",
            "src/evil.linnet": f"// {evil} \u202e\n",
            "files": "a name of the page's own\n",
            "content": "and another\n",
        }
    )
    model = source.record["card"]["model"]
    model.update(title=evil + "\u202e", summary=evil, license=evil, family=evil, tags=[evil])
    source.record["card"]["links"] = {"homepage": "javascript:alert(1)", "github": f"https://example.org/{evil}"}
    source.record["card"]["weights"].update(repo=f"x/{evil}", revision=evil, files=[evil])
    source.record["card"]["generics"] = {evil: evil}
    source.record["entries"] = [{"name": evil, "signature": evil, "doc": evil}]
    source.record["parameters"][0].update(path=evil, dtype=evil, kind=evil)
    report = build(source)
    assert report.problems == ()
    for path in report.output.rglob("*.html"):
        html = path.read_text(encoding="utf-8")
        assert html.count("<script") - html.count('<script type="application/ld+json">') == 1, (
            "only the page's own script"
        )
        assert "javascript:" not in re.findall(r'href="([^":]*:?)', html)
        assert "<img" not in html
        assert "\u202e" not in html


def test_pages_stay_small(make_package: Make, build: Build) -> None:
    report = build(make_package())
    assert {path: size for path, size in report.pages if size > PAGE_BYTES and is_weighed(path)} == {}


def test_only_the_site_is_asked(make_package: Make, build: Build) -> None:
    report = build(make_package())
    for path in report.output.rglob("*.html"):
        html = path.read_text(encoding="utf-8")
        loaded = re.findall(r'(?:src|srcset)="([^"]+)"', html) + re.findall(
            r'<link rel="(?!canonical)[^>]*href="([^"]+)"', html
        )
        assert loaded
        assert all(re.fullmatch(r"(\.\./)*static/[a-z.]+", target) for target in loaded)
        assert "default-src 'none'" in html
    css = (report.output / "static/site.css").read_text(encoding="utf-8")
    assert "url(" not in css
    assert "@import" not in css


def test_the_marker_names_the_command(make_package: Make, build: Build) -> None:
    assert "nest site build" in (build(make_package()).output / MARKER).read_text(encoding="utf-8")
