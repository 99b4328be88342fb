"""The public names of ``import uio_pipes as uio``, each imported when it is first used."""

from uio_pipes.base.errors import DataError, ListError, PipelineError, StateError, TooManyFailures, UioError
from uio_pipes.base.hashing import Draws
from uio_pipes.core.ledger import Failures
from uio_pipes.core.origin import Origin
from uio_pipes.core.realize import Lengths
from uio_pipes.core.roles import Flow, Op, Source
from uio_pipes.core.sample import Sample
from uio_pipes.core.schedule import by_step
from uio_pipes.core.stage import Node
from uio_pipes.core.statistics import Stats
from uio_pipes.dsp.fbank_module import FbankModule
from uio_pipes.dsp.feature_modules import CmvnModule, SpecAugModule
from uio_pipes.formats.tables.description import Table
from uio_pipes.inspect.fit_budget import BudgetFit, fit_budget
from uio_pipes.inspect.follow import follow
from uio_pipes.inspect.record import Recorder
from uio_pipes.inspect.watch import watch
from uio_pipes.integrations.accelerate import EvaluationLoader, Gathered, evaluate
from uio_pipes.integrations.hf_trainer import HFTrainerMixin
from uio_pipes.integrations.lightning import LightningLoader
from uio_pipes.integrations.torch_loaders import PipelineDataset
from uio_pipes.io.access import AccessOptions
from uio_pipes.pipeline import Pipeline
from uio_pipes.run.encode import encode
from uio_pipes.run.loader import Loader
from uio_pipes.run.ordered import OrderedResults
from uio_pipes.run.ranks import Ranks
from uio_pipes.run.ray.fleet import RayWorkers
from uio_pipes.run.state_merging import merge_states
from uio_pipes.run.trainers import gather_state, to_device
from uio_pipes.sources.config import from_config
from uio_pipes.sources.conversations import from_conversations
from uio_pipes.sources.corpora.card import Corpus, Layout
from uio_pipes.sources.corpora.source import from_corpus
from uio_pipes.sources.format import Format, RowPlace
from uio_pipes.sources.iterable import from_iterable
from uio_pipes.sources.kaldi.source import from_kaldi
from uio_pipes.sources.lhotse.shar import from_lhotse_shar
from uio_pipes.sources.lhotse.source import from_lhotse_cuts
from uio_pipes.sources.lists import from_raw_list, from_shard_list, list_files
from uio_pipes.sources.mixing import interleave, mix
from uio_pipes.sources.nemo.source import from_nemo
from uio_pipes.sources.parquet.source import from_parquet
from uio_pipes.sources.seen import Seen
from uio_pipes.sources.table.source import from_moshi, from_table
from uio_pipes.sources.tar_index import from_tar_index
from uio_pipes.sources.text import from_jsonl, from_text
from uio_pipes.sources.touchdataset.source import from_indexed
from uio_pipes.stages.batches.batch_types import PackedBatch, PaddedBatch
from uio_pipes.tokenizers import (
    CharTokenizer,
    HuggingFaceTokenizer,
    JiebaSegmenter,
    SentencePieceTokenizer,
    TiktokenTokenizer,
    Tokenizer,
)
from uio_pipes.wenet import wenet_dataset

__all__ = [
    "AccessOptions",
    "BudgetFit",
    "CharTokenizer",
    "CmvnModule",
    "Corpus",
    "DataError",
    "Draws",
    "EvaluationLoader",
    "Failures",
    "FbankModule",
    "Flow",
    "Format",
    "Gathered",
    "HFTrainerMixin",
    "HuggingFaceTokenizer",
    "JiebaSegmenter",
    "Layout",
    "Lengths",
    "LightningLoader",
    "ListError",
    "Loader",
    "Node",
    "Op",
    "OrderedResults",
    "Origin",
    "PackedBatch",
    "PaddedBatch",
    "Pipeline",
    "PipelineDataset",
    "PipelineError",
    "Ranks",
    "RayWorkers",
    "Recorder",
    "RowPlace",
    "Sample",
    "Seen",
    "SentencePieceTokenizer",
    "Source",
    "SpecAugModule",
    "StateError",
    "Stats",
    "Table",
    "TiktokenTokenizer",
    "Tokenizer",
    "TooManyFailures",
    "UioError",
    "by_step",
    "encode",
    "evaluate",
    "fit_budget",
    "follow",
    "from_config",
    "from_conversations",
    "from_corpus",
    "from_indexed",
    "from_iterable",
    "from_jsonl",
    "from_kaldi",
    "from_lhotse_cuts",
    "from_lhotse_shar",
    "from_moshi",
    "from_nemo",
    "from_parquet",
    "from_raw_list",
    "from_shard_list",
    "from_table",
    "from_tar_index",
    "from_text",
    "gather_state",
    "interleave",
    "list_files",
    "merge_states",
    "mix",
    "to_device",
    "watch",
    "wenet_dataset",
]
