"""`nest eval` and `nest.evaluate`: a figure, and the protocol that it was measured by."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
import torch
from hub_server import running
from safetensors.torch import load_file, save_file
from text_package import TEXT, TextPackage, write_text_package

from linnet import nest
from linnet.registry.datasets import DATASETS
from linnet.registry.errors import RegistryError
from linnet.runner.errors import EvaluationError, NonFiniteError

Run = Callable[..., CompletedProcess[str]]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> TextPackage:
    return write_text_package(tmp_path_factory.mktemp("packages") / "text")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("texts") / "held-out.txt"
    file.write_text(TEXT)
    return file


def mean_loss(package: TextPackage, text: str, window: int, stride: int) -> float:
    """The strided protocol through transformers."""
    ids = package.tokenizer.encode(text).ids
    total, count, before = 0.0, 0, 1
    for begin in range(0, len(ids), stride):
        end = min(begin + window, len(ids))
        with torch.no_grad():
            logits = package.reference(torch.tensor([ids[begin:end]])).logits[0]
        first = max(before, begin + 1)
        nll = torch.nn.functional.cross_entropy(
            logits[first - begin - 1 : end - begin - 1], torch.tensor(ids[first:end]), reduction="sum"
        )
        total, count, before = total + float(nll), count + end - first, end
        if end == len(ids):
            break
    return total / count


def test_it_measures_what_transformers_measures_and_says_how(run: Run, package: TextPackage, text: Path) -> None:
    words = ("nest", "eval", package.folder, "--text", text, "--window", "32", "--stride", "12", "--device", "cpu")
    done = run(*words, "--json", "--batch", "3")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["perplexity"] == pytest.approx(math.exp(mean_loss(package, TEXT, 32, 12)), rel=1e-3)
    assert found["nll"] == pytest.approx(math.log(found["perplexity"]))
    assert found["perplexity_standard_error"] == pytest.approx(found["perplexity"] * found["nll_standard_error"])
    tokens = len(package.tokenizer.encode(TEXT).ids)
    assert found["tokens_scored"] == tokens - 1
    tokenizer = package.folder / "tokenizer.json"
    assert found["protocol"] == {
        "text": {"file": "held-out.txt", "sha256": hashlib.sha256(TEXT.encode()).hexdigest(), "tokens": tokens},
        "tokenizer": {
            "repo": None,
            "revision": None,
            "file": "tokenizer.json",
            "sha256": hashlib.sha256(tokenizer.read_bytes()).hexdigest(),
        },
        "weights": {"repo": None, "revision": None, "files": ["model.safetensors"]},
        "window": 32,
        "stride": 12,
        "limit_tokens": None,
        "batch": 3,
        "entry": "forward",
        "dtypes": {"T": "f32"},
        "backend": "torch",
        "numerics": "equivalent",
        "compile": True,
        "fp8": None,
        "device": "cpu",
    }
    assert json.loads(run(*words, "--json", "--batch", "3", "--compile", "off").stdout)["protocol"]["compile"] is False
    shown = run(*words, "--limit-tokens", "60", "--weights", package.folder).stdout
    lines = dict(line.strip().split(maxsplit=1) for line in shown.splitlines()[1:])
    assert shown.startswith("text: perplexity ")
    assert " +- " in shown.splitlines()[0]
    assert lines["scored"].startswith("59 of 60 tokens, ")
    assert lines["windows"] == "4 of 32 tokens, stride 12"
    assert lines["weights"] == f"{package.folder} (given, not the card's)"
    assert lines["run"] == "entry forward, batch 1, T = f32, torch, equivalent, compile on"


def test_bad_input_is_one_sentence(run: Run, package: TextPackage, tiny: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty.txt"
    empty.write_text("\n")

    def refused(*words: str | Path, code: int) -> str:
        done = run("nest", "eval", *words)
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr

    folder = package.folder
    assert f'The text "{empty}" is empty. Name a file with text' in refused(folder, "--text", empty, code=1)
    assert "cannot be read: no such file" in refused(folder, "--text", tmp_path / "none.txt", code=1)
    assert 'There is no dataset "wikitext"' in refused(folder, "--dataset", "wikitext", code=1)
    assert "there is no text to measure text on: give a file (--text)" in refused(folder, code=2)
    assert "Invalid value for '--window'" in refused(folder, "--window", "1", code=2)
    assert "The card of tiny has no [tokenizer]" in refused(tiny, "--text", Path(__file__), code=1)


# The same, within this process.


def test_the_card_names_the_text_and_the_windows(tmp_path: Path) -> None:
    package = write_text_package(tmp_path / "text")
    (package.folder / "held-out.txt").write_text(TEXT[:300])
    card = package.folder / "nest.toml"
    card.write_text(card.read_text() + '\n[bench]\ndataset = "held-out.txt"\nwindow = 24\nstride = 8\n')
    found = nest.evaluate(package.folder, device="cpu")
    protocol = found.protocol
    assert (protocol["text"]["file"], protocol["window"], protocol["stride"]) == ("held-out.txt", 24, 8)
    assert found.result.nll == pytest.approx(mean_loss(package, TEXT[:300], 24, 8), rel=1e-4)
    assert nest.evaluate(package.folder, device="cpu", window=30).protocol["stride"] == 8
    card.write_text(card.read_text().replace("window = 24\nstride = 8\n", ""))
    protocol = nest.evaluate(package.folder, device="cpu").protocol
    assert (protocol["window"], protocol["stride"]) == (64, 32)


def test_wikitext_comes_from_a_hub(package: TextPackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = DATASETS["wikitext-2"]
    file = tmp_path / "hub" / "datasets" / dataset.repo / dataset.revision / dataset.files["validation"]
    file.parent.mkdir(parents=True)
    rows = ["", " = Harbour = \n", *(f" {line} \n" for line in TEXT.splitlines())]
    pyarrow.parquet.write_table(pyarrow.table({"text": rows}), file)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    with running(tmp_path / "hub") as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        settings: dict[str, Any] = {"window": 32, "stride": 32, "device": "cpu"}
        found = nest.evaluate(package.folder, dataset="wikitext-2", split="validation", **settings)
    text = "\n\n".join(rows)
    assert found.result.nll == pytest.approx(mean_loss(package, text, 32, 32), rel=1e-4)
    assert found.protocol["text"] == {
        "dataset": "wikitext-2",
        "repo": dataset.repo,
        "revision": dataset.revision,
        "split": "validation",
        "rows": len(rows),
        "joined_by": "\n\n",
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
        "tokens": len(package.tokenizer.encode(text).ids),
    }


def test_a_package_without_whole_logits_goes_through_its_caches(tmp_path: Path, text: Path) -> None:
    package = write_text_package(tmp_path / "text")
    package.edit('entry = "forward"', 'entry = "decode"')
    found = nest.evaluate(package.folder, text=text, window=20, stride=10, batch=2, limit_tokens=64, device="cpu")
    ids = package.tokenizer.encode(TEXT).ids[:64]
    assert found.protocol["entry"] == "prefill, decode"
    wanted = mean_loss(package, package.tokenizer.decode(ids), 20, 10)
    assert found.result.nll == pytest.approx(wanted, rel=1e-4)


def test_weights_that_are_nan_have_no_perplexity(tmp_path: Path, text: Path) -> None:
    package = write_text_package(tmp_path / "text")
    file = package.folder / "model.safetensors"
    weights = load_file(file)
    weights["ln_f.bias"][3] = torch.nan
    save_file(weights, file)
    with pytest.raises(NonFiniteError, match=r"NaN appears first in norm .* whose weight norm\.bias holds 1 value"):
        nest.evaluate(package.folder, text=text, window=20, device="cpu")


@pytest.mark.checkpoint
def test_an_encoder_has_no_perplexity(minilm_checkpoint: Path, text: Path) -> None:
    words = (
        r"no perplexity: embed<.* gives no logits \[B, S, Vocab\] .* needs the entries prefill and decode, .* has embed"
    )
    with pytest.raises(EvaluationError, match=words):
        nest.evaluate("all-minilm-l6-v2", text=text, weights=minilm_checkpoint, device="cpu")


def test_texts_and_sizes_that_cannot_be_are_refused(package: TextPackage, text: Path) -> None:
    with pytest.raises(nest.NestError, match="are two texts: give one of them"):
        nest.evaluate(package.folder, text=text, dataset="wikitext-2")
    with pytest.raises(EvaluationError, match="1 tokens cannot be predicted: take 2 or more"):
        nest.evaluate(package.folder, text=text, limit_tokens=1)
    with pytest.raises(EvaluationError, match="a stride of 9 over a window of 8"):
        nest.evaluate(package.folder, text=text, window=8, stride=9, device="cpu")
    with pytest.raises(
        EvaluationError, match=r"a window of 999999 tokens is longer than the \d+ positions of .* \(MaxSeq\)"
    ):
        nest.evaluate(package.folder, text=text, window=999999, device="cpu")
    with pytest.raises(RegistryError, match="There is no folder"):
        nest.evaluate("nobody-has-this", text=text)
