"""Sentences for the mini corpus: a handful of templates, 63 characters, millions of sentences.

A hash of its text assigns each sentence to train, dev or test. So no test sentence is ever heard in training, whatever
the size and the seed.
"""

from __future__ import annotations

import hashlib
import random
import re

WORDS: dict[str, tuple[str, ...]] = {
    "who": ("我", "你", "他们", "老师"),
    "day": ("今天", "明天", "后天"),
    "part": ("早上", "下午", "晚上"),
    "city": ("北京", "上海", "广州"),
    "place": ("公园", "车站"),
    "device": ("灯", "门", "电视"),
    "switch": ("打开", "关上"),
    "weather": ("下雨", "下雪", "很 冷", "很 热", "天气 很 好"),
    "thing": ("苹果", "书"),
    "digit": ("零", "一", "二", "三", "四", "五", "六", "七", "八", "九"),
    "hour": ("三", "四", "五", "六", "七", "八", "九", "十"),
    "tens": ("二", "三", "四", "五", "六", "七", "八", "九"),
    "number": ("{tens} 十 {tens}", "{tens} 百 {tens} 十", "十 {tens}"),
    "time": ("{day} {part} {hour} 点",),
    "sentence": (
        "请 把 {who} 的 {device} {switch}",
        "{time} 请 {switch} {device}",
        "{time} {who} 要 去 {city} {place}",
        "{who} {day} {part} 去 {place} 看 {thing}",
        "{day} {city} {weather}",
        "{who} 要 买 {number} 个 苹果",
        "{thing} 要 {number} 块 钱",
        "电话 号码 是 {digit} {digit} {digit} {digit} {digit}",
        "{who} 的 号码 是 {digit} {digit} {digit} {digit}",
    ),
}
_SLOT = re.compile(r"{(\w+)}")


def expand(template: str, rng: random.Random) -> str:
    """Fill the slots of a template, and the slots of their contents."""
    while slot := _SLOT.search(template):
        template = template[: slot.start()] + rng.choice(WORDS[slot[1]]) + template[slot.end() :]
    return " ".join(template.split())


def split_of(sentence: str) -> str:
    """Return the part that a sentence belongs to: 8 of 10 to train, one to dev, one to test."""
    bucket = hashlib.sha1(sentence.replace(" ", "").encode()).digest()[0] % 10
    return {0: "dev", 1: "test"}.get(bucket, "train")


def draw_sentence(split: str, rng: random.Random) -> str:
    """Draw a sentence of one part, with blanks between its words."""
    while split_of(sentence := expand("{sentence}", rng)) != split:
        pass
    return sentence


def alphabet() -> set[str]:
    """Return every character that a sentence can contain."""
    literal = "".join(_SLOT.sub("", choice) for choices in WORDS.values() for choice in choices)
    return set(literal) - {" "}
