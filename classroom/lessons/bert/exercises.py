"""Lesson 09: masking 80/10/10, the masked-LM loss, BERT's input of two segments."""

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from classroom.checks.base import Case, answer, integers, listed, normal, rng
from classroom.checks.exercise import exercise

if TYPE_CHECKING:
    from course_lib.vocab import Vocab


def _masking(fn: object) -> None:
    """The same twice, then the shares of 600,000 tokens: 81% and 80% are eight standard errors
    apart.
    """
    from course_lib.vocab import Vocab

    vocab = Vocab(size=5000, pad=0, unk=1, cls=2, sep=3, mask=4, special=(0, 1, 2, 3, 4))
    ids = torch.randint(5, vocab.size, (600, 1000), generator=rng(0))
    ids[:, 0], ids[:, -1] = 2, 3
    ids[::2, -20:-1] = 0
    small = {"ids": ids[:4, :40].clone(), "rng": rng(1), "vocab": vocab}
    first, again = _parts(fn, small), _parts(fn, small)
    mask_tokens.refuse(not all(map(torch.equal, first, again)), "draws")
    _judge(ids, *_parts(fn, {"ids": ids, "rng": rng(2), "vocab": vocab}), vocab)
    if "rate" in inspect.signature(cast(Callable[..., Any], fn)).parameters:
        _, labels = _parts(fn, {"ids": ids, "rng": rng(3), "vocab": vocab, "rate": 0.4})
        ordinary = ~torch.isin(ids, torch.tensor(vocab.special))
        found = int((labels != -100).sum()) / int(ordinary.sum())
        mask_tokens.refuse(abs(found - 0.4) > 0.01, "rate_fixed", found=found)


def _parts(fn: object, case: Case) -> tuple[Tensor, Tensor]:
    refuse, value, ids = mask_tokens.refuse, answer(fn, case), case["ids"]
    refuse(not isinstance(value, tuple | list) or len(value) not in (2, 3), "pair")
    for name, part in zip(("inputs", "labels"), value, strict=False):
        refuse(not isinstance(part, Tensor), "tensor", name=name, kind=type(part).__name__)
        refuse(
            part.shape != ids.shape,
            "shape",
            name=name,
            shape=list(part.shape),
            wanted=list(ids.shape),
        )
        refuse(
            part.is_floating_point() or part.dtype == torch.bool,
            "dtype",
            name=name,
            dtype=part.dtype,
        )
    return value[0], value[1]


def _judge(ids: Tensor, inputs: Tensor, labels: Tensor, vocab: "Vocab") -> None:
    """Refuse the first thing that is wrong: labels, what was chosen, how often, what became of
    it.
    """
    refuse = mask_tokens.refuse
    special = torch.isin(ids, torch.tensor(vocab.special))
    chosen, changed, masked = labels != -100, inputs != ids, inputs == vocab.mask
    right = bool((labels == ids)[chosen].all())
    refuse((inputs < 0).any() and not (labels < 0).any(), "exchanged")
    refuse(torch.equal(labels, ids), "all_labelled")
    refuse(chosen.all(), "none_ignored")
    refuse(not chosen.any(), "none_asked")
    stray = bool((changed & ~chosen).any())
    refuse(stray and right and (changed & chosen).any(), "unlabelled")
    refuse(stray, "inverted")
    refuse(not right and (labels == inputs)[chosen].all(), "corrupted_labels")
    refuse(not right, "other_labels")
    refuse((chosen & special).any(), "specials")
    refuse(not (changed & masked).any(), "no_mask")
    refuse(torch.equal(chosen[1], chosen[3]), "equal_rows")
    _judge_share("rate", _RATES, int((~special).sum()), 0.004, chosen)
    _judge_share(
        "shares",
        _SHARES,
        int(chosen.sum()),
        0.005,
        masked & chosen,
        changed & ~masked,
        ~changed & chosen,
    )
    drawn = inputs[changed & ~masked]
    kinds = len(torch.unique(drawn))
    refuse(
        kinds < vocab.size // 4,
        "not_random",
        draws=len(drawn),
        kinds=kinds,
        spread=kinds / len(drawn),
    )


