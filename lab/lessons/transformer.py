"""The claim of lesson 02: attention alone translates better than recurrence or convolution."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from course_lib.analysis import metrics
from course_lib.data.inputs import SourceTarget, TaskBatches
from course_lib.families import transformer_lm
from course_lib.objectives import losses
from course_lib.training import optim
from lab.engine import probes, small_models
from lab.engine.conv_seq2seq import ConvEncoderDecoder, ConvSeq2Seq
from lab.lessons import Lab, experiment, fit, given, linear_config
from lab.real.translation import LONGEST, encode, network, read, shared_tokenizer

GIVEN = given("transformer")
SIZES: dict[str, dict[str, int]] = GIVEN["sizes"]
RATES: dict[str, float] = GIVEN["rates"]  # of each network, chosen by the pilot
NETWORKS = tuple(RATES)
DROPOUT = 0.2
POSITIONS = 128  # of the convolutional network; no caption is longer


class Captions:
    """Multi30k from German to English, encoded for one scale."""

    def __init__(self, lab: Lab) -> None:
        self.size = SIZES[lab.plan.scale]
        self.texts = read(lab.public_data("multi30k"), "de", "en")
        self.tokenizer = shared_tokenizer(self.texts["train"], self.size["vocab"])
        self.config = network(self.tokenizer, 128, self.size["layers"], DROPOUT)
        self.frame = SourceTarget(self.tokenizer, self.config)
        self.rows = {part: encode(self.frame, pairs) for part, pairs in self.texts.items()}

    def build(self, name: str) -> nn.Module:
        """A network from random weights, of about two million."""
        vocab = self.tokenizer.vocab
        start = vocab.cls or 0
        if name == "Transformer":
            return transformer_lm(self.config, start=start)
        if name == "LSTM":
            return small_models.attentional_lstm(vocab.size, 128, 192, start, DROPOUT)
        return ConvSeq2Seq(ConvEncoderDecoder(vocab.size, 128, 4, POSITIONS, start, DROPOUT))

    def batches(self, seed: int) -> TaskBatches:
        """Training pairs, those of about one length together."""
        return TaskBatches(self.frame, self.rows["train"], self.size["rows"], seed, by_length=True)


@contextmanager
def counted(model: nn.Module) -> Iterator[list[int]]:
    """Count the multiplications with weights while the model runs.

    Each linear layer, convolution and LSTM multiplies every input vector with its weight matrices.
    The output matrix and attention's scores are not layers; the first is the same for all networks,
    the second is under 1% for captions.
    """
    counts: list[int] = []

    def count(layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        vectors = output[0] if isinstance(output, tuple) else output
        width = vectors.shape[1] if isinstance(layer, nn.Conv1d) else vectors.shape[-1]
        number = vectors.numel() // width
        weights = sum(p.numel() for p in layer.parameters() if p.dim() > 1)
        counts.append(number * weights)

    layers = [m for m in model.modules() if isinstance(m, (nn.Linear, nn.Conv1d, nn.LSTM))]
    hooks = [layer.register_forward_hook(count) for layer in layers]
    try:
        yield counts
    finally:
        for hook in hooks:
            hook.remove()


@torch.no_grad()
def operations(captions: Captions, name: str, batches: int = 20) -> int:
    """Multiplications of a step's forward pass, mean over the first batches; the output matrix
    included."""
    torch.manual_seed(0)
    model = captions.build(name).eval()
    data = captions.batches(0)
    total = 0
    with counted(model) as counts:
        for number in range(batches):
            batch = data[number]
            losses.seq2seq(model, batch)
            predicted = int((batch["labels"] >= 0).sum())
            total += predicted * captions.tokenizer.vocab.size * 128
    return (total + sum(counts)) // batches


def steps_of(captions: Captions) -> dict[str, int]:
    """Each network's steps, so that all do as many multiplications as the Transformer."""
    cost = {name: operations(captions, name) for name in NETWORKS}
    steps = captions.size["steps"]
    return {name: round(steps * cost["Transformer"] / cost[name]) for name in NETWORKS}


def trained_bleu(
    captions: Captions, name: str, lr: float, seed: int, steps: int, part: str, device: str = "cpu"
) -> float:
    """BLEU (sacrebleu) of a network's greedy translations of one part, after its training."""
    torch.manual_seed(seed)
    model = captions.build(name)
    training = linear_config(steps, lr, beta2=0.98, precision="auto", device=device)
    schedule = optim.wsd(steps, max(1, steps // 10), decay=0.4)
    fit(model, captions.batches(seed), losses.seq2seq, training, schedule)
    said = probes.answers(model, captions.frame, captions.rows[part], most=LONGEST)
    return metrics.bleu(said, [pair["target"] for pair in captions.texts[part]])


@experiment("translation")
def translation(lab: Lab, seed: int) -> dict[str, float]:
    """BLEU on the 2016 test part, and what each network's training took."""
    captions = Captions(lab)
    steps = steps_of(captions)
    found = {f"steps/{name}": float(steps[name]) for name in NETWORKS}
    for name in NETWORKS:
        found[f"BLEU/{name}"] = trained_bleu(
            captions, name, RATES[name], seed, steps[name], "test_2016_flickr", lab.device
        )
    return found


def pilot(lab: Lab, name: str, lr: float, seed: int = 100) -> float:
    """BLEU on the validation part after a third of the training: what a rate is chosen by."""
    captions = Captions(lab)
    steps = steps_of(captions)[name] // 3
    return trained_bleu(captions, name, lr, seed, steps, "validation", lab.device)
