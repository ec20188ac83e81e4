"""A new package's folder, which appears when all of it is written."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from linnet.registry.errors import PackageError, Problem, shown
from linnet.registry.package import name_fault

FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def full_disk_named(output: Path) -> Iterator[None]:
    """A disk that fills up while the body writes is told of `output`, and not of a file in a folder that is gone then.

    Raises OSError.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(output)) from error


@contextmanager
def new_package(output: Path) -> Iterator[Path]:
    """A folder named as `output` to write the package in; it becomes `output` where the body does not raise.

    Raises PackageError before anything is written where `output` is there and not an empty folder, has a name that no
    package may have, or cannot be made; OSError where the disk fails.
    """
    refuse_output(output)
    # Beside the final folder, so that putting it in place is a rename; its parents may not be there yet.
    beside = next(parent for parent in output.absolute().parents if parent.is_dir())
    with full_disk_named(output), tempfile.TemporaryDirectory(dir=beside, prefix=".new-") as scratch:
        staged = Path(scratch) / output.name
        staged.mkdir()
        yield staged
        output.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.replace(staged, output)
        except OSError:
            # Something was put there meanwhile.
            refuse_output(output)
            raise


def refuse_output(output: Path) -> None:
    """Raises PackageError unless a package can be written to `output`: absent or empty, with a package's name."""
    if fault := name_fault(output.name):
        raise _refused(output, f"The folder's name {shown(output.name)} cannot be a package's: it {fault}.")
    if output.is_dir() and not any(output.iterdir()):
        return
    if os.path.lexists(output):
        raise _refused(output, f"{output} {'is not empty' if output.is_dir() else 'is not a folder'}.")
    beside = next(parent for parent in output.absolute().parents if os.path.lexists(parent))
    if not beside.is_dir():
        raise _refused(output, f"{beside} is not a folder.")
    if not os.access(beside, os.W_OK | os.X_OK):
        raise _refused(output, f"{output} cannot be written.")


def _refused(output: Path, message: str) -> PackageError:
    return PackageError([Problem("package.output", str(output), message, "Name another folder with -o.")])
