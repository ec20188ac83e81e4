"""One fresh place of each kind, its environment set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from store_places import KINDS, Place, directory_place, hub_place, s3_place

from linnet.registry.store.base import Store


@pytest.fixture(scope="session")
def s3_places() -> Iterator[Callable[[], Place]]:
    with s3_place() as make:
        yield make


@pytest.fixture(scope="session")
def hub_places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Place]]:
    with hub_place(tmp_path_factory.mktemp("hub")) as make:
        yield make


@pytest.fixture(params=KINDS)
def new_place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Place]:
    """Makes empty registries of each kind that can be written."""
    made = request.getfixturevalue(f"{request.param}_places") if request.param != "directory" else None

    def make() -> Place:
        place = made() if made is not None else directory_place(tmp_path)
        for name, value in place.environment.items():
            monkeypatch.setenv(name, value)
        return place

    return make


@pytest.fixture
def place(new_place: Callable[[], Place]) -> Place:
    """An empty registry of each kind that can be written."""
    return new_place()


@pytest.fixture
def store(place: Place) -> Store:
    return place.open()
