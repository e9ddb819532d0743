"""Replaced-token detection: who sees what, the joint loss by hand, its variants, micro-batches."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_lib import heads, losses
from course_lib.corrupt import generator, mask_tokens
from course_lib.data.batches import Batch
from course_lib.electra import Electra, detection_loss
from course_lib.models.electra import electra_mini, share_embedding
from course_lib.models.electra import generator as generator_config
from course_lib.optim import adamw
from course_lib.stack import Stack
from course_lib.tokenizers import Vocab
from course_lib.train import split, train

V, B, T = 24, 4, 12
VOCAB = Vocab(size=V, pad=0, unk=1, cls=2, sep=3, mask=4, special=(0, 1, 2, 3, 4))


def config():
    import dataclasses

    return dataclasses.replace(electra_mini(V, T), width=16, layers=2, heads=4, hidden=32, init_std=0.3)


def models(words: bool = False) -> Electra:
    torch.manual_seed(0)
    small = generator_config(config(), 1 / 2)
    second = heads.MLM(Stack(config())) if words else heads.RTD(Stack(config()))
    return Electra(heads.MLM(Stack(small)), second)


def batch() -> tuple[Batch, Tensor]:
    ids = torch.randint(5, V, (B, T), generator=generator(0))
    keep = torch.arange(T) < torch.tensor([12, 9, 5, 3])[:, None]
    ids = ids.masked_fill(~keep, 0)
    hidden = mask_tokens(ids, generator(1), vocab=VOCAB, rate=0.4, parts=(1, 0, 0), keep=keep)
    segments = (torch.arange(T) > 2).long().expand(B, T)
    return {**hidden._asdict(), "keep": keep, "segments": segments}, ids


def test_the_generator_sees_masks_and_the_discriminator_its_samples() -> None:
    seen: dict[str, Tensor] = {}

    class Generator(nn.Module):
        def forward(self, ids: Tensor, *, at: Tensor, keep: Tensor) -> Tensor:
            seen["masked"] = ids
            return 100.0 * F.one_hot(torch.arange(int(at.sum())) % 5 + 10, V)  # sure of one token each

    class Discriminator(nn.Module):
        def forward(self, ids: Tensor, *, keep: Tensor) -> Tensor:
            seen["filled"] = ids
            return torch.zeros(ids.shape)

    given, ids = batch()
    at = given["at"]
    said = Electra(Generator(), Discriminator())(given["ids"], labels=given["labels"], at=at, keep=given["keep"])
    assert torch.equal(seen["masked"], given["ids"]) and (given["ids"][at] == 4).all()
    expected = ids.clone()
    expected[at] = torch.arange(int(at.sum())) % 5 + 10
    assert torch.equal(seen["filled"], expected) and torch.equal(said.ids, expected)
    assert torch.equal(said.replaced, expected != ids)
    assert said.replaced.sum() < at.sum(), "no sample was right: the test shows nothing"


@pytest.mark.parametrize("chosen_only", [False, True])
def test_the_joint_loss_by_hand(chosen_only: bool) -> None:
    model, (given, ids) = models().eval(), batch()
    at, keep = given["at"], given["keep"]
    torch.manual_seed(5)
    value = losses.electra(model, given, chosen_only=chosen_only)
    torch.manual_seed(5)
    said = model(given["ids"], labels=given["labels"], at=at, keep=keep, segments=given["segments"])
    words = F.cross_entropy(said.guesses, ids[at])
    total, count = 0.0, 0
    for b in range(B):
        for t in range(T):
            if (at if chosen_only else keep)[b, t]:
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


def test_shared_vectors_learn_from_both() -> None:
    model, (given, _) = models(), batch()
    share_embedding(model.discriminator.stack, model.generator.stack)
    assert model.generator.stack.embed.tokens is model.discriminator.stack.embed.tokens
    assert len(list(model.parameters())) < len(list(models().parameters()))
    losses.electra(model, given).backward()
    shared = model.generator.stack.embed.tokens.weight
    joint = shared.grad.clone()
    model.zero_grad()
    losses.electra(model, given, weight=0.0).backward()
    assert not torch.allclose(joint, shared.grad)


@pytest.mark.parametrize("all_tokens", [False, True])
def test_words_instead_of_verdicts(all_tokens: bool) -> None:
    model, (given, ids) = models(words=True).eval(), batch()
    torch.manual_seed(5)
    value = losses.replaced_mlm(model, given, all_tokens=all_tokens)
    torch.manual_seed(5)
    ask = given["keep"] if all_tokens else given["at"]
    said = model(given["ids"], labels=given["labels"], at=given["at"], ask=ask, keep=given["keep"],
                 segments=given["segments"])  # fmt: skip
    second = model.discriminator(said.ids, keep=given["keep"], segments=given["segments"])
    expected = F.cross_entropy(said.guesses, ids[given["at"]]) + F.cross_entropy(second[ask], ids[ask])
    torch.testing.assert_close(value, expected)


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (losses.electra, False),
        (partial(losses.electra, chosen_only=True), False),
        (partial(losses.replaced_mlm, all_tokens=True), True),
    ],
)
def test_micro_batches_add_up_to_the_batch(loss, words) -> None:
    """Rows of 12, 9, 5 and 3 tokens: a share of the masked tokens is not one of the real tokens."""
    model, (given, _) = models(words).eval(), batch()
    with torch.no_grad():  # one token is certain, so that all draws agree
        model.generator.head.bias[7] = 50.0
    whole = loss(model, given)
    parts = sum(loss(model, part) * share for part, share in split(given, 2))
    torch.testing.assert_close(parts, whole)


def test_detection_loss_counts_where_it_is_asked_to() -> None:
    verdicts = torch.tensor([[3.0, -3.0], [0.0, 50.0]])
    replaced = torch.tensor([[True, True], [False, False]])
    where = torch.tensor([[True, True], [True, False]])
    expected = (F.softplus(torch.tensor(-3.0)) + F.softplus(torch.tensor(3.0)) + F.softplus(torch.tensor(0.0))) / 3
    torch.testing.assert_close(detection_loss(verdicts, replaced, where), expected)
    torch.testing.assert_close(detection_loss(verdicts, replaced), (3 * expected + 50.0) / 4)
    assert detection_loss(verdicts, replaced, torch.zeros_like(where)) == 0


def test_both_learn_and_a_run_resumes_with_the_same_samples(tmp_path) -> None:
    given, _ = batch()

    def run(steps: int, path=None):
        model = models()
        share_embedding(model.discriminator.stack, model.generator.stack)
        torch.manual_seed(1)
        taken = list(train(model, [given], losses.electra, adamw(model, 3e-3), steps=steps, checkpoint=path, every=4))
        return model, taken

    straight, taken = run(8)
    run(4, tmp_path / "state.safetensors")
    resumed, _ = run(8, tmp_path / "state.safetensors")
    assert all(torch.equal(a, b) for a, b in zip(straight.parameters(), resumed.parameters(), strict=True))
    assert taken[-1].loss < taken[0].loss
