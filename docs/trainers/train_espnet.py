"""Training with ESPnet: run it again after a kill, and it goes on."""

import json
from pathlib import Path

import uio_pipes as uio
from espnet2.iterators.abs_iter_factory import AbsIterFactory
from espnet2.tasks.asr import ASRTask

lines = Path("data/lang_char.txt").read_text().splitlines()
table = [line.split()[0] for line in lines]
first, unknown, end, *others = table
tokens = [first, unknown, *others, end]  # ESPnet wants <sos/eos> as the last one
Path("tokens.txt").write_text("\n".join(tokens))
tokenizer = uio.CharTokenizer({token: label for label, token in enumerate(tokens)})
names = {"feats": "speech", "feats_lengths": "speech_lengths"}
names |= {"target": "text", "target_lengths": "text_lengths", "speaker": None}
corpus = uio.from_shard_list("data/shards.list", shuffle=True)
pipeline = corpus.decode_audio().fbank(80).tokenize(tokenizer)
pipeline = pipeline.batch(4).pad(names=names)


class Valid(AbsIterFactory):
    def __init__(self):
        self.loader = uio.Loader(pipeline, seed=777, partition=False)

    def build_iter(self, epoch, shuffle=None):
        self.loader.set_epoch(epoch - 1)
        for batch in self.loader:
            yield batch.pop("keys"), batch


class Train(AbsIterFactory):
    def __init__(self):  # an epoch of ESPnet's, with its checkpoint, is 8 steps here
        options = {"num_workers": 1, "lanes": 4, "steps_per_epoch": 8}
        self.loader = uio.Loader(pipeline, seed=777, **options)

    def build_iter(self, epoch, shuffle=None):
        if epoch > 1 and not self.loader.finished:  # ESPnet has loaded its checkpoint
            state = json.loads(Path(f"exp/loader{epoch - 1}.json").read_text())
            self.loader.load_state_dict(state)
        for number, batch in enumerate(self.loader, 8 * epoch - 7):
            print(f"step {number}:", *batch["keys"])
            yield batch.pop("keys"), batch
        state = uio.gather_state(self.loader)  # ESPnet saves its checkpoint next
        Path(f"exp/loader{epoch}.json").write_text(json.dumps(state))


class Task(ASRTask):
    @classmethod
    def build_iter_factory(cls, args, distributed_option, mode, kwargs=None):
        return Train() if mode == "train" else Valid()


options = """
--output_dir exp --max_epoch 3 --resume true --ngpu 0
--token_list tokens.txt --token_type char --use_preprocessor false --input_size 80
--encoder rnn --encoder_conf num_layers=1
--encoder_conf hidden_size=8 --encoder_conf output_size=8
--model_conf ctc_weight=1.0 --optim sgd --optim_conf lr=0.001
--use_tensorboard false --use_matplotlib false
"""
Task.main(cmd=options.split())
