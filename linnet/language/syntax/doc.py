"""Documents: text with places where lines may break, and how they are laid out in a width.

After Wadler, "A prettier printer" (2003): a `Group` stands on one line where it fits, and else breaks at each of its
own `Line`s. Line breaks are written when text follows them, so that several in a row are one, and no line ends in
spaces; nor do two spaces ever follow each other outside comments and strings.
"""

from __future__ import annotations

from collections.abc import Iterator

WIDTH = 100
INDENT = 4


class Doc:
    """`width` is the number of columns on one line; `forced` says that the document cannot stand on one line."""

    __slots__ = ("forced", "width")
    width: int
    forced: bool


class Text(Doc):
    """Text without line breaks."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text, self.width, self.forced = text, len(text), False


class Line(Doc):
    """A line break in a broken group, else `flat`. `blank` asks for an empty line with the break."""

    __slots__ = ("blank", "flat")

    def __init__(self, flat: str = "", blank: bool = False) -> None:
        self.flat, self.blank, self.width, self.forced = flat, blank, len(flat), False


class Hard(Doc):
    """A line break, whatever the width; with an empty line if `blank`."""

    __slots__ = ("blank",)

    def __init__(self, blank: bool = False) -> None:
        self.blank, self.width, self.forced = blank, 0, True


class Comma(Doc):
    """The comma after the last item of a list: written where the list is broken."""

    __slots__ = ()

    def __init__(self) -> None:
        self.width, self.forced = 0, False


class CommentText(Doc):
    """A comment. One to the end of the line breaks the line after itself.

    The further lines of a block comment move with its first line, which began at `column` (from 0) in the source.
    """

    __slots__ = ("column", "lines")

    def __init__(self, lines: list[str], column: int) -> None:
        self.lines, self.column = lines, column
        self.width = len(lines[0])
        self.forced = len(lines) > 1 or lines[0].startswith("//")


class Concat(Doc):
    __slots__ = ("parts",)

    def __init__(self, *parts: Doc) -> None:
        self.parts = parts
        self.width = sum(part.width for part in parts)
        self.forced = any(part.forced for part in parts)


class Indent(Doc):
    """Lines that begin inside stand one level further right."""

    __slots__ = ("doc",)

    def __init__(self, *parts: Doc) -> None:
        self.doc = Concat(*parts)
        self.width, self.forced = self.doc.width, self.doc.forced


class Group(Doc):
    """One line if it fits, else broken; broken also if `forced`, or if the group that it `follows` was."""

    __slots__ = ("doc", "follows")

    def __init__(self, *parts: Doc, forced: bool = False, follows: Group | None = None) -> None:
        self.doc = Concat(*parts)
        self.follows = follows
        self.width, self.forced = self.doc.width, self.doc.forced or forced


class Value(Doc):
    """What stands at the end of a statement, after a space: `flat` beside it if it fits, else `flat` on a line of its
    own, one level further right, if it fits there, else `broken` beside it."""

    __slots__ = ("broken", "flat")

    def __init__(self, flat: Doc, broken: Doc) -> None:
        self.flat, self.broken = flat, broken
        self.width, self.forced = flat.width + 1, flat.forced


def layout(doc: Doc) -> str:
    """The text of a document, without a line break at its end. Linear in the document's size."""
    return _Layout(doc).run()


