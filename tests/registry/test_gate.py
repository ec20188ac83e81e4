"""The gate's comparison: each kind of change, what its message names, where it is, and what a card may accept."""

from __future__ import annotations

from pathlib import Path

import pytest
from gate_package import TENSORS, Stack, copied, snapshot, write_stack

from linnet.registry.gate_findings import KINDS, GateFinding, Place


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Stack:
    return write_stack(tmp_path_factory.mktemp("made") / "stack")


@pytest.fixture
def stack(made: Stack, tmp_path: Path) -> Stack:
    return copied(made, tmp_path / "stack")


def only(found: list[GateFinding], kind: str) -> GateFinding:
    """The one finding of a kind."""
    assert {finding.kind for finding in found} <= KINDS.keys()
    (finding,) = [finding for finding in found if finding.kind == kind]
    return finding


def regressions(found: list[GateFinding]) -> list[str]:
    return [finding.id for finding in found if finding.severity == "regression"]


def test_nothing_changed(stack: Stack) -> None:
    assert stack.findings() == []
    assert stack.before.same_content(snapshot(stack.folder))


def test_a_readme_changes_no_program(stack: Stack) -> None:
    (stack.folder / "README.md").write_text("# Stack, again\n")
    after = snapshot(stack.folder)
    assert not stack.before.same_content(after)
    assert stack.before.same_program(after)
    finding = only(stack.findings(), "version-taken")
    assert finding.severity == "notice"
    assert finding.message == "stack 0.1.0 is published with other content, and a published version never changes."
    assert finding.help == "Publish this as 0.1.1."
    assert finding.place == Place("linnet.toml", 3)
    stack.edit("linnet.toml", '"0.1.0"', '"0.1.1"')
    assert stack.findings() == []


def test_a_binding_renamed(stack: Stack) -> None:
    stack.edit("bindings.json", "h.{i}.up", "h.{i}.down")
    finding = only(stack.findings(), "binding-renamed")
    assert finding == GateFinding(
        "binding-renamed",
        "regression",
        "layers.{i}.up.weight",
        "The parameter layers.{i}.up.weight (in 2 places) reads the tensor h.{i}.down instead of h.{i}.up.",
        "The weights are the same as before, so it now reads other numbers: restore h.{i}.up.",
        Place("bindings.json", 2),
    )
    assert finding.id == "binding-renamed:layers.{i}.up.weight"


def test_a_binding_of_one_layer_renamed_to_a_tensor_that_is_not_there(stack: Stack) -> None:
    stack.edit("bindings.json", '"shift": "shift"', '"layers.1.bias": "x"')
    found = stack.findings()
    assert "check-failed:layers.1.bias" in regressions(found)
    stack.edit("bindings.json", '"layers.1.bias": "x"', '"shift": "offset"')
    found = stack.findings()
    assert regressions(found) == ["check-failed:shift", "binding-renamed:shift"]
    assert 'reads the tensor "offset", which is not in' in found[0].message
    assert found[1].message == "The parameter shift reads the tensor offset instead of shift."
    assert found[1].place == Place("bindings.json", 4)


def test_tensors_renamed_in_new_weights(stack: Stack) -> None:
    stack.edit("bindings.json", '"shift": "shift"', '"shift": "offset"')
    stack.tensors({name.replace("shift", "offset"): shape for name, shape in TENSORS.items()})
    found = stack.findings()
    finding = only(found, "binding-renamed")
    assert finding.help.startswith("Restore shift, since whoever loads weights of their own")
    assert only(found, "weights-changed").severity == "notice"
    assert regressions(found) == ["binding-renamed:shift"]


def test_a_shape_changed(stack: Stack) -> None:
    stack.edit("src/lib.linnet", "param shift: Tensor[N; T]", "param shift: Tensor[1, N; T]")
    stack.edit("src/lib.linnet", "shift[n]", "shift[0, n]")
    stack.tensors({**TENSORS, "shift": (1, 4)})
    found = stack.findings()
    finding = only(found, "shape-changed")
    assert regressions(found) == ["shape-changed:shift"]
    assert finding.message == "The shape of shift is [1, 4] instead of [4]."
    assert finding.place == Place("src/lib.linnet", 20)


def test_a_shape_that_the_weights_do_not_have(stack: Stack) -> None:
    stack.edit("nest.toml", "N = 4", "N = 8")
    found = stack.findings()
    assert "shape-changed:layers.{i}.up.weight" in regressions(found)
    failed = [item for item in found if item.kind == "check-failed"]
    assert [item.where for item in failed] == ["layers.{i}.down.weight", "layers.{i}.up.weight", "shift"]
    assert failed[1].message.startswith("In 2 places: The shapes of layers.{i}.up.weight differ: ")
    assert failed[1].place == Place("bindings.json", 2)
    assert failed[2].message.startswith("The shapes of shift differ: ")
    assert only(found, "generic-changed").message == "The generic N is 8 instead of 4."
    assert only(found, "generic-changed").place == Place("nest.toml", 15)


