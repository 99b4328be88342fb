"""Keys of NeMo's rows, which mostly are the names of their files."""

from __future__ import annotations

import os

from hypothesis import example, given
from hypothesis import strategies as st

from uio_pipes.sources.nemo.table import _key


@given(st.text("ab./_ -語", min_size=1).filter(lambda path: not path.endswith("/")))
@example("a/.wav")  # a name, no suffix
@example("a.b/c")
def test_a_row_without_a_key_is_named_by_its_file_without_the_suffix(path: str) -> None:
    assert _key({}, path) == os.path.splitext(os.path.basename(path))[0]
