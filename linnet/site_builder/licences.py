"""Licences by their SPDX expressions: whether one says which licence it is, and where that is to be read."""

from __future__ import annotations

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression


def licence_url(expression: str) -> str:
    """Where the text of a licence is; empty for several, and for one that SPDX does not list."""
    alone = is_known(expression) and not any(part in expression for part in (" ", "+", "(", "LicenseRef-"))
    return f"https://spdx.org/licenses/{expression}.html" if alone else ""


def is_known(expression: str) -> bool:
    """Whether it is an SPDX expression, of which a part may be a `LicenseRef-` for what SPDX does not list."""
    try:
        canonicalize_license_expression(expression)
    except (InvalidLicenseExpression, RecursionError):
        return False
    return True