def test_a_dtype_changed(stack: Stack) -> None:
    stack.edit("nest.toml", 'T = "f32"', 'T = "bf16"')
    found = stack.findings()
    messages = [finding.message for finding in found if finding.kind == "dtype-changed"]
    assert "The dtype of layers.{i}.up.weight (in 2 places) is bf16 instead of f32." in messages
    assert "The dtype of shift is bf16 instead of f32." in messages


def test_a_path_renamed_is_told_from_one_removed(stack: Stack) -> None:
    stack.edit("src/lib.linnet", "sub down: Linear", "sub lower: Linear")
    stack.edit("src/lib.linnet", "down.forward", "lower.forward")
    stack.edit("bindings.json", "layers.{i}.down.weight", "layers.{i}.lower.weight")
    found = stack.findings()
    finding = only(found, "path-renamed")
    assert regressions(found) == ["path-renamed:layers.{i}.down.weight"]
    assert finding.message == "The path layers.{i}.down.weight is now layers.{i}.lower.weight, with the same tensor."
    assert finding.place == Place("src/lib.linnet", 9)
    # Optional ones that the weights never had are no loss.
    assert only(found, "path-removed").severity == "notice"
    assert only(found, "path-removed").where == "layers.{i}.down.bias"


def test_paths_removed_and_added(stack: Stack) -> None:
    stack.edit("src/lib.linnet", "    param shift: Tensor[N; T]\n", "    param scale: Tensor[1; T]\n")
    stack.edit("src/lib.linnet", "shift[n]", "scale[0]")
    stack.edit("bindings.json", '"shift": "shift"', '"scale": "scale"')
    stack.tensors({**{name: shape for name, shape in TENSORS.items() if name != "shift"}, "scale": (1,)})
    found = stack.findings()
    assert regressions(found) == ["path-added:scale", "path-removed:shift"]
    assert only(found, "path-removed").message == "The parameter shift is gone, which read the tensor shift."
    assert only(found, "path-added").message == "The parameter scale is new, f32 [1]."


def test_optional_and_required(stack: Stack) -> None:
    stack.edit("src/lib.linnet", "param shift: Tensor[N; T]", "param shift: Tensor[N; T]? = none")
    stack.edit(
        "src/lib.linnet",
        "let z[b, n] = y[b, n] + shift[n]\n        return z",
        "return match shift { some(s) => y + s  none => y }",
    )
    finding = only(stack.findings(), "presence-changed")
    assert finding.severity == "notice"
    assert finding.message == "The parameter shift is optional, and was required."


def test_an_entry_removed(stack: Stack) -> None:
    text = (stack.folder / "src/lib.linnet").read_text()
    start = text.index("    /// The input twice.")
    stack.edit("src/lib.linnet", text[start:], "}\n")
    finding = only(stack.findings(), "entry-removed")
    assert finding.severity == "regression"
    assert finding.message == (
        "The entry twice is gone: pub entry twice<B: Dim>(x: Tensor[B, N; T], times: i32 = 2) -> Tensor[B, N; T] "
        "where B > 0"
    )
    assert finding.help.endswith('The entries are "forward".')
    assert finding.place == Place("src/lib.linnet", 18)


def test_an_entry_changed(stack: Stack) -> None:
    stack.edit("src/lib.linnet", "times: i32 = 2", "count: i64 = 2")
    finding = only(stack.findings(), "entry-changed")
    assert finding.severity == "regression"
    assert finding.message == (
        "The entry twice changed: input 2 is named count instead of times; count is `i64` instead of `i32`."
    )
    assert finding.place is not None
    assert finding.place.file == "src/lib.linnet"


def test_an_entry_that_takes_more_is_no_regression(stack: Stack) -> None:
    stack.edit(
        "src/lib.linnet", "twice<B: Dim>(x: Tensor[B, N; T], times", "twice<Rows: Dim>(x: Tensor[Rows, N; T], times"
    )
    stack.edit("src/lib.linnet", "-> Tensor[B, N; T]\n        where B > 0", "-> Tensor[Rows, N; T]")
    stack.edit(
        "src/lib.linnet",
        "    /// The input twice.",
        "    pub entry same(x: Tensor[N; T]) -> Tensor[N; T] {\n        return x\n    }\n\n    /// The input twice.",
    )
    found = stack.findings()
    assert regressions(found) == []
    assert only(found, "entry-changed").message == "The entry twice changed: it no longer demands `B > 0`."
    assert only(found, "entry-added").where == "same"


def test_the_main_entry_changed(stack: Stack) -> None:
    stack.edit("nest.toml", 'entry = "forward"', 'entry = "twice"')
    finding = only(stack.findings(), "main-entry-changed")
    assert (finding.severity, finding.place) == ("regression", Place("nest.toml", 12))
    assert finding.message == "A call of the model runs the entry twice instead of forward."


