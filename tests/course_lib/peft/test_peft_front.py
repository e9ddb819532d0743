"""What stands in front of a text: prefixes (a cache filled beforehand) and prompts (vectors at the
input).
"""

from functools import partial

import pytest
import torch

from course_lib import peft
from course_lib.errors import CourseError
from course_lib.families.bart import bart, bart_lm
from course_lib.families.bert import bert
from course_lib.generation import generate, left_pad
from course_lib.model import heads
from course_lib.model.cache import KVCache
from course_lib.model.config import (
    Alibi,
    EmbedConfig,
    Global,
    Learned,
    Rope,
    Shaw,
    T5Buckets,
    Window,
)
from course_lib.model.transformer import Transformer
from tests.course_lib.model.test_stack import build

SCHEMES = [Learned(40), Rope(), T5Buckets(8, 12), Shaw(3), Alibi()]
each_scheme = pytest.mark.parametrize("position", SCHEMES, ids=lambda p: type(p).__name__)
FRONTS = {"prefix": partial(peft.prefix, length=3), "prompt": partial(peft.prompt, length=3)}
each_front = pytest.mark.parametrize("front", FRONTS.values(), ids=FRONTS)


def text(rows=2, t=6):
    return torch.randint(30, (rows, t), generator=torch.Generator().manual_seed(1))


def near(a, b):
    torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


WORDS = [4, 9, 2]


@each_scheme
@pytest.mark.parametrize("method", [peft.prefix, peft.prompt])
def test_begun_from_words_it_is_the_model_that_has_read_them(position, method):
    stack = build(position)
    expected = stack(torch.cat((torch.tensor([WORDS, WORDS]), text()), dim=1))[:, 3:]
    near(method(stack, 3, words=WORDS)(text()), expected)


@pytest.mark.parametrize("method", [peft.prefix, peft.prompt])
def test_it_works_where_some_layers_have_a_rotary_base_of_their_own(method):
    stack = build(Rope(), attention=(Global(), Window(4, rope_base=100.0)))
    expected = stack(torch.cat((torch.tensor([WORDS, WORDS]), text()), dim=1))[:, 3:]
    near(method(stack, 3, words=WORDS)(text()), expected)


def test_of_an_encoder_too_where_attention_looks_both_ways():
    """A prompt is read with the text; a prefix has been read before it, so it does not see the
    text.
    """
    stack = build(causal=False, embed=EmbedConfig(30, segments=2, norm=True))
    both = torch.cat((torch.tensor([WORDS, WORDS]), text()), dim=1)
    segments = torch.tensor([[0, 0, 1, 1, 1, 1]] * 2)
    padded = torch.nn.functional.pad(segments, (3, 0))
    near(
        peft.prompt(stack, 3, words=WORDS)(text(), segments=segments),
        stack(both, segments=padded)[:, 3:],
    )
    mask = torch.ones(1, 1, 9, 9, dtype=torch.bool)
    mask[..., :3, 3:] = False
    near(
        peft.prefix(stack, words=WORDS)(text(), segments=segments),
        stack(both, segments=padded, mask=mask)[:, 3:],
    )


@each_front
@each_scheme
def test_padding_on_either_side_changes_nothing(front, position):
    stack = front(build(position))
    ids = text(1)
    expected = stack(ids)
    right = torch.arange(9)[None] < 6
    near(stack(torch.nn.functional.pad(ids, (0, 3)), attention_mask=right)[:, :6], expected)
    near(stack(torch.nn.functional.pad(ids, (3, 0)), attention_mask=right.flip(1))[:, 3:], expected)


@each_front
@each_scheme
def test_cached_equals_uncached(front, position):
    stack = front(build(position)).requires_grad_(False)
    ids, attention_mask = text(), torch.tensor([[True] * 6, [False] * 2 + [True] * 4])
    cache = KVCache(2)
    out = [
        stack(ids[:, a:b], attention_mask=attention_mask[:, :b], cache=cache)
        for a, b in ((0, 3), (3, 4), (4, 6))
    ]
    near(
        torch.cat(out, dim=1)[attention_mask],
        stack(ids, attention_mask=attention_mask)[attention_mask],
    )
    assert cache.length == 9


@each_front
@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"cache": False}], ids=str)
def test_text_is_generated_behind_it(front, options):
    """Rows padded on the left give what each gives alone, cached or not."""
    model = heads.LM(front(build()))
    rows = [[4, 5, 6, 7], [8]]
    ids, attention_mask = left_pad(rows)
    both = generate(model, ids, attention_mask=attention_mask, max_new_tokens=6, **options)
    for row, out in zip(rows, both, strict=True):
        alone = generate(
            model, torch.tensor([row]), max_new_tokens=6, **(options | {"cache": False})
        )
        assert torch.equal(out[-6:], alone[0, -6:])
    plain = generate(
        heads.LM(build()), ids, attention_mask=attention_mask, max_new_tokens=6, **options
    )
    assert not torch.equal(plain, both)


def test_a_network_makes_the_prefix_while_it_is_trained():
    stack = build()
    model = peft.prefix(stack, 3, hidden=7)
    rows, (first, _, last) = model.prefix.weight, model.prefix.network
    expected = torch.tanh(rows @ first.weight.T + first.bias) @ last.weight.T + last.bias
    near(model.prefix.table, expected)
    model(text()).sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in model.prefix.parameters())


def test_a_prompt_starts_from_words_or_random_tokens():
    stack = build()
    table = stack.embed.tokens.weight
    assert torch.equal(peft.prompt(stack, 5, words=WORDS).prompt.weight, table[[4, 9, 2, 4, 9]])
    drawn = peft.prompt(stack, 7).prompt.weight
    assert all((row == table).all(dim=1).any() for row in drawn)


def test_a_classifier_still_reads_cls():
    torch.manual_seed(0)
    stack = Transformer(bert(30, width=16, layers=1, heads=2, length=30, dropout=0.0))
    prompted = peft.prompt(heads.Classifier(stack, 2), 3).eval()
    hidden = prompted.stack(text())
    assert hidden.shape == (2, 6, 16)
    near(prompted(text()), prompted.out(prompted.pooler(hidden)))


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda: peft.prefix(build(), 0), "at least one position"),
        (lambda: peft.prefix(peft.prompt(build(), 3), 3), "in front of one bare Transformer"),
        (
            lambda: peft.prefix(bart_lm(bart(30, width=16, layers=1, heads=2)), 3),
            "in front of one bare Transformer",
        ),
        (
            lambda: peft.prefix(build(), 38)(text()),
            "reaches 44 positions, but this model has learned 40",
        ),
    ],
)
def test_bad_input_is_one_sentence(act, words):
    with pytest.raises(CourseError, match=words):
        act()
