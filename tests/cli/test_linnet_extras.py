"""Commands whose extra is not installed: a sentence that says how to get it, or an answer without it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def without(module: str, *words: str) -> subprocess.CompletedProcess[str]:
    """`linnet` run where `module` cannot be imported."""
    start = f"import sys; sys.modules[{module!r}] = None; from linnet.cli.linnet_main import main; main()"
    return subprocess.run([sys.executable, "-c", start, *words], capture_output=True, text=True, check=False)


def test_lsp_says_what_it_needs() -> None:
    for module in ("pygls", "lsprotocol"):
        done = without(module, "lsp")
        assert (done.returncode, done.stdout) == (3, "")
        assert "pip install '.[lsp]' in a checkout of Nest" in done.stderr
        assert "Traceback" not in done.stderr


def test_explain_without_torch_knows_no_kernels(tmp_path: Path) -> None:
    file = tmp_path / "half.linnet"
    file.write_text(
        "module half\n\nuse std.nn.activations::{relu}\n\n"
        "entry half<N: Dim>(x: Tensor[N; f32]) -> Tensor[N; f32] {\n    return relu(x / 2.0)\n}\n"
    )
    done = without("torch", "explain", str(file))
    assert done.returncode == 0, done.stderr
    assert "\nstd.nn.activations::relu(x: [1; f32]) -> [1; f32]\n" in done.stdout
    assert done.stdout.endswith("1 op call. torch is not installed, so its kernels are not known.\n")
