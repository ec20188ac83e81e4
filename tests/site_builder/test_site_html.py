"""The pages are valid HTML, by the Nu Html Checker, and their colours can be read."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest

from linnet.site_builder.build import SiteReport
from linnet.site_builder.collect import PackageSource

READABLE = 4.5  # WCAG 2.2, success criterion 1.4.3
# Each text colour of the stylesheet, and the grounds it stands on.
ON_PAPER = {"ink", "soft", "accent"}
ON_PANEL = {"ink", "soft", "accent", *(f"code-{letter}" for letter in "cktfsnabmh")}


def validate(nu_checker: list[str], pages: list[Path]) -> list[str]:
    done = subprocess.run(
        [*nu_checker, "--format", "json", "--also-check-svg", *pages],
        capture_output=True,
        text=True,
        check=False,
    )
    messages = json.loads(done.stderr)["messages"]
    return [f"{Path(m['url']).name}:{m.get('lastLine')}: {m['message']}" for m in messages]


def test_pages_are_valid_html(
    nu_checker: list[str],
    make_package: Callable[..., PackageSource],
    build: Callable[..., SiteReport],
    shipped: SiteReport,
    whole: SiteReport,
) -> None:
    hostile = make_package(
        "hostile-wren",
        {
            "README.md": "<b>x</b>\n\n# A\n\n###### B\n\n- a\n\n  > b\n\n![i](x.png)\n\n| a |\n| :-: |\n| <td> |\n",
            "src/a b.linnet": "// \u202e\x00\x07 </pre>\n",
            "files": "x",
            "raw.bin": b"\xff",
        },
    )
    report = build(make_package(), hostile)
    pages = [site.output / path for site in (report, shipped) for path, _ in site.pages]
    # What the other sites lack: the guide, a difference, the marks of a site with an address.
    pages += [whole.output / path for path, _ in whole.pages if path.startswith(("docs/", "models/qwen3-tiny/", "ind"))]
    pages.append(report.output / "static/icon.svg")
    assert validate(nu_checker, pages) == []


def test_the_validator_finds_faults(nu_checker: list[str], tmp_path: Path) -> None:
    (tmp_path / "bad.html").write_text("<!doctype html><title>x</title><p><div><b></p></div>", encoding="utf-8")
    assert any(
        "Stray end tag" in message or "No “p” element" in message
        for message in validate(nu_checker, [tmp_path / "bad.html"])
    )


def schemes() -> dict[str, dict[str, str]]:
    css = files("linnet.site_builder").joinpath("static/site.css").read_text(encoding="utf-8")
    colours = re.findall(r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);", css)
    return {"light": {name: light for name, light, _ in colours}, "dark": {name: dark for name, _, dark in colours}}


def luminance(colour: str) -> float:
    """Relative luminance of `#rrggbb`, by WCAG 2.2."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_measured_right() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read(scheme: str) -> None:
    colours = schemes()[scheme]
    pairs = [(text, "paper") for text in ON_PAPER] + [("ink", "chip")]
    pairs += [(text, ground) for text in ON_PANEL for ground in ("panel", "mark")]
    # A field is known by its edge: 3 to 1, by success criterion 1.4.11.
    assert contrast(colours["edge"], colours["paper"]) >= 3
    low = {pair: round(contrast(colours[pair[0]], colours[pair[1]]), 2) for pair in pairs}
    assert {pair: ratio for pair, ratio in low.items() if ratio < READABLE} == {}


def test_dark_changes_every_colour() -> None:
    light, dark = schemes().values()
    assert [name for name in light if light[name] == dark[name]] == []
