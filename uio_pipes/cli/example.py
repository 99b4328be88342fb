"""``uio example``: makes the folder of data that the documentation uses."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from uio_pipes.cli.common import Json, local_file, print_json

NEXT = """
Next{change}:

uio inspect data/shards.list
python - <<'EOF'
import uio_pipes as uio

pipeline = (
    uio.from_shard_list("data/shards.list", shuffle=True)
    .decode_audio().speed_perturb()
    .tokenize(uio.CharTokenizer("data/lang_char.txt"))
    .fbank(num_mel_bins=80).spec_aug()
    .shuffle(1_500).sort(500).dynamic_batch(max_frames=2_000).pad()
)
for batch in uio.watch(uio.Loader(pipeline)):
    print(batch["feats"].shape, batch["target"].shape)
EOF
"""


def example(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The project's folder; DIR/data is made in it.")],
    seed: Annotated[int, typer.Option(min=0, help="Another seed makes another example.")] = 0,
    json: Json = False,
) -> None:
    """Make a small folder to try things on: DIR/data, which all pages of the documentation use.

    It has 48 short recordings (speech if espeakng-loader is installed, otherwise tones) as a raw list, Kaldi tables,
    tar shards and feature shards, and a dictionary, CMVN, noises and rooms. Nothing is overwritten.
    """
    local_file(folder)
    from uio_pipes.prep.example import CONTENT, make_example

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
