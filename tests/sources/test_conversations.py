"""``from_conversations``: turns of text and audio, in each shape that they are written in."""

import io
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from contract import keys_of
from conversation_data import every_shape, of_huggingface, of_nemo, of_sharegpt, of_text, recordings
from converting import convert
from nemo_data import pcm, tar, wav, write
from test_kaldi import run

import uio_pipes as uio
from uio_pipes.base.errors import ListError
from uio_pipes.io.local import LocalFile
from uio_pipes.tools.data.cmvn import compute_cmvn
from uio_pipes.tools.data.recognize import recognize
from uio_pipes.tools.data.verify import verify
from uio_pipes.tools.reports.inspect import inspect
from uio_pipes.tools.reports.simulate import simulate

AUDIO = {"type": "audio"}


def text(value: str) -> dict[str, str]:
    return {"type": "text", "text": value}


def user(*content: Any) -> dict[str, Any]:
    """A turn of the user's: of a text alone, or of parts."""
    one = content[0] if len(content) == 1 and isinstance(content[0], str) else None
    return {"role": "user", "content": one or [text(c) if isinstance(c, str) else c for c in content]}


def assistant(content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def read(root: Path, *lines: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    """The conversations of a file, every one of them."""
    samples, ledger = run(uio.from_conversations(write(root / "chat.jsonl", lines), **options))
    assert ledger.failures == 0, ledger.reports
    return [dict(sample) for sample in samples]


def names(sample: dict[str, Any]) -> list[str]:
    return [ref.path for ref in sample["audio"]]


# Shapes


def test_nemos_turns_of_one_role_are_joined_and_audio_is_cut_where_it_has_an_offset(tmp_path: Path) -> None:
    (duration,) = recordings(tmp_path, 1)
    (sample,) = read(tmp_path, of_nemo(0, duration))
    assert sample["messages"] == [user("Summarize this: ", AUDIO), assistant([text("It is short. "), AUDIO])]
    assert (sample["key"], sample["custom"]) == ("nemo-0", {"lang": "en"})
    assert "conversations" not in sample
    times = [sample[f"audio_{name}"] for name in ("start", "end", "duration")]
    assert times == [[None, 0.1], [None, 0.35], [duration, 0.25]]
    (decoded,), _ = run(uio.from_conversations(tmp_path / "chat.jsonl").decode_audio(of="audio"))
    for ours, theirs in zip(decoded["audio"], (pcm(0), pcm(0, 0.1, 0.35)), strict=True):
        np.testing.assert_array_equal(ours[0].numpy(), theirs)


def test_tags_in_the_users_texts_are_the_recordings_beside_the_turns(tmp_path: Path) -> None:
    (sample,) = read(tmp_path, of_sharegpt(3))
    assert sample["messages"] == [user("Listen: ", AUDIO, "\nWhat is it?"), assistant("A <sound>.")]
    assert (names(sample), sample["ori_sound"], "sound" in sample) == (["wavs/3.wav"], "/elsewhere/a.wav", False)
    assert "audio_duration" not in sample
    (again,) = read(tmp_path, {"id": "a", "messages": sample["messages"], "audio": names(sample)})
    assert (again["messages"], names(again)) == (sample["messages"], names(sample)), "what it gives, it takes"


def test_messages_have_texts_or_parts(tmp_path: Path) -> None:
    line = of_huggingface(2)
    line["messages"].append({"role": "tool", "content": "7", "tool_call_id": "t"})
    line["messages"].append({"role": "tool", "content": [text("8"), text("9")]})
    (sample,) = read(tmp_path, line)
    assert sample["messages"] == [
        {"role": "system", "content": "Be brief."},
        user(AUDIO, "Transcribe."),
        assistant("文2"),
        {"role": "tool", "content": "7", "tool_call_id": "t"},
        {"role": "tool", "content": "89"},
    ]
    assert names(sample) == ["wavs/2.wav"]


def test_a_conversation_may_have_no_recordings_and_a_turn_no_text(tmp_path: Path) -> None:
    called = {"role": "assistant", "tool_calls": [{"id": "t"}]}
    lines = [
        {**of_text(1), "messages": [*of_text(1)["messages"][:1], turn]}
        for turn in (called, {**called, "content": None})
    ]
    first, *others = read(tmp_path, of_text(1), *lines)
    assert (first["messages"], first["audio"]) == ([user("1?"), assistant("1.")], [])
    assert [other["messages"] for other in others] == [[user("1?"), {**called, "content": ""}]] * 2


@pytest.mark.parametrize("name", ["messages", "conversations"])
@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("User", "user"), ("human", "user"), ("GPT", "assistant"), ("Assistant", "assistant"), ("System", "system"),
     ("Narrator", "Narrator")],
)  # fmt: skip
def test_roles(tmp_path: Path, name: str, theirs: str, ours: str) -> None:
    role, content = ("role", "content") if name == "messages" else ("from", "value")
    (sample,) = read(tmp_path, {name: [{role: theirs, content: "x"}]})
    assert sample["messages"] == [{"role": ours, "content": "x"}]


