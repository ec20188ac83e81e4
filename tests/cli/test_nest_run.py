"""`nest run`, as users run it."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import torch
from safetensors.torch import load_file, save_file
from text_package import TextPackage, write_text_package

from linnet import nest

Run = Callable[..., CompletedProcess[str]]
BROKEN = "\N{REPLACEMENT CHARACTER}"
PROMPT = "The harbour was quiet"
# Time to interrupt it between two tokens.
SLOW = """\
import time
from linnet.runner.generate import Generation

run = Generation._run
Generation._run = lambda *words: (time.sleep(0.3), run(*words))[1]
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> TextPackage:
    return write_text_package(tmp_path_factory.mktemp("packages") / "text", chat=True)


# What the console script of `nest` calls.
START = "from linnet.cli.start import nest; nest()"


def command(*words: str | Path, before: str = "") -> list[str]:
    code = f"{before}{START}"
    return [sys.executable, "-W", "error", "-c", code, "run", *map(str, words)]


def test_it_writes_what_the_model_generates(run: Run, package: TextPackage) -> None:
    model = nest.load(package.folder, device="cpu")
    settings = {"max_new_tokens": 12, "temperature": 0.9, "top_k": 60, "top_p": 0.9, "seed": 4}
    options = [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    done = run("nest", "run", package.folder, PROMPT, "--raw", "--device", "cpu", "--stats", *options)
    assert done.returncode == 0, done.stderr
    assert done.stdout == model.generate(PROMPT, **settings) + "\n"
    wanted = r"\d+ tokens read, \d+ generated \((the limit was reached|the model ended)\); first token after \d\.\d\d s"
    assert re.fullmatch(rf"{wanted}(, then [\d.]+ tokens/s)?\n", done.stderr)

    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": PROMPT}]
    words = (PROMPT, "--system", "Be brief.", "--max-new-tokens", "12", "--compile", "off", "--fp8", "stream")
    done = run("nest", "run", package.folder, *words)
    assert (done.stdout, done.stderr) == (model.generate(messages, max_new_tokens=12) + "\n", "")

    done = subprocess.run(
        command(package.folder, "-", "--raw", "--max-new-tokens", "9", "--generic", "MaxSeq=40", "--dtype", "f64"),
        input=PROMPT.encode(),
        capture_output=True,
        check=False,
    )
    wide = nest.load(package.folder, device="cpu", dtype="f64")
    assert done.stdout.decode() == wide.generate(PROMPT, max_new_tokens=9) + "\n", done.stderr.decode()


def test_bad_input_is_one_sentence(run: Run, package: TextPackage, tmp_path: Path) -> None:
    def refused(*words: str | Path, code: int = 1) -> str:
        done = run("nest", "run", *words)
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr

    folder = package.folder
    assert refused(folder, "") == "Error: the prompt is empty: give a text, messages, or token ids\n"
    said = refused(folder, PROMPT, "--max-new-tokens", "500")
    assert re.search(r"a prompt of \d+ tokens and 500 new ones make \d+, but the cache holds 64 \(MaxSeq\)", said)
    assert refused(folder, PROMPT * 9).startswith("Error: a prompt of ")
    assert "the text has <|nobody|>, which looks like a special token" in refused(folder, "<|nobody|>")
    assert "--system is a message of a conversation" in refused(folder, "x", "--raw", "--system", "y", code=2)
    assert "Invalid value for '--temperature'" in refused(folder, "x", "--temperature", "-1", code=2)
    assert "'none' is not one of 'off', 'on'" in refused(folder, "x", "--compile", "none", code=2)
    assert "Invalid value for '--fp8'" in refused(folder, "x", "--fp8", "bf16", code=2)
    graphs = ("--compile", "reduce-overhead", "--device", "cpu")
    assert "replays CUDA graphs, and the device is cpu" in refused(folder, "x", *graphs, code=2)
    assert "'Max' is not of the form G=VALUE" in refused(folder, "x", "--generic", "Max", code=2)
    assert "has no generic `MaxSeg`" in refused(folder, "x", "--generic", "MaxSeg=8")


def test_packages_that_cannot_answer_say_why(run: Run, tiny: Path, tmp_path: Path) -> None:
    # Before a tokenizer is looked for, which this card does not name, or the Hub is asked.
    done = run("nest", "run", tiny, "x")
    assert (done.returncode, done.stdout) == (1, "")
    assert "needs the entries prefill and decode, which this model does not have: it has forward" in done.stderr

    plain = write_text_package(tmp_path / "plain")
    done = run("nest", "run", plain.folder, "x", "--chat")
    assert done.returncode == 1
    assert "needs a chat template, and the card's [tokenizer] names none" in done.stderr

    card = plain.folder / "nest.toml"
    whole = card.read_text()
    card.write_text(re.sub(r"\[tokenizer\](\n[^\[].*)*", "", whole))
    done = run("nest", "run", plain.folder, "x")
    assert (done.returncode, done.stdout) == (1, "")
    assert "has no [tokenizer]" in done.stderr
    card.write_text(whole)

    # A tokenizer of another model, whose vocabulary is larger.
    path = plain.folder / "tokenizer.json"
    text = json.loads(path.read_text())
    highest = max(text["model"]["vocab"].values())
    token = {"id": highest + 1, "content": "extra", "special": False}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    text["added_tokens"].append({**token, **flags})
    path.write_text(json.dumps(text))
    done = run("nest", "run", plain.folder, "x")
    assert done.returncode == 1
    assert f"has ids up to {highest + 1}, but the model's vocabulary has {highest + 1} entries" in done.stderr


def test_weights_that_are_nan_are_named(run: Run, tmp_path: Path) -> None:
    package = write_text_package(tmp_path / "text")
    file = package.folder / "model.safetensors"
    weights = load_file(file)
    weights["h.1.mlp.c_fc.weight"][0, 0] = torch.nan
    save_file(weights, file)
    done = run("nest", "run", package.folder, PROMPT)
    assert done.returncode == 1
    assert "NaN appears first in layers.1.up (" in done.stderr
    assert "whose weight layers.1.up.weight holds 1 value of that kind: fetch the weights again" in done.stderr


def interrupted(words: list[str], *, after: float | None) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command that is sent SIGINT, `after` seconds from its start (None: from the
    first byte that it writes)."""
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first = b""
        if after is None:
            first = process.stdout.read(1)
        else:
            time.sleep(after)
        process.send_signal(signal.SIGINT)
        out, err = first + process.stdout.read(), process.stderr.read()
        return process.wait(), out.decode(), err.decode()


def test_an_interrupt_ends_it_cleanly(package: TextPackage) -> None:
    words = command(
        package.folder, PROMPT, "--raw", "--max-new-tokens", "40", "--temperature", "1", "--seed", "7", before=SLOW
    )
    code, out, err = interrupted(words, after=None)
    assert (code, err.strip()) == (130, "Interrupted.")
    assert out.endswith("\n")
    whole = nest.load(package.folder, device="cpu").generate(PROMPT, max_new_tokens=40, temperature=1.0, seed=7)
    assert len(out) < len(whole)
    assert whole.startswith(out.rstrip("\n"))


@pytest.mark.parametrize(
    "module", ["click", "linnet.cli.errors", "tokenizers", "torch", "linnet.runner.torch.module", "safetensors"]
)
def test_an_interrupt_while_it_imports_ends_it_cleanly(package: TextPackage, module: str) -> None:
    before = f"""\
import os, signal, sys
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
"""
    words = command(package.folder, PROMPT, "--device", "cpu", before=before)
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "Interrupted.")


def on_a_terminal(words: list[str], *, interrupt: bool) -> tuple[int, str]:
    """Exit code and what a terminal shows of a command, which is interrupted once it has shown something."""
    leader, follower = pty.openpty()
    with subprocess.Popen(words, stdin=follower, stdout=follower, stderr=follower, start_new_session=True) as process:
        os.close(follower)
        shown, sent = b"", False
        while True:
            ready, _, _ = select.select([leader], [], [], 120)
            assert ready, shown
            try:
                block = os.read(leader, 1 << 16)
            except OSError:
                break
            if not block:
                break
            shown += block
            if interrupt and not sent:
                sent = True
                os.kill(process.pid, signal.SIGINT)
        code = process.wait()
    os.close(leader)
    return code, shown.decode(errors="surrogateescape").replace("\r\n", "\n")


def test_on_a_terminal_it_tells_the_time_and_writes_no_controls(package: TextPackage) -> None:
    model = nest.load(package.folder, device="cpu")
    # A seed under which the model writes what a terminal would obey.
    seed = next(
        seed for seed in range(200) if "\x1b" in model.generate(PROMPT, max_new_tokens=30, temperature=1.5, seed=seed)
    )
    options = ["--raw", "--max-new-tokens", "30", "--temperature", "1.5", "--seed", str(seed)]
    code, shown = on_a_terminal(command(package.folder, PROMPT, *options), interrupt=False)
    assert code == 0
    assert "\x1b" not in shown
    assert BROKEN in shown
    assert re.search(r"tokens read, \d+ generated .* tokens/s\n$", shown)
    code, shown = on_a_terminal(command(package.folder, PROMPT, "--quiet", *options), interrupt=False)
    assert "tokens/s" not in shown


def test_an_interrupt_leaves_the_terminal_as_it_was(package: TextPackage) -> None:
    words = command(package.folder, PROMPT, "--raw", "--max-new-tokens", "40", before=SLOW)
    code, shown = on_a_terminal(words, interrupt=True)
    assert code == 130
    assert shown.endswith("\nInterrupted.\n")
    assert "\x1b" not in shown
