"""ESPnet's ``ESPnetDataset`` and sampler, sorted by length or not, as ``ASRTask`` makes them of tables of Kaldi's."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import soundfile
from espnet2.tasks.asr import ASRTask
from espnet2.train.distributed_utils import DistributedOption
from own_batches import LIST, ROWS, TOKENIZER, TOKENS, check_same

import uio_pipes as uio

TABLES = {
    "wav.scp": [row["wav"] for row in ROWS],
    "text": [row["txt"] for row in ROWS],
    "shape": [soundfile.info(row["wav"]).frames for row in ROWS],
}
for name, values in TABLES.items():
    Path(name).write_text("".join(f"{row['key']} {value}\n" for row, value in zip(ROWS, values, strict=True)))
Path("tokens.txt").write_text("\n".join(line.split()[0] for line in Path(TOKENS).read_text().splitlines()))
OPTIONS = """
--output_dir exp --token_list tokens.txt --token_type char --batch_size 4 --num_workers 0
--sort_in_batch ascending --sort_batch ascending
--valid_data_path_and_name_and_type wav.scp,speech,sound --valid_data_path_and_name_and_type text,text,text
--valid_shape_file shape
"""


def own(kind: str) -> Iterator[dict[str, Any]]:
    args = ASRTask.get_parser().parse_args([*OPTIONS.split(), "--batch_type", kind])
    factory = ASRTask.build_iter_factory(args, DistributedOption(), "valid")  # that of training shuffles batches
    for keys, batch in factory.build_iter(1):
        yield {"keys": keys, **batch}


names = {"pcm": "speech", "pcm_length": "speech_lengths", "target": "text", "target_lengths": "text_lengths"}
corpus = uio.from_raw_list(LIST).decode_audio().tokenize(TOKENIZER)
for kind, utterances in (("unsorted", corpus), ("sorted", corpus.sort(48))):
    ours = utterances.batch(4).pad(order="kept", lengths="int64", names=names)
    check_same(own(kind), uio.Loader(ours))
