"""Building again: what is drawn, what is kept, and that nobody can tell how it was done."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from linnet.registry import processes
from linnet.registry.errors import PackageError
from linnet.site_builder import state
from linnet.site_builder.build import MARKER, SiteReport, build_site
from linnet.site_builder.collect import PackageSource, SiteError
from linnet.site_builder.sources import FolderSource, folder_sources

NAMES = ("big-wren", "small-wren", "tiny-wren")


@pytest.fixture
def nests(make_package: Callable[..., PackageSource], tmp_path: Path) -> Path:
    """Three packages that check."""
    for name in NAMES:
        readme = "# Tiny Wren\n\nLike [the big one](../big-wren) and [a rare one](../rare-wren).\n"
        make_package(name, {"README.md": readme})
    return tmp_path / "nests"


def build(nests: Path, **settings: object) -> SiteReport:
    return build_site(folder_sources(nests), nests.parent / "site", **settings)  # type: ignore[arg-type]


def tree(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_only_what_changed_is_drawn(nests: Path) -> None:
    assert build(nests).rendered == NAMES
    before = tree(nests.parent / "site")
    assert build(nests).rendered == ()
    assert tree(nests.parent / "site") == before
    readme = nests / "small-wren" / "README.md"
    readme.write_text(readme.read_text(encoding="utf-8") + "\nMore.\n", encoding="utf-8")
    report = build(nests)
    assert report.rendered == ("small-wren",)
    after = tree(nests.parent / "site")
    assert {path.split("/")[1] for path in after if path.startswith("models/") and before[path] != after[path]} == {
        "small-wren"
    }
    assert len(report.pages) == sum(path.endswith(".html") for path in after)


def test_nobody_can_tell_how_a_site_was_built(nests: Path, tmp_path: Path) -> None:
    build(nests)
    readme = nests / "small-wren" / "README.md"
    readme.write_text(readme.read_text(encoding="utf-8") + "\nMore.\n", encoding="utf-8")
    shutil.move(nests / "tiny-wren", tmp_path / "tiny-wren")
    build(nests)
    shutil.move(tmp_path / "tiny-wren", nests / "tiny-wren")
    build(nests)
    kept = tree(nests.parent / "site")
    assert build(nests, fresh=True).rendered == NAMES
    assert tree(nests.parent / "site") == kept
    build_site(folder_sources(nests), tmp_path / "elsewhere", jobs=2)
    assert tree(tmp_path / "elsewhere") == kept


def test_what_is_gone_goes(nests: Path) -> None:
    build(nests)
    shutil.rmtree(nests / "big-wren")
    report = build(nests)
    # Two READMEs linked to it, and show its name as text now.
    assert report.rendered == ("small-wren", "tiny-wren")
    assert sorted(path.name for path in (nests.parent / "site" / "models").iterdir()) == ["small-wren", "tiny-wren"]
    assert report.ok
    assert sorted({link.target for link in report.unresolved}) == ["../big-wren", "../rare-wren"]


def test_a_model_that_comes_is_linked(nests: Path, make_package: Callable[..., PackageSource]) -> None:
    build(nests)
    make_package("rare-wren")
    report = build(nests)
    assert report.rendered == ("big-wren", "rare-wren", "small-wren", "tiny-wren")
    assert '<a href="../rare-wren/index.html">a rare one</a>' in (
        nests.parent / "site/models/tiny-wren/index.html"
    ).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "harm", ["a page is gone", "a page is cut", "another marker", "nothing is known", "other code"]
)
def test_a_site_that_is_not_the_one_that_is_known_is_made_anew(
    nests: Path, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    report = build(nests)
    before = tree(report.output)
    page = report.output / "models/tiny-wren/index.html"
    if harm == "a page is gone":
        page.unlink()
    elif harm == "a page is cut":
        page.write_bytes(page.read_bytes()[:100])
    elif harm == "another marker":
        (report.output / MARKER).write_bytes(state.marker_text("0" * 64))
    elif harm == "nothing is known":
        for path in (Path(os.environ["LINNET_CACHE"]) / "sites").iterdir():
            path.write_text("{}", encoding="utf-8")
    else:
        monkeypatch.setattr(state, "site_code", lambda: "other")
    assert build(nests).rendered == NAMES
    assert {path: data for path, data in tree(report.output).items() if path != MARKER} == {
        path: data for path, data in before.items() if path != MARKER
    }


def test_all_files_are_listed_a_few_times_however_many_they_are(nests: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(nests)
    listed: list[int] = []
    files = state.State.files

    def counted(self: state.State) -> dict[str, int]:
        found = files(self)
        listed.append(len(found))
        return found

    monkeypatch.setattr(state.State, "files", counted)
    (nests / "tiny-wren" / "README.md").write_text("# Another\n", encoding="utf-8")
    assert build(nests).rendered == ("tiny-wren",)
    assert min(listed) > 50
    assert len(listed) < 8


def test_other_settings_draw_all_again(nests: Path) -> None:
    build(nests)
    assert build(nests, base_url="https://example.org/nest").rendered == NAMES
    assert build(nests, base_url="https://example.org/nest").rendered == ()


def test_all_that_is_wrong_is_told_together_and_nothing_is_written(nests: Path) -> None:
    before = tree(build(nests).output)
    for name in NAMES[:2]:
        (nests / name / "src" / "lib.linnet").write_text("module wren\n\nlet\n", encoding="utf-8")
    for jobs in (1, 2):
        with pytest.raises(PackageError) as raised:
            build(nests, jobs=jobs)
        assert {problem.where.partition(":")[0] for problem in raised.value.problems} == set(NAMES[:2])
    assert tree(nests.parent / "site") == before


def test_a_process_that_dies_is_told(nests: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = processes.start_process
    monkeypatch.setattr(processes, "start_process", lambda module: _killed(start, module))
    with pytest.raises(SiteError, match=r"The process that drew .*-wren ended with -9; if memory is short, take fewer"):
        build(nests, jobs=2)
    assert [path.name for path in nests.parent.iterdir()] == ["nests"]


def _killed(start: Callable[[str], object], module: str) -> object:
    process = start(module)
    process.kill()  # type: ignore[attr-defined]
    return process


def test_strict_refuses_and_leaves_the_old_site(nests: Path) -> None:
    before = tree(build(nests).output)
    card = nests / "tiny-wren" / "nest.toml"
    card.write_text(card.read_text(encoding="utf-8").replace('"MIT"', '"other"'), encoding="utf-8")
    report = build(nests, strict=True)
    assert not report.ok
    assert {(problem.page, problem.target) for problem in report.problems} == {
        ("models/tiny-wren/index.html", "other"),
        *((f"models/{name}/index.html", "../rare-wren") for name in NAMES),
    }
    assert tree(nests.parent / "site") == before
    for name in NAMES:
        (nests / name / "README.md").write_text("# Tiny Wren\n", encoding="utf-8")
    card.write_text(card.read_text(encoding="utf-8").replace('"other"', '"LicenseRef-mine"'), encoding="utf-8")
    assert build(nests, strict=True).ok


def test_strict_weighs_pages(nests: Path) -> None:
    sections = "\n\n".join(f"## Section {n}\n\n{'word ' * 40}" for n in range(200))
    (nests / "tiny-wren" / "README.md").write_text(f"# Tiny Wren\n\n{sections}\n", encoding="utf-8")
    tags = ", ".join(f'"{"t" * 60}{n}"' for n in range(40))
    card = nests / "tiny-wren" / "nest.toml"
    card.write_text(card.read_text(encoding="utf-8").replace('["tiny", "test"]', f"[{tags}]"), encoding="utf-8")
    report = build(nests)
    # A README that would be too much is cut, and leads to all of it.
    page = (report.output / "models/tiny-wren/index.html").read_text(encoding="utf-8")
    assert len(page) < 150_000


def test_a_folder_that_nothing_can_stand_for_is_drawn_each_time(nests: Path) -> None:
    source = next(source for source in folder_sources(nests) if source.name == "tiny-wren")
    assert isinstance(source, FolderSource)
    assert source.key is not None
    (nests / "tiny-wren" / "__pycache__").mkdir()
    build(nests)
    assert build(nests).rendered == ("tiny-wren",)


def test_what_is_known_is_data(nests: Path) -> None:
    report = build(nests)
    place = next(iter(_states(report.output)))
    found = json.loads(place.read_text(encoding="utf-8"))
    assert set(found["parts"]) == {*NAMES, "std:"}


def _states(output: Path) -> Iterator[Path]:
    marker = (output / MARKER).read_text(encoding="utf-8").split()[-1]
    for path in (Path(os.environ["LINNET_CACHE"]) / "sites").iterdir():
        if state.hashlib.sha256(path.read_bytes()).hexdigest() == marker:
            yield path
