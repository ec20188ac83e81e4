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
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """An empty registry of each kind that can be written."""
    if request.param == "directory":
        made = directory_place(tmp_path)
    else:
        made = request.getfixturevalue(f"{request.param}_places")()
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture
def store(place: Place) -> Store:
    return place.open()
