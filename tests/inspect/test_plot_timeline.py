"""A timeline is drawn on the clock of its audio: channels, words, activity and tokens where they belong."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

import uio_pipes as uio
from uio_pipes.audio.timeline import Event, Timeline
from uio_pipes.inspect import plot
from uio_pipes.inspect.peek import describe
from uio_pipes.inspect.plot import COLORS, LANE, Picture, envelope

image = pytest.importorskip("matplotlib.image", reason="could not import matplotlib: pip install matplotlib")
colors = pytest.importorskip("matplotlib.colors")
pytestmark = pytest.mark.filterwarnings("error")  # a glyph that is missing in the font warns
WORDS = [("hello", 0.4, 0.9, "SPEAKER_USER"), ("yes", 1.2, 1.5, "SPEAKER_MAIN"), ("fine", 1.4, 1.9, "SPEAKER_USER")]
TOKENIZER = uio.CharTokenizer({"<unk>": 1, "yes": 5}, split_with_space=True)


@pytest.fixture(scope="module")
def dialogues(tmp_path_factory: pytest.TempPathFactory) -> uio.Pipeline:
    """One dialogue of two seconds as moshi-finetune has it."""
    folder = tmp_path_factory.mktemp("dialogues")
    wav = np.zeros((32_000, 2))
    for _, start, end, speaker in WORDS:
        wav[int(start * 16_000) : int(end * 16_000), int(speaker != "SPEAKER_MAIN")] = 0.5
    soundfile.write(folder / "a.wav", wav, 16_000)
    alignments = [[text, [start, end], speaker] for text, start, end, speaker in WORDS]
    (folder / "a.json").write_text(json.dumps({"alignments": alignments}))
    (folder / "list.jsonl").write_text('{"path": "a.wav", "duration": 2.0}\n')
    return uio.from_moshi(folder / "list.jsonl").decode_audio(channel=[0, 1])


def drawn(pipeline: uio.Pipeline) -> plot.Drawn:
    utterances = pipeline._before_batches
    (records,) = plot.trace(utterances, 1)
    return plot._drawn(utterances.stages, records)


def panels(one: plot.Drawn) -> list[Any]:
    """Draw an utterance; return the axes of its panels, from top to bottom."""
    assert one.timeline is not None
    picture = Picture(one, one.timeline)
    figure = plot.new_figure(12, picture.height)
    picture.draw(figure)
    figure.canvas.draw()
    return list(figure.axes)


def texts(axes: Any) -> dict[str, float]:
    """Return what is written in a panel, with its time."""
    return {text.get_text(): text.xy[0] for text in axes.texts}


def names(axes: Any) -> list[str]:
    """Return the names beside a panel, from top to bottom."""
    return [tick.get_text() for tick in axes.get_yticklabels()][::-1]


def test_words_are_over_their_channels_at_their_times(dialogues: uio.Pipeline) -> None:
    model, user = panels(drawn(dialogues))
    assert names(model) == ["SPEAKER_MAIN", "channel 0"]
    assert names(user) == ["SPEAKER_USER", "channel 1"]
    assert texts(model) == {"yes": 1.2}
    assert texts(user) == {"hello": 0.4, "fine": 1.4}
    assert {axes.get_xlim() for axes in (model, user)} == {(0.0, 2.0)}
    assert (model.get_xlabel(), user.get_xlabel()) == ("", "time (s)")


def test_the_waveform_is_that_of_the_channel(dialogues: uio.Pipeline) -> None:
    (wave, *_), (other, *_) = (axes.collections for axes in panels(drawn(dialogues)))
    for collection, loud in ((wave, [(1.2, 1.5)]), (other, [(0.4, 0.9), (1.4, 1.9)])):
        corners = collection.get_paths()[0].vertices
        high = corners[corners[:, 1] > corners[:, 1].min() + 0.8 * np.ptp(corners[:, 1])]
        assert min(high[:, 0]) == pytest.approx(loud[0][0], abs=0.01)
        assert max(high[:, 0]) == pytest.approx(loud[-1][1], abs=0.01)


def test_tokens_and_activity_stand_below(dialogues: uio.Pipeline) -> None:
    one = drawn(dialogues.align(TOKENIZER, text_padding=3, end_of_text_padding=0).activity(2).batch(1).pad())
    _, _, activity, tokens = panels(one)
    assert one.tokens[14:16] == ["·", "yes"]
    assert [token for token in one.tokens if token] == ["·", "yes"]
    assert names(tokens) == ["text stream"]
    assert texts(tokens) == {"yes": 15 / 12.5}
    assert drawn(dialogues.align(lambda word: [119])).tokens[14:16] == ["·", "119"], "a function cannot write them"
    assert names(activity) == ["SPEAKER_USER active", "SPEAKER_MAIN active"], "in the order of their first starts"
    rows = {tuple(c.get_facecolor()[0][:3]): c.get_paths()[0].vertices for c in activity.collections}
    main = rows[colors.to_rgb(COLORS[0])]
    assert main[:, 1].max() < LANE < rows[colors.to_rgb(COLORS[1])][:, 1].max()
    active = main[main[:, 1] > main[:, 1].min() + 0.05]
    assert (active[:, 0].min(), active[:, 0].max()) == pytest.approx((1.2, 1.5), abs=0.09)


def test_listed_speakers_keep_their_columns(dialogues: uio.Pipeline) -> None:
    one = drawn(dialogues.activity(["SPEAKER_MAIN", "nobody", "SPEAKER_USER"], shift=0.08))
    assert names(panels(one)[-1]) == ["SPEAKER_MAIN active", "nobody active", "SPEAKER_USER active"]
    assert one.frames == (0.08, 0.04)


def test_all_speakers_of_one_channel_have_a_lane() -> None:
    events = [Event(0.0, 1.0, "one", "A"), Event(0.5, 1.5, "two", "B"), Event(2.0, 3.0, "three", "A")]
    wav, feat = np.full((1, 3_000), 0.1, np.float32), np.random.default_rng(1).random((30, 8), np.float32)
    one = plot.Drawn("k", "", wav, 1_000, None, feat, None, "", Timeline.of(events, [(0.2, 1.0), (2.0, 2.9)]))
    speech, features = panels(one)
    assert names(speech) == ["B", "A", "channel 0"]
    assert texts(speech) == {"one": 0.0, "two": 0.5, "three": 2.0}
    assert names(features) == ["8 features"]
    spans = [(patch.get_x(), patch.get_x() + patch.get_width()) for patch in features.patches]
    assert np.allclose(spans, [(0.0, 0.2), (1.0, 2.0), (2.9, 3.0)]), "of these nothing is known"


def test_a_text_is_cut_where_its_time_ends() -> None:
    events = [Event(0.0, 1.0, "extraordinary"), Event(1.0, 1.2, "extraordinary"), Event(2.0, 2.01, "no")]
    events += [Event(3.0, 4.0, "\U000f0000"), Event(-1.0, 0.2, "early"), Event(4.0, 4.5, "今天天气今天天气")]
    wav = np.zeros((1, 10_000), np.float32)
    (speech,) = panels(plot.Drawn("k", "", wav, 1_000, None, None, None, "", Timeline.of(events)))
    found = texts(speech)
    assert found.pop("extraordinary") == 0.0
    assert found.pop("extrao") == 1.0
    assert found.pop("early") == 0.0
    assert len(found) == (len(plot.families()) > 1), "too short to write, or in no font"
    for text in speech.texts:
        box = text.get_clip_path()[0].vertices if text.get_clip_path() else text.clipbox
        assert box is not None


def test_dialogues_without_audio_are_drawn_to_their_last_event(dialogues: uio.Pipeline, tmp_path: Path) -> None:
    one = plot.Drawn("k", "", None, 0, None, None, None, "", Timeline.of([Event(0.0, 1.5, "a", "A", 1)]))
    (axes,) = panels(one)
    assert axes.get_xlim() == (0.0, 1.5)
    empty = plot.Drawn("k", "", None, 0, None, None, None, "", Timeline(()), np.zeros((4, 1), np.float32))
    plot.draw([one, empty, drawn(dialogues)], tmp_path / "a.png")
    assert image.imread(tmp_path / "a.png").shape[1] == 12 * 120


def test_one_without_a_timeline_is_drawn_as_ever_beside_one_that_has_it(
    dialogues: uio.Pipeline, tmp_path: Path
) -> None:
    timed = drawn(dialogues)
    plain = plot.replace(timed, timeline=None)
    plot.draw([timed, plain], tmp_path / "both.png")
    dialogues.plot(tmp_path / "timed.png", count=1)
    heights = [image.imread(tmp_path / f"{name}.png").shape[0] for name in ("both", "timed")]
    assert heights[0] - heights[1] == pytest.approx(plot.ROW * 120, abs=2)


def test_blocks_of_a_waveform_keep_its_peaks() -> None:
    wave = np.zeros(100_001, np.float32)
    wave[[5, 70_000]] = 1.0, -1.0
    low, high = envelope(wave)
    assert len(low) <= 4_000
    assert (high.max(), low.min()) == (1.0, -1.0)


def test_peek_tells_who_speaks_when(dialogues: uio.Pipeline) -> None:
    said = str(dialogues.peek())
    turns = "SPEAKER_USER 0.40–0.90 s hello; SPEAKER_MAIN 1.20–1.50 s yes; 1 turn more"
    assert f"timeline 3 events: {turns}" in said
    assert describe(Timeline(())) == "no events"
    assert describe(Timeline.of([Event(0, 1), Event(1, 2.5)])) == "2 events: 0.00–2.50 s"
