"""What the code imports is what the distribution declares, and the light paths import nothing heavy."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

# Code that runs only with the torch extra installed.
TORCH_ONLY = ("linnet/runner/", "linnet/quantize/", "linnet/benchmark", "linnet/demo.py", "linnet/nest.py")
# And with a torch for CUDA, which brings Triton; the dev extra has it for the tests.
TRITON_ONLY = ("linnet/runner/torch/kernels/triton/programs/",)
# And with the mlx extra.
MLX_ONLY = ("linnet/runner/mlx/",)
# And with the lsp extra.
LSP_ONLY = ("linnet/language/server/",)
# And with the convert extra.
CONVERT_ONLY = ("linnet/convert/",)
# And with the eval extra.
EVAL_ONLY = ("linnet/registry/datasets.py",)
# And with the s3 and sign extras.
S3_ONLY = ("linnet/registry/store/objects.py",)
SIGN_ONLY = ("linnet/registry/sign.py", "linnet/registry/signing.py")


def imported(path: Path) -> set[str]:
    """Top-level names of the absolute imports in a file, those inside functions included."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return names


def declared(lines: list[str]) -> set[str]:
    return {re.sub(r"[-_.]+", "-", re.split(r"[\[<>=~!; ]", line)[0]).lower() for line in lines}


def test_every_import_is_declared(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    core = declared(project["dependencies"])
    extras = project["optional-dependencies"]
    # lsprotocol, the protocol's types, is a part of what pygls is.
    torch, lsp = declared(extras["torch"]), declared(extras["lsp"]) | {"lsprotocol"}
    convert, evaluation = declared(extras["convert"]), declared(extras["eval"])
    distributions = packages_distributions()
    missing = []
    for path in sorted((root / "linnet").rglob("*.py")):
        relative = path.relative_to(root).as_posix()
        allowed = core
        allowed |= torch if relative.startswith(TORCH_ONLY) else set()
        allowed |= declared(extras["mlx"]) if relative.startswith(MLX_ONLY) else set()
        allowed |= {"triton"} if relative.startswith(TRITON_ONLY) else set()
        allowed |= lsp if relative.startswith(LSP_ONLY) else set()
        allowed |= convert if relative.startswith(CONVERT_ONLY) else set()
        allowed |= evaluation if relative.startswith(EVAL_ONLY) else set()
        allowed |= declared(extras["s3"]) if relative.startswith(S3_ONLY) else set()
        allowed |= declared(extras["sign"]) if relative.startswith(SIGN_ONLY) else set()
        for name in sorted(imported(path) - set(sys.stdlib_module_names) - {"linnet"}):
            owners = {re.sub(r"[-_.]+", "-", owner).lower() for owner in distributions.get(name, [name])}
            if not owners & allowed:
                missing.append(f"{relative} imports {name}")
    assert missing == []


def test_every_dependency_is_imported(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    distributions = packages_distributions()
    used = set()
    for path in (root / "linnet").rglob("*.py"):
        for name in imported(path):
            used |= {re.sub(r"[-_.]+", "-", owner).lower() for owner in distributions.get(name, [])}
    extras = project["optional-dependencies"]
    lines = project["dependencies"]
    for extra in ("convert", "eval", "torch", "mlx", "lsp", "s3", "sign"):
        lines = lines + extras[extra]
    assert declared(lines) - used - {"linnet-nest"} == set()


def test_constraints_pin_every_dependency(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    pins = [line for line in (root / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert [pin for pin in pins if "==" not in pin] == []
    lines = project["dependencies"] + [line for found in project["optional-dependencies"].values() for line in found]
    assert declared(lines) - declared(pins) - {"linnet-nest"} == set()


@pytest.mark.parametrize(
    "statement", ["from linnet import nest", "import linnet.cli.nest_main, linnet.cli.linnet_main"]
)
def test_importing_costs_nothing_heavy(statement: str) -> None:
    heavy = "('torch', 'numpy', 'transformers', 'jinja2', 'pygments', 'huggingface_hub', 'nh3')"
    code = f"import sys; {statement}; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_model_that_is_called_brings_in_no_kernels_of_fp8_and_nothing_of_text() -> None:
    root = Path(__file__).parents[2]
    code = (
        "import sys; from linnet import nest; "
        f"model = nest.load({str(root / 'nests' / 'qwen3-tiny')!r}, numerics='fast', device='cpu'); "
        "model.run_entry('prefill', [[[1, 2, 3]], 0]); "
        "names = ('kernels.triton', 'quantised_inputs', 'nonfinite', 'generate', 'sampling', 'tokenizer', 'chat'); "
        "print([m for m in sys.modules if m.startswith('linnet.') and m.endswith(names)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
