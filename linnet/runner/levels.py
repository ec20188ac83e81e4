"""How far the smoke test goes: each level includes those before it. Apart, so that naming them imports nothing."""

from __future__ import annotations

SMOKE_LEVELS = ("none", "meta", "small", "full")
