"""From a file to the syntax trees of everything that it imports.

`std.a.b` lies in the standard library, `crate.a.b` under the package's `src`, `dep.a.b` under a path
dependency's `src`. Imports cannot leave their root: a module that a link leads out of it is not found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from linnet.language.diagnostics import Diagnostics, Note
from linnet.language.source import Source, Span, read_source
from linnet.language.strict_toml import BadTomlError, parse_toml
from linnet.language.syntax import tree
from linnet.language.syntax.parser import parse

STD_ROOT = Path(__file__).resolve().parents[2] / "std"
MANIFEST = "linnet.toml"
MAX_COMPARED = 1000
"""How many modules of a package an unknown one is compared with."""
MAX_NAMED = 16
"""How many modules of a longer import cycle are named."""
# Trees without faults, by resolved path. Nothing changes a tree once it is parsed, so every check may share it.
_STD_TREES: dict[Path, tree.Module] = {}


@dataclass(frozen=True, slots=True)
class Package:
    """A folder of modules: `source_root` holds them, `dependencies` maps import keys to other packages' folders."""

    key: str
    source_root: Path
    dependencies: Mapping[str, Path] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class LoadedModule:
    """A parsed module. `key` is how messages name it (`crate.a`, `std.nn.norm`); `imports` are by written path."""

    key: str
    package: Package
    tree: tree.Module
    imports: dict[tuple[str, ...], LoadedModule] = field(default_factory=dict)


