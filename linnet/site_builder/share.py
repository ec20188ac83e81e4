"""The picture of a model that other sites show beside a link to its page (Open Graph): 1200 by 630 pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from io import BytesIO

from PIL import Image, ImageDraw, ImageFont

WIDTH, HEIGHT = 1200, 630
_MARGIN = 80
# One byte a pixel, drawn as grey and saved with a palette: levels up to _PAPER go from ink to paper in the stylesheet's
# light colours, those above from the accent to paper.
_INK, _SOFT, _LINE, _PAPER = 0, 66, 214, 239
_ACCENT, _ACCENT_PAPER = 240, 255
_RGB = {"ink": (0x24, 0x21, 0x1D), "accent": (0x97, 0x33, 0x1F), "paper": (0xFD, 0xFC, 0xF9)}
_TITLE_LINES, _SUMMARY_LINES = 2, 3
_Font = ImageFont.FreeTypeFont


def share_path(name: str) -> str:
    """Where a model's picture lies."""
    return f"models/{name}/share.png"


def share_image(title: str, summary: str, facts: Sequence[str], name: str = "") -> bytes:
    """A PNG of a title, a summary and some facts.

    The font that Pillow carries has the letters of western Europe: a title in others gives way to `name`, and such a
    summary or fact is left out.
    """
    image = Image.new("L", (WIDTH, HEIGHT), _PAPER)
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 0, WIDTH, 12), fill=_ACCENT)
    image.paste(_mark(), (_MARGIN, 62))
    draw.text((_MARGIN + 88, 76), "Nest", font=_font(40), fill=_INK)
    y = 176
    for line in _lines(draw, title if _has_letters(title) else name, _font(72), _TITLE_LINES):
        draw.text((_MARGIN, y), line, font=_font(72), fill=_INK)
        y += 86
    y += 14
    if _has_letters(summary):
        for line in _lines(draw, summary, _font(34), _SUMMARY_LINES):
            draw.text((_MARGIN, y), line, font=_font(34), fill=_SOFT)
            y += 46
    draw.line((_MARGIN, 530, WIDTH - _MARGIN, 530), fill=_LINE, width=2)
    (line,) = _lines(draw, " · ".join(fact for fact in facts if fact and _has_letters(fact)), _font(32), 1)
    draw.text((_MARGIN, 554), line, font=_font(32), fill=_INK)
    image.putpalette(_palette())
    buffer = BytesIO()
    image.save(buffer, "PNG", compress_level=3)
    return buffer.getvalue()


@cache
def _palette() -> bytes:
    ramps = [_ramp(_RGB["ink"], level / _PAPER) for level in range(_PAPER + 1)]
    steps = _ACCENT_PAPER - _ACCENT
    ramps += [_ramp(_RGB["accent"], level / steps) for level in range(steps + 1)]
    return bytes(channel for colour in ramps for channel in colour)


def _ramp(colour: tuple[int, int, int], share: float) -> tuple[int, ...]:
    return tuple(round(c + (paper - c) * share) for c, paper in zip(colour, _RGB["paper"], strict=True))


@cache
def _mark() -> Image.Image:
    """The site's mark, two eggs in a nest, from the curves of icon.svg: drawn four times as large, then shrunk."""
    side, scale = 64, 8.0
    image = Image.new("L", (4 * side, 4 * side), 255)
    draw = ImageDraw.Draw(image)
    for x, y, rx, ry, degrees in ((11, 14, 4, 5.4, -14), (20.6, 13.6, 4, 5.4, 12)):
        turn, ring = math.radians(degrees), [2 * math.pi * step / 60 for step in range(61)]
        points = [(rx * math.cos(t), ry * math.sin(t)) for t in ring]
        _stroke(
            draw,
            [
                (x + p * math.cos(turn) - q * math.sin(turn), y + p * math.sin(turn) + q * math.cos(turn))
                for p, q in points
            ],
            scale,
        )
    # Each half of a twig is one cubic; the other half is its mirror image at x = 16.
    for curve in (
        ((3, 17.5), (5.5, 19.5), (9.5, 20.3), (16, 20.3)),
        ((4.6, 21.5), (7.4, 23.3), (10.8, 24), (16, 24)),
        ((8, 25.6), (10.4, 26.8), (12.8, 27.3), (16, 27.3)),
    ):
        half = [_bezier(curve, step / 24) for step in range(25)]
        _stroke(draw, half + [(32 - x, y) for x, y in reversed(half)], scale)
    grey = image.resize((side, side), Image.Resampling.LANCZOS)
    return grey.point([_ACCENT + round(level * (_ACCENT_PAPER - _ACCENT) / 255) for level in range(256)])


def _stroke(draw: ImageDraw.ImageDraw, points: list[tuple[float, float]], scale: float) -> None:
    radius = 1.1 * scale
    scaled = [(x * scale, y * scale) for x, y in points]
    draw.line(scaled, fill=0, width=round(2 * radius), joint="curve")
    for x, y in (scaled[0], scaled[-1]):
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=0)


def _bezier(curve: tuple[tuple[float, float], ...], t: float) -> tuple[float, float]:
    weights = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3)
    x, y = (sum(w * point[axis] for w, point in zip(weights, curve, strict=True)) for axis in (0, 1))
    return x, y


def _lines(draw: ImageDraw.ImageDraw, text: str, font: _Font, most: int) -> list[str]:
    """`text` broken at spaces, and inside words that are wider than the picture, in at most `most` lines."""
    width = WIDTH - 2 * _MARGIN
    lines = [""]
    words = text[:400].split()
    for word in words:
        wanted = f"{lines[-1]} {word}".strip()
        if draw.textlength(wanted, font=font) <= width:
            lines[-1] = wanted
            continue
        if len(lines) == most:
            return [*lines[:-1], _cut(draw, wanted, font, width)]
        lines.append(_cut(draw, word, font, width))
    return [line for line in lines if line] or [""]


def _cut(draw: ImageDraw.ImageDraw, text: str, font: _Font, width: float) -> str:
    if draw.textlength(text, font=font) <= width:
        return text
    while text and draw.textlength(f"{text}…", font=font) > width:
        text = text[:-1]
    return f"{text}…"


def _has_letters(text: str) -> bool:
    return all(ord(char) < 0x180 or 0x2010 <= ord(char) <= 0x2026 for char in text)


@cache
def _font(size: int) -> _Font:
    font = ImageFont.load_default(size)
    if not isinstance(font, ImageFont.FreeTypeFont):
        raise RuntimeError("Pillow was built without FreeType; install a Pillow that has it.")
    return font
