"""The model: losses by definition, and no utterance that depends on its neighbours."""

import pytest
import torch
from torch.nn import functional

from recipes.common.config import Config
from recipes.common.conformer import MaskedConformer
from recipes.common.model import AsrModel
from uio_pipes.dsp.features import cmvn_of

SIZES = {"num_mel_bins": 20, "channels": 4, "dim": 16, "heads": 2, "feed_forward": 32, "layers": 2, "kernel": 7}
HYBRID = {**SIZES, "decoder_layers": 2, "decoder_feed_forward": 32, "label_smoothing": 0.0}
VOCABULARY, EOS = 11, 2
ENCODERS = ["conformer", "transformer"]
LENGTHS = torch.tensor([61, 44, 17], dtype=torch.int32)
TARGET = torch.tensor([[3, 4, 4, 5], [6, 7, -1, -1], [8, -1, -1, -1]])
TARGET_LENGTHS = torch.tensor([4, 2, 1], dtype=torch.int32)


def make(**sizes: object) -> AsrModel:
    torch.manual_seed(0)
    return AsrModel(Config.of({"model": {**HYBRID, **sizes}}).model, VOCABULARY, eos=EOS).eval()


@pytest.fixture(scope="module")
def feats() -> torch.Tensor:
    return torch.randn(3, 61, 20, generator=torch.Generator().manual_seed(1))


def test_memory_has_a_quarter_of_the_frames(feats: torch.Tensor) -> None:
    memory, lengths = make().encode(feats, LENGTHS)
    assert memory.shape == (3, 16, 16)
    assert lengths.tolist() == [16, 11, 5]


