"""Licences by their SPDX identifiers: those that models and their code come under, and where each is to be read."""

from __future__ import annotations

KNOWN = frozenset(
    "AFL-3.0 AGPL-3.0 AGPL-3.0-only AGPL-3.0-or-later Apache-2.0 Artistic-2.0 BSD-2-Clause BSD-3-Clause "
    "BSD-3-Clause-Clear BSL-1.0 CC-BY-2.0 CC-BY-2.5 CC-BY-3.0 CC-BY-4.0 CC-BY-NC-2.0 CC-BY-NC-3.0 CC-BY-NC-4.0 "
    "CC-BY-NC-ND-4.0 CC-BY-NC-SA-2.0 CC-BY-NC-SA-3.0 CC-BY-NC-SA-4.0 CC-BY-ND-4.0 CC-BY-SA-3.0 CC-BY-SA-4.0 CC0-1.0 "
    "CDLA-Permissive-1.0 CDLA-Permissive-2.0 CDLA-Sharing-1.0 ECL-2.0 EPL-1.0 EPL-2.0 EUPL-1.1 EUPL-1.2 GPL-2.0 "
    "GPL-2.0-only GPL-2.0-or-later GPL-3.0 GPL-3.0-only GPL-3.0-or-later ISC LGPL-2.1 LGPL-2.1-only LGPL-2.1-or-later "
    "LGPL-3.0 LGPL-3.0-only LGPL-3.0-or-later MIT MIT-0 MPL-2.0 MS-PL NCSA ODbL-1.0 OFL-1.1 OSL-3.0 PDDL-1.0 "
    "PostgreSQL Unlicense WTFPL Zlib".split()
)
# `LicenseRef-` names a licence that SPDX does not list; a card then says which in its README.
PREFIX = "LicenseRef-"


def licence_url(identifier: str) -> str:
    """Where the text of a licence is; empty for one that SPDX does not list."""
    return f"https://spdx.org/licenses/{identifier}.html" if identifier in KNOWN else ""


def is_known(identifier: str) -> bool:
    """Whether it is an SPDX identifier of a licence that models come under, or names another by `LicenseRef-`."""
    return identifier in KNOWN or (identifier.startswith(PREFIX) and len(identifier) > len(PREFIX))
