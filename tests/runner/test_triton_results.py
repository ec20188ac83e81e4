"""What the Triton kernels compute, beside f64: on the GPU where there is one, else in Triton's interpreter.

The interpreter is chosen when Triton's functions are defined, so each group of kernels has a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton", reason="Triton is made for Linux alone")
TOLERANCE = 1e-3
# Cases of each group in the interpreter: a group that yields nothing is no test.
CASES = {"gemv": 18, "small": 85, "tile": 22, "rounding": 15, "decode": 11, "model": 3}
HERE = Path(__file__).resolve().parent


@pytest.mark.parametrize("group", CASES)
def test_kernels_against_their_references(group: str, tmp_path: Path) -> None:
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}
    if not torch.cuda.is_available():
        environment["TRITON_INTERPRET"] = "1"
    command = [sys.executable, str(HERE / "triton_cases.py"), group]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    measured = json.loads(done.stdout.splitlines()[-1])
    assert len(measured) >= CASES[group]
    assert {name: measure for name, measure in measured.items() if not measure < TOLERANCE} == {}