_RATES = {
    (0.15,): "rate_asked",
    (0.0225,): "rate_twice",
    (0.12,): "masked_only",
    (0.135,): "changed_only",
    (0.85,): "above_rate",
}
_SHARES = {  # masked, random, kept
    (0.80, 0.10, 0.10): "shares_asked",
    (0.81, 0.10, 0.09): "left_over",
    (0.81, 0.09, 0.10): "left_over",
    (0.80, 0.02, 0.18): "tenth_random",
    (0.80, 0.18, 0.02): "tenth_kept",
    (0.72, 0.10, 0.18): "overwritten",
    (0.80, 0.08, 0.12): "overlap",
    (1.00, 0.00, 0.00): "all_masked",
    (0.80, 0.20, 0.00): "none_kept",
    (0.80, 0.00, 0.20): "none_random",
    (0.10, 0.10, 0.80): "mask_and_keep",
    (0.10, 0.80, 0.10): "mask_and_random",
}


def _judge_share(
    name: str, known: Mapping[Any, str], total: int, near: float, *parts: Tensor
) -> None:
    """The first of `known` is right, the others are the shares that known mistakes give."""
    found = [int(part.sum()) / total for part in parts]
    gaps = [
        (max(abs(a - b) for a, b in zip(found, shares, strict=True)), why)
        for shares, why in known.items()
    ]
    (gap, why), (nearest, mistake) = gaps[0], min(gaps)
    why = mask_tokens.says[mistake if nearest <= near else why]
    mask_tokens.refuse(gap > near, name, found=found, why=why)


@exercise(judge=_masking)
def mask_tokens(
    ids: Tensor, rng: Generator, vocab: Any, rate: float = 0.15
) -> tuple[Tensor, Tensor]:
    """(inputs, labels), or the library's Corrupted: BERT's masking.

    ids Int[B T]; rng a torch.Generator; vocab has .size, .mask and .special (a tuple of ids). Of
    the tokens that are not special the share `rate` is chosen; 80% of them become vocab.mask, 10%
    a random token, 10% stay. labels: the original token where chosen, -100 elsewhere."""
    inputs, labels = ids.clone(), ids.clone()
    special = torch.isin(ids, torch.tensor(vocab.special))
    loss_mask = (torch.rand(ids.shape, generator=rng) < rate) & ~special
    fate = torch.rand(ids.shape, generator=rng)
    masked, swapped = loss_mask & (fate < 0.8), loss_mask & (fate >= 0.8) & (fate < 0.9)
    inputs[masked] = vocab.mask
    inputs[swapped] = torch.randint(5, vocab.size, (int(swapped.sum()),), generator=rng)
    labels[~loss_mask] = -100
    return inputs, labels


def _chosen(g: Generator, batch: int, length: int, vocab: int) -> tuple[Tensor, ...]:
    loss_mask = torch.rand(batch, length, generator=g) < 0.4
    loss_mask[:, 1] = True  # some in every row, not all of the first
    loss_mask[0, 2] = False
    return 2 * normal(g, batch, length, vocab), integers(g, vocab, batch, length), loss_mask


@exercise(
    lambda g: [_chosen(g, 2, 8, 6), _chosen(g, 3, 5, 11), _chosen(g, 1, 9, 4)],
    learns="logits",
)
def mlm_loss(logits: Tensor, ids: Tensor, loss_mask: Tensor) -> Tensor:
    """Mean cross-entropy at the chosen positions.

    logits [B T V], ids Int[B T] the original tokens, loss_mask Bool[B T].
    """
    losses = F.cross_entropy(logits.mT, ids, reduction="none")
    return losses[loss_mask].mean()


@exercise(
    [([11, 12, 13], [21, 22], 2, 3), ([31], [41, 42, 43, 44], 101, 102)],
    form=listed,
)
def bert_input(a: list[int], b: list[int], cls: int, sep: int) -> tuple[list[int], list[int]]:
    """(ids, segments) of [CLS] a [SEP] b [SEP]; segment 0 up to the first [SEP], 1 after it."""
    ids = [cls, *a, sep, *b, sep]
    segments = [0] * (len(a) + 2) + [1] * (len(b) + 1)
    return ids, segments
