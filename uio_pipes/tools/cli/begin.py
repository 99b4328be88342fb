"""``uio example`` and ``uio start``: a folder to try things in, and a training script for data."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from uio_pipes.base.checks import in_words
from uio_pipes.base.errors import UioError
from uio_pipes.base.urls import plural
from uio_pipes.tools.cli.common import keep_inputs, local_file, print_json, say
from uio_pipes.tools.cli.options import AllowPipes, Fields, Json

NEXT = """
Next{change}:

uio inspect data/shards.list
uio start data/shards.list    # writes train.py, a training script for these data
python train.py
"""


def example(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The project's folder; DIR/data is made in it.")],
    seed: Annotated[int, typer.Option(min=0, help="Another seed makes another example.")] = 0,
    json: Json = False,
) -> None:
    """Make a small folder with speech, to try everything on.

    All pages of the documentation use it. DIR/data has 48 short recordings (speech if espeakng-loader is installed,
    otherwise tones) as a raw list, Kaldi tables, tar shards and feature shards, and a dictionary, CMVN, noises and
    rooms. Nothing is overwritten.
    """
    local_file(folder)
    from uio_pipes.tools.data.example import CONTENT, make_example

    made, new = make_example(folder, seed)
    if json:
        print_json({"folder": str(folder / "data"), "new": new, **asdict(made)})
        return
    typer.echo(f"{folder / 'data'}{'' if new else ' (there already)'}: "
               f"{made.utterances} utterances, {made.seconds:.0f} s ({made.speech})")  # fmt: skip
    for name, what in CONTENT.items():
        typer.echo(f"  {name:<26}{what}")
    here = folder.resolve() == Path.cwd()
    typer.echo(NEXT.format(change="" if here else f", in {folder}"), nl=False)


def start(
    data: Annotated[
        str,
        typer.Argument(help="A list, shard, manifest, table, folder or URL; a corpus with its folder (emilia:DIR)."),
    ],
    out: Annotated[Path, typer.Option(help="The script to write.")] = Path("train.py"),
    table: Annotated[
        Path | None, typer.Option(help="The table of characters to write; beside the script if not given.")
    ] = None,
    part: Annotated[str, typer.Option(help="The part to read of a corpus, or of a folder: train, dev or test.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="Look at no more than this number of utterances.")] = 5_000,
    fields: Fields = None,
    allow_pipes: AllowPipes = False,
    json: Json = False,
) -> None:
    """Write a training script for data that you have.

    It runs as it is: source, sample rate, table of characters and budget of batches are filled in from the data, each
    with a comment on why. In a folder, the texts of recordings are searched for, and what was found is written as a
    list. The script is tried until it has given 20 utterances.
    """
    local_file(out)
    tokens = table or out.with_name("tokens.txt")
    local_file(tokens)
    keep_inputs([data], [out, tokens])
    state = out.with_suffix(".pt")
    from uio_pipes.formats.advice import shown
    from uio_pipes.io.files import write_lines
    from uio_pipes.tools.data.dictionary import write_table
    from uio_pipes.tools.data.finding.find import find_data
    from uio_pipes.tools.data.start import begin, tried

    if there := [str(path) for path in (out, tokens, state) if path.exists()]:
        if not Path(data).exists():  # data that are missing are told first
            find_data(data, None, allow_pipes, fields, part)
        are, them = ("is", "it") if len(there) == 1 else ("are", "them")
        problem = f"{in_words(there)} {are} there already: remove {them}, or name another by --out and --table"
        raise typer.BadParameter(problem)
    known = find_data(data, out.with_suffix(".list"), allow_pipes, fields, part)
    try:
        made = begin(known, str(tokens), limit, str(state))
    except UioError:
        Path(known.written or out).unlink(missing_ok=True)  # the list, of which no script was made
        raise
    if made.tokens:
        write_table(tokens, made.tokens)
    write_lines(out, made.script.splitlines())
    if json:
        tried(out)
        print_json({"script": str(out), "table": str(tokens) if made.tokens else None, "tokens": len(made.tokens)})
        return
    for note in known.notes:
        say(f"{data}: {note}")
    fields_seen = shown(sorted(made.seen.fields.keys() - {"key", "wav", "feat"}))
    how = f" (--fields txt=NAME if it is one of {fields_seen})" if fields_seen and not known.written else ""
    say(f"{tokens}: {plural(len(made.tokens), 'token') if made.tokens else f'not written, no texts were found{how}'}")
    if not known.lacks and '"feats"' not in made.script:
        say(f"{known.path}: no audio was found in it (--fields wav=NAME if it is one of {fields_seen})")
    if made.seen.reports:
        say(f"{plural(made.seen.failures.total(), 'utterance')} failed, the first: {made.seen.reports[0]}")
    say(f"{out}: {tried(out)}")
    for line in (f"{out}: it reads {data}. Next:", "", f"python {out}", f"uio bench {out}:pipeline --seconds 5"):
        say(line)
