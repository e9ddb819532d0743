"""Replaced-token detection: who sees what, the joint loss by hand, its variants, micro-batches."""

from dataclasses import replace
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_lib.families.electra import Electra, electra, generator
from course_lib.model import heads
from course_lib.model.transformer import Transformer
from course_lib.objectives import losses, mask_tokens, seeded_generator
from course_lib.objectives.losses import Batch
from course_lib.training.feed import micro_batches
from course_lib.vocab import Vocab

V, B, T = 24, 4, 12
VOCAB = Vocab(size=V, pad=0, unk=1, cls=2, sep=3, mask=4, special=(0, 1, 2, 3, 4))


CONFIG = replace(
    electra(V, width=16, layers=2, heads=4, hidden=32, length=T, dropout=0.0), init_std=0.3
)


def models() -> Electra:
    torch.manual_seed(0)
    return Electra(heads.MLM(Transformer(generator(CONFIG, 1 / 2))), heads.RTD(Transformer(CONFIG)))


def batch() -> tuple[Batch, Tensor]:
    ids = torch.randint(5, V, (B, T), generator=seeded_generator(0))
    attention_mask = torch.arange(T) < torch.tensor([12, 9, 5, 3])[:, None]
    ids = ids.masked_fill(~attention_mask, 0)
    hidden = mask_tokens(
        ids,
        seeded_generator(1),
        vocab=VOCAB,
        rate=0.4,
        parts=(1, 0, 0),
        attention_mask=attention_mask,
    )
    segments = (torch.arange(T) > 2).long().expand(B, T)
    return {**hidden._asdict(), "attention_mask": attention_mask, "segments": segments}, ids


def test_the_generator_sees_masks_and_the_discriminator_its_samples() -> None:
    seen: dict[str, Tensor] = {}

    class Generator(nn.Module):
        def forward(self, ids: Tensor, *, loss_mask: Tensor, attention_mask: Tensor) -> Tensor:
            seen["masked"] = ids
            # sure of one token each
            return 100.0 * F.one_hot(torch.arange(int(loss_mask.sum())) % 5 + 10, V)

    class Discriminator(nn.Module):
        def forward(self, ids: Tensor, *, attention_mask: Tensor) -> Tensor:
            seen["filled"] = ids
            return torch.zeros(ids.shape)

    given, ids = batch()
    at = given["loss_mask"]
    said = Electra(Generator(), Discriminator())(
        given["ids"], labels=given["labels"], loss_mask=at, attention_mask=given["attention_mask"]
    )
    assert torch.equal(seen["masked"], given["ids"]) and (given["ids"][at] == 4).all()
    expected = ids.clone()
    expected[at] = torch.arange(int(at.sum())) % 5 + 10
    assert torch.equal(seen["filled"], expected) and torch.equal(said.ids, expected)
    assert torch.equal(said.replaced, expected != ids)
    assert said.replaced.sum() < at.sum(), "no sample was right: the test shows nothing"


@pytest.mark.parametrize("chosen_only", [False, True])
def test_the_joint_loss_by_hand(chosen_only: bool) -> None:
    model, (given, ids) = models().eval(), batch()
    at, attention_mask = given["loss_mask"], given["attention_mask"]
    torch.manual_seed(5)
    value = losses.electra(model, given, chosen_only=chosen_only)
    torch.manual_seed(5)
    said = model(
        given["ids"],
        labels=given["labels"],
        loss_mask=at,
        attention_mask=attention_mask,
        segments=given["segments"],
    )
    words = F.cross_entropy(said.guesses, ids[at])
    total, count = 0.0, 0
    for b in range(B):
        for t in range(T):
            if (at if chosen_only else attention_mask)[b, t]:
                p = said.verdicts[b, t].sigmoid()
                total = total - (p if said.ids[b, t] != ids[b, t] else 1 - p).log()
                count += 1
    torch.testing.assert_close(value, words + 50 * total / count)
    twice = partial(losses.electra, weight=0.0, chosen_only=chosen_only)
    torch.manual_seed(5)
    torch.testing.assert_close(twice(model, given), words)


def test_the_discriminators_loss_does_not_reach_the_generator() -> None:
    model, (given, _) = models(), batch()
    losses.electra(model, given).backward()
    both = {n: p.grad.clone() for n, p in model.generator.named_parameters() if p.grad is not None}
    assert all(p.grad is not None for p in model.discriminator.parameters())
    model.zero_grad()
    losses.mlm(model.generator, given).backward()
    for name, weight in model.generator.named_parameters():
        torch.testing.assert_close(both[name], weight.grad)


@pytest.mark.parametrize("loss", [losses.electra, partial(losses.electra, chosen_only=True)])
def test_micro_batches_add_up_to_the_batch(loss) -> None:
    """Rows of 12, 9, 5 and 3 tokens: a share of the masked tokens is not one of the real tokens."""
    model, (given, _) = models().eval(), batch()
    with torch.no_grad():  # one token is certain, so that all draws agree
        model.generator.head.bias[7] = 50.0
    whole = loss(model, given)
    parts = sum(loss(model, part) * share for part, share in micro_batches(given, 2))
    torch.testing.assert_close(parts, whole)
