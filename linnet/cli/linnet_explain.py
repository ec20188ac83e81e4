"""`linnet explain`: the op calls of an entry, with their shapes and kernels."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from linnet.cli.codes import FINE, PROBLEMS
from linnet.cli.frame import json_option
from linnet.cli.generic_options import given_generics, root_block
from linnet.cli.package_card import card_of, is_source, source_file

if TYPE_CHECKING:
    from linnet.language.program.binding import BoundProgram
    from linnet.language.program.checked import CheckedBlock, CheckedFunction, GenericDecl, Program
    from linnet.language.program.core import CoreNode, EntryGraph, TensorSpec
    from linnet.language.program.environment import Concrete
    from linnet.language.program.explain import Step
    from linnet.registry.card import Card

    Kernels = Mapping[str, Mapping[str, str]]
    Choice = Callable[[CoreNode], Kernels]

# The policy whose kernels are shown as text: under `exact` every op runs as its body.
SHOWN = "equivalent"


@dataclass(frozen=True, slots=True)
class Chosen:
    """An entry with the generics that it is explained at. `present`: the optional weights that exist."""

    bound: BoundProgram
    function: CheckedFunction
    own: Mapping[str, Concrete]
    present: frozenset[str]


@click.command("explain")
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@click.option("--entry", metavar="NAME", help="The entry; by default the card's, or the only one.")
@click.option("--root", metavar="BLOCK", help="The root block; by default the card's, or the one that has the entry.")
@click.option("--bind", "bindings", multiple=True, metavar="G=VALUE", help="Give a generic its value; may be repeated.")
@json_option
def command(file: Path, entry: str | None, root: str | None, bindings: tuple[str, ...], as_json: bool) -> int:
    """Show what an entry does: each op call in order, with its shapes and the kernel that runs it.

    FILE is a source, or a package's folder. Generics come from --bind, from the card where FILE is a package's source,
    and from defaults; others are taken small. What repeats, such as the layers of a model, is written once with its
    count. A call runs natively, or by the body that the op's source gives it; the calls which that body makes are then
    shown below it.

    Example: linnet explain nests/qwen3-8b-fp8/src/lib.linnet --entry decode
    """
    from linnet.language.check import load
    from linnet.language.diagnostics import render
    from linnet.language.program.explain import op_steps

    file = source_file(file)
    checked = load(file)
    if checked.program is None:
        click.echo("\n\n".join(render(item) for item in checked.diagnostics), err=True)
        return PROBLEMS
    chosen = _choose(checked.program, file, entry, root, bindings)
    graph = chosen.bound.lower(chosen.function.name, chosen.own, chosen.present)
    steps = op_steps(graph.graph)
    choice = _kernel_choice()
    if as_json:
        click.echo(json.dumps(_report(chosen, graph, steps, choice), indent=2))
    else:
        for line in _text(chosen, graph, steps, choice):
            click.echo(line)
    return FINE


def _choose(program: Program, file: Path, entry: str | None, root: str | None, bindings: tuple[str, ...]) -> Chosen:
    from linnet.language.program.binding import bind
    from linnet.language.program.small import small_generics

    found = card_of(file)
    folder, card = found if found is not None and is_source(file, *found) else (None, None)
    block, function = _block_and_entry(program, file, card, entry, root)
    block_generics = block.generics if block is not None else ()
    owner = f"{block.name}.{function.name}" if block is not None else function.name
    given = given_generics([*block_generics, *function.generics], owner, bindings)
    names = {decl.name for decl in block_generics}
    of_card = dict(card.generics) if card is not None and block is not None and _is_root(card, block, program) else {}
    of_block: dict[str, Concrete] = {**of_card, **{name: value for name, value in given.items() if name in names}}
    if block is not None and any(decl.name not in of_block and decl.default is None for decl in block.generics):
        of_block = small_generics(block, {**_defaults(block.generics), **of_block})
    bound = bind(program, block.name if block is not None else None, of_block)
    main = of_card and card is not None and function.name == card.source.entry
    own: dict[str, Concrete] = dict(card.check) if main and card is not None else {}
    own |= {name: value for name, value in given.items() if name not in names}
    own = {**small_generics(function, {**_defaults(function.generics), **bound.generics, **own}), **own}
    present = _present(folder, card, bound) if of_card and folder is not None and card is not None else frozenset()
    return Chosen(bound, function, own, present)


def _block_and_entry(
    program: Program, file: Path, card: Card | None, entry: str | None, root: str | None
) -> tuple[CheckedBlock | None, CheckedFunction]:
    """The entry, and the root block (None where the source has entries but no block that has any)."""
    blocks = {block.name: block for block in program.blocks_with_entries()}
    alone = {name: function for name, function in program.root.functions.items() if function.kind == "entry"}
    block: CheckedBlock | None = None
    if root is not None or blocks:
        having = [b for b in blocks.values() if entry in b.methods]
        if root is None and card is not None and card.source.root in program.root.blocks:
            root = card.source.root
        elif root is None and len(having) == 1:
            root = having[0].name
        block = root_block(program, root, file)
    entries = {**alone, **({method.name: method for method in block.entries()} if block is not None else {})}
    if entry is None:
        if card is not None and card.source.entry in entries:
            entry = card.source.entry
        elif len(entries) == 1:
            (entry,) = entries
    if not entries:
        help = "declare what a backend may run as `pub entry`"
        raise click.BadParameter(f"{file} has no entry to explain: {help}.", param_hint="FILE")
    if entry not in entries:
        listed = ", ".join(entries) or "none"
        said = f"has no entry {entry}" if entry is not None else "has several entries: name one with --entry"
        raise click.BadParameter(f"{file} {said}; its entries: {listed}.", param_hint="--entry")
    return block, entries[entry]


def _is_root(card: Card, block: CheckedBlock, program: Program) -> bool:
    if card.source.root is not None:
        return card.source.root == block.name
    return program.blocks_with_entries() == [block]


def _defaults(decls: Sequence[GenericDecl]) -> dict[str, int | str]:
    """The defaults that are plain values; others follow from the generics that they name."""
    from linnet.language.check.dims import Dim

    found: dict[str, int | str] = {}
    for decl in decls:
        if isinstance(decl.default, str):
            found[decl.name] = decl.default
        elif isinstance(decl.default, Dim) and decl.default.constant is not None:
            found[decl.name] = decl.default.constant
    return found


def _present(folder: Path, card: Card, bound: BoundProgram) -> frozenset[str]:
    """The optional weights that the package's bindings name: the checkpoint itself is not asked for."""
    from linnet.registry.bindings import read_bindings

    optional = {entry.path for entry in bound.manifest.entries if entry.optional}
    resolved = read_bindings(folder, card).resolve(bound.manifest, shrunk=dict(bound.generics) != dict(card.generics))
    return frozenset(resolved.written & optional)


