"""The ``uio`` command. Each command imports what it needs when it runs: ``uio --help`` starts without torch."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from uio_pipes import __version__
from uio_pipes.cli import (
    bench,
    buckets,
    cmvn,
    common,
    convert,
    dictionary,
    example,
    index,
    inspect,
    pack,
    replay,
    simulate,
    state,
    steps,
    verify,
    watch,
)

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


# One line for each command (name, then the function with typer's annotations):
app.command("example")(example.example)
app.command("pack")(pack.pack)
app.command("convert")(convert.convert)
app.command("cmvn")(cmvn.cmvn)
app.command("dict")(dictionary.dictionary)
app.command("spm")(dictionary.spm)
app.command("index")(index.index)
app.command("verify")(verify.verify)
app.command("inspect")(inspect.inspect)
app.command("simulate")(simulate.simulate)
app.command("buckets")(buckets.buckets)
app.command("bench")(bench.bench)
app.command("watch")(watch.watch)
app.command("replay")(replay.replay)
app.command("steps")(steps.steps)
app.command("seen")(steps.seen)
app.add_typer(state.app, name="state")


def main() -> None:
    """Run the command."""
    sys.exit(common.run(app))


if __name__ == "__main__":
    main()
