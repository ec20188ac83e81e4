"""`nest site serve`: the site in a browser, as it is now."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from linnet.cli.codes import FINE
from linnet.cli.frame import nests_option, quiet_option
from linnet.cli.output import progress
from linnet.cli.site_options import guide_option, jobs_option, registry_option, site_sources

if TYPE_CHECKING:
    from linnet.site_builder.build import SiteReport
    from linnet.site_builder.serve import Rebuilder, SiteServer
    from linnet.site_builder.sources import ModelSource

# How often the packages are looked at: a folder often, a registry that is somewhere else seldom.
LOCAL_SECONDS, REMOTE_SECONDS = 0.5, 30.0


@click.command("serve")
@registry_option
@nests_option
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 takes a free one.")
@guide_option
@jobs_option
@quiet_option
def command(
    registry: str | None, nests: Path | None, port: int, guide: Path | None, jobs: int | None, quiet: bool
) -> int:
    """Serve the site on this machine, and build it again when a package changes; open pages then reload.

    Ctrl-C ends it.

    Example: nest site serve --nests nests
    """
    from linnet.site_builder.build import build_site
    from linnet.site_builder.serve import Rebuilder, SiteServer

    with tempfile.TemporaryDirectory(prefix="nest-site-") as scratch:
        folder = Path(scratch) / "site"

        def build(sources: Sequence[ModelSource]) -> SiteReport:
            return build_site(sources, folder, jobs=jobs, guide=guide, watch=progress("drawing", quiet=quiet))

        rebuilder = Rebuilder(lambda: site_sources(registry, nests), build)
        # What is wrong at the start ends the command; later it is told, and the site stays as it was.
        _tell(rebuilder.step(), quiet)
        with SiteServer(folder, port) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            click.echo(f"Serving {server.url} (Ctrl-C ends it)")
            remote = registry is not None and not Path(registry).expanduser().is_dir()
            try:
                _watch(rebuilder, server, REMOTE_SECONDS if remote else LOCAL_SECONDS, quiet)
            except KeyboardInterrupt:
                server.shutdown()
    return FINE


def _watch(rebuilder: Rebuilder, server: SiteServer, seconds: float, quiet: bool) -> None:
    from linnet.cli.errors import describe
    from linnet.registry.errors import RegistryError
    from linnet.site_builder.collect import SiteError

    while True:
        time.sleep(seconds)
        try:
            report = rebuilder.step()
        except (RegistryError, SiteError, OSError) as error:
            click.echo(click.style("Not built: ", fg="red") + describe(error).text, err=True)
            continue
        if report is not None:
            _tell(report, quiet)
            server.changes.tell()


def _tell(report: SiteReport | None, quiet: bool) -> None:
    if report is None:
        return
    for problem in report.problems:
        click.echo(click.style(str(problem), fg="red"), err=True)
    if not quiet:
        for problem in report.unresolved:
            click.echo(click.style(f"{problem} (shown as text)", fg="yellow"), err=True)
        click.echo(f"Built {len(report.pages)} pages; drawn: {', '.join(report.rendered) or 'nothing'}")
