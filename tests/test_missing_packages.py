"""Without a package that a user may lack, what needs it says which extra to install."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import uio_pipes as uio
from uio_pipes.audio.decode import decode
from uio_pipes.audio.video import decode_video
from uio_pipes.inspect.record import read_record

AUDIO = uio.from_iterable([{"key": "a", "wav": np.full(800, 0.1, np.float32), "sample_rate": 8_000}])
M4A = b"\0\0\0\x20ftypM4A " + bytes(200)
NEEDED: dict[str, list[tuple[str, Callable[[Path], Any]]]] = {
    "av": [
        ("codecs", lambda folder: decode(M4A, 0)),
        ("video", lambda folder: decode_video(lambda at, size: b"x", 1, None, None, None, None)),
    ],
    "jieba": [("words", lambda folder: uio.JiebaSegmenter())],
    "matplotlib.figure": [("plot", lambda folder: AUDIO.plot(folder / "a.png"))],
    "pyarrow.parquet": [("parquet", uio.Recorder), ("parquet", read_record)],
    "tiktoken": [("tokenizers", lambda folder: uio.TiktokenTokenizer("cl100k_base"))],
    "tokenizers": [("tokenizers", lambda folder: uio.HuggingFaceTokenizer("tokenizer.json"))],
}


@pytest.mark.parametrize("package", NEEDED)
def test_the_extra_to_install_is_named(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    for extra, use in NEEDED[package]:
        with pytest.raises(uio.UioError, match=rf"pip install ['\"]uio_pipes\[{extra}\]['\"]") as raised:
            use(tmp_path)
        assert not isinstance(raised.value, uio.DataError) or raised.value.reason == "missing_codec"
