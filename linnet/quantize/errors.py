"""What a quantisation refuses. Each message names the thing and the next step."""

from __future__ import annotations


class QuantizeError(Exception):
    """A package that cannot be quantised as asked."""
