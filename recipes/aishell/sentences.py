"""Sentences for the mini corpus: a handful of templates, 63 characters, millions of sentences."""

from __future__ import annotations

from ..common.templates import Templates, split_of

__all__ = ["SENTENCES", "draw_sentence", "split_of"]

SENTENCES = Templates(
    {
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
)
draw_sentence = SENTENCES.draw
