"""A model's FP8 products by Triton's kernels: joined, gated, and equal to the definitions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("triton_model.py")


def test_a_model_runs_on_the_kernels() -> None:
    """Interpreted on the CPU, which Triton decides as it is imported: so in a process of its own."""
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, SCRIPT], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
