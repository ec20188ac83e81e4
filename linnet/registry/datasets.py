"""Texts that models are measured on: by name from the Hub at a pinned commit, or from a file."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from linnet.registry.endpoint import named_endpoint
from linnet.registry.errors import PATH_CHARACTERS, HubError, PackageError, Problem, bare, listed, shown


class DatasetError(PackageError):
    """A dataset or a text file that is absent, unreadable or empty."""


class ParquetMissingError(DatasetError):
    """pyarrow, which reads the files that datasets on the Hub are kept in, is not installed."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """A dataset repository: `files` maps a split to a Parquet file whose `column` holds a text a row; rows are joined
    by `joined_by`."""

    repo: str
    revision: str
    files: Mapping[str, str]
    column: str
    joined_by: str


@dataclass(frozen=True, slots=True)
class DatasetText:
    """A text, and what says where it is from: JSON-able."""

    text: str
    source: dict[str, Any]


_WIKITEXT = "wikitext-2-raw-v1/{}-00000-of-00001.parquet"
DATASETS: Mapping[str, Dataset] = {
    "wikitext-2": Dataset(
        repo="Salesforce/wikitext",
        revision="b08601e04326c79dfdd32d625aee71d232d685c3",
        files={split: _WIKITEXT.format(split) for split in ("test", "validation", "train")},
        column="text",
        # As figures for this dataset are computed everywhere.
        joined_by="\n\n",
    )
}


def read_text(file: Path) -> DatasetText:
    """The text of a UTF-8 file. Raises DatasetError where it is none, or empty."""
    # What the user named is shown whole.
    quoted = shown(str(file), PATH_CHARACTERS)
    where = quoted[1:-1]
    try:
        text = file.read_bytes().decode()
    except UnicodeDecodeError as error:
        message = f"The text {quoted} is not UTF-8: its byte {error.start} cannot be read."
        raise _problem("unreadable", where, message, "Convert it to UTF-8.") from None
    except OSError as error:
        reason = (error.strerror or "unknown error").lower()
        message = f"The text {quoted} cannot be read: {reason}."
        raise _problem("unreadable", where, message, "Correct --text.") from None
    if not text.strip():
        message = f"The text {quoted} is empty."
        raise _problem("empty", where, message, "Name a file with text in it (--text).")
    return DatasetText(text, {"file": file.name})


def fetch_dataset(
    name: str, split: str = "test", *, revision: str | None = None, offline: bool | None = None
) -> DatasetText:
    """The text of a split of one of `DATASETS`, downloaded at its commit (or `revision`) where it is not here.

    Raises DatasetError for a name or split that there is not, or a file without text; ParquetMissingError; HubError.
    """
    dataset = DATASETS.get(name)
    if dataset is None:
        message = f"There is no dataset {shown(name)}: known are {listed(DATASETS)}."
        raise _problem("unknown", "dataset", message, "Name one of them, or give a file (--text).")
    if split not in dataset.files:
        message = f"The dataset {name} has no split {shown(split)}: it has {listed(dataset.files)}."
        raise _problem("unknown-split", "split", message, "Name one of them (--split).")
    if revision is not None:
        dataset = dataclasses.replace(dataset, revision=revision)
    rows = _rows(_fetched(dataset, dataset.files[split], offline), dataset.column)
    text = dataset.joined_by.join(rows)
    if not text.strip():
        message = f"The split {split} of {dataset.repo} at {dataset.revision} is empty."
        raise _problem("empty", name, message, "Name another split (--split), or give a file (--text).")
    source = {"dataset": name, "repo": dataset.repo, "revision": dataset.revision, "split": split}
    return DatasetText(text, {**source, "rows": len(rows), "joined_by": dataset.joined_by})


def _fetched(dataset: Dataset, file: str, offline: bool | None) -> Path:
    named_endpoint()
    from huggingface_hub import hf_hub_download

    from linnet.registry.hub import hub_endpoint, hub_errors

    try:
        with hub_errors(dataset.repo, dataset.revision, file):
            return Path(
                str(
                    hf_hub_download(
                        dataset.repo,
                        file,
                        repo_type="dataset",
                        revision=dataset.revision,
                        endpoint=hub_endpoint(),
                        local_files_only=bool(offline),
                    )
                )
            )
    except HubError as error:
        raise HubError(
            dataclasses.replace(problem, help="Fetch it once while online, or give a file with the text (--text).")
            if problem.kind in ("hub.offline", "hub.unreachable")
            else dataclasses.replace(problem, help=problem.help.replace("weights.", "the dataset's "))
            for problem in error.problems
        ) from None


def _rows(file: Path, column: str) -> list[str]:
    try:
        from pyarrow import ArrowException, parquet  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        message = "Datasets on the Hub are Parquet files, which pyarrow reads, and it is not installed."
        help = "Install it (pip install pyarrow), or give a file with the text (--text)."
        raise ParquetMissingError([Problem("dataset.pyarrow", "pyarrow", message, help)]) from None
    try:
        rows = parquet.read_table(file, columns=[column]).column(column).to_pylist()
    except (ArrowException, OSError, KeyError) as error:
        reason = (str(error).splitlines() or ["unknown error"])[0].rstrip(".")
        message = f"The file {file} cannot be read as Parquet with a column {column}: {reason}."
        raise _problem("unreadable", bare(str(file)), message, "Remove it and fetch it again.") from None
    return [str(row) for row in rows]


def _problem(kind: str, where: str, message: str, help: str) -> DatasetError:
    return DatasetError([Problem(f"dataset.{kind}", where, message, help)])
