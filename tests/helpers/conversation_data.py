"""Conversations in each shape that they are written in, with wavs."""

from pathlib import Path
from typing import Any

from nemo_data import seconds, wav, write

Line = dict[str, Any]


def recordings(root: Path, count: int) -> list[float]:
    """Write ``wavs/0.wav``, … below ``root``; return their seconds."""
    (root / "wavs").mkdir(parents=True, exist_ok=True)
    for number in range(count):
        (root / "wavs" / f"{number}.wav").write_bytes(wav(number))
    return [seconds(wav(number)) for number in range(count)]


def of_nemo(number: int, duration: float) -> Line:
    """As NeMo's ``multimodal_conversation``: a turn for each text and each recording."""
    return {
        "id": f"nemo-{number}",
        "conversations": [
            {"from": "User", "type": "text", "value": "Summarize this:"},
            {"from": "User", "type": "audio", "value": f"wavs/{number}.wav", "duration": duration},
            {"from": "Assistant", "type": "text", "value": "It is short."},
            {
                "from": "Assistant", "type": "audio", "value": f"wavs/{number}.wav", "offset": 0.1, "duration": 0.25,
                "text": None,
            },
        ],
        "custom": {"lang": "en"},
    }  # fmt: skip


def of_sharegpt(number: int) -> Line:
    """As NeMo's ``share_gpt``."""
    return {
        "id": f"sharegpt-{number}",
        "sound": f"wavs/{number}.wav",
        "conversations": [
            {"from": "human", "value": "Listen: <sound>\nWhat is it?"},
            {"from": "gpt", "value": "A <sound>."},
        ],
        "ori_sound": "/elsewhere/a.wav",
    }


def of_huggingface(number: int) -> Line:
    return {
        "id": f"hf-{number}",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": [
                    {"type": "audio", "audio_url": f"wavs/{number}.wav"},
                    {"type": "text", "text": "Transcribe."},
                ],
            },
            {"role": "assistant", "content": f"文{number}"},
        ],
    }


def of_text(number: int) -> Line:
    turns = [{"role": "user", "content": f"{number}?"}, {"role": "assistant", "content": f"{number}."}]
    return {"id": f"text-{number}", "messages": turns}


def every_shape(root: Path, count: int) -> Path:
    """``chat.jsonl``: ``count`` conversations of each shape, one after the other."""
    lines: list[Line] = []
    for number, duration in enumerate(recordings(root, count)):
        lines += [of_nemo(number, duration), of_sharegpt(number), of_huggingface(number), of_text(number)]
    return write(root / "chat.jsonl", lines)