class _Layout:
    def __init__(self, doc: Doc) -> None:
        self.stack: list[tuple[int, bool, Doc]] = [(0, False, doc)]
        """What is still to be written, the next on top: its indentation, and whether it stands on one line."""
        self.out: list[str] = []
        self.column = 0
        self.due = 0
        """How many line breaks are to be written before the next text."""
        self.margin = 0
        """The indentation of that text, if a line break is due."""
        self.broken: set[int] = set()
        """The groups that were broken, by `id`."""

    def run(self) -> str:
        stack = self.stack
        while stack:
            indent, flat, doc = stack.pop()
            if isinstance(doc, Text):
                self.write(doc.text)
            elif isinstance(doc, Concat):
                stack.extend((indent, flat, part) for part in reversed(doc.parts))
            elif isinstance(doc, Line):
                if flat:
                    self.write(doc.flat)
                else:
                    self.break_line(indent, doc.blank)
            elif isinstance(doc, Hard):
                self.break_line(indent, doc.blank)
            elif isinstance(doc, Indent):
                stack.append((indent + INDENT, flat, doc.doc))
            elif isinstance(doc, Group):
                one_line = flat or self.stands_on_one_line(doc)
                if not one_line:
                    self.broken.add(id(doc))
                stack.append((indent, one_line, doc.doc))
            elif isinstance(doc, Comma):
                if not flat:
                    self.write(",")
            elif isinstance(doc, CommentText):
                self.comment(indent, doc)
            elif isinstance(doc, Value):
                self.value(indent, doc)
        return "".join(self.out)

    def write(self, text: str) -> None:
        if self.due:
            text = text.lstrip(" ")
            if not text:
                return
            last = ""
            while self.out and not last:
                last = self.out.pop().rstrip(" ")
            if last:
                self.out += [last, "\n" * self.due]
            self.out.append(" " * self.margin)
            self.column = self.margin
            self.due = 0
        elif text.startswith(" ") and self.out and self.out[-1].endswith(" "):
            text = text.lstrip(" ")
        if text:
            self.out.append(text)
            self.column += len(text)

    def break_line(self, indent: int, blank: bool) -> None:
        self.due = max(self.due, 2 if blank else 1)
        self.margin = indent

    def comment(self, indent: int, comment: CommentText) -> None:
        self.write(comment.lines[0])
        shift = self.column - comment.width - comment.column
        for line in comment.lines[1:]:
            text = line.lstrip(" \t")
            self.out.append("\n")
            self.column = 0
            if text:
                self.column = max(0, len(line) - len(text) + shift)
                self.out.append(" " * self.column)
                self.out.append(text)
                self.column += len(text)
        if comment.lines[0].startswith("//"):
            self.break_line(indent, False)

    def value(self, indent: int, value: Value) -> None:
        if not value.forced and self.position() + value.width <= WIDTH:
            self.stack += [(indent, True, value.flat), (indent, True, Text(" "))]
        elif not value.forced and indent + INDENT + value.flat.width <= WIDTH:
            self.stack += [(indent + INDENT, True, value.flat), (indent + INDENT, False, Hard())]
        else:
            self.stack += [(indent, False, value.broken), (indent, False, Text(" "))]

    def position(self) -> int:
        return self.margin if self.due else self.column

    def stands_on_one_line(self, group: Group) -> bool:
        """Whether a group fits on the line with what follows it up to the next place where the line may break."""
        if group.forced or (group.follows is not None and id(group.follows) in self.broken):
            return False
        left = WIDTH - self.position() - group.width
        index = len(self.stack)
        inside: list[tuple[bool, Iterator[Doc]]] = []
        while left >= 0:
            if inside:
                flat, rest = inside[-1]
                doc = next(rest, None)
                if doc is None:
                    inside.pop()
                    continue
            else:
                if index == 0:
                    return True
                index -= 1
                _, flat, doc = self.stack[index]
            if doc.forced if isinstance(doc, Hard | CommentText) else isinstance(doc, Line) and not flat:
                return True
            if isinstance(doc, Concat) and not flat:
                inside.append((flat, iter(doc.parts)))
            elif isinstance(doc, Indent | Group) and not flat:
                inside.append((flat, iter(doc.doc.parts)))
            elif isinstance(doc, Value) and not flat:
                inside.append((flat, iter((doc.broken,))))
            elif isinstance(doc, Comma):
                left -= not flat
            else:
                left -= doc.width
        return False
