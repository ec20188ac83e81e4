"""Signatures side by side: what a caller notices, and what breaks one."""

from __future__ import annotations

from pathlib import Path

import pytest

from linnet.registry.gate_entries import differences, parse_signature
from linnet.registry.index import package_record

DECODE = "pub entry decode(token: Tensor[Batch, 1; i32], pos: i32) -> Tensor[Batch, Vocab; T]"
STEPS = "pub entry run<S: Dim, Steps: Dim = 8>(x: Tensor[S; f32]) -> Tensor[Steps; f32]\n    where S > 0"


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (DECODE, DECODE, []),
        # Layout, a comma at the end and comments make no difference.
        (DECODE, DECODE.replace("(token", "(\n    token").replace("i32)", "i32, // where\n)"), []),
        # The name of a generic that inputs determine is nobody's concern.
        (STEPS, STEPS.replace("S: Dim, ", "Rows: Dim, ").replace("[S;", "[Rows;").replace("S > 0", "Rows > 0"), []),
        (DECODE, DECODE.replace("i32)", "i32, z: f32 = 1.0)"), [("the input z is new, `1.0` by default", False)]),
        (DECODE, DECODE.replace("i32)", "i32, z: f32)"), [("the input z is new and has no default", True)]),
        (DECODE, DECODE.replace(", pos: i32", ""), [("the input pos is gone", True)]),
        (DECODE, DECODE.replace("pos: i32", "at: i32"), [("input 2 is named at instead of pos", True)]),
        (DECODE, DECODE.replace("pos: i32", "pos: i64"), [("pos is `i64` instead of `i32`", True)]),
        (
            DECODE,
            DECODE.replace("Vocab; T", "Vocab; f32"),
            [("it returns `Tensor[Batch, Vocab; f32]` instead of `Tensor[Batch, Vocab; T]`", True)],
        ),
        (STEPS, STEPS.replace("Dim = 8", "Dim"), [("Steps has no default, and had `8`", True)]),
        (STEPS, STEPS.replace("Dim = 8", "Dim = 9"), [("Steps is `9` by default instead of `8`", True)]),
        (STEPS.replace("Dim = 8", "Dim"), STEPS, [("Steps is `8` by default", False)]),
        (STEPS, STEPS.replace("Steps", "Count"), [
            ("the generic Steps is gone, or taken from the inputs", True),
            ("the generic Count is new and is `8` by default", False),
            ("it returns `Tensor[Count; f32]` instead of `Tensor[Steps; f32]`", True),
        ]),
        (STEPS, STEPS.replace("S > 0", "S > 1"), [
            ("it demands `S > 1`", True),
            ("it no longer demands `S > 0`", False),
        ]),
        ("pub entry old syntax", "pub entry  old   syntax", []),
        ("pub entry old syntax", DECODE, [(f"it is `{DECODE}` instead of `pub entry old syntax`", True)]),
    ],
)  # fmt: skip
def test_differences(before: str, after: str, told: list[tuple[str, bool]]) -> None:
    assert [(item.text, item.breaking) for item in differences(before, after)] == told


def test_every_signature_of_the_packages_here_is_read(root: Path) -> None:
    record = package_record(root / "nests" / "qwen3-tiny-fp8")
    assert len(record["entries"]) > 10
    for entry in record["entries"]:
        assert parse_signature(entry["signature"]) is not None, entry["signature"]
        assert differences(entry["signature"], entry["signature"]) == []
