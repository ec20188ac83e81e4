"""Safetensors headers: what is read, and every way in which bytes can lie."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hub_server import header_bytes, write_sparse
from hypothesis import given
from hypothesis import strategies as st

from linnet.registry.errors import HeaderError
from linnet.registry.headers import (
    DTYPE_BITS,
    HEADER_BYTES,
    TensorInfo,
    header_length,
    join_headers,
    parse_header,
    read_header,
    read_headers,
)

STEP = "Download the file again, or write it again with the safetensors library."


def entry(dtype: object = "F32", shape: object = (2,), offsets: object = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def parse(header: object, data: int = 8) -> tuple[TensorInfo, ...]:
    """The header of a file that has `data` bytes of tensors."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return parse_header(raw, "m.safetensors", len(raw), 8 + len(raw) + data)


def message(call: Callable[[], object]) -> str:
    with pytest.raises(HeaderError) as caught:
        call()
    (problem,) = caught.value.problems
    assert problem.where == "m.safetensors"
    return problem.message


def test_a_file_is_read_up_to_its_header(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    write_sparse(path, [("b", "BF16", (3, 2)), ("empty", "F32", (0, 7)), ("a", "F8_E4M3", (5,)), ("scalar", "I64", ())])
    start = path.stat().st_size - 8 - 5 - 12
    assert read_header(path, "sub/m.safetensors") == (
        TensorInfo("b", "BF16", (3, 2), "sub/m.safetensors", start, start + 12),
        TensorInfo("empty", "F32", (0, 7), "sub/m.safetensors", start + 12, start + 12),
        TensorInfo("a", "F8_E4M3", (5,), "sub/m.safetensors", start + 12, start + 17),
        TensorInfo("scalar", "I64", (), "sub/m.safetensors", start + 17, start + 25),
    )


def test_it_reads_what_the_safetensors_library_writes(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy", reason="numpy comes with the torch extra")
    safetensors = pytest.importorskip("safetensors.numpy", reason="safetensors comes with the torch extra")
    arrays = {"x": numpy.arange(6, dtype="int32").reshape(2, 3), "y": numpy.ones(4, dtype="float16")}
    path = tmp_path / "m.safetensors"
    safetensors.save_file(arrays, path, metadata={"format": "np"})
    data = path.read_bytes()
    infos = {info.name: info for info in read_header(path)}
    assert set(infos) == {"x", "y"}
    for name, array in arrays.items():
        assert infos[name].shape == array.shape
        assert data[infos[name].start : infos[name].end] == array.tobytes()


@pytest.mark.parametrize(("dtype", "bits"), DTYPE_BITS.items())
def test_every_dtype_of_the_format(dtype: str, bits: int) -> None:
    (info,) = parse({"x": entry(dtype, [8], [0, bits])}, bits)
    assert str(info) == f"{dtype} [8]"


@pytest.mark.parametrize(
    ("prefix", "size", "wanted"),
    [
        (b"", None, "m.safetensors ends after 0 bytes, before its header's length."),
        (b"\x08\0\0", None, "m.safetensors ends after 3 bytes, before its header's length."),
        (
            b"\xff" * 8,
            None,
            "m.safetensors declares a header of 18446744073709551615 bytes, more than the format's 100000000.",
        ),
        (
            (HEADER_BYTES + 1).to_bytes(8, "little"),
            None,
            "m.safetensors declares a header of 100000001 bytes, more than the format's 100000000.",
        ),
        (b"\0" * 8, None, "m.safetensors declares a header of 0 bytes, too short for a JSON object."),
        ((50).to_bytes(8, "little"), 57, "m.safetensors is 57 bytes long, but its header alone needs 58."),
    ],
)
def test_a_length_that_cannot_be(prefix: bytes, size: int | None, wanted: str) -> None:
    assert message(lambda: header_length(prefix, "m.safetensors", size)) == wanted


def test_the_largest_length_is_allowed() -> None:
    assert header_length(HEADER_BYTES.to_bytes(8, "little"), "m.safetensors") == HEADER_BYTES


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        (b"[1, 2]", "The header of m.safetensors does not begin with a JSON object."),
        (b" {}", "The header of m.safetensors does not begin with a JSON object."),
        (b"{]", "The header of m.safetensors is not JSON at line 1, column 2: "),
        (b'{"\xff": 1}', "The header of m.safetensors is not UTF-8 at byte 2."),
        (b'{"a":' * 50_000, "The header of m.safetensors is nested too deeply."),
        (b'{"a":' + b"9" * 5000 + b"}", "The header of m.safetensors holds a number that is out of range."),
        (b'{"a": 1, "a": 2}', 'The header of m.safetensors declares "a" twice.'),
        (b'{"__metadata__": {}, "__metadata__": {}}', 'The header of m.safetensors declares "__metadata__" twice.'),
        ({"__metadata__": {"a": 1}}, "The __metadata__ of m.safetensors is not an object of strings."),
        ({"__metadata__": []}, "The __metadata__ of m.safetensors is not an object of strings."),
        ({"x": 3}, 'The tensor "x" of m.safetensors is not declared by exactly a dtype, a shape and data_offsets.'),
        ({"x": {**entry(), "y": 1}}, 'The tensor "x" of m.safetensors is not declared by exactly a dtype'),
        (
            b'{"x": {"dtype": "F32", "dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}',
            'The tensor "x" of m.safetensors is not declared by exactly a dtype',
        ),
        ({"x": entry("F33")}, 'The tensor "x" of m.safetensors has an unknown dtype: "F33".'),
        ({"x": entry(4)}, 'The tensor "x" of m.safetensors has an unknown dtype: not a string.'),
        ({"x": entry(shape=2)}, 'The tensor "x" of m.safetensors has a shape that is not a list of at most 64 sizes.'),
        ({"x": entry(shape=[-2])}, 'The tensor "x" of m.safetensors has a shape that is not a list'),
        ({"x": entry(shape=[True])}, 'The tensor "x" of m.safetensors has a shape that is not a list'),
        ({"x": entry(shape=[2.0])}, 'The tensor "x" of m.safetensors has a shape that is not a list'),
        ({"x": entry(shape=[1] * 65)}, 'The tensor "x" of m.safetensors has a shape that is not a list'),
        ({"x": entry(shape=[2**64])}, 'The tensor "x" of m.safetensors has a shape that is not a list'),
        (
            {"x": entry(offsets=[8, 0])},
            'The tensor "x" of m.safetensors has data_offsets that are not a begin and an end.',
        ),
        (
            {"x": entry(offsets=[0])},
            'The tensor "x" of m.safetensors has data_offsets that are not a begin and an end.',
        ),
        ({"x": entry(offsets=[0, 2**64])}, 'The tensor "x" of m.safetensors has data_offsets that are not a begin'),
        (
            {"x": entry(shape=[3])},
            'The tensor "x" of m.safetensors is declared F32 [3], 12 bytes, but its offsets hold 8 bytes.',
        ),
        (
            {"x": entry("F4", [3], [0, 1])},
            'The tensor "x" of m.safetensors is declared F4 [3], 12 bits, but its offsets hold 1 bytes.',
        ),
        (
            {"x": entry(shape=[2**62, 2**62, 16])},
            'The tensor "x" of m.safetensors is declared F32 [4611686018427387904, 4611686018427387904, 16], ',
        ),
        (
            {"x": entry(offsets=[8, 16])},
            'The tensor "x" ends at byte ',
        ),
        (
            {"x": entry(shape=[1], offsets=[4, 8])},
            'm.safetensors has 4 bytes that belong to no tensor before "x".',
        ),
        (
            {"x": entry(shape=[1], offsets=[0, 4]), "y": entry("U8", [6], [2, 8])},
            'The tensor "y" of m.safetensors overlaps "x".',
        ),
        (
            {"x": entry("U8", [2], [0, 2]), "y": entry("U8", [4], [4, 8])},
            'm.safetensors has 2 bytes that belong to no tensor before "y".',
        ),
        ({"x": entry("U8", [6], [0, 6])}, "m.safetensors is "),
        ({}, "m.safetensors is 18 bytes long, but its tensors end at byte 10."),
    ],
)
def test_a_header_that_cannot_be_trusted(header: object, wanted: str) -> None:
    assert message(lambda: parse(header)).startswith(wanted)