class Loader:
    """Loads modules once each; import cycles and missing modules become diagnostics."""

    def __init__(
        self, diagnostics: Diagnostics, std_root: Path = STD_ROOT, overlay: Mapping[Path, str] | None = None
    ) -> None:
        """`overlay` maps resolved paths to the text that stands for what is on disk."""
        self.diagnostics = diagnostics
        self.overlay = overlay or {}
        self.std = Package("std", std_root)
        self.modules: dict[Path, LoadedModule] = {}
        self.packages: dict[Path, Package | None] = {}
        # What lies under a source root, as module paths; read where one is not found.
        self.paths: dict[Path, list[tuple[str, ...]]] = {}
        # The modules whose imports are being followed, each imported by the one before it.
        self.active: dict[Path, tuple[LoadedModule, Iterator[tree.UseDecl]]] = {}

    def load_root(self, path: Path) -> LoadedModule:
        """Load `path` and everything that it imports. Raises OSError where it cannot be read."""
        resolved = path.resolve()
        package, segments = self.locate(path, resolved)
        # A file outside any package has no key to begin with.
        key = ".".join(part for part in (package.key, *segments) if part)
        root = self._read(resolved, str(path), key, package)
        # Without recursion: a package may chain thousands of modules.
        while self.active:
            current, (module, uses) = next(reversed(self.active.items()))
            use = next(uses, None)
            if use is None:
                del self.active[current]
            else:
                self._import(module, use)
        return root

    def locate(self, shown: Path, resolved: Path) -> tuple[Package, tuple[str, ...]]:
        """The package that a root file belongs to, and its module path inside it."""
        if resolved.is_relative_to(self.std.source_root):
            return self.std, resolved.relative_to(self.std.source_root).with_suffix("").parts
        for folder in resolved.parents:
            if (folder / MANIFEST).is_file():
                package = self.package(folder, "crate", shown)
                if package is not None and resolved.is_relative_to(package.source_root):
                    parts = resolved.relative_to(package.source_root).with_suffix("").parts
                    return package, () if parts == ("lib",) else parts
                break
        return Package("", resolved.parent), (resolved.stem,)

    def package(self, folder: Path, key: str, shown: Path) -> Package | None:
        """The package in `folder`, its `linnet.toml` checked (E5001)."""
        folder = folder.resolve()
        if folder in self.packages:
            return self.packages[folder]
        manifest = folder / MANIFEST
        shown_as = str(_beside(shown, manifest))
        source = Source(shown_as, "")
        dependencies: dict[str, Path] = {}
        problems: list[str] = []
        try:
            data = manifest.read_bytes()
            source = Source(shown_as, data.decode(errors="replace"))
            table = parse_toml(data)
        except (OSError, BadTomlError) as error:
            problems.append(f"it is not readable TOML: {error}")
        else:
            problems += _package_problems(table)
            declared = table.get("dependencies", {})
            for name, value in declared.items() if isinstance(declared, dict) else ():
                target = value.get("path") if isinstance(value, dict) and set(value) == {"path"} else None
                if not isinstance(target, str):
                    problems.append(f'dependencies.{name} must be {{ path = "..." }}')
                elif not _is_package(folder / target):
                    shown_target = target if len(target) <= 100 else f"{target[:96]}…"
                    problems.append(f"dependencies.{name}: there is no {MANIFEST} in {shown_target!r}")
                elif name in ("std", "crate", "self", "super"):
                    problems.append(f"dependencies.{name}: the name is taken by the language")
                else:
                    dependencies[name] = (folder / target).resolve()
        for problem in problems:
            self.diagnostics.error("E5001", f"bad {MANIFEST}: {problem}", _key_span(source, problem))
        package = Package(key, folder / "src", dependencies)
        self.packages[folder] = package
        return package

    def _read(self, path: Path, shown: str, key: str, package: Package) -> LoadedModule:
        """The module in a file, its imports to be followed next. Raises OSError where it cannot be read."""
        text = self.overlay.get(path)
        source = Source(shown, text) if text is not None else read_source(path, shown)
        parsed = self._parsed_std(path, source) if package is self.std else parse(source, self.diagnostics)
        module = LoadedModule(key, package, parsed)
        self.modules[path] = module
        self.active[path] = (module, iter(parsed.uses))
        return module

    def _parsed_std(self, path: Path, source: Source) -> tree.Module:
        """The tree of a module of the standard library, the same for as long as its text is."""
        known = _STD_TREES.get(path)
        if known is not None and (known.source.name, known.source.text) == (source.name, source.text):
            return known
        found = Diagnostics()
        parsed = parse(source, found)
        self.diagnostics.extend(found.items)
        if not found.items:
            _STD_TREES[path] = parsed
        return parsed

    def _import(self, module: LoadedModule, use: tree.UseDecl) -> None:
        """Resolve one `use`: its path names a module."""
        segments = tuple(name.text for name in use.path)
        if segments in module.imports:
            return
        package, rest = self._import_package(module, use)
        if package is None:
            return
        root = package.source_root
        relative = Path(*rest) if rest else Path("lib")
        target = (root / relative).with_suffix(".linnet")
        try:
            resolved = target.resolve()
            there = resolved in self.overlay or target.is_file()
            inside = resolved.is_relative_to(root.resolve())
        except (OSError, RuntimeError):
            # A link to itself, which resolve() meets as either, or a name that no file can have.
            there = inside = False
        if not there or not inside:
            self._module_not_found(use, segments, root)
            return
        if resolved in self.active:
            along = list(self.active)
            keys = [self.modules[path].key for path in (*along[along.index(resolved) :], resolved)]
            if len(keys) > MAX_NAMED:
                keys[MAX_NAMED // 2 : -MAX_NAMED // 2] = [f"{len(keys) - MAX_NAMED:,} more"]
            message = f"import cycle: {' -> '.join(keys)}"
            self.diagnostics.error("E1206", message, _path_span(use), help="move what both need into a third module")
            return
        key = ".".join((package.key, *rest))
        shown = (
            str(_beside(Path(module.tree.source.name), target)) if package is not self.std else f"std/{relative}.linnet"
        )
        imported = self.modules.get(resolved)
        if imported is None:
            try:
                imported = self._read(resolved, shown, key, package)
            except OSError as error:
                message = f"module `{'.'.join(segments)}` cannot be read: {error.strerror or error}"
                self.diagnostics.error("E1202", message, _path_span(use))
                return
        module.imports[segments] = imported

    def _import_package(self, module: LoadedModule, use: tree.UseDecl) -> tuple[Package | None, tuple[str, ...]]:
        first, *rest = (name.text for name in use.path)
        if first == "std":
            return self.std, tuple(rest)
        if first == "crate" and module.package is not self.std:
            if module.package.key:
                return module.package, tuple(rest)
            self.diagnostics.error(
                "E1202",
                "this file is outside any package, so it has no `crate`",
                use.path[0].span,
                help=f"put it under a folder's `src` with a {MANIFEST} beside that, or import from `std` only",
            )
            return None, ()
        if first == "crate":
            return self.std, tuple(rest)
        folder = module.package.dependencies.get(first)
        if folder is not None:
            return self.package(folder, first, Path(module.tree.source.name)), tuple(rest)
        near = get_close_matches(first, ["std", "crate", *module.package.dependencies], 1)
        self.diagnostics.error(
            "E1202",
            f"no package `{first}`: a path begins with `std`, `crate` or a dependency's key",
            use.path[0].span,
            help=f"did you mean `{near[0]}`?" if near else f"add `{first}` to [dependencies] in {MANIFEST}",
        )
        return None, ()

    def _module_not_found(self, use: tree.UseDecl, segments: tuple[str, ...], root: Path) -> None:
        written = ".".join(segments)
        if self.diagnostics.is_full(use.path[0].span.source):
            # Nobody will see a suggestion, and looking for one takes a thousand times as long as this.
            self.diagnostics.error("E1202", f"module `{written}` not found", _path_span(use))
            return
        if root not in self.paths:
            self.paths[root] = [path.relative_to(root).with_suffix("").parts for path in root.rglob("*.linnet")]
        known = [".".join((segments[0], *parts)) for parts in self.paths[root][:MAX_COMPARED]]
        inside = sorted(key for key in known if key.startswith(written + "."))
        near = inside[:1] or get_close_matches(written, known, 1)
        notes: tuple[Note, ...] = ()
        if inside:
            notes = (Note(f"`{written}` is a folder of {', '.join(key.rsplit('.', 1)[1] for key in inside)}", None),)
        if use.names is None and len(segments) > 2 and ".".join(segments[:-1]) in known:
            near = []
            notes = (Note(f"to import an item, write `use {'.'.join(segments[:-1])}::{{{segments[-1]}}}`", None),)
        self.diagnostics.error(
            "E1202",
            f"module `{written}` not found",
            _path_span(use),
            notes,
            help=f"did you mean `{near[0]}`?" if near else None,
        )


def is_shared(module: LoadedModule) -> bool:
    """Whether a module is the standard library's, its tree without faults and the one that every check is given."""
    return module.package.key == "std" and any(module.tree is known for known in _STD_TREES.values())


def _is_package(folder: Path) -> bool:
    """Whether a folder has a manifest; one whose name no folder can have has none."""
    try:
        return (folder / MANIFEST).is_file()
    except (OSError, ValueError):
        return False


def _path_span(use: tree.UseDecl) -> Span:
    return use.path[0].span.to(use.path[-1].span)


def _beside(shown: Path, target: Path) -> Path:
    """`target` written the way the user wrote `shown`: relative where that was."""
    if shown.is_absolute():
        return target
    try:
        return target.relative_to(Path.cwd())
    except ValueError:
        base = shown.resolve()
        for levels, parent in enumerate(base.parents):
            if target.is_relative_to(parent) and levels < len(shown.parents):
                return shown.parents[levels] / target.relative_to(parent)
        return target


def _key_span(source: Source, problem: str) -> Span:
    """Where a manifest writes the key that a problem names; its start where no line does."""
    keys = re.findall(r"(?:package|dependencies)\.([\w-]+)", problem) or re.findall(r"\[([\w-]+)\]", problem)
    found = re.search(rf"^[ \t]*\[?[ \t]*({re.escape(keys[0])})\b", source.text, re.MULTILINE) if keys else None
    return Span(source, *found.span(1)) if found else Span(source, 0, 0)


def _package_problems(data: dict[str, object]) -> list[str]:
    """What is wrong with a manifest's tables and its [package] keys."""
    problems = [f"unknown table [{key}]" for key in data if key not in ("package", "dependencies")]
    package = data.get("package")
    if not isinstance(package, dict):
        return [*problems, "it has no [package] table"]
    for key in ("name", "version", "language"):
        value = package.get(key)
        if not isinstance(value, str) or not value:
            problems.append(f"package.{key} must be a non-empty string")
    problems += [f"unknown key package.{key}" for key in package if key not in ("name", "version", "language")]
    if isinstance(package.get("language"), str) and package["language"] != "0.1":
        problems.append(f'package.language is "{package["language"]}"; this version reads "0.1"')
    if not isinstance(data.get("dependencies", {}), dict):
        problems.append("[dependencies] must be a table")
    return problems
