"""`linnet doc`, as users run it, and the reference of the standard library that is in the guide."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from linnet.language.check.modules import STD_ROOT
from linnet.language.diagnostics import Diagnostics
from linnet.language.document import MARK, read_module, undocumented

Run = Callable[..., CompletedProcess[str]]

SOURCE = """\
// Parts of a model. They are small.
module parts

/// The width
/// of everything.
pub const WIDTH = 4

/// Rows.
pub type Rows<N: Dim> = Tensor[N, WIDTH; f32]

/// Two numbers for each row.
pub struct Moments<N: Dim> { mean: Tensor[N; f32]  scale: Tensor[N; f32] }

/// What is kept: a | b.
pub enum Kept { First, Last }

const HIDDEN = 3

/// The two halves of `x`.
pub fn halves<*S: Shape, N: Dim, T: Float>(x: Tensor[*S,  2*N; T], by: f32 = 1.0)
        -> (Tensor[*S, N; T], Tensor[*S, N; T]) where N>0 {
    let scaled = x * cast<T>(by)
    return (scaled[..., 0:N], scaled[..., N:2 * N])
}

/// A layer.
pub block Layer<N: Dim, T: Float = f32> where N > 0, N % 2 == 0 {
    /// One for each column.
    param weight: Tensor[N; T]
    param bias: Tensor[N; T]? = none

    /// `x` scaled.
    pub fn forward<*S: Shape>(x: Tensor[*S, N; T]) -> Tensor[*S, N; T] {
        return shift(x * weight)
    }

    fn shift<*S: Shape>(x: Tensor[*S, N; T]) -> Tensor[*S, N; T] {
        return match bias { some(b) => x + b  none => x }
    }
}
"""

PAGE = f"""\
{MARK}

# parts

Parts of a model. They are small.

```linnet
use parts::{{halves, Kept, Layer, Moments, Rows, WIDTH}}
```

## const WIDTH

```linnet
pub const WIDTH = 4
```

The width
of everything.

