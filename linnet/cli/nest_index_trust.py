"""`nest index trust`: whose signatures a registry must carry."""

from __future__ import annotations

from pathlib import Path

import click

from linnet.cli.codes import FINE
from linnet.cli.frame import quiet_option


@click.command("trust")
@click.argument("root", required=False, metavar="[ROOT]", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--registry", metavar="URL", help="The registry; by default those that LINNET_REGISTRY names.")
@click.option("--remove", is_flag=True, help="Trust the registry's signatures no more, and ask for none.")
@quiet_option
def command(root: Path | None, registry: str | None, remove: bool, quiet: bool) -> int:
    """Trust the keys of ROOT, a root.json that a registry's keeper gave you; without ROOT show what is trusted.

    From then on nothing of the registry is used that these keys did not sign. The registry is asked first, and must be
    signed by them. LINNET_TRUST_ROOT names a root for all registries instead. Needs the extra sign.

    Example: nest index trust root.json --registry https://models.example.org/nest
    """
    from linnet.registry.configured import configured_registries
    from linnet.registry.signing import distrust, trust, trust_words

    if root is not None and remove:
        raise click.UsageError("ROOT and --remove are two things: name one.")
    for url in configured_registries(registry):
        if remove:
            distrust(url)
        elif root is not None:
            trust(url, root)
        if not quiet or root is None:
            click.echo(f"{url}: {trust_words(url)}")
    return FINE
