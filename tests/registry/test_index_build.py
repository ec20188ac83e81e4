"""The index of many packages: the same bytes however it is made, only what changed made anew, damage noticed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hub_server import write_sparse
from tiny_package import CARD, COMMIT, SOURCE, TENSORS, MakePackage

from linnet.language.check import load
from linnet.registry import index_worker
from linnet.registry.contents import code_digest, contents, source_digest
from linnet.registry.errors import PackageError
from linnet.registry.index import index_bytes, index_text, package_record, record_bytes
from linnet.registry.index_build import crawl, index_records
from linnet.registry.index_pool import make_records
from linnet.registry.index_worker import Job, RecordMaker
from linnet.registry.locate import Located
from linnet.registry.record_cache import DamagedError, RecordCache, open_cache

NAMES = ("c-model", "a-model", "b-model", "d-model")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("LINNET_CACHE", str(folder))
    return folder


@pytest.fixture
def nests(make_package: MakePackage, tmp_path: Path) -> Path:
    """Four packages, two of which have another source than the others."""
    package = make_package()
    folder = tmp_path / "nests"
    for number, name in enumerate(NAMES):
        shutil.copytree(package, folder / name)
        (folder / name / "nest.toml").write_text(CARD.replace('"tiny"', f'"{name}"'))
        if number % 2:
            (folder / name / "src" / "lib.linnet").write_text(SOURCE.replace("One linear", "Its linear"))
    return folder


def build(roots: list[Path | str], output: Path, processes: int | None = None, cache: bool = True) -> tuple[int, bytes]:
    """How many records were made, and the index."""
    with crawl(roots, processes=processes, cache=cache) as found:
        assert found.problems == []
        found.write(output)
    return found.made, output.read_bytes()


def entries(cache: Path) -> list[Path]:
    return sorted(path for path in cache.rglob("[!.]*") if path.is_file())


def test_the_bytes_do_not_depend_on_how_they_were_made(nests: Path, tmp_path: Path) -> None:
    records = [package_record(nests / name) for name in sorted(NAMES)]
    plain = index_text({"schema": 1, "packages": records}).encode()
    output = tmp_path / "index.json"
    assert build([nests], output, processes=1, cache=False) == (4, plain)
    assert build([nests], output, processes=3, cache=False) == (4, plain)
    assert build([nests], output, processes=2) == (4, plain)
    assert build([nests], output, processes=1) == (0, plain)
    assert build([nests / "d-model", nests], output) == (0, plain)
    assert index_records([nests]) == records


def test_an_index_of_nothing_and_of_one() -> None:
    assert b"".join(index_bytes([])).decode() == index_text({"schema": 1, "packages": []})
    record = {"name": "é\nb", "files": [], "generics": {}}
    assert b"".join(index_bytes([record_bytes(record)])).decode() == index_text({"schema": 1, "packages": [record]})


def test_only_what_changed_is_made_again(nests: Path, tmp_path: Path, cache: Path) -> None:
    output = tmp_path / "index.json"
    assert build([nests], output)[0] == 4
    (nests / "a-model" / "README.md").write_text("# Changed\n")
    os.utime(nests / "b-model" / "nest.toml")
    assert build([nests], output)[0] == 1
    records = {record["name"]: record for record in json.loads(output.read_bytes())["packages"]}
    assert records["a-model"]["files"] == package_record(nests / "a-model")["files"]
    assert len(entries(cache)) == 5


def test_every_kind_of_change_is_noticed(make_package: MakePackage, tmp_path: Path) -> None:
    def digest() -> str:
        found = contents(Located(package))
        assert found is not None
        return found.digest

    package = make_package(tensors=[("layer.weight", "F32", (4, 4)), ("bias", "F32", (4,))])
    seen = {digest()}
    weights = package / "model.safetensors"
    changes = [
        lambda: (package / "README.md").write_text("# Tinier\n"),
        lambda: (package / "bindings.json").write_text("{}"),
        lambda: (package / "notes.txt").write_text(""),
        lambda: (package / "notes.txt").rename(package / "other.txt"),
        lambda: (package / "src" / "more.linnet").write_text("module more\n"),
        # The record depends on a header, and on the size: never on the weights themselves.
        lambda: write_sparse(weights, [("layer.weight", "F32", (4, 4))]),
        lambda: os.truncate(weights, weights.stat().st_size - 1),
        weights.unlink,
    ]
    for change in changes:
        change()
        assert digest() not in seen
        seen.add(digest())
    copy = tmp_path / "renamed"
    shutil.copytree(package, copy)
    names = {found.digest for found in (contents(Located(copy)), contents(Located(copy, "a/b", COMMIT))) if found}
    assert len(names) == 2
    assert not names & seen


def test_bytes_of_weights_are_not_read(make_package: MakePackage) -> None:
    package = make_package()
    before = contents(Located(package))
    with (package / "model.safetensors").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\1")
    assert contents(Located(package)) == before
    # Under a name that the card does not give it is a file like others.
    shutil.copy(package / "model.safetensors", package / "extra.safetensors")
    first = contents(Located(package))
    with (package / "extra.safetensors").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\2")
    assert contents(Located(package)) != first


@pytest.mark.parametrize(
    "spoil",
    [
        lambda package: (package / "link.md").symlink_to(package / "README.md"),
        lambda package: os.mkfifo(package / "pipe"),
        lambda package: (package / "nest.toml").unlink(),
        lambda package: (package / "node_modules").mkdir(),
        lambda package: (package / "nest.toml").write_text(CARD.replace("src/lib", "src/.lib")),
        lambda package: (package / "nest.toml").write_text(CARD.replace("src/lib", "src/\\u002elib")),
        lambda package: (package.parent / "linnet.toml").write_text(""),
        lambda package: os.truncate(package / "README.md", (64 << 20) + 1),
        lambda package: (package / "model.safetensors").write_bytes(b"\xff" * 8),
        lambda package: shutil.rmtree(package),
    ],
)
def test_what_no_digest_stands_for(make_package: MakePackage, spoil: object) -> None:
    package = make_package()
    assert contents(Located(package)) is not None
    assert callable(spoil)
    spoil(package)
    assert contents(Located(package)) is None


def test_a_package_that_no_digest_stands_for_is_indexed_each_time(nests: Path, tmp_path: Path) -> None:
    (nests / "a-model" / "link.md").symlink_to("README.md")
    first = build([nests], tmp_path / "index.json")
    assert first[0] == 4
    assert build([nests], tmp_path / "index.json", processes=2) == (1, first[1])


def test_a_source_is_checked_once(nests: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[Path] = []

    def counted(path: Path) -> object:
        checked.append(path)
        return load(path)

    for name in NAMES:
        manifest = f'[package]\nname = "{name}"\nversion = "{len(checked)}.0.0"\nlanguage = "0.1"\n'
        (nests / name / "linnet.toml").write_text(manifest)
    monkeypatch.setattr(index_worker, "load", counted)
    shared = build([nests], tmp_path / "index.json", processes=1)
    assert shared[0] == 4
    assert len(checked) == 2
    monkeypatch.undo()
    assert index_text({"schema": 1, "packages": [package_record(nests / name) for name in sorted(NAMES)]}) == (
        shared[1].decode()
    )


def test_packages_share_a_program_only_where_the_source_is_the_same(make_package: MakePackage) -> None:
    def digest() -> str:
        package = Located(make_package())
        found = contents(package)
        assert found is not None
        return source_digest(package, found)

    folder, head = make_package(), '[package]\nname = "tiny"\n'
    seen = {digest()}
    (folder / "README.md").write_text("# Other\n")
    assert digest() in seen
    (folder / "linnet.toml").write_text(f'{head}version = "1.0.0"\nlanguage = "0.1"\n')
    assert digest() not in seen
    seen.add(digest())
    (folder / "linnet.toml").write_text('[package]\nname = "else"\nversion = "2.0.0"\nlanguage = "0.1"\n')
    assert digest() in seen
    # What the checker judges counts: a name that is none, another language, a dependency, a broken file.
    for text in (
        '[package]\nname = ""\nversion = "1.0.0"\nlanguage = "0.1"\n',
        f'{head}version = "1.0.0"\nlanguage = "0.2"\n',
        f'{head}version = "1.0.0"\nlanguage = "0.1"\n[dependencies]\nother = {{ path = "src" }}\n',
        f"{head}version = 1979-05-27\n",
        "[package",
        "package = 1",
    ):
        (folder / "linnet.toml").write_text(text)
        assert digest() not in seen, text
        seen.add(digest())


def test_a_damaged_entry_is_noticed_and_made_again(nests: Path, tmp_path: Path, cache: Path) -> None:
    output = tmp_path / "index.json"
    _, good = build([nests], output)
    files = entries(cache)
    whole = [file.read_bytes() for file in files]
    for damaged in (b"", whole[0][:-1], whole[0].replace(b"MIT", b"GPL"), whole[1], b"\xff\n", b"linnet-record-1\n{}"):
        files[0].write_bytes(damaged)
        with crawl([nests]) as found:
            found.write(output)
        assert (found.damaged, output.read_bytes()) == (1, good)
        assert [file.read_bytes() for file in files] == whole


def test_a_cache_entry_is_whole_or_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = RecordCache(tmp_path)
    records.write("ab12", b"text\nmore\n")
    assert records.read("ab12") == b"text\nmore\n"
    assert records.read("ab13") is None

    def full(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        records.write("ab14", b"text")
    monkeypatch.undo()
    assert [path.name for path in entries(tmp_path)] == ["ab12"]
    shutil.copy(records.path("ab12"), records.path("ab15"))
    with pytest.raises(DamagedError):
        records.read("ab15")
    assert not records.has("ab15")


def test_other_code_has_other_records(tmp_path: Path) -> None:
    old, new = open_cache(tmp_path, "1" * 64), open_cache(tmp_path, "2" * 64)
    old.write("ab", b"text")
    assert new.read("ab") is None
    open_cache(tmp_path, "2" * 64)
    assert old.read("ab") == b"text"
    os.utime(old.folder, (time.time() - 31 * 24 * 3600,) * 2)
    open_cache(tmp_path, "2" * 64)
    assert not old.folder.exists()
    assert len(code_digest()) == 64


def test_a_cache_that_cannot_be_written_costs_nothing_but_time(nests: Path, tmp_path: Path, cache: Path) -> None:
    cache.write_text("a file where the folder should be")
    output = tmp_path / "index.json"
    assert build([nests], output)[0] == 4
    assert build([nests], output)[0] == 4


def test_problems_of_all_packages_are_told_the_same_way(nests: Path, tmp_path: Path) -> None:
    (nests / "a-model" / "README.md").write_text("")
    (nests / "b-model" / "src" / "lib.linnet").write_text(SOURCE.replace("none => y", "none => z"))
    shutil.copytree(nests / "c-model", tmp_path / "more" / "c-model")
    told = []
    for processes, cache in ((1, False), (2, False), (2, True), (1, True)):
        with crawl([nests, tmp_path / "more", tmp_path / "none"], processes=processes, cache=cache) as found:
            told.append([str(problem) for problem in found.problems])
            assert sorted(found.jobs) == ["c-model", "d-model"]
            assert [json.loads(text)["name"] for text in found.records()] == ["c-model", "d-model"]
    assert told[0] == told[1] == told[2] == told[3]
    starts = [text.replace(f"{tmp_path}/", "")[:52] for text in told[0]]
    assert starts[0].startswith("none does not exist.")
    assert starts[1].startswith("a-model: README.md is empty.")
    assert starts[2].startswith("b-model: src/lib.linnet:")
    assert starts[3].startswith("c-model: more/c-model and nests/c-model are both")
    with pytest.raises(PackageError):
        index_records([nests])


def test_a_package_that_changes_meanwhile_is_told(make_package: MakePackage, tmp_path: Path) -> None:
    package = make_package()
    found = contents(Located(package))
    assert found is not None
    job = Job(str(package), None, None, found.digest, str(tmp_path / "records"), found.digest)
    (package / "README.md").write_text("# Changed\n")
    assert [problem.kind for problem in RecordMaker().make(job)] == ["package.changed"]
    assert not (tmp_path / "records").exists()


def test_a_process_that_dies_is_the_problem_of_one_package(
    nests: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As a lack of memory would end it.
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "if any('index_worker' in part for part in sys.orig_argv):\n"
        "    from linnet.registry import index\n"
        "    make = index.package_record\n"
        "    def deadly(package, load_source):\n"
        "        if package.folder.name == 'b-model':\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n"
        "        return make(package, load_source)\n"
        "    index.package_record = deadly\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    with crawl([nests], processes=2, cache=False) as found:
        assert sorted(found.jobs) == ["a-model", "c-model", "d-model"]
        assert [str(problem) for problem in found.problems] == [
            f"b-model: {nests}/b-model: The process that checked {nests}/b-model was ended by SIGKILL. "
            "If memory is short, take fewer processes; LINNET_DEBUG=1 shows what else it was."
        ]


def test_processes_import_nothing_from_the_current_folder(
    nests: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "tomllib", "linnet"):
        (nests / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.chdir(nests)
    with crawl(["."], processes=2) as found:
        assert (found.problems, len(found.jobs)) == ([], 4)
    assert not (tmp_path / "ran").exists()


def test_no_process_outlives_an_error(nests: Path, tmp_path: Path) -> None:
    # A file where the cache's folder should be: every record fails to be written.
    (tmp_path / "file").write_text("")
    jobs = []
    for name in NAMES:
        found = contents(Located(nests / name))
        assert found is not None
        jobs.append((name, Job(str(nests / name), None, None, found.digest, str(tmp_path / "file"), found.digest)))
    with pytest.raises(OSError, match="file"):
        list(make_records(jobs, 2, iter))
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    if children.exists():
        commands = [Path(f"/proc/{child}/cmdline").read_bytes() for child in children.read_text().split()]
        assert not [command for command in commands if b"index_worker" in command]


def test_killed_while_indexing_then_indexed(nests: Path, tmp_path: Path, cache: Path) -> None:
    output = tmp_path / "index.json"
    code = "import sys; from linnet.registry.index_build import crawl\n"
    code += "with crawl([sys.argv[1]], processes=2) as found: found.write(__import__('pathlib').Path(sys.argv[2]))"
    command = [sys.executable, "-c", code, str(nests), str(output)]
    process = subprocess.Popen(command)
    while process.poll() is None and not entries(cache):
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    made, index = build([nests], tmp_path / "index.json")
    assert made < 4
    assert build([nests], tmp_path / "other.json", cache=False) == (4, index)


def test_records_of_tensors_beside_the_card(make_package: MakePackage, tmp_path: Path) -> None:
    package = make_package(tensors=[*TENSORS, ("bias", "F32", (4,))])
    assert index_records([package])[0]["parameter_count"] == 20
    write_sparse(package / "model.safetensors", TENSORS)
    assert index_records([package])[0]["parameter_count"] == 16