def test_a_header_that_ends_early() -> None:
    assert message(lambda: parse_header(b"{}", "m.safetensors", 10)) == (
        "m.safetensors ends inside its header: 2 of 10 bytes are there."
    )


def test_local_files_that_are_cut(tmp_path: Path) -> None:
    start, size = header_bytes([("x", "F32", (4,))])
    path = tmp_path / "m.safetensors"
    for length in range(size):
        path.write_bytes((start + bytes(16))[:length])
        with pytest.raises(HeaderError):
            read_header(path)
    path.write_bytes(start + bytes(16))
    assert len(read_header(path)) == 1
    path.write_bytes(start + bytes(17))
    assert message(lambda: read_header(path)).endswith("its tensors end at byte " + f"{size}.")


def test_the_problems_of_all_files_come_together(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(HeaderError) as caught:
        read_headers({"a.safetensors": tmp_path / "a", "b.safetensors": tmp_path / "b"})
    assert [problem.where for problem in caught.value.problems] == ["a.safetensors", "b.safetensors"]
    assert all(problem.help == STEP for problem in caught.value.problems)


def test_a_tensor_in_two_files(tmp_path: Path) -> None:
    for name in ("1", "2"):
        write_sparse(tmp_path / name, [("x", "F32", (1,)), (f"y{name}", "F32", (1,))])
    headers = {f"{name}.safetensors": read_header(tmp_path / name, f"{name}.safetensors") for name in ("1", "2")}
    with pytest.raises(HeaderError) as caught:
        join_headers(headers)
    assert str(caught.value) == (
        f'2.safetensors: The tensor "x" is in 1.safetensors and again in 2.safetensors. {STEP}'
    )
    table = join_headers({"1.safetensors": headers["1.safetensors"]})
    assert list(table) == ["x", "y1"]
    assert len(table) == 2
    assert "y2" not in table
    assert table["y1"].file == "1.safetensors"
    assert table.files == ("1.safetensors",)


@given(st.binary(max_size=120))
def test_any_bytes_give_tensors_or_a_header_error(data: bytes) -> None:
    with contextlib.suppress(HeaderError):
        length = header_length(data[:8], "m", len(data))
        assert all(info.end <= len(data) for info in parse_header(data[8 : 8 + length], "m", length, len(data)))


JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-5, 2**65), st.floats(), st.text(max_size=4), st.sampled_from(["F32"])
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from(["dtype", "shape", "data_offsets", "__metadata__", "x"]), inner, max_size=4),
    ),
    max_leaves=10,
)
SIZES = st.integers(0, 6)
ENTRY = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["U8", "F4", "F32", "BF16"]),
        "shape": st.lists(SIZES, max_size=3),
        "data_offsets": st.tuples(SIZES, SIZES),
    }
)