@pytest.mark.parametrize("training", [True, False])  # PyTorch has another way for inference
@pytest.mark.parametrize("encoder", ENCODERS)
def test_an_utterance_does_not_depend_on_its_neighbours_or_its_padding(
    feats: torch.Tensor, encoder: str, training: bool
) -> None:
    model = make(encoder=encoder)
    padded = torch.cat([feats, torch.full((3, 9, 20), 1e3)], dim=1)
    with torch.set_grad_enabled(training):
        together, lengths = model.encode(padded, LENGTHS)
        for i, length in enumerate(LENGTHS.tolist()):
            alone, _ = model.encode(feats[i : i + 1, :length], LENGTHS[i : i + 1])
            torch.testing.assert_close(together[i, : lengths[i]], alone[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_every_frame_hears_the_whole_utterance_in_its_order(feats: torch.Tensor, encoder: str) -> None:
    model = make(encoder=encoder)
    memory, _ = model.encode(feats[:1], LENGTHS[:1])
    changed = feats[:1].clone()
    changed[:, -1] += 1
    assert not torch.allclose(model.encode(changed, LENGTHS[:1])[0][:, 0], memory[:, 0], atol=1e-6)
    still, _ = model.encode(torch.ones(1, 61, 20), LENGTHS[:1])
    assert not torch.allclose(still[:, 5], still[:, 9], atol=1e-3)  # equal sounds at two positions


def test_the_conformer_is_torchaudios_with_a_norm_for_each_frame() -> None:
    """The same seed draws the same weights, and without padding the same bits come out."""
    models = pytest.importorskip("torchaudio.models")

    class FrameNorm(torch.nn.LayerNorm):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return super().forward(input.transpose(1, 2)).transpose(1, 2)

    config = Config.of({"model": {**HYBRID, "dropout": 0.0}}).model
    torch.manual_seed(0)
    reference = models.Conformer(config.dim, config.heads, config.feed_forward, config.layers, config.kernel)
    for layer in reference.conformer_layers:
        layer.conv_module.sequential[3] = FrameNorm(config.dim)
    torch.manual_seed(0)
    ours = MaskedConformer(config)
    frames, lengths = torch.randn(2, 40, config.dim), torch.tensor([40, 40])
    torch.testing.assert_close(ours(frames, lengths), reference(frames, lengths)[0], atol=1e-6, rtol=0)
    assert len(list(ours.parameters())) == len(list(reference.parameters()))


def test_layers_of_the_transformer_start_unequal() -> None:
    first, second = make(encoder="transformer").encoder.layers.layers
    assert not torch.equal(first.linear1.weight, second.linear1.weight)
    assert not torch.equal(first.self_attn.in_proj_weight, second.self_attn.in_proj_weight)


def test_tokens_look_to_their_left_only(feats: torch.Tensor) -> None:
    model = make()
    memory, lengths = model.encode(feats, LENGTHS)
    tokens = torch.tensor([[2, 3, 4, 5], [2, 6, 7, 8], [2, 9, 9, 9]])
    changed = tokens.clone()
    changed[:, 3] = 1
    first, second = (model.decoder_log_probs(memory, lengths, t) for t in (tokens, changed))
    torch.testing.assert_close(first[:, :3], second[:, :3])
    assert not torch.allclose(first[:, 3], second[:, 3])


def test_losses_are_those_of_the_utterances_one_by_one(feats: torch.Tensor) -> None:
    model = make(ctc_weight=0.4)
    losses = model(feats, LENGTHS, TARGET, TARGET_LENGTHS)
    ctc = attention = torch.zeros(())
    for i in range(3):
        labels = TARGET[i, : TARGET_LENGTHS[i]]
        memory, lengths = model.encode(feats[i : i + 1, : LENGTHS[i]], LENGTHS[i : i + 1])
        frames = model.ctc_log_probs(memory)[0]
        ctc = ctc + functional.ctc_loss(frames, labels, lengths[0], TARGET_LENGTHS[i], reduction="sum")
        tokens = torch.cat([torch.tensor([EOS]), labels])
        wanted = torch.cat([labels, torch.tensor([EOS])])
        attention = (
            attention - model.decoder_log_probs(memory, lengths, tokens[None])[0].gather(1, wanted[:, None]).sum()
        )
    torch.testing.assert_close(losses["ctc"], ctc / 3, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(losses["attention"], attention / 3, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(losses["loss"], 0.4 * losses["ctc"] + 0.6 * losses["attention"])


def test_ctc_alone_has_no_decoder(feats: torch.Tensor) -> None:
    model = make(ctc_weight=1, decoder_layers=0)
    assert not [name for name, _ in model.named_parameters() if "decoder" in name]
    losses = model(feats, LENGTHS, TARGET, TARGET_LENGTHS)
    assert losses["loss"] == losses["ctc"]
    assert losses["attention"] == 0


def test_an_utterance_too_short_for_its_text_costs_nothing(feats: torch.Tensor) -> None:
    target = torch.randint(3, 11, (3, 30))
    losses = make()(feats, LENGTHS, target, torch.tensor([30, 30, 30]))
    assert losses["ctc"] == 0


def test_features_are_normalized(feats: torch.Tensor) -> None:
    config = Config.of({"model": HYBRID}).model
    sums, squares = feats.sum((0, 1)) + 5 * 183, ((feats + 5).square()).sum((0, 1))
    cmvn = cmvn_of({"mean_stat": sums.tolist(), "var_stat": squares.tolist(), "frame_num": 183})
    torch.manual_seed(0)
    normalizing = AsrModel(config, VOCABULARY, cmvn, EOS).eval()
    plain = make()
    scaled = (feats - feats.mean((0, 1))) / feats.std((0, 1), correction=0)
    expected, _ = plain.encode(scaled, LENGTHS)
    torch.testing.assert_close(normalizing.encode(feats + 5, LENGTHS)[0], expected, atol=1e-3, rtol=1e-3)
    assert {"mean", "istd"} <= normalizing.state_dict().keys()


@pytest.mark.parametrize("encoder", ENCODERS)
def test_every_parameter_learns(feats: torch.Tensor, encoder: str) -> None:
    model = make(encoder=encoder).train()
    model(feats, LENGTHS, TARGET, TARGET_LENGTHS)["loss"].backward()
    assert not [name for name, parameter in model.named_parameters() if parameter.grad is None]
