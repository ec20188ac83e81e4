"""Sources made to break a compiler: `linnet check` and `linnet fmt` say what is wrong, or succeed, in bounded memory.

Each is given to the commands as a person would: a process of its own, which may take 500 MB of address space.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from linnet.language.check import load
from linnet.language.source import MAX_BYTES, Source, read_source

# Guards against a hang; they say nothing about speed. What takes quadratic time at a source's full size takes longer.
HANG_SECONDS = 300
LINNET = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (500_000_000, 500_000_000))
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
from linnet.cli.linnet_main import main
main()
"""
HEAD = b"module hostile\n\n"
DIGITS = "9" * 4000


def value(text: str) -> bytes:
    """A function that returns `text`."""
    return HEAD + f"pub fn f(x: f32) -> f32 {{\n    return {text}\n}}\n".encode()


def item(text: str) -> bytes:
    return HEAD + text.encode() + b"\n"


def full(head: str, part: str) -> bytes:
    """`part` again and again, up to the longest source that is read."""
    return item(head + part * ((MAX_BYTES - 100) // len(part)))


REFUSED = {
    "parentheses": (value("(" * 10_000 + "x" + ")" * 10_000), "E1101"),
    "nested_blocks": (value("if x < 1.0 { " * 5000 + "x" + " } else { x }" * 5000), "E1101"),
    "one_token_10mb": (item("pub " * 2_500_000), "E2190"),
    "identifier_1mb": (item(f"const {'a' * 1_000_000} = 1"), "E2190"),
    "nul": (HEAD + b"const A\0 = 1\n", "E1001"),
    "invalid_utf8": (HEAD + b"// \xff\xfe\n", "E1001"),
    "unterminated_comment": (item("/* /* a */"), "E1002"),
    "unterminated_string": (item('const A = "a'), "E1003"),
    "unterminated_function": (item("pub fn f(x: f32) -> f32 {"), "E1101"),
    "unterminated_generics": (item("pub fn f<N: Dim,"), "E1101"),
    "unterminated_use": (item("use std.nn.linear::{"), "E1101"),
    "exponent_of_4000_digits": (value(f"1e{DIGITS}"), "E1005"),
    "unterminated_struct": (item("struct A { x: f32"), "E1101"),
    "unterminated_match": (item("pub fn f(x: f32?) -> f32 { return match x { some(v) =>"), "E1101"),
    "unterminated_index": (item("pub fn f(x: Tensor[4; f32]) -> f32 { let y[i"), "E1101"),
    "nested_whiles": (value("x\n    " + "while true { " * 5000), "E1101"),
    "nested_fors": (value("x\n    " + "for i in 0..2 { " * 5000), "E1101"),
    "nested_matches": (value("match some(x) { some(v) => " * 5000), "E1101"),
    "imports_in_imports": (full("", "use a::{"), "E1101"),
    "brackets_closed_by_others": (item("{" + "(" * 150_000 + "}" * 150_000), "E1101"),
    "signs": (value("- " * 200_000 + "x"), "E1101"),
    "dimension_of_4000_digits": (
        item(f"pub fn f<N: Dim>(x: Tensor[N * {DIGITS}; f32]) -> f32 {{ return 1.0 }}"),
        "E1005",
    ),
    "constant_of_4000_digits": (item(f"const A = {DIGITS} * {DIGITS}"), "E1005"),
}
ACCEPTED = {
    "byte_order_mark": b"\xef\xbb\xbf" + value("x"),
    "lone_carriage_returns_in_comments": item("/* a\r b */\r// c\r"),
    "generics_10000": item(
        f"pub fn f<{', '.join(f'N{i}: Dim' for i in range(10_000))}>() -> f32 {{\n    return 1.0\n}}"
    ),
    "crlf": value("x").replace(b"\n", b"\r\n"),
}


def linnet(folder: Path, *arguments: str) -> tuple[int, str]:
    """Exit code and output of `linnet ARGUMENTS` in `folder`."""
    done = subprocess.run(
        [sys.executable, "-c", LINNET, *arguments],
        cwd=folder,
        capture_output=True,
        timeout=HANG_SECONDS,
        env={**os.environ, "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8:strict"},
        check=False,
    )
    text = (done.stdout + done.stderr).decode("utf-8", "surrogateescape")
    assert "Traceback" not in text
    assert done.returncode in (0, 1), text[-2000:]
    return done.returncode, text


@pytest.mark.parametrize("command", [("check",), ("fmt", "--check")], ids=["check", "fmt"])
@pytest.mark.parametrize("name", REFUSED)
def test_a_hostile_source_is_refused(tmp_path: Path, name: str, command: tuple[str, ...]) -> None:
    source, code = REFUSED[name]
    (tmp_path / "hostile.linnet").write_bytes(source)
    status, text = linnet(tmp_path, *command, "hostile.linnet")
    assert status == 1
    assert f"error[{code}]" in text


@pytest.mark.parametrize("name", ACCEPTED)
def test_marks_of_other_editors_are_accepted(tmp_path: Path, name: str) -> None:
    (tmp_path / "hostile.linnet").write_bytes(ACCEPTED[name])
    assert linnet(tmp_path, "check", "hostile.linnet")[0] == 0


def package(folder: Path, name: str, source: str, dependencies: str = "") -> None:
    """A package `folder/name` of one module."""
    (folder / name / "src").mkdir(parents=True)
    (folder / name / "linnet.toml").write_text(
        f'[package]\nname = "{name}"\nversion = "0.1.0"\nlanguage = "0.1"\n\n[dependencies]\n{dependencies}\n'
    )
    (folder / name / "src" / "lib.linnet").write_text(source)


def test_dependencies_in_a_circle(tmp_path: Path) -> None:
    for name, other in (("a", "b"), ("b", "c"), ("c", "a")):
        package(tmp_path, name, f"module {name}\n\nuse {other}\n", f'{other} = {{ path = "../{other}" }}')
    assert "error[E1206]" in linnet(tmp_path, "check", "a/src/lib.linnet")[1]


@pytest.mark.parametrize("target", ["../../secret.linnet", "inner.linnet"], ids=["out_of_the_package", "to_itself"])
def test_a_module_that_is_a_bad_link(tmp_path: Path, target: str) -> None:
    (tmp_path / "secret.linnet").write_text("module secret\n\npub const SECRET = 7\n")
    package(tmp_path, "a", "module a\n\nuse crate.inner::{SECRET}\n\nconst A = SECRET\n")
    (tmp_path / "a" / "src" / "inner.linnet").symlink_to(target)
    assert "error[E1202]" in linnet(tmp_path, "check", "a/src/lib.linnet")[1]


def test_a_module_name_that_no_file_can_have(tmp_path: Path) -> None:
    package(tmp_path, "a", f"module a\n\nuse crate.{'b' * 5000}\n")
    assert "error[E1202]" in linnet(tmp_path, "check", "a/src/lib.linnet")[1]


def modules(folder: Path, sources: dict[str, str]) -> None:
    """A package `folder/a` of these modules."""
    package(folder, "a", "module a\n")
    for name, source in sources.items():
        (folder / "a" / "src" / f"{name}.linnet").write_text(source)


def module_chain(count: int) -> dict[str, str]:
    """Modules that import each other in a line, each with a constant, a type and a function of the next one's."""
    last = "module a.m0\n\npub const C = 1\npub type T = f32\npub fn f(x: T) -> T {\n    return x\n}\n"
    sources = {"m0": last}
    for i in range(1, count):
        sources[f"m{i}"] = (
            f"module a.m{i}\n\nuse crate.m{i - 1}\n\npub const C = m{i - 1}.C + 1\npub type T = m{i - 1}.T\n"
            f"pub fn f(x: T) -> T {{\n    return m{i - 1}.f(x)\n}}\n"
        )
    return sources


def test_a_long_line_of_modules(tmp_path: Path) -> None:
    modules(tmp_path, module_chain(1500))
    assert linnet(tmp_path, "check", "a/src/m1499.linnet")[0] == 0


def test_a_long_circle_of_modules(tmp_path: Path) -> None:
    modules(tmp_path, {f"m{i}": f"module a.m{i}\n\nuse crate.m{(i + 1) % 1500}\n" for i in range(1500)})
    text = linnet(tmp_path, "check", "a/src/m0.linnet")[1]
    assert "error[E1206]: import cycle: crate.m0 -> crate.m1 -> " in text
    assert " -> 1,485 more -> " in text


def test_a_struct_of_seventy_thousand_fields(tmp_path: Path) -> None:
    (tmp_path / "hostile.linnet").write_bytes(full("struct A { ", "a: f32 ") + b"}\n")
    status, text = linnet(tmp_path, "check", "hostile.linnet")
    assert status == 1
    assert text.count("error[E1205]") == 100


def test_a_source_that_its_style_would_make_too_long(tmp_path: Path) -> None:
    source = item(f"enum A {{ {', '.join(f'A{i}' for i in range(50_000))} }}")
    (tmp_path / "hostile.linnet").write_bytes(source)
    status, text = linnet(tmp_path, "fmt", "hostile.linnet")
    assert status == 1
    assert "error[E2190]: in canonical style this source has" in text
    assert (tmp_path / "hostile.linnet").read_bytes() == source


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_a_module_that_is_no_plain_file(tmp_path: Path, kind: str) -> None:
    package(tmp_path, "a", "module a\n\nuse crate.inner\n")
    inner = tmp_path / "a" / "src" / "inner.linnet"
    inner.mkdir() if kind == "folder" else os.mkfifo(inner)
    assert "error[E1202]" in linnet(tmp_path, "check", "a/src/lib.linnet")[1]


def test_a_module_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, name: str) -> Source:
        if path.name == "inner.linnet":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return read_source(path, name)

    modules(tmp_path, {"m": "module a.m\n\nuse crate.inner\n", "inner": "module a.inner\n"})
    monkeypatch.setattr("linnet.language.check.modules.read_source", refuse)
    (error,) = load(tmp_path / "a" / "src" / "m.linnet").errors
    assert (error.code, error.message) == ("E1202", "module `crate.inner` cannot be read: Permission denied")


TARGETS = {"missing": "../nothing", "absolute": "/dev/null", "long": "b" * 5000, "many_parents": "../" * 3000}


@pytest.mark.parametrize("target", TARGETS)
def test_a_dependency_that_is_not_there(tmp_path: Path, target: str) -> None:
    package(tmp_path, "a", "module a\n\nuse x\n", f'x = {{ path = "{TARGETS[target]}" }}')
    status, text = linnet(tmp_path, "check", "a/src/lib.linnet")
    assert status == 1
    assert "error[E5001]: bad linnet.toml: dependencies.x: there is no linnet.toml in" in text


@pytest.mark.parametrize("target", [".", ""])
def test_a_package_that_depends_on_itself(tmp_path: Path, target: str) -> None:
    package(tmp_path, "a", "module a\n\nuse x\n", f'x = {{ path = "{target}" }}')
    assert "error[E1206]" in linnet(tmp_path, "check", "a/src/lib.linnet")[1]


def test_a_package_reached_in_two_ways_is_one(tmp_path: Path) -> None:
    both = 'b = { path = "../b" }\nc = { path = "../c" }'
    package(tmp_path, "a", "module a\n\nuse b\nuse c\n\npub const A = b.B + c.C\n", both)
    for name in "bc":
        source = f"module {name}\n\nuse d\n\npub const {name.upper()} = d.D\n"
        package(tmp_path, name, source, 'd = { path = "../d" }')
    package(tmp_path, "d", "module d\n\npub const D = 1\n")
    assert linnet(tmp_path, "check", "a/src/lib.linnet")[0] == 0


def test_ten_thousand_imports_of_nothing(tmp_path: Path) -> None:
    modules(tmp_path, {f"m{i}": f"module a.m{i}\n" for i in range(2000)})
    uses = "".join(f"use crate.n{i}\nuse std.n{i}\n" for i in range(5000))
    (tmp_path / "a" / "src" / "lib.linnet").write_text(f"module a\n\n{uses}")
    status, text = linnet(tmp_path, "check", "a/src/lib.linnet")
    assert status == 1
    assert text.count("error[E1202]") == 100


def test_a_file_name_that_is_not_utf8(tmp_path: Path) -> None:
    modules(tmp_path, {"m": "module a.m\n\nuse crate.nothing\n"})
    (tmp_path / "a" / "src" / "m.linnet").rename(os.fsdecode(os.fsencode(tmp_path) + b"/a/src/\xff.linnet"))
    for form in ("text", "json", "sarif"):
        status, text = linnet(tmp_path, "check", "--format", form, "a")
        assert status == 1
        assert "E1202" in text