def test_nothing_is_worded_about_tensors_that_are_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(text: str) -> str:
        raise AssertionError(f"put {text} into words")

    monkeypatch.setattr("linnet.registry.headers.shown", refuse)
    assert len(parse({"a": entry(), "b": entry(offsets=(8, 16))}, 16)) == 2


@given(st.dictionaries(st.text(max_size=3), st.one_of(JSON, ENTRY), max_size=4), st.integers(0, 30))
def test_what_is_accepted_fills_the_file(header: dict[str, Any], data: int) -> None:
    raw = json.dumps(header).encode()
    with contextlib.suppress(HeaderError):
        infos = parse_header(raw, "m", len(raw), 8 + len(raw) + data)
        bounds = [8 + len(raw), *(edge for info in infos for edge in (info.start, info.end)), 8 + len(raw) + data]
        assert bounds == sorted(bounds)
        assert bounds[0::2] == bounds[1::2]


@given(st.lists(st.tuples(st.sampled_from(["U8", "BF16", "F32"]), st.lists(SIZES, max_size=3)), max_size=5))
def test_every_true_header_is_accepted(tensors: list[tuple[str, list[int]]]) -> None:
    start, size = header_bytes([(f"t{i}", dtype, shape) for i, (dtype, shape) in enumerate(tensors)])
    infos = parse_header(start[8:], "m", header_length(start[:8], "m", size), size)
    assert {(info.dtype, info.shape) for info in infos} == {(dtype, tuple(shape)) for dtype, shape in tensors}
