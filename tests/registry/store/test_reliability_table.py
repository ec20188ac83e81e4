"""The table of docs/reliability.md: every test that it names is there."""

from __future__ import annotations

import re
from pathlib import Path


def test_every_test_that_the_table_names_is_there(root: Path) -> None:
    text = (root / "docs/reliability.md").read_text(encoding="utf-8")
    files = {path.name: path.read_text(encoding="utf-8") for path in (root / "tests").rglob("test_*.py")}
    code = "\n".join(files.values())
    named = re.findall(r"`(test_\w+(?:\.py)?)`", text)
    assert len(named) > 30
    missing = [name for name in named if name not in files and f"def {name}(" not in code]
    assert missing == []