def _kernel_choice() -> Choice | None:
    """None where no backend is installed."""
    from linnet.runner.explain import kernel_choice

    try:
        return kernel_choice()
    except ModuleNotFoundError:
        return None


# As text


def _text(chosen: Chosen, graph: EntryGraph, steps: Sequence[Step], choice: Choice | None) -> Iterator[str]:
    from linnet.language.program.explain import calls
    from linnet.language.words import counted
    from linnet.runner.explain import default_run

    owner = chosen.function.block
    yield click.style(f"{owner.name}.{graph.name}" if owner is not None else graph.name, bold=True)
    yield ""
    yield f"generics  {_values(chosen.bound.generics)}"
    yield f"entry's   {_values(graph.generics)}"
    yield f"inputs    {', '.join(f'{item.name}: {item.spec}' for item in graph.inputs) or 'none'}"
    yield f"results   {', '.join(str(value.spec) for value in graph.graph.outputs) or 'none'}"
    yield ""
    if choice is not None:
        yield f"torch, {SHOWN}"
    yield from _lines(steps, choice, "")
    made = list(calls(steps))
    total = sum(times for _, times in made)
    yield ""
    if choice is None:
        yield f"{counted(total, 'op call')}. torch is not installed, so its kernels are not known."
    else:
        native = sum(times for call, times in made if choice(call.node)["torch"][SHOWN] == "native")
        fused = sum(times for call, times in made if choice(call.node)["torch"]["fast"] == "fused")
        yield (
            f"{counted(total, 'op call')}: {native} native, {total - native} by body. Under exact all run by body, "
            f"under fast {fused} {'is' if fused == 1 else 'are'} fused."
        )
        yield default_run()


def _values(generics: Mapping[str, int | str]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in generics.items()) or "none"


def _lines(steps: Sequence[Step], choice: Choice | None, indent: str) -> Iterator[str]:
    from linnet.language.program.explain import Branch, OpCall, Repeated

    for step in steps:
        match step:
            case OpCall():
                yield from _call_lines(step, choice, indent, "")
            case Repeated(count=count, steps=(OpCall() as alone,)):
                yield from _call_lines(alone, choice, indent, f"{count} x ")
            case Repeated():
                yield f"{_column('', choice)}{indent}{step.count} times:"
                yield from _lines(step.steps, choice, indent + "    ")
            case Branch():
                passes = f", {step.count} passes" if step.count is not None else ""
                yield f"{_column('', choice)}{indent}{step.kind}{passes}:"
                yield from _lines(step.steps, choice, indent + "    ")


def _call_lines(call: Any, choice: Choice | None, indent: str, count: str) -> Iterator[str]:
    kernel = choice(call.node)["torch"][SHOWN] if choice is not None else ""
    yield f"{_column(kernel, choice)}{indent}{count}{call.text()}"
    if kernel == "body":
        yield from _lines(call.inside, choice, indent + "    ")


def _column(kernel: str, choice: Choice | None) -> str:
    return f"{kernel:8}" if choice is not None else ""


# As JSON


def _report(chosen: Chosen, graph: EntryGraph, steps: Sequence[Step], choice: Choice | None) -> dict[str, Any]:
    return {
        "entry": graph.name,
        "root": chosen.bound.block.name,
        "generics": chosen.bound.generics,
        "entry_generics": graph.generics,
        "inputs": [{"name": item.name, **_spec(item.spec)} for item in graph.inputs],
        "results": [_spec(value.spec) for value in graph.graph.outputs],
        "steps": [_step(step, choice) for step in steps],
    }


def _step(step: Step, choice: Choice | None) -> dict[str, Any]:
    from linnet.language.program.explain import OpCall, Repeated

    match step:
        case OpCall():
            attributes = step.node.attributes
            named = zip(attributes["parameters"], step.node.inputs, strict=True)
            return {
                "op": step.identity,
                "generics": attributes["generics"],
                "inputs": [{"name": name, **_spec(value.spec)} for name, value in named],
                "results": [_spec(value.spec) for value in step.node.outputs],
                "kernels": choice(step.node) if choice is not None else {},
                "body": [_step(inner, choice) for inner in step.inside],
            }
        case Repeated():
            return {"times": step.count, "steps": [_step(inner, choice) for inner in step.steps]}
    passes = {} if step.count is None else {"passes": step.count}
    return {"control": step.kind, **passes, "steps": [_step(inner, choice) for inner in step.steps]}


def _spec(spec: TensorSpec) -> dict[str, Any]:
    return {"shape": list(spec.shape), "dtype": spec.dtype}
