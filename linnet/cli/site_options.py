"""What `nest site build` and `nest site serve` share: where the packages are, and how pages are made of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from linnet.site_builder.sources import ModelSource

registry_option = click.option(
    "--registry",
    metavar="URL",
    help="The registry whose packages are shown, all their versions: a folder, https://..., hf://org/repo, "
    "s3://bucket/prefix.",
)
jobs_option = click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Processes to work in; by default as many as there are processors and models to keep them busy.",
)
guide_option = click.option(
    "--guide",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder that mkdocs build wrote, to be shown below /docs/.",
)


def site_sources(registry: str | None, nests: Path | None) -> Sequence[ModelSource]:
    """The models that the options name; those that ship with this distribution where neither is given."""
    if registry is not None and nests is not None:
        raise click.UsageError("Give --registry or --nests, not both.")
    if registry is not None:
        from linnet.site_builder.registry_source import registry_sources

        return registry_sources(registry)
    from linnet.registry.locate import BUNDLED
    from linnet.site_builder.sources import folder_sources

    return folder_sources(nests or BUNDLED)
