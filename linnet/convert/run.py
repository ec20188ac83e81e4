"""`nest convert`: a GGUF file or a transformers folder becomes a checked package, or nothing is written."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from linnet.convert.errors import ConvertError, OutputError
from linnet.convert.families import design_of
from linnet.convert.package import write_package
from linnet.convert.source import DTYPES, Source, Watch
from linnet.registry.errors import shown
from linnet.registry.new_package import full_disk_named
from linnet.registry.package import CARD_NAME, name_fault
from linnet.registry.report import CheckReport


@dataclass(frozen=True, slots=True)
class Converted:
    """The package that was written, in `folder`; `missing` says why it has no tokenizer, "" where it has one."""

    folder: Path
    family: str
    dtype: str
    files: tuple[str, ...]
    report: CheckReport
    missing: str = ""

    def lines(self) -> Iterator[str]:
        """What was written, for people."""
        yield f"{self.folder}: {self.family}, weights in {self.dtype}, {self.report.section('weights').summary}"
        if self.missing:
            yield f"It has no tokenizer: {self.missing}."
            yield "Put a tokenizer.json beside the card and name it in [tokenizer]."


def convert_checkpoint(source: Path, output: Path, *, dtype: str | None, watch: Watch) -> Converted:
    """Convert the GGUF file or transformers folder `source` into the package folder `output`.

    `dtype` (bf16, f16, f32) is what weights are rounded to; None keeps those of a folder and takes bf16 for GGUF. A
    folder's weights that keep their dtype are hard links where the file system has those, else copies. `watch` is
    handed the tensors or files as they are written. The package passes the static check before it is put in place.

    Raises OutputError for a folder that cannot be written to, ConvertError for what cannot be converted, RegistryError
    for damaged safetensors, OSError where the disk fails.
    """
    if dtype is not None and dtype not in DTYPES:
        raise OutputError(f"dtype={dtype!r} is not known. Write one of {', '.join(DTYPES)}.")
    _refuse_output(output)
    read = _open(source)
    design = design_of(read.config, read.names)
    chosen = read.choose_dtype(design, dtype)
    # Beside the final folder, so that putting it in place is a rename; its parents may not be there yet.
    beside = next(parent for parent in output.parents if parent.is_dir())
    with full_disk_named(output), tempfile.TemporaryDirectory(dir=beside, prefix=".convert-") as scratch:
        staged = Path(scratch) / output.name
        staged.mkdir()
        files = read.write(staged, design, chosen, watch)
        write_package(staged, read, design, chosen, files)
        report = _checked(source, staged)
        _put_in_place(staged, output)
    return Converted(output, design.family, chosen, files, report, read.tokenizer.missing)


def _open(source: Path) -> Source:
    if not source.exists():
        raise ConvertError(f"There is no file or folder {source}. Check the path.")
    if source.is_dir():
        from linnet.convert.folder_source import FolderSource

        return FolderSource(source)
    if source.suffix != ".gguf" and not _begins_as_gguf(source):
        raise ConvertError(
            f"{source} is neither a GGUF file nor a folder that transformers can load. "
            "Name a .gguf file, or the folder that holds config.json and safetensors."
        )
    from linnet.convert.gguf_source import GgufSource

    return GgufSource(source)


def _begins_as_gguf(file: Path) -> bool:
    with file.open("rb") as opened:
        return opened.read(4) == b"GGUF"


def _checked(source: Path, staged: Path) -> CheckReport:
    """The report of the static check and, where torch is installed, of every entry at small sizes.

    Raises ConvertError with the first thing that is wrong, which lies in the checkpoint.
    """
    from linnet import nest

    try:
        nest.require_torch()
        smoke = "small"
    except nest.TorchMissingError:
        smoke = "none"
    report = nest.check(staged, hub=False, smoke=smoke, strict=True)
    if not report.ok:
        findings = [item for section in report.sections for item in section.findings if item.severity == "error"]
        more = f" ({len(findings) - 1} more like it.)" if len(findings) > 1 else ""
        raise ConvertError(f"{source} does not hold what its configuration says: {findings[0].message}{more}")
    return report


def _put_in_place(staged: Path, output: Path) -> None:
    """Move the finished package to where it belongs. Raises OutputError where something was put there meanwhile."""
    _refuse_output(output)
    if output.is_dir():
        # It may be the folder that a shell stands in, so it stays; the card, which makes it a package, comes last.
        for path in sorted(staged.iterdir(), key=lambda path: path.name == CARD_NAME):
            os.replace(path, output / path.name)
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    os.replace(staged, output)


def _refuse_output(output: Path) -> None:
    """Raises OutputError unless `output` can become a package: absent or empty, with a package's name."""
    if fault := name_fault(output.name):
        raise OutputError(f"The folder's name {shown(output.name)} cannot be a package's: it {fault}. Choose another.")
    if output.is_dir() and not any(output.iterdir()):
        return
    if os.path.lexists(output):
        what = "is not empty" if output.is_dir() else "is not a folder"
        raise OutputError(f"{output} {what}. Name another with -o.")
    beside = next(parent for parent in output.parents if os.path.lexists(parent))
    if not beside.is_dir():
        raise OutputError(f"{beside} is not a folder. Name another with -o.")
    if not os.access(beside, os.W_OK | os.X_OK):
        raise OutputError(f"{output} cannot be written. Name another with -o.")
