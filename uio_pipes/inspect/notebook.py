"""``%load_ext uio_pipes``: a notebook shows batches as tables. They are plain dicts, so it has to be told once."""

from typing import Any

import torch

from uio_pipes.base.html_table import html_table
from uio_pipes.inspect.peek import describe


def batch_html(value: dict[Any, Any]) -> str | None:
    """Return a batch as a table of its names, types, shapes and padding; None for another dict."""
    tensors = {name: each for name, each in value.items() if isinstance(each, torch.Tensor) and each.ndim}
    counts = {len(each) for name, each in value.items() if name in tensors or isinstance(each, list)}
    if not tensors or len(counts) != 1 or not all(isinstance(name, str) for name in value):
        return None
    rows = []
    for name, each in value.items():
        lengths, padding = tensors.get(f"{name}_lengths", tensors.get(f"{name}_length")), ""
        if name in tensors and lengths is not None and each.ndim > 1 and each.numel():
            longest = int(lengths.max())  # fills the dimension that is padded
            width = next((size for size in each.shape[1:] if size == longest), each.shape[1])
            padding = f"{1 - float(lengths.sum()) / (len(each) * width):.1%} padding"
        rows.append((name, describe(each), padding))
    return html_table(("name", "what", ""), rows, f"a batch of {counts.pop()}")
