"""What the pages of parameters show: a line for each pattern, totals by block, and every parameter by itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

from markupsafe import Markup

from linnet.registry.package import human_size
from linnet.site_builder.collect import ModelPage
from linnet.site_builder.parameters import Parameter, ParameterRow, numbers_text, split_path
from linnet.site_builder.paths import all_parameters_page, model_page, relative
from linnet.site_builder.text import one_line

# More lines, or more links to single tensors, would make a page too heavy; the full list has them.
MOST_ROWS = 200
MOST_LINKS = 1_000
MOST_TOTALS = 60


@dataclass(frozen=True, slots=True)
class RowView:
    """A line of the folded table; `shards` holds each file's tensors as (label, link) where there are several."""

    pattern: str
    tensor: str
    place: str
    kind: str
    optional: bool
    present: bool
    shape: str
    declared: str
    dtype: str
    count: int
    elements: int
    size: int
    shard: str
    members: int
    shards: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]


@dataclass(frozen=True, slots=True)
class Total:
    """What a block and all below it hold; `percent` of the model's bytes, with one decimal."""

    pattern: str
    depth: int
    block: str
    place: str
    tensors: int
    elements: int
    size: int
    percent: str


def row_views(page: ModelPage) -> list[RowView]:
    """The first MOST_ROWS lines of the folded table."""
    rows = page.parameters[:MOST_ROWS]
    links = sum(row.count for row in rows if row.count > 1) <= MOST_LINKS
    here, target = model_page(page.name, "parameters"), all_parameters_page(page.name)
    return [_row_view(row, relative(here, target), links) for row in rows]


def _row_view(row: ParameterRow, full_list: str, links: bool) -> RowView:
    first = row.first
    several = row.count > 1
    return RowView(
        pattern=one_line(row.pattern),
        tensor=one_line(row.tensor),
        place=first.place,
        kind=first.kind,
        optional=first.optional,
        present=first.present,
        shape=", ".join(map(str, first.shape)),
        declared=first.declared,
        dtype=first.dtype,
        count=row.count,
        elements=row.elements,
        size=row.size,
        shard=first.shard,
        members=row.count if several else 0,
        shards=tuple(_shards(row.members, full_list, links)) if several else (),
    )


def _shards(
    members: Sequence[Parameter], full_list: str, links: bool
) -> Iterable[tuple[str, tuple[tuple[str, str], ...]]]:
    by_shard = sorted(members, key=lambda member: member.shard)
    for shard, group in groupby(by_shard, key=lambda member: member.shard):
        held = list(group)
        if links:
            yield shard, tuple((numbers_text([m]), f"{full_list}{_fragment(m.path)}") for m in held)
        else:
            yield shard, ((numbers_text(held), f"{full_list}{_fragment(held[0].path)}"),)


def totals(page: ModelPage) -> list[Total]:
    """The blocks down to the second level below an array, largest trees first where there are too many.

    Tensors are counted once for each path that reads them, absent ones not at all.
    """
    held = [(split_path(item.path), item) for item in page.all_parameters if item.present]
    whole = sum(item.size for _, item in held) or 1
    groups: dict[tuple[str, ...], list[Parameter]] = {}
    owners: dict[tuple[str, ...], tuple[str, str]] = {}
    for (pattern, _), item in held:
        segments = pattern.split(".")
        for depth in range(1, len(segments)):
            if segments[depth : depth + 1] == ["{}"]:
                continue
            key = tuple(segments[:depth])
            if sum(segment != "{}" for segment in key) <= 2:
                groups.setdefault(key, []).append(item)
    if page.code is not None:
        owners = _owners(page)
    found = []
    for key, items in groups.items():
        names = numbers_text(items, key)
        block, place = owners.get(tuple(segment for segment in key if segment != "{}"), ("", ""))
        size = sum(item.size for item in items)
        found.append(
            Total(
                pattern=one_line(names),
                depth=sum(segment != "{}" for segment in key) - 1,
                block=block,
                place=place,
                tensors=len(items),
                elements=sum(item.elements for item in items),
                size=size,
                percent=f"{100 * size / whole:.1f}",
            )
        )
    if len(found) > MOST_TOTALS:
        found = [total for total in found if total.depth == 0][:MOST_TOTALS]
    return found


def _owners(page: ModelPage) -> dict[tuple[str, ...], tuple[str, str]]:
    """The block at each path without its array positions, two levels deep, and where it is defined."""
    found: dict[tuple[str, ...], tuple[str, str]] = {}
    code = page.code
    if code is None or code.bound is None:
        return found
    for name, block in code.children(code.bound.block):
        found[name,] = (block.name, code.place(block.span))
        for inner, child in code.children(block):
            found[name, inner] = (child.name, code.place(child.span))
    return found


def all_rows(page: ModelPage) -> Markup:
    """Every parameter as a table row whose id is its path. Text by hand: there may be twenty thousand."""
    here = all_parameters_page(page.name)
    links: dict[str, str] = {}
    sharded = any(item.shard for item in page.all_parameters)
    rows = []
    for item in page.all_parameters:
        path, tensor = escape(one_line(item.path)), escape(one_line(item.tensor))
        if item.place not in links:
            links[item.place] = escape(relative(here, item.place)) if item.place else ""
        named = f'<a href="{links[item.place]}"><code>{path}</code></a>' if item.place else f"<code>{path}</code>"
        mark = f' <span class="mark">{escape(item.kind)}</span>' if item.kind != "param" else ""
        mark += "" if item.present else ' <span class="mark">absent</span>'
        shape = ", ".join(map(str, item.shape))
        shard = f"<td>{escape(one_line(item.shard))}</td>" if sharded else ""
        size = human_size(item.size) if item.present else "—"
        rows.append(
            f'<tr id="{escape(_anchor(item.path))}"><th scope="row">{named}{mark}</th><td><code>{tensor}</code></td>'
            f"<td><code>[{shape}]</code></td><td><code>{escape(item.dtype)}</code></td>"
            f'<td class="right">{size}</td>{shard}</tr>\n'
        )
    return Markup("".join(rows))


def _anchor(path: str) -> str:
    """A parameter's path as an id: no spaces, which an id cannot have."""
    return "_".join(path.split())


def _fragment(path: str) -> str:
    return relative("x", f"x#{_anchor(path)}")
