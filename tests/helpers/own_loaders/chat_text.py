"""A conversation of text: TRL takes no audio, and a template of ms-swift's with audio only that of a model it knows.

``tokenizer`` is one of ``transformers`` that splits into characters, with the labels of the example's dictionary; the
tiny ``model`` only makes a trainer of theirs possible.
"""

import tokenizers
import transformers
from own_batches import TOKENIZER

import uio_pipes as uio

QUESTION = "今天天气很好"
TURN, END = "<turn>", "<end>"
symbols = TOKENIZER.symbols
symbols |= {symbol: len(symbols) + i for i, symbol in enumerate((TURN, END))}
words = tokenizers.Tokenizer(tokenizers.models.WordLevel(symbols, "<unk>"))
words.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex("."), "isolated")
tokenizer = transformers.PreTrainedTokenizerFast(
    tokenizer_object=words, pad_token="<blank>", unk_token="<unk>", eos_token=END, additional_special_tokens=[TURN]
)
sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
sizes |= {"num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": len(symbols)}
model = transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**sizes))


def ours(path: str) -> uio.Pipeline:
    """Our batches of four of the same conversations."""
    turns = [("user", QUESTION), ("assistant", "{txt}")]
    template = {"user": f"{TURN}{{}}", "assistant": f"{TURN}{{}}{END}"}
    chat = uio.from_raw_list(path).decode_audio().chat(uio.CharTokenizer(symbols, [TURN, END]), template, turns)
    names = {"target": "input_ids", "target_mask": "attention_mask", "pcm": None, "pcm_length": None}
    return chat.batch(4).pad(keep=["labels"], order="kept", mask=True, value={"target": 0}, names=names)
