"""Where the commands begin: an interrupt while they are imported ends them as quietly as a later one."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import NoReturn

# As in `codes`, which is imported by what this guards.
INTERRUPTED = 130


def nest() -> NoReturn:
    """The command `nest`."""
    _start("linnet.cli.nest_main")


def linnet() -> NoReturn:
    """The command `linnet`."""
    _start("linnet.cli.linnet_main")


def _start(module: str) -> NoReturn:
    try:
        main = import_module(module).main
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        sys.exit(INTERRUPTED)
    main()
    raise AssertionError(f"{module}.main returned")