@pytest.mark.parametrize(
    ("beside", "said", "parts", "files"),
    [
        ({"sound": "a"}, "<sound> and <speech>", [AUDIO, " and ", AUDIO], ["a", "a"]),
        ({"sound": ["a", "b"]}, "<sound>!", [AUDIO, AUDIO, "!"], ["a", "b"]),
        ({"sound": ["a", "b"]}, "1 <audio> <speech>", ["1 ", AUDIO, AUDIO], ["a", "b"]),
        ({"sound": "", "speech": None, "ori_sound": "c"}, "<speech>", [AUDIO], ["c"]),
        ({"sound": "a", "speech": "b"}, "<speech>", [AUDIO], ["a"]),
        ({"audios": ["a"]}, "<audio>", [AUDIO], ["a"]),
    ],
)
def test_recordings_are_given_to_tags(
    tmp_path: Path, beside: dict[str, Any], said: str, parts: list[Any], files: list[str]
) -> None:
    (sample,) = read(tmp_path, {**beside, "conversations": [{"from": "human", "value": said}]})
    assert (sample["messages"], names(sample)) == ([user(*parts)], files)


def test_tags_of_ones_own(tmp_path: Path) -> None:
    line = {"sound": ["a", "b"], "conversations": [{"from": "human", "value": "[a] [a+] <sound>"}]}
    (sample,) = read(tmp_path, line, audio_tag=["[a]", "[a+]"])
    assert sample["messages"] == [user(AUDIO, AUDIO, " <sound>")]
    (sample,) = read(tmp_path, {**line, "sound": "a"}, audio_tag="[a+]")
    assert sample["messages"] == [user("[a] ", AUDIO, " <sound>")]


def test_times_of_sharegpt_are_those_of_the_turn(tmp_path: Path) -> None:
    turn = {"from": "human", "value": "<sound><sound>", "offset": [0.0, 1.5], "duration": [2.0, 0.5]}
    (sample,) = read(tmp_path, {"sound": ["a", "b"], "conversations": [turn]})
    assert (sample["audio_start"], sample["audio_end"]) == ([0.0, 1.5], [2.0, 2.0])
    (sample,) = read(tmp_path, {"sound": "a", "conversations": [{**turn, "offset": [3], "duration": None}]})
    assert (sample["audio_start"], {"audio_end", "audio_duration"} & sample.keys()) == ([3, 3], set())


def test_keys_and_names_of_ones_own(tmp_path: Path) -> None:
    turns = [{"role": "user", "content": "x <sound>"}]
    lines = [{"dialogue": turns, "file": "a"}, {"dialogue": turns, "file": "a", "key": 7}]
    first, second = read(tmp_path, *lines, fields={"messages": "dialogue", "audio": "file"})
    assert (first["key"], second["key"], names(first)) == ("chat.jsonl:1", "7", ["a"])


# Files


def test_relative_paths_start_at_the_manifest_or_at_the_root_that_is_given(tmp_path: Path) -> None:
    chat = every_shape(tmp_path / "a", 2)
    decoded = uio.from_conversations(chat).decode_audio(of="audio")
    assert len(run(decoded)[0]) == 8
    shutil.move(tmp_path / "a" / "wavs", tmp_path / "wavs")
    loader = uio.Loader(decoded.batch(1))
    assert [key for batch in loader for key in keys_of(batch)] == ["text-0", "text-1"]
    assert loader.stats().skipped == {"missing_file": 6}
    message = r"recording 1 of 'audio': no such file, neither from the folder .*\(named in .*chat.jsonl, line \d+\)"
    with pytest.raises(uio.DataError, match=message):
        list(uio.Loader(decoded.batch(1), failures="raise"))
    rooted = uio.from_conversations(chat, audio_root=tmp_path).decode_audio(of="audio")
    assert len(run(rooted)[0]) == 8


def test_planning_opens_nothing_where_durations_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [of_nemo(i, duration) for i, duration in enumerate(recordings(tmp_path, 4))]
    chat = write(tmp_path / "chat.jsonl", lines)
    monkeypatch.setattr(LocalFile, "read_upto", lambda *_: pytest.fail("a file was opened"))
    graph = uio.from_conversations(chat, shuffle=True).decode_audio(of="audio").fbank(8, of="audio")
    graph = graph.sort(4, length="audio.frames").batch(2).pad()
    assert simulate(graph).utterances == 4
    assert len(uio.Loader(graph)) == 2


