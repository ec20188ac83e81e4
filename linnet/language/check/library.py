"""Modules of the standard library that were checked without a fault, which later checks of this process share.

Nothing changes what a check made of a module once the check has ended: its declarations, its bodies, what its names
refer to. A module is kept with its tree, which is another one where its text is, and with the modules that it imports;
where any of these is not the one that was kept, it is checked again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from linnet.language.check.modules import LoadedModule, is_shared

if TYPE_CHECKING:
    from linnet.language.check.context import ModuleScope
    from linnet.language.check.references import References, SourceReferences
    from linnet.language.diagnostics import Diagnostic


@dataclass(frozen=True, slots=True)
class KeptModule:
    """A module's scope, all of it declared and checked, and the names of its source."""

    scope: ModuleScope
    references: SourceReferences


_KEPT: dict[str, KeptModule] = {}


def kept_module(loaded: LoadedModule) -> KeptModule | None:
    """What was kept of a module, whose imports are kept ones where there are any; None where it has to be checked."""
    found = _KEPT.get(loaded.key)
    if found is None or found.scope.loaded.tree is not loaded.tree or found.scope.loaded.imports != loaded.imports:
        return None
    return found


def keep_modules(scopes: Iterable[ModuleScope], references: References, diagnostics: Iterable[Diagnostic]) -> None:
    """Keep those modules of the standard library of which there are no diagnostics; `scopes` are in order of import."""
    shared = [scope for scope in scopes if is_shared(scope.loaded)]
    if not shared:
        return
    faulty = {item.span.source for item in diagnostics}
    split = references.by_source(scope.loaded.tree.source for scope in shared)
    for scope in shared:
        imports = scope.loaded.imports.values()
        clean = scope.loaded.tree.source not in faulty
        if clean and all(_is_kept(module) for module in imports):
            _KEPT[scope.loaded.key] = KeptModule(scope, split[scope.loaded.tree.source])


def _is_kept(loaded: LoadedModule) -> bool:
    found = _KEPT.get(loaded.key)
    return found is not None and found.scope.loaded is loaded
