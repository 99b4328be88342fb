"""Types of batches, by which an editor completes their keys. Batches are plain dicts, whatever they are said to be."""

from typing import TypedDict

from torch import Tensor


class PaddedBatch(TypedDict):
    """The keys of what :class:`Pad` makes: ``batch: uio.PaddedBatch``. A batch has those of them that its stages write.
    Fields of your own (``keep``, ``names``, streams) come in a subclass.
    """

    keys: list[str]
    feats: Tensor  # (B, T, F)
    feats_lengths: Tensor  # (B,), as all lengths
    feats_mask: Tensor  # (B, T), of mask=True
    pcm: Tensor  # (B, S) or (B, C, S)
    pcm_length: Tensor
    pcm_mask: Tensor
    target: Tensor  # (B, U)
    target_lengths: Tensor
    target_mask: Tensor
    label: Tensor  # (B,), a class
    speaker: Tensor | list[str]
    langs: list[str]
    tasks: list[str]
    chunk_lengths: Tensor  # (B,), of chunks, as what follows
    reset: Tensor
    position: Tensor
    lane: int


class PackedBatch(TypedDict):
    """The keys of what :class:`Pack` makes, of tokens or of frames, as :class:`PaddedBatch` has those of ``pad``."""

    keys: list[str]
    tokens: Tensor  # (R, max_tokens), as what follows
    labels: Tensor
    position_ids: Tensor
    segment_ids: Tensor
    cu_seqlens: Tensor  # (N + 1,)
    max_seqlen: int
    input_ids: Tensor  # of layout="touchnet"
    sentence_lens: Tensor
    feats: Tensor  # (ΣT, F)
    feats_lengths: Tensor  # (N,)
    feats_places: Tensor  # (N, 2)
    pcm: Tensor  # (ΣS,)
    pcm_lengths: Tensor
    pcm_places: Tensor
    target: Tensor  # (ΣU,)
    target_lengths: Tensor