# Tars


def tarred(root: Path, name: str) -> tuple[str, str]:
    """Two manifests and tars, as NeMo's NeMoMultimodalConversationTarWriter lays them out; ``name``: of a shard."""
    for shard in range(2):
        lines, members = [], dict[str, bytes]()
        for number in (2 * shard, 2 * shard + 1):
            line = of_nemo(number, len(pcm(number)) / 8000)
            line["conversations"][1]["value"] = f"{number}.wav"
            line["conversations"][3] |= {"value": f"{number}_0.100_0.250.wav"}
            del line["conversations"][3]["offset"]
            cut = io.BytesIO()
            soundfile.write(cut, pcm(number, 0.1, 0.35), 8000, format="WAV")
            members |= {f"{number}.wav": wav(number), f"{number}.json": b"{}"}
            members |= {f"{number}_0.100_0.250.wav": cut.getvalue(), f"{number}_0.100_0.250.json": b"{}"}
            lines.append(line)
        write(root / f"manifest{name.format(shard)}.jsonl", lines)
        tar(root / f"audio{name.format(shard)}.tar", members)
    return tuple(str(root / f"{kind}{name.replace('{}', '{0..1}')}") for kind in ("manifest", "audio"))  # type: ignore[return-value]


@pytest.mark.parametrize("name", ["_{}", "-00{}"])
def test_audio_in_tars(tmp_path: Path, name: str) -> None:
    manifests, tars = tarred(tmp_path, name)
    pipeline = uio.from_conversations(f"{manifests}.jsonl", f"{tars}.tar")
    samples, ledger = run(pipeline.decode_audio(of="audio"))
    assert ([s.key for s in samples], ledger.failures) == ([f"nemo-{i}" for i in range(4)], 0)
    for number, sample in enumerate(samples):
        np.testing.assert_array_equal(sample["audio"][0][0].numpy(), pcm(number))
        np.testing.assert_allclose(sample["audio"][1][0].numpy(), pcm(number, 0.1, 0.35), atol=1e-4)


def test_a_recording_that_is_not_in_its_tar_costs_one_conversation(tmp_path: Path) -> None:
    manifests, tars = tarred(tmp_path, "_{}")
    tar(tmp_path / "audio_0.tar", {"0.wav": wav(0), "1.wav": wav(1), "1_0.100_0.250.wav": wav(1)[:4044]})
    loader = uio.Loader(uio.from_conversations(f"{manifests}.jsonl", f"{tars}.tar").decode_audio(of="audio").batch(1))
    keys = [key for batch in loader for key in keys_of(batch)]
    assert (keys[-2:], loader.stats().skipped.get("missing_member")) == (["nemo-2", "nemo-3"], 1)


# Damage


def turns(*given: Any, **more: Any) -> dict[str, Any]:
    return {**more, "conversations": list(given)}


HUMAN = {"from": "human", "value": "<sound>"}


