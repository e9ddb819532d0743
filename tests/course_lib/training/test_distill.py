"""Distillation: every loss by hand, where gradients go, which layer learns from which, the
student's start.
"""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from course_lib.analysis import capture
from course_lib.errors import CourseError
from course_lib.families.bert import bert
from course_lib.model import heads
from course_lib.model.config import StackConfig
from course_lib.model.transformer import Transformer
from course_lib.objectives import distillation, mask_tokens, seeded_generator
from course_lib.training import distill
from course_lib.training.distill import Distilled
from course_lib.training.feed import micro_batches
from course_lib.training.loop import TrainConfig, train
from course_lib.training.optim import adamw
from course_lib.vocab import Vocab

V, B, T = 24, 4, 12
VOCAB = Vocab(size=V, pad=0, unk=1, cls=2, sep=3, mask=4, special=(0, 1, 2, 3, 4))
KEEP = torch.arange(T) < torch.tensor([12, 9, 5, 3])[:, None]


def config(layers: int = 4, width: int = 16, **options: object) -> StackConfig:
    made = bert(V, width=width, layers=layers, heads=4, hidden=32, length=T, dropout=0.0)
    return replace(made, init_std=0.3, **options)  # type: ignore[arg-type]


def teacher() -> heads.Pretraining:
    torch.manual_seed(0)
    return heads.Pretraining(Transformer(config()))


def small(width: int = 16, layers: int = 2) -> heads.MLM:
    torch.manual_seed(1)
    return heads.MLM(Transformer(config(layers, width)))


def batch() -> dict[str, Tensor]:
    ids = torch.randint(5, V, (B, T), generator=seeded_generator(0)).masked_fill(~KEEP, 0)
    hidden = mask_tokens(ids, seeded_generator(1), vocab=VOCAB, rate=0.4, attention_mask=KEEP)
    return {
        **hidden._asdict(),
        "attention_mask": KEEP,
        "segments": (torch.arange(T) > 2).long().expand(B, T),
    }


@pytest.mark.parametrize("temperature", [1.0, 2.0, 5.0])
def test_soft_loss_by_hand(temperature: float) -> None:
    own, theirs = torch.randn(5, 7, requires_grad=True), torch.randn(5, 7, requires_grad=True)
    total = 0.0
    for s, t in zip(own, theirs, strict=True):
        p, q = (t / temperature).softmax(0), (s / temperature).softmax(0)
        total += (p * (p / q).log()).sum().item()
    expected = torch.tensor(temperature**2 * total / 5)
    torch.testing.assert_close(value := distillation.soft_loss(own, theirs, temperature), expected)
    value.backward()
    assert own.grad is not None and theirs.grad is None, "the teacher learns"
    assert distillation.soft_loss(theirs, theirs, temperature).abs() < 1e-6


def test_losses_on_states_count_real_tokens_only() -> None:
    own, theirs = torch.randn(B, T, 6), torch.randn(B, T, 6)
    cosine = torch.stack(
        [1 - F.cosine_similarity(a, b, dim=0) for a, b in zip(own[KEEP], theirs[KEEP], strict=True)]
    )
    torch.testing.assert_close(distillation.cosine_loss(own, theirs, KEEP), cosine.mean())
    torch.testing.assert_close(
        distillation.hidden_loss(own, theirs, KEEP), ((own[KEEP] - theirs[KEEP]) ** 2).mean()
    )
    torch.testing.assert_close(distillation.hidden_loss(own, theirs), F.mse_loss(own, theirs))
    assert distillation.cosine_loss(own, 3 * own, KEEP).abs() < 1e-6, "length must not count"


def test_attention_loss_by_hand() -> None:
    lowest = torch.finfo(torch.float32).min
    own, theirs = torch.randn(B, 2, T, T), torch.randn(B, 2, T, T)
    total, count = 0.0, 0
    for b in range(B):
        real = KEEP[b].nonzero()[:, 0]
        for i in real:
            total += float((own[b, :, i, real] - theirs[b, :, i, real]).square().mean())
            count += 1
    masked = [
        x + torch.zeros(B, 1, 1, T).masked_fill(~KEEP[:, None, None], lowest) for x in (own, theirs)
    ]
    torch.testing.assert_close(
        distillation.attention_loss(masked[0], masked[1], KEEP), torch.tensor(total / count)
    )


def test_distilbert_is_the_weighted_sum() -> None:
    model, given = Distilled(small(), teacher()), batch()
    at, attention_mask = given["loss_mask"], given["attention_mask"]
    options = {"attention_mask": attention_mask, "segments": given["segments"]}
    mine = small()(given["ids"], loss_mask=at, **options)
    theirs = teacher()(given["ids"], loss_mask=at, **options)[0]
    h = [m.stack(given["ids"], **options) for m in (small(), teacher())]
    expected = (
        5 * distillation.soft_loss(mine, theirs, 2.0)
        + 2 * F.cross_entropy(mine, given["labels"][at])
        + distillation.cosine_loss(h[0], h[1], attention_mask)
    )
    torch.testing.assert_close(distillation.distilbert(model, given), expected)
    hard = distillation.distilbert(model, given, soft=0.0, cosine=0.0, hard=1.0)
    torch.testing.assert_close(hard, F.cross_entropy(mine, given["labels"][at]))


