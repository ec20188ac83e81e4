"""`nest push`: a package as a repository on the Hub."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from linnet.cli.codes import FINE
from linnet.cli.frame import json_option, quiet_option
from linnet.cli.output import table

if TYPE_CHECKING:
    from linnet.registry.push import PushPlan


@click.command("push")
@click.argument("package", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("repo", metavar="ORG/NAME")
@click.option("--private", is_flag=True, help="Make the repository private, where it is not there yet.")
@click.option("--message", metavar="TEXT", help="What the commit says.")
@click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
@json_option
@quiet_option
def command(
    package: Path, repo: str, private: bool, message: str | None, dry_run: bool, as_json: bool, quiet: bool
) -> int:
    """Put the package in DIR at the root of a repository on the Hub, in one commit.

    The repository is made where there is none. Its README is the package's, under a head for the Hub made from the
    card: library, licence, task, tags and the model that the weights are of. Weights beside the card go along. Whatever
    else the repository holds stays, except Linnet sources that the package has no more. A token that may write is
    needed: hf auth login, or HF_TOKEN.

    Example: nest push nests/qwen3-tiny-fp8 my-org/qwen3-tiny-fp8
    """
    from linnet.registry.push import plan_push, push

    plan = plan_push(package, repo, private=private)
    if dry_run:
        if as_json:
            told = {"repo": plan.repo, "head": plan.head, "files": plan.sizes(), "removed": list(plan.removed)}
            click.echo(json.dumps({**told, "readme": plan.model_card}, indent=1, ensure_ascii=False))
        else:
            _show(plan)
        return FINE
    done = push(plan, message)
    if as_json:
        click.echo(json.dumps(asdict(done), indent=1))
    elif not quiet:
        verb = "Pushed to" if done.changed else "Nothing has changed in"
        click.echo(f'{verb} {done.url}\nLoad it: nest.load("{done.repo}@{done.commit}")')
    return FINE


def _show(plan: PushPlan) -> None:
    from linnet.registry.model_card import split_head
    from linnet.registry.package import human_size

    made = "a new private repository" if plan.private else "a new repository"
    click.echo(f"{plan.repo}: {made if plan.head is None else f'now at {plan.head}'}")
    rows = [("  write", path, human_size(size)) for path, size in sorted(plan.sizes().items())]
    rows += [("  remove", path, "") for path in plan.removed]
    for line in table(rows):
        click.echo(line)
    click.echo("README.md begins with:")
    for line in split_head(plan.model_card)[0].splitlines():
        click.echo(f"  {line}")
    click.echo("Nothing was done.")
