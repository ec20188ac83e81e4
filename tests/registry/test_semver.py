"""Versions: which text is one, their order, the next one."""

from __future__ import annotations

import itertools

import pytest

from linnet.registry.semver import in_order, next_free, precedence, version_fault

# The example of semver.org, and what surrounds it.
ORDERED = [
    "0.0.0", "0.0.1", "0.9.0", "0.10.0", "1.0.0-0", "1.0.0-1", "1.0.0-10", "1.0.0-alpha", "1.0.0-alpha.1",
    "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0-rc.1", "1.0.0", "2.0.0-a-b", "2.0.0",
]  # fmt: skip


def test_the_order_is_that_of_semver() -> None:
    assert in_order(reversed(ORDERED)) == ORDERED
    for one, other in itertools.combinations(ORDERED, 2):
        assert precedence(one) < precedence(other)
    assert all(version_fault(version) is None for version in ORDERED)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("1.0", "is not a version"),
        ("01.0.0", "is not a version"),
        ("1.0.0-01", "is not a version"),
        ("1.0.0-", "is not a version"),
        ("1.0.0-a..b", "is not a version"),
        ("1.0.0-a_b", "is not a version"),
        ("v1.0.0", "is not a version"),
        ("1.0.0\n", "is not a version"),
        ("1.0.٣", "is not a version"),
        ("", "is not a version"),
        ("1.0.0+5", "has build metadata"),
        ("1.0.0-RC.1", "holds capital letters"),
        ("1.0.0-" + "a" * 59, "has 65 characters"),
    ],
)
def test_what_is_no_version_is_told(text: str, fault: str) -> None:
    found = version_fault(text)
    assert found is not None
    assert found.startswith(fault)


@pytest.mark.parametrize(
    ("version", "taken", "free"),
    [
        ("0.1.0", ["0.1.0"], "0.1.1"),
        ("0.1.0", ["0.1.0", "0.1.1", "0.1.2"], "0.1.3"),
        ("1.0.0-rc.1", ["1.0.0-rc.1"], "1.0.0-rc.2"),
        ("1.0.0-rc", ["1.0.0-rc"], "1.0.0-rc.1"),
        ("1.0.0-rc.a", ["1.0.0-rc.a.1"], "1.0.0-rc.a.2"),
        ("1.0.0-4", ["1.0.0-4"], "1.0.0-4.1"),
    ],
)
def test_the_next_free_version_comes_after_and_is_free(version: str, taken: list[str], free: str) -> None:
    assert next_free(version, taken) == free
    assert precedence(free) > precedence(version)
    assert version_fault(free) is None
