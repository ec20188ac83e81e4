"""Exit codes of every command."""

from __future__ import annotations

FINE = 0
PROBLEMS = 1
USAGE = 2
COULD_NOT = 3
INTERRUPTED = 130
