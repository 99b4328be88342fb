"""From nothing to an error rate: ``python -m recipes.speech_lm.run --help`` (``run.sh`` sets it up first).

OUT gets ``corpus/`` (spoken by espeak-ng), ``data/`` (see ``recipes.common.prepare``) and ``exp/`` (see ``train``).
Whatever is complete is kept, what was interrupted continues.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..aishell.layout import SPLITS
from ..aishell.mini import make_mini
from ..aishell.plan import settings_for
from ..aishell.prepare import write_texts
from ..common.corpus import OtherCorpus, SpeakingFailed
from ..common.prepare import PROBLEMS as PREPARING
from ..common.prepare import make_cmvn, make_dictionary, make_lists
from ..common.problems import told
from .config import settings_of
from .decode import decode
from .options import parser
from .train import PROBLEMS, train

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all steps with ``arguments``; by default those of the command line."""
    options = parser().parse_args(arguments)
    corpus, data, exp = (options.out / name for name in ("corpus", "data", "exp"))
    with told(*PROBLEMS, *PREPARING, OtherCorpus, SpeakingFailed):
        settings = settings_of(options.override or ())
        make_mini(corpus, settings_for(options.hours, options.seed))
        for step in (
            write_texts(corpus, data),
            make_cmvn(data, 80, 1),
            make_dictionary(data),
            make_lists(data, SPLITS),
        ):
            print(step)
        train(data, exp, settings)
        print(f"{exp}/test.hyp, test.cer: CER {decode(data, exp)}")


if __name__ == "__main__":
    main()
