"""Texts to measure on: files, and a dataset of a hub."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from hub_server import Fault, HubServer, running

from linnet.registry.datasets import DATASETS, DatasetError, ParquetMissingError, fetch_dataset, read_text
from linnet.registry.errors import HubError

WIKITEXT = DATASETS["wikitext-2"]
ROWS = ["", " = Harbour = \n", "", " The harbour was quiet 風 . \n"]


def write_split(hub: Path, split: str, rows: list[str], *, column: str = "text") -> Path:
    """A split of WikiText-2 in a hub's folder."""
    file = hub / "datasets" / WIKITEXT.repo / WIKITEXT.revision / WIKITEXT.files[split]
    file.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.table({column: rows}), file)
    return file


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    write_split(tmp_path / "hub", "test", ROWS)
    write_split(tmp_path / "hub", "validation", ["", ""])
    write_split(tmp_path / "hub", "train", ["a"], column="words")
    with running(tmp_path / "hub") as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
        yield server


def test_wikitext_is_its_rows_joined_by_empty_lines(hub: HubServer) -> None:
    found = fetch_dataset("wikitext-2")
    assert found.text == "\n\n = Harbour = \n\n\n\n\n The harbour was quiet 風 . \n"
    assert found.source == {
        "dataset": "wikitext-2",
        "repo": "Salesforce/wikitext",
        "revision": WIKITEXT.revision,
        "split": "test",
        "rows": 4,
        "joined_by": "\n\n",
    }
    assert all(WIKITEXT.revision in line for line in hub.traffic.requests if "/resolve/" in line)
    asked = len(hub.traffic.requests)
    assert fetch_dataset("wikitext-2", offline=True) == found
    assert len(hub.traffic.requests) == asked


def test_datasets_that_are_not_there_are_refused(hub: HubServer) -> None:
    with pytest.raises(DatasetError, match=r'no dataset "wikitext-3": known are "wikitext-2"\. .*\(--text\)'):
        fetch_dataset("wikitext-3")
    with pytest.raises(DatasetError, match=r'wikitext-2 has no split "tests": it has "test", "validation", "train"'):
        fetch_dataset("wikitext-2", "tests")
    with pytest.raises(DatasetError, match=r"The split validation of Salesforce/wikitext at .* is empty"):
        fetch_dataset("wikitext-2", "validation")
    with pytest.raises(DatasetError, match=r"cannot be read as Parquet with a column text"):
        fetch_dataset("wikitext-2", "train")
    with pytest.raises(HubError, match=f"has no commit {'1' * 40}"):
        fetch_dataset("wikitext-2", revision="1" * 40)
    with pytest.raises(HubError, match=r"is not on this machine.* Fetch it once while online, or give a file"):
        fetch_dataset("wikitext-2", "train", revision="2" * 40, offline=True)


def test_a_file_that_is_no_parquet_is_refused(hub: HubServer) -> None:
    (hub.root / "datasets" / WIKITEXT.repo / WIKITEXT.revision / WIKITEXT.files["test"]).write_bytes(
        b"PAR1 and no more"
    )
    with pytest.raises(DatasetError, match=r"cannot be read as Parquet"):
        fetch_dataset("wikitext-2")


def test_a_hub_that_fails_is_told_apart(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.faults[WIKITEXT.files["test"]] = Fault("404-repo")
    with pytest.raises(HubError, match="has no repository Salesforce/wikitext"):
        fetch_dataset("wikitext-2")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    # The Hub's client waits between its attempts.
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with pytest.raises(HubError, match=r"or give a file with the text \(--text\)"):
        fetch_dataset("wikitext-2")


def test_without_pyarrow_the_extra_is_named(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ParquetMissingError, match=r"pip install pyarrow"):
        fetch_dataset("wikitext-2")


def test_a_text_file_is_read_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "held-out.txt"
    file.write_bytes("Zwölf\r\n".encode())
    found = read_text(file)
    assert (found.text, found.source) == ("Zwölf\r\n", {"file": "held-out.txt"})


def test_text_files_that_are_none_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "held-out.txt"
    with pytest.raises(DatasetError, match=r"cannot be read: no such file or directory\. Correct --text"):
        read_text(file)
    with pytest.raises(DatasetError, match="cannot be read: is a directory"):
        read_text(tmp_path)
    file.write_bytes(b" \n")
    with pytest.raises(DatasetError, match="is empty"):
        read_text(file)
    file.write_bytes(b"abc\xff")
    with pytest.raises(DatasetError, match=r"is not UTF-8: its byte 3 cannot be read"):
        read_text(file)