@pytest.mark.parametrize(
    ("line", "reason", "message"),
    [
        ({"id": "x", "text": "a"}, "missing_turns", r"neither messages nor conversations \(its names: id, text\)"),
        ({"messages": None}, "missing_turns", "messages must be a list of turns, not None"),
        ({"messages": {"role": "user"}}, "missing_turns", "messages must be a list of turns, not {'role'"),
        (turns(), "missing_turns", r"conversations must be a list of turns, not \[\]"),
        (turns("hello"), "bad_turn", "turn 1: it must be an object, not 'hello'"),
        (turns({"value": "a"}), "bad_turn", "turn 1: its role must be a name in `from` or `role`, not None"),
        (turns({"from": "human", "value": None}), "bad_turn", "its text, `value` or `content`, .* not None"),
        (turns({"from": "User", "type": "text", "value": None}), "bad_turn", "its text, `value`, .* not None"),
        (turns({"from": "User", "type": "audio", "value": ""}), "bad_turn", "its path, `value`, .* not ''"),
        (turns({"from": "User", "type": "image", "value": "a"}), "bad_turn", "type is 'image', not text or audio"),
        (
            turns({"from": "User", "type": "text", "value": "a"}, {"from": "User", "value": "a.wav"}),
            "bad_turn", "turn 2: its type is None, not text or audio",
        ),
        ({"messages": [{"role": "user", "content": ["a"]}]}, "bad_turn", "a part of it must be an object, not 'a'"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "bad_turn", "type is 'image'"),
        ({"messages": [{"role": "user", "content": [text(7)]}]}, "bad_turn", "its text, `text`, .* not 7"),  # type: ignore[arg-type]
        ({"messages": [{"role": "user", "content": [{**AUDIO, "path": 7}]}]}, "bad_turn", "its path, `path`, .* not 7"),
        (turns(HUMAN), "audio_mismatch", r"1 places for audio, but the line has none \(audio, audios, sound, "),
        (turns({**HUMAN, "value": "a"}, sound="a"), "audio_mismatch", "1 recordings, but no place for them"),
        (turns(HUMAN, HUMAN, sound=["a", "b", "c"]), "audio_mismatch", "3 recordings and 2 places"),
        (turns(HUMAN, sound=5), "missing_audio", "sound must be a path, or several in a list, not 5"),
        (turns(HUMAN, sound=["a", None]), "missing_audio", r"not \['a', None\]"),
        (turns({**HUMAN, "offset": -1}, sound="a"), "bad_segment", "recording 1: start and end must be seconds"),
        (turns({**HUMAN, "offset": [0, 1]}, sound=["a", "b", "c"]), "bad_segment", r"recording 3: offset is \[0, 1\]"),
    ],
)  # fmt: skip
def test_a_damaged_line_costs_one_conversation(tmp_path: Path, line: dict[str, Any], reason: str, message: str) -> None:
    chat = write(tmp_path / "chat.jsonl", [of_text(0), line, of_text(1)])
    loader = uio.Loader(uio.from_conversations(chat).batch(1))
    assert [key for batch in loader for key in keys_of(batch)] == ["text-0", "text-1"]
    assert loader.stats().skipped == {reason: 1}
    with pytest.raises(uio.DataError, match=rf"chat.jsonl, line 2.*{message}"):
        list(uio.Loader(uio.from_conversations(chat).batch(1), failures="raise"))


def test_lines_marked_skipme_are_counted_and_no_failures(tmp_path: Path) -> None:
    chat = write(tmp_path / "chat.jsonl", [of_text(0), {**of_text(1), "custom": {"_skipme": True}}])
    loader = uio.Loader(uio.from_conversations(chat).batch(1))
    assert [key for batch in loader for key in keys_of(batch)] == ["text-0"]
    assert (loader.stats().skipped, loader.stats().failures) == ({"skipme": 1}, 0)


# Behind it


def test_mixes_from_a_file_know_nemos_names(tmp_path: Path) -> None:
    durations = recordings(tmp_path, 2)
    of_turns = write(tmp_path / "nemo.jsonl", [of_nemo(i, duration) for i, duration in enumerate(durations)])
    line = {**of_sharegpt(0), "conversations": [{"from": "human", "value": "[a]"}]}
    of_share = write(tmp_path / "share.jsonl", [line])
    sources = [
        {"type": "multimodal_conversation", "manifest_filepath": str(of_turns)},
        {"type": "share_gpt", "manifest_filepath": str(of_share), "audio_placeholders": ["[a]"]},
        {"type": "conversations", "manifest": str(of_turns)},
    ]
    mixed = uio.from_config({"input_cfg": sources}).decode_audio(of="audio").batch(1)
    keys = [key for batch in uio.Loader(mixed) for key in keys_of(batch)]
    assert sorted(keys) == ["nemo-0", "nemo-0", "nemo-1", "nemo-1", "sharegpt-0"]


# The commands


def test_inspect_and_verify_look_at_every_recording(tmp_path: Path) -> None:
    chat = str(every_shape(tmp_path, 3))
    known = recognize(chat)
    assert known.kind == "conversations in JSON lines"
    contents = inspect(known.pipeline)
    expected = 3 * sum(len(pcm(i)) / 8000 for i in range(3)) + 3 * 0.25
    assert contents.seconds == pytest.approx(expected, abs=1e-3)
    assert (contents.utterances, contents.codecs, contents.failures) == (12, {"wav": 12, "none": 3}, {})
    (tmp_path / "wavs" / "1.wav").write_bytes(wav(1)[:300])
    (tmp_path / "wavs" / "2.wav").unlink()
    *_, report = verify([chat])
    found = [(each.reason, each.key) for each in report.findings]
    assert found == [
        *(("truncated_audio", key) for key in ("nemo-1", "nemo-1", "sharegpt-1", "hf-1")),
        *(("missing_file", key) for key in ("nemo-2", "nemo-2", "sharegpt-2", "hf-2")),
    ]
    assert "recording 2" in report.findings[1].message


def test_what_is_for_one_recording_each_is_refused(tmp_path: Path) -> None:
    chat = str(every_shape(tmp_path, 1))
    with pytest.raises(ListError, match="has no utterances of one recording each: it is conversations in"):
        convert(chat, str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    with pytest.raises(ListError):
        compute_cmvn(chat, tmp_path / "cmvn.json")
