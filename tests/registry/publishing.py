"""Tiny publications for tests of the store's part of a publish: no source is checked, no model run."""

from __future__ import annotations

import hashlib
import uuid
from pathlib import Path

from linnet.registry.package import PackageFile
from linnet.registry.publish import Publication
from linnet.registry.records import VersionRecord, WeightRecord, WeightsPin

WHEN = "2026-01-31T12:00:00Z"
CHECK = {"schema": 1, "ok": True, "sections": [{"name": "smoke", "status": "ok", "summary": "stored", "findings": []}]}


def tiny_publication(folder: Path, name: str, version: str, content: str = "") -> Publication:
    """A package of three files, of which one is shared by all, and weights beside its card."""
    texts = {
        "README.md": f"# {name}\n",
        "nest.toml": f'name = "{name}"\nversion = "{version}"\ncontent = "{content}"\n',
        "src/lib.linnet": "pub block Shared {}\n",
        "model.safetensors": f"weights of {name}",
    }
    files, objects = [], {}
    for path, text in sorted(texts.items()):
        data = text.encode()
        digest = hashlib.sha256(data).hexdigest()
        objects[digest] = folder / digest
        objects[digest].write_bytes(data)
        files.append(PackageFile(path, len(data), digest))
    *own, weights = sorted(files, key=lambda file: file.path == "model.safetensors")
    model = {"name": name, "title": name.title(), "summary": "A tiny one.", "license": "MIT", "family": "tiny"}
    record = VersionRecord(
        name=name,
        version=version,
        publish_id=uuid.uuid4().hex,
        published=WHEN,
        files=tuple(own),
        card={"model": {**model, "tags": ["t"]}},
        weights=WeightsPin(None, None, (WeightRecord(weights.path, weights.size, weights.sha256, object=True),)),
        record={"parameter_count": 7, "entries": []},
        check=CHECK,
    )
    return Publication(record, objects)
