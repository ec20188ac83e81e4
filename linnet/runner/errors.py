"""What can go wrong when a program runs. Each message is one sentence that names the thing and the next step."""

from __future__ import annotations

from collections.abc import Iterable

from linnet.language.words import counted

SHOWN = 5


class RunnerError(Exception):
    """The base of every error the runner raises."""


class ModeError(RunnerError):
    """A `compile` or `fp8` that is not known, or that cannot be had here."""


class UnknownEntryError(RunnerError):
    """An entry that the model does not have; `name` is None where none was named and the card names none."""

    def __init__(self, name: str | None, known: Iterable[str]) -> None:
        self.name = name
        problem = "no entry is named here or in the card" if name is None else f"no entry is called {name!r}"
        super().__init__(f"{problem}: this model has {', '.join(known) or 'none'}")


class InputError(RunnerError):
    """Inputs that an entry cannot take. The message ends with the entry's signature."""

    def __init__(self, problem: str, signature: str) -> None:
        self.problem = problem
        self.signature = signature
        super().__init__(f"{problem}; the entry is {signature}")


class IndexRangeError(RunnerError):
    """A gathered position outside its axis, such as a token id outside the vocabulary.

    `label` names the indexed tensor, `position` is the first offending index, `size` the axis's length, and `op` the
    identity of the innermost op call that was running (None outside every op). `entry` is filled in by the model.
    """

    def __init__(self, label: str, position: int, size: int, op: str | None = None) -> None:
        super().__init__(label, position, size)
        self.label = label
        self.position = position
        self.size = size
        self.op = op
        self.entry: str | None = None

    def __str__(self) -> str:
        valid = f"valid are 0 to {self.size - 1}" if self.size else "it has no elements"
        if self.op and self.op.startswith("std.nn.embedding::"):
            problem = f"id {self.position} is outside the embedding table of {self.size} rows"
        elif self.op and self.op.startswith("std.nn.cache::"):
            problem = f"position {self.position} is outside the cache of {self.size} positions"
        else:
            problem = f"position {self.position} is outside {self.label or 'the indexed tensor'}"
            problem += f", whose axis has size {self.size}"
        place = f" ({self.op})" if self.op else ""
        return f"{f'entry {self.entry}: ' if self.entry else ''}{problem}{place}: {valid}"


class CapacityError(RunnerError):
    """A call that writes past the end of a cache."""

    def __init__(self, entry: str, start: int, count: int, capacity: int) -> None:
        self.start = start
        self.count = count
        self.capacity = capacity
        super().__init__(
            f"entry {entry}: {counted(count, 'position')} from {start} on make a context of {start + count}, which "
            f"exceeds the capacity of {capacity}: load with capacity={start + count}, or begin again with reset_state()"
        )


class PositionGapError(RunnerError):
    """A call that would leave positions of a cache unwritten."""

    def __init__(self, entry: str, start: int, length: int) -> None:
        self.start = start
        self.length = length
        super().__init__(
            f"entry {entry}: position {start} leaves a gap, since the caches hold {counted(length, 'position')}: "
            f"continue at {length}, or begin again with reset_state()"
        )


class IntegerDivisionError(RunnerError):
    """Integer division or remainder by zero."""


class SizeError(RunnerError):
    """A tensor with more bytes than can be counted in 63 bits, or a longer axis."""

    def __init__(self, what: object) -> None:
        super().__init__(f"{what} is larger than any tensor can be: take smaller sizes")


class AllocationError(RunnerError, MemoryError):
    """Memory that a device does not have: bytes that `what` needs at once, and bytes that are free; None: not known."""

    def __init__(self, what: str, device: str, needed: int | None, free: int | None) -> None:
        self.needed = needed
        self.free = free
        wants = "more memory" if needed is None else f"{memory_text(needed)} more"
        has = "which it does not have" if free is None else f"where {memory_text(free)} are free"
        super().__init__(
            f"{what} needs {wants} on {device}, {has}: take smaller sizes (a shorter cache, MaxSeq; fewer rows) "
            "or another device"
        )


def memory_text(size: int) -> str:
    """Bytes for people: `512 bytes`, `3.2 MiB`, `15.3 GiB`."""
    if size < 2**20:
        return f"{size:,} bytes"
    return f"{size / 2**20:,.1f} MiB" if size < 2**30 else f"{size / 2**30:,.1f} GiB"


class SpecError(RunnerError):
    """A value whose shape or dtype is not what the graph says: a fault in a kernel or in the lowering."""


class WeightsError(RunnerError):
    """Weights that do not fit a manifest. `problems` has one sentence for each tensor."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        shown = "; ".join(self.problems[:SHOWN])
        more = len(self.problems) - SHOWN
        super().__init__(f"{shown}; and {more} more" if more > 0 else shown)


class TokenizerError(RunnerError):
    """A tokenizer that cannot be used, or a text that it cannot read."""


class ChatError(RunnerError):
    """A chat template that fails, or messages that it cannot take."""


class SamplingError(RunnerError):
    """A temperature, top-k, top-p or seed that is none."""


class GenerationError(RunnerError):
    """A model that cannot generate text, or a prompt that it cannot go on from."""


class ContextError(GenerationError):
    """More tokens than the cache has positions."""

    def __init__(self, prompt: int, new: int, positions: int) -> None:
        self.prompt = prompt
        self.new = new
        self.positions = positions
        total = prompt + new
        super().__init__(
            f"a prompt of {counted(prompt, 'token')} and {counted(new, 'new one')} make {total}, but the cache holds "
            f"{positions} (MaxSeq): shorten the prompt, ask for fewer, or, where the model was trained for as many, "
            f"load with capacity={total} (--generic MaxSeq={total})"
        )


class EvaluationError(RunnerError):
    """A text, or a model, that has no perplexity."""


class NonFiniteError(RunnerError):
    """NaN or infinity among logits; the message names the layer where it first appeared."""
