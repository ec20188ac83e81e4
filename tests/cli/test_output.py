"""Tables line up; progress is for terminals."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import termios

import pytest

from linnet.cli.output import progress, table

SLOW = """
import time
from linnet.cli.output import progress
for item in progress("reading", quiet={quiet})([1, 2, 3]):
    time.sleep(0.6)
"""


def test_columns_line_up() -> None:
    assert list(table([("a", "long", "x"), ("bcd", "e", "")])) == ["a    long  x", "bcd  e"]
    assert list(table([])) == []


def test_progress_hands_on_every_item(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(progress("reading", quiet=False)([1, 2])) == [1, 2]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("quiet", "shown"), [(False, True), (True, False)])
def test_a_terminal_sees_a_bar_unless_it_is_quiet(quiet: bool, shown: bool) -> None:
    reader, writer = pty.openpty()
    termios.tcsetwinsize(writer, (24, 80))
    subprocess.run([sys.executable, "-c", SLOW.format(quiet=quiet)], stderr=writer, check=True)
    os.close(writer)
    seen = b""
    # A terminal whose other end is closed ends in an error rather than in nothing.
    while True:
        try:
            data = os.read(reader, 4096)
        except OSError:
            break
        if not data:
            break
        seen += data
    os.close(reader)
    assert (b"reading" in seen) == shown