def test_generics_removed_and_added(stack: Stack) -> None:
    stack.edit("src/lib.linnet", "Layers: Dim, T: Float = f32", "Depth: Dim, T: Float = f32, Extra: Dim = 3")
    stack.edit("src/lib.linnet", "; Layers]", "; Depth]")
    stack.edit("nest.toml", "Layers = 2", "Depth = 2")
    found = stack.findings()
    assert regressions(found) == ["generic-removed:Layers"]
    assert {finding.where for finding in found if finding.kind == "generic-added"} == {"Depth", "Extra"}


def test_the_licence_changed(stack: Stack) -> None:
    stack.edit("nest.toml", '"MIT"', '"CC-BY-NC-4.0"')
    finding = only(stack.findings(), "licence-changed")
    assert (finding.severity, finding.id, finding.place) == ("regression", "licence-changed", Place("nest.toml", 5))
    assert finding.message == "The licence is CC-BY-NC-4.0 instead of MIT."


def test_the_weights_moved(stack: Stack) -> None:
    one, other = "1" * 40, "2" * 40
    digest = snapshot(stack.folder).weights.sha256["model.safetensors"]
    stack.edit(
        "nest.toml",
        'files = ["model.safetensors"]',
        f'repo = "owner/stack"\nrevision = "{one}"\nfiles = ["model.safetensors"]',
    )
    pinned = snapshot(stack.folder)
    finding = only(stack.findings(), "weights-moved")
    assert finding.severity == "notice"
    assert finding.message == f"The weights are owner/stack at {one} instead of beside the card."
    stack.before = pinned
    stack.edit("nest.toml", one, other)
    finding = only(stack.findings(), "weights-moved")
    assert finding.message == f"The weights are owner/stack at {other} instead of owner/stack at {one}."
    assert finding.place == Place("nest.toml", 21)
    # With digests the bytes can be told to be the same.
    card = stack.folder / "nest.toml"
    card.write_text(card.read_text() + f'\n[weights.sha256]\n"model.safetensors" = "{digest}"\n')
    after = snapshot(stack.folder)
    stack.before = after
    stack.edit("nest.toml", other, one)
    assert only(stack.findings(), "weights-moved").message.endswith(", the same bytes.")


def test_weight_files_added_and_removed(stack: Stack) -> None:
    (stack.folder / "model.safetensors").rename(stack.folder / "other.safetensors")
    stack.edit("nest.toml", "model.safetensors", "other.safetensors")
    found = stack.findings()
    assert regressions(found) == []
    assert only(found, "weights-removed").where == "model.safetensors"
    assert only(found, "weights-added").where == "other.safetensors"


def test_limits_and_protocol(stack: Stack) -> None:
    card = stack.folder / "nest.toml"
    card.write_text(
        card.read_text() + "\n[bench]\nwindow = 64\n\n[gate]\nperplexity_increase = 0.5\nmemory_increase = 0.05\n"
    )
    found = stack.findings()
    assert (
        only(found, "limit-raised").message == "[gate] perplexity_increase allows 50.0%, and the published card 1.0%."
    )
    assert only(found, "bench-changed").message == '[bench] window is "64" instead of absent.'
    assert regressions(found) == []


@pytest.mark.parametrize(
    "pattern",
    [
        "licence-changed",
        "licence-*",
        "*",
    ],
)
def test_a_card_accepts_a_change(stack: Stack, pattern: str) -> None:
    stack.edit("nest.toml", '"MIT"', '"CC-BY-NC-4.0"')
    stack.allow(pattern)
    found = stack.findings()
    finding = only(found, "licence-changed")
    assert regressions(found) == []
    assert (finding.severity, finding.allowed) == ("notice", pattern)
    assert finding.help == f'Accepted by [gate] allow: "{pattern}".'


def test_one_layer_is_accepted_and_the_other_is_not(stack: Stack) -> None:
    stack.edit("bindings.json", "h.{i}.up", "h.{i}.down")
    stack.allow("binding-renamed:layers.0.*")
    found = [finding for finding in stack.findings() if finding.kind == "binding-renamed"]
    assert [(finding.severity, finding.where) for finding in found] == [
        ("regression", "layers.1.up.weight"),
        ("notice", "layers.0.up.weight"),
    ]
    stack.edit("nest.toml", "layers.0.*", "layers.{i}.up.weight")
    assert regressions(stack.findings()) == []


def test_the_check_is_part_of_the_gate(stack: Stack) -> None:
    stack.edit("src/lib.linnet", "return x + x", "return x + ")
    found = stack.findings()
    finding = only(found, "check-failed")
    assert finding.severity == "regression"
    assert finding.id == "check-failed:src/lib.linnet:36:19"
    assert finding.place == Place("src/lib.linnet", 36)
    assert finding.message == "E1101: expected an expression, found `}`."


def test_weights_that_are_not_there(stack: Stack) -> None:
    (stack.folder / "model.safetensors").unlink()
    finding = only(stack.findings(), "check-failed")
    assert finding.message.startswith("The weights file model.safetensors is not in")


def test_a_fault_is_never_accepted(stack: Stack) -> None:
    stack.edit("src/lib.linnet", "return x + x", "return x + ")
    stack.allow("*")
    assert regressions(stack.findings()) == ["check-failed:src/lib.linnet:36:19"]
