"""ms-swift's ``Seq2SeqTrainer``: its own tokens and labels by a template of its kind, and its own batches."""

import datasets
from chat_text import END, QUESTION, TURN, model, ours, tokenizer
from own_batches import LIST, ROWS, check_same
from swift import Seq2SeqTrainer, Seq2SeqTrainingArguments, get_model_processor, get_template
from swift.dataset import EncodePreprocessor
from swift.template import TemplateMeta, register_template

import uio_pipes as uio

register_template(TemplateMeta("turns", [], [f"{TURN}{{{{QUERY}}}}{TURN}"], None, [END]))
for part in (model, tokenizer):
    part.save_pretrained("text_model")
own_model, loaded = get_model_processor("text_model", model_type="qwen2")
for name in ("model_info", "model_meta"):  # it has loaded a tokenizer of Qwen's in place of this one
    setattr(tokenizer, name, getattr(loaded, name))
form = get_template(tokenizer, template_type="turns")
form.set_mode("train")
turns = [[("user", QUESTION), ("assistant", row["txt"])] for row in ROWS]
rows = [{"messages": [{"role": role, "content": text} for role, text in turn]} for turn in turns]
encoded = EncodePreprocessor(form)(datasets.Dataset.from_list(rows), load_from_cache_file=False)
given = {"train_dataloader_shuffle": False, "per_device_train_batch_size": 4, "use_cpu": True, "check_model": False}
arguments = Seq2SeqTrainingArguments("sft", gradient_accumulation_steps=1, report_to=[], **given)
trainer = Seq2SeqTrainer(own_model, arguments, form, train_dataset=encoded)
check_same(trainer.get_train_dataloader(), uio.Loader(ours(LIST)))
