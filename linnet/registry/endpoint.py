"""Which Hub is asked.

`huggingface_hub` reads HF_ENDPOINT while it is imported, and fails there where it is no address: this is asked before.
"""

from __future__ import annotations

import os
import re
from urllib.parse import urlsplit

from linnet.registry.errors import HubError, Problem, shown


def named_endpoint() -> str | None:
    """`HF_ENDPOINT` without slashes at its end; None where it is unset. Raises HubError where it is no address."""
    text = os.environ.get("HF_ENDPOINT", "").rstrip("/")
    if not text:
        return None
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and not re.search(r"\s", text)
        parts.port  # noqa: B018 (reading it parses it)
    except ValueError:
        good = False
    if not good:
        message = f"HF_ENDPOINT is {shown(text)}, which is not an http or https address."
        help = "Set it to an address such as https://huggingface.co, or unset it."
        raise HubError([Problem("hub.no-address", "HF_ENDPOINT", message, help)])
    return text
