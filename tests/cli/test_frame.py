"""Errors become sentences with the right exit code, and no traceback reaches a user."""

from __future__ import annotations

import errno
import importlib
from collections.abc import Callable
from typing import Any

import click
import pytest

from linnet.cli import frame
from linnet.cli.codes import COULD_NOT, FINE, INTERRUPTED, PROBLEMS, USAGE
from linnet.cli.errors import TABLE, describe


def failing(error: BaseException) -> click.Group:
    """A command line whose only command raises `error`."""

    @click.group(invoke_without_command=True)
    def group() -> None:
        raise error

    return group


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[click.Group], tuple[int, str]]:
    monkeypatch.setattr("sys.argv", ["nest"])

    def outcome(group: click.Group) -> tuple[int, str]:
        code = frame.exit_code(group)
        return code, capsys.readouterr().err

    return outcome


@pytest.mark.parametrize("name", TABLE)
def test_the_table_names_errors_that_exist(name: str) -> None:
    module, _, kind = name.rpartition(".")
    found: Any = getattr(importlib.import_module(module), kind)
    assert issubclass(found, Exception)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOENT, "is not there; check the path"),
        (errno.ENOTDIR, "a part of its path is a file"),
        (errno.EACCES, "permission denied"),
        (errno.ENOSPC, "the disk is full"),
        (errno.EROFS, "read-only"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_file_errors_name_the_file(number: int, words: str) -> None:
    import os

    wording = describe(OSError(number, os.strerror(number), "weights/a.safetensors"))
    assert wording.code == COULD_NOT
    assert wording.text.startswith("weights/a.safetensors")
    assert words in wording.text


def test_a_full_device_is_told_with_both_sizes() -> None:
    import torch

    text = (
        "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 139.80 GiB of which 1.21 GiB is "
        "free. Including non-PyTorch memory, this process has 138.59 GiB memory in use."
    )
    wording = describe(torch.OutOfMemoryError(text))
    assert wording.code == COULD_NOT
    assert wording.text.startswith("the device is out of memory: it was asked for 2.50 GiB and has 1.21 GiB free; take")
    assert describe(torch.OutOfMemoryError("")).text.startswith("the device is out of memory; take")
    text = "[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 64"
    wording = describe(RuntimeError(f"{text} bytes. Error code 12 (Cannot allocate memory)"))
    assert wording.text.startswith("the device is out of memory: it was asked for 64 bytes; take")
    assert describe(MemoryError()).code == COULD_NOT
    assert describe(RuntimeError("a shape is wrong")).text.startswith("something went wrong that should not have")


def test_an_unexpected_error_asks_for_a_report(
    run: Callable[[click.Group], tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LINNET_DEBUG", raising=False)
    code, said = run(failing(ZeroDivisionError("division by zero")))
    assert code == COULD_NOT
    assert said.startswith("Error: something went wrong that should not have (ZeroDivisionError: division by zero)")
    assert "LINNET_DEBUG=1" in said
    assert "Traceback" not in said

    monkeypatch.setenv("LINNET_DEBUG", "1")
    code, said = run(failing(ZeroDivisionError("division by zero")))
    assert code == COULD_NOT
    assert "Traceback" in said


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()])
def test_an_interrupt_is_one_word(run: Callable[[click.Group], tuple[int, str]], error: BaseException) -> None:
    code, said = run(failing(error))
    assert (code, said.strip()) == (INTERRUPTED, "Interrupted.")


def test_wrong_usage_is_two(run: Callable[[click.Group], tuple[int, str]]) -> None:
    code, said = run(failing(click.UsageError("no such option")))
    assert code == USAGE
    assert "no such option" in said


def test_a_command_returns_its_exit_code(run: Callable[[click.Group], tuple[int, str]]) -> None:
    @click.group(invoke_without_command=True)
    def problems() -> int:
        return PROBLEMS

    @click.group(invoke_without_command=True)
    def nothing() -> None:
        return

    assert run(problems)[0] == PROBLEMS
    assert run(nothing)[0] == FINE