def test_tinybert_compares_each_layer_with_its_own() -> None:
    model, given = Distilled(small(), teacher()), batch()
    assert model.layers == (2, 4)
    views = model(given["ids"], attention_mask=KEEP, segments=given["segments"], attention=True)
    stack = teacher().stack
    with capture(stack, "embed", "blocks.*", "blocks.*.attn.scores") as seen:
        stack(given["ids"], attention_mask=KEEP, segments=given["segments"])
    for theirs, name in zip(views[1].hidden, ("embed", "blocks.1", "blocks.3"), strict=True):
        torch.testing.assert_close(theirs, seen[name])
    for theirs, layer in zip(views[1].attention, (1, 3), strict=True):
        torch.testing.assert_close(theirs, seen[f"blocks.{layer}.attn.scores"])
    expected = sum(
        distillation.hidden_loss(a, b, KEEP)
        for a, b in zip(views[0].hidden, views[1].hidden, strict=True)
    )
    scores = zip(views[0].attention, views[1].attention, strict=True)
    expected = expected + sum(distillation.attention_loss(a, b, KEEP) for a, b in scores)
    torch.testing.assert_close(distillation.tinybert(model, given), expected)
    twin = Distilled(teacher(), teacher())
    assert distillation.tinybert(twin, given) < 1e-9, "a model differs from itself"


@pytest.mark.parametrize("loss", [distillation.distilbert, distillation.tinybert])
def test_padding_does_not_count_and_micro_batches_add_up_to_the_batch(loss) -> None:
    model, given = Distilled(small(), teacher()), batch()
    whole = loss(model, given)
    torch.testing.assert_close(loss(model, given | {"ids": given["ids"].where(KEEP, 9)}), whole)
    torch.testing.assert_close(
        sum(loss(model, part) * share for part, share in micro_batches(given, 2)), whole
    )


def test_a_narrower_student_is_projected_and_the_projection_learns() -> None:
    model, given = Distilled(small(width=8), teacher()), batch()
    assert model.hidden.weight.shape == (16, 8)
    distillation.tinybert(model, given).backward()
    names = {
        name
        for name, p in model.named_parameters()
        if p.grad is not None and p.grad.abs().sum() > 0
    }
    assert {"hidden.weight", "embedding.weight", "student.stack.blocks.1.ff.up.weight"} <= names


def test_the_teacher_is_no_part_of_what_is_trained_or_saved() -> None:
    t, given = teacher(), batch()
    t.train()
    model = Distilled(small(), t)
    assert len(list(model.parameters())) == len(list(small().parameters()))
    assert all(name.startswith("student.") for name in model.state_dict())
    before = [p.clone() for p in t.parameters()]
    steps = list(
        train(
            model,
            [given],
            distillation.distilbert,
            TrainConfig(steps=6),
            optimizer=adamw(model, 3e-3),
        )
    )
    assert not t.training, "the teacher has dropout"
    assert all(
        torch.equal(a, b) and b.grad is None for a, b in zip(before, t.parameters(), strict=True)
    )
    assert steps[-1].loss < steps[0].loss


def test_classifiers() -> None:
    torch.manual_seed(2)
    own, theirs = (
        heads.Classifier(Transformer(config(2)), 3),
        heads.Classifier(Transformer(config()), 3).eval(),
    )
    given = {"ids": batch()["ids"], "attention_mask": KEEP, "labels": torch.tensor([0, 2, 1, 1])}
    value = distillation.classification(
        Distilled(own, theirs), given, temperature=4.0, soft=0.7, hard=0.3
    )
    logits = own(given["ids"], attention_mask=KEEP), theirs(given["ids"], attention_mask=KEEP)
    expected = 0.7 * distillation.soft_loss(*logits, 4.0) + 0.3 * F.cross_entropy(
        logits[0], given["labels"]
    )
    torch.testing.assert_close(value, expected)


def test_a_student_begins_as_every_second_layer() -> None:
    t = teacher()
    own = distill.student(t)
    assert own.stack.config.layers == 2 and own.stack.embed.segments is None
    for mine, theirs in ((0, 0), (1, 2)):
        a, b = own.stack.blocks[mine].state_dict(), t.stack.blocks[theirs].state_dict()
        assert all(torch.equal(a[name], b[name]) for name in b)
    same = distill.student(t, layers=4)
    ids = batch()["ids"]
    torch.testing.assert_close(same(ids, attention_mask=KEEP), t(ids, attention_mask=KEEP)[0])
    own.stack.embed.tokens.weight.data.zero_()
    assert t.stack.embed.tokens.weight.abs().sum() > 0, "student and teacher share weights"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Distilled(small(layers=5), teacher()), "more than the teacher's"),
        (lambda: Distilled(torch.nn.Linear(2, 2), teacher()), "heads on a Transformer"),
        (lambda: distill.student(heads.Pooled(Transformer(config()))), "masked language model"),
    ],
)
def test_bad_input_is_one_sentence(call, words: str) -> None:
    with pytest.raises(CourseError, match=words):
        call()