Source: [src/parts.linnet:6](../src/parts.linnet#L6)

## type Rows

```linnet
pub type Rows<N: Dim> = Tensor[N, WIDTH; f32]
```

Rows.

Source: [src/parts.linnet:9](../src/parts.linnet#L9)

## struct Moments

```linnet
pub struct Moments<N: Dim> {{
    mean: Tensor[N; f32]
    scale: Tensor[N; f32]
}}
```

Two numbers for each row.

Source: [src/parts.linnet:12](../src/parts.linnet#L12)

## enum Kept

```linnet
pub enum Kept {{
    First,
    Last,
}}
```

What is kept: a | b.

Source: [src/parts.linnet:15](../src/parts.linnet#L15)

## fn halves

```linnet
pub fn halves<*S: Shape, N: Dim, T: Float>(
    x: Tensor[*S, 2 * N; T],
    by: f32 = 1.0,
) -> (Tensor[*S, N; T], Tensor[*S, N; T])
where N > 0
```

The two halves of `x`.

Shapes: `x: [*S, 2 * N]`, `by: f32` to `([*S, N], [*S, N])`.

Requires `N > 0`.

Source: [src/parts.linnet:20](../src/parts.linnet#L20)

## block Layer

```linnet
pub block Layer<N: Dim, T: Float = f32>
where
    N > 0,
    N % 2 == 0
```

A layer.

Requires `N > 0`, `N % 2 == 0`.

| member | kind | type | meaning |
| --- | --- | --- | --- |
| `weight` | param | `Tensor[N; T]` | One for each column. |
| `bias` | param | `Tensor[N; T]?` |  |

Source: [src/parts.linnet:27](../src/parts.linnet#L27)

### Layer.forward

```linnet
pub fn forward<*S: Shape>(x: Tensor[*S, N; T]) -> Tensor[*S, N; T]
```

`x` scaled.

Shapes: `x: [*S, N]` to `[*S, N]`.

Source: [src/parts.linnet:33](../src/parts.linnet#L33)
"""


@pytest.fixture
def parts(run: Run, tmp_path: Path) -> Path:
    """The folder that commands run in, with a module in it."""
    here = tmp_path / "here"
    (here / "src").mkdir()
    (here / "src" / "parts.linnet").write_text(SOURCE)
    return here


def test_the_reference_in_the_guide_is_true(run: Run, root: Path) -> None:
    # `linnet doc`, run in the repository, writes these pages.
    done = run("linnet", "doc", "--check", "-o", root / "docs" / "std")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_everything_public_in_the_standard_library_is_documented() -> None:
    for path in sorted(STD_ROOT.rglob("*.linnet")):
        module = read_module(path, path.name, Diagnostics())
        assert module is not None
        assert undocumented(module) == []


def test_what_lacks_a_comment_is_named(tmp_path: Path) -> None:
    file = tmp_path / "bare.linnet"
    file.write_text(
        "module bare\n\npub const A = 1\n\n/// B.\npub block B {\n    pub fn f() -> f32 { return 1.0 }\n}\n"
    )
    module = read_module(file, "bare.linnet", Diagnostics())
    assert module is not None
    assert undocumented(module) == ["bare", "bare::A", "bare::B.f"]


def test_a_page_in_canonical_style_with_the_lines_of_the_file(run: Run, parts: Path) -> None:
    done = run("linnet", "doc", "src", "-o", "pages")
    assert (done.returncode, done.stdout, done.stderr) == (0, "pages: 2 pages, 2 changed.\n", "")
    assert (parts / "pages" / "parts.md").read_text() == PAGE
    index = (parts / "pages" / "index.md").read_text()
    assert "| [parts](parts.md) | Parts of a model. | [`WIDTH`](parts.md#const-width), " in index
    assert run("linnet", "doc", "src", "-o", "pages").stdout == "pages: 2 pages, 0 changed.\n"


def test_check_names_what_is_stale_and_writes_nothing(run: Run, parts: Path) -> None:
    missing = run("linnet", "doc", "src", "--check")
    assert missing.returncode == 1
    assert not (parts / "reference").exists()
    assert run("linnet", "doc", "src", "--quiet").stdout == ""
    assert run("linnet", "doc", "src", "--check").returncode == 0
    (parts / "reference" / "parts.md").write_text(f"{MARK}\n\nold\n")
    (parts / "reference" / "gone.md").write_text(f"{MARK}\n\n# gone\n")
    (parts / "reference" / "own.md").write_text("# A page of the user's own\n")
    stale = run("linnet", "doc", "src", "--check")
    assert stale.returncode == 1
    assert stale.stdout.splitlines() == [
        "reference/parts.md: differs from its source",
        "reference/gone.md: left over: its module is gone",
        "2 pages out of date; `linnet doc src` writes them anew.",
    ]
    assert run("linnet", "doc", "src").stdout == "reference: 2 pages, 2 changed.\n"
    assert sorted(path.name for path in (parts / "reference").iterdir()) == ["index.md", "own.md", "parts.md"]
    assert (parts / "reference" / "parts.md").read_text() == PAGE


def test_a_file_that_cannot_be_read_as_linnet_stops_all(run: Run, parts: Path) -> None:
    (parts / "src" / "broken.linnet").write_text("module broken\n\npub fn f( {\n")
    done = run("linnet", "doc", "src")
    assert done.returncode == 1
    assert done.stdout.startswith("error[E1101]")
    assert not (parts / "reference").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("module parts\n\npub const A = 1\n", "src/more.linnet and src/parts.linnet are both `module parts`"),
        (None, "no module has a public item"),
    ],
)
def test_what_no_reference_can_be_written_of(run: Run, parts: Path, text: str | None, said: str) -> None:
    if text is None:
        (parts / "src" / "parts.linnet").write_text("module parts\n\nconst A = 1\n")
    else:
        (parts / "src" / "more.linnet").write_text(text)
    done = run("linnet", "doc", "src")
    assert done.returncode == 2
    assert said in done.stderr
    assert not (parts / "reference").exists()
