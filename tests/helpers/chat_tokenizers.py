"""Small tokenizers of transformers, made here, with chat templates like those of well-known models."""

from functools import lru_cache
from typing import Any

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

_SPECIAL = [
    "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
    "<|AUDIO|>", "<|audio_bos|>", "<|audio_eos|>", "</s>",
]  # fmt: skip
_TEXTS = ["hello world 你好 世界", "transcribe the audio, please", "what was said?\n", "user system assistant"] * 8

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
GENERATION = """{%- for m in messages %}
    {{- '<|im_start|>' + m['role'] + '\n' }}
    {%- if m['role'] == 'assistant' %}
        {%- generation -%}
        {{ m['content'] + '<|im_end|>' + '\n' }}
        {%- endgeneration %}
    {%- else %}
        {{- m['content'] + '<|im_end|>' + '\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
"""
LLAMA3 = """{{- bos_token }}
{%- for m in messages %}
    {%- if m['role'] not in ['user', 'assistant', 'system'] %}
        {{- raise_exception('role ' + m['role'] + ' is not known') }}
    {%- endif %}
    {{- '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n' + m['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
"""
PLAIN_WORDS = (  # no special token before the answer, which begins with a blank, as in Vicuna's
    "{% for m in messages %}{{ m['role'] | upper + ': ' + m['content'] + ('</s>' if m['role'] == 'assistant' else ' ')"
    " }}{% endfor %}{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
)
QWEN2_AUDIO = """{%- set count = namespace(value=0) %}
{%- for m in messages %}
    {%- if loop.first and m['role'] != 'system' %}
        {{- '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}
    {%- endif %}
    {{- '<|im_start|>' + m['role'] + '\n' }}
    {%- if m['content'] is string %}
        {{- m['content'] }}
    {%- else %}
        {%- for content in m['content'] %}
            {%- if 'audio' in content or 'audio_url' in content %}
                {%- set count.value = count.value + 1 %}
                {{- 'Audio ' + count.value | string + ': <|audio_bos|><|AUDIO|><|audio_eos|>\n' }}
            {%- elif 'text' in content %}
                {{- content['text'] }}
            {%- endif %}
        {%- endfor %}
    {%- endif %}
    {{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
"""
REWRITES = (  # what is before the last answer loses its thoughts, as in Qwen3's
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% if loop.last %}{{ m['content'] }}"
    "{% else %}{{ m['content'].split('#')[-1] }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@lru_cache
def _trained() -> str:
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.post_processor = processors.ByteLevel(trim_offsets=True)
    trainer = trainers.BpeTrainer(
        vocab_size=360, special_tokens=_SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )  # fmt: skip
    made.train_from_iterator(_TEXTS, trainer)
    text: str = made.to_str()
    return text


def byte_level(template: str | None = CHATML) -> Any:
    """As of GPT-2 and its descendants: byte pairs, with blanks at the beginning of tokens."""
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer.from_str(_trained()),
        chat_template=template,
        bos_token="<|begin_of_text|>",
    )


def metaspace(template: str | None = CHATML) -> Any:
    """As of SentencePiece models, which put a blank before the text: one token for each character."""
    letters = sorted({c for text in [*_TEXTS, template or ""] for c in text.upper() + text if c != " "})
    vocab = {token: number for number, token in enumerate(["<unk>", "▁", *letters])}
    made = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    made.decoder = decoders.Metaspace()
    made.add_special_tokens(_SPECIAL)
    return PreTrainedTokenizerFast(tokenizer_object=made, chat_template=template, bos_token="<|begin_of_text|>")
