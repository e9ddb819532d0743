"""Sampling from a generator, and what counts as replaced."""

import math

import pytest
import torch

from course_lib.corrupt import generator, mask_spans, mask_tokens, original, replace_tokens, sample
from course_lib.errors import CourseError
from course_lib.tokenizers import Vocab

VOCAB = Vocab(size=30, pad=0, unk=1, cls=2, sep=3, mask=4, special=(0, 1, 2, 3, 4))


@pytest.mark.parametrize("temperature", [1.0, 2.0, 0.5])
def test_samples_follow_the_softmax(temperature: float) -> None:
    logits = torch.tensor([2.0, 0.0, 1.0, -1.0])
    n = 40_000
    drawn = sample(logits.expand(n, 4), generator(0), temperature=temperature)
    for token, p in enumerate((logits / temperature).softmax(0).tolist()):
        assert abs((drawn == token).float().mean().item() - p) < 4 * math.sqrt(p * (1 - p) / n)


def test_samples_follow_the_generator_and_carry_no_gradient() -> None:
    logits = torch.randn(5, 7, 11, requires_grad=True)
    drawn = sample(logits, generator(1))
    assert drawn.shape == (5, 7) and not drawn.requires_grad
    assert torch.equal(drawn, sample(logits, generator(1)))
    assert not torch.equal(drawn, sample(logits, generator(2)))
    torch.manual_seed(3)
    one = sample(logits)
    torch.manual_seed(3)
    assert torch.equal(one, sample(logits)), "without a generator, the global one is used"
    assert torch.equal(sample(logits * 1e4, generator(0)), logits.argmax(-1))
    with pytest.raises(CourseError, match="above 0"):
        sample(logits, temperature=0.0)


def test_replaced_means_different_from_the_original() -> None:
    """the chef cooked the meal: "the" and "cooked" are masked, the generator says "the" and "ate" (figure 2)."""
    the, chef, cooked, meal, ate = range(10, 15)
    text = torch.tensor([[the, chef, cooked, the, meal]])
    at = torch.tensor([[True, False, True, False, False]])
    seen, replaced = replace_tokens(text, at, torch.tensor([the, ate]))
    assert seen.tolist() == [[the, chef, ate, the, meal]]
    assert replaced.tolist() == [[False, False, True, False, False]]
    assert text.tolist() == [[the, chef, cooked, the, meal]], "the input was written to"


@pytest.mark.parametrize("mask", [mask_tokens, mask_spans])
def test_only_chosen_places_change_and_the_original_is_known(mask) -> None:
    ids = torch.randint(0, 30, (6, 20), generator=generator(0))
    keep = torch.arange(20) < torch.tensor([20, 20, 10, 5, 3, 1])[:, None]
    hidden = mask(ids, generator(1), vocab=VOCAB, keep=keep)
    assert torch.equal(original(*hidden), ids)
    sampled = torch.randint(0, 30, (int(hidden.at.sum()),), generator=generator(2))
    seen, replaced = replace_tokens(original(*hidden), hidden.at, sampled)
    assert torch.equal(seen[~hidden.at], ids[~hidden.at]) and not replaced[~hidden.at].any()
    assert torch.equal(seen[hidden.at], sampled)
    assert torch.equal(replaced, seen != ids)


def test_samples_and_places_must_agree() -> None:
    with pytest.raises(CourseError, match="2 places to fill and 1 tokens"):
        replace_tokens(torch.tensor([[5, 6]]), torch.tensor([[True, True]]), torch.tensor([7]))
