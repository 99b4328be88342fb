"""The layout of WenetSpeech, and a reader of its ``WenetSpeech.json``: as a stream, one recording at a time.

::

    ROOT/WenetSpeech.json
    ROOT/audio/{train,dev,test_net,test_meeting}/…/B00000/Y0000000000_….opus

    {"audios": [{"aid", "path", "duration", "md5", "source", "tags", "url",
                 "segments": [{"sid", "begin_time", "end_time", "text", "confidence", "subsets": ["L", "M", "S"]}]}]}

The real file has about 17 million segments in several GB; ``json.load`` would make tens of GB of Python objects of it.
``ijson`` (yajl in C) gives one recording after the other in constant memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ijson

from ..common.corpus import CorpusMissing

TEST_SUBSETS = {"DEV": "dev", "TEST_NET": "test_net", "TEST_MEETING": "test_meeting"}  # subset: folder of its lists

PAGE = "https://wenet.org.cn/WenetSpeech/"
MISSING = """\
No WenetSpeech under {root}: {path} is not there. Either speak a small one (a minute or two):
    python -m recipes.wenetspeech.mini {root} --hours 0.5
or get the real one (about 500 GB to download, as much again unpacked):
    1. read the licence and fill in the form on {page}: its audio belongs to its makers, and the corpus is for
       non-commercial use (labels: CC BY 4.0); a password comes by mail;
    2. git clone https://github.com/wenet-e2e/WenetSpeech && cd WenetSpeech && echo PASSWORD > SAFEBOX/password
    3. bash utils/download_wenetspeech.sh DOWNLOADS {root}     (can be run again; it checks md5 sums)"""


class BadMetadata(Exception):
    """``WenetSpeech.json`` cannot be read; the message says at which byte."""


def metadata_path(root: Path) -> Path:
    """Return the path of the JSON with all recordings and segments."""
    return root / "WenetSpeech.json"


def check_corpus(root: Path) -> None:
    """Raise CorpusMissing if the corpus is not there; the message says what is missing and how to get it."""
    for path in (metadata_path(root), root / "audio"):
        if not path.exists():
            raise CorpusMissing(MISSING.format(root=root, path=path, page=PAGE))


def recordings(root: Path) -> Iterator[dict[str, Any]]:
    """Yield the entries of ``audios``, one by one, unchanged. Raises: CorpusMissing, BadMetadata."""
    check_corpus(root)
    path = metadata_path(root)
    with path.open("rb") as file:
        try:
            yield from ijson.items(file, "audios.item", use_float=True)
        except (ijson.JSONError, UnicodeDecodeError) as error:
            raise BadMetadata(
                f"{path} breaks off or is damaged near byte {file.tell()} ({error}); fetch it again"
            ) from error
