"""The ``uio`` command. Each command imports what it needs when it runs: ``uio --help`` starts without torch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated

import typer

from uio_pipes import __version__
from uio_pipes.tools.cli.begin import example, start
from uio_pipes.tools.cli.cache import app as cache
from uio_pipes.tools.cli.common import run
from uio_pipes.tools.cli.look import corpora, index, inspect, verify
from uio_pipes.tools.cli.pack import convert, pack
from uio_pipes.tools.cli.plan import bench, simulate, trace
from uio_pipes.tools.cli.runs import replay, state, watch, worst
from uio_pipes.tools.cli.write import cmvn, dictionary, spm

app = typer.Typer(
    name="uio",
    help="Prepare, check and look at speech data for uio_pipes.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"uio_pipes {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _start(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


RUN = "Look at a run"
PANELS: dict[str, dict[str, Callable[..., None]]] = {
    "Begin": {"start": start, "corpora": corpora, "example": example},
    "Look at data": {"inspect": inspect, "verify": verify},
    "Prepare data": {
        "pack": pack, "convert": convert, "index": index, "dict": dictionary, "spm": spm, "cmvn": cmvn,
    },
    "Plan a run": {"simulate": simulate, "bench": bench, "trace": trace},
    RUN: {"watch": watch, "worst": worst, "state": state, "replay": replay},
}  # fmt: skip
for panel, commands in PANELS.items():
    for name, command in commands.items():
        app.command(name, rich_help_panel=panel)(command)
app.add_typer(cache, name="cache", rich_help_panel=RUN)


def main() -> None:
    """Run the command."""
    sys.exit(run(app))


if __name__ == "__main__":
    main()
