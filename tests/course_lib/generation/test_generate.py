"""Generation: the cache changes no token, seeds repeat, rows end, contradictions are named."""

import inspect

import pytest
import torch

from course_lib.analysis import capture
from course_lib.commands.generate import generate as generate_command
from course_lib.errors import CourseError
from course_lib.families.bart import bart, bart_lm
from course_lib.generation import (
    FILTERS,
    bf16_copy,
    generate,
    generate_several,
    left_pad,
    next_distribution,
    stream,
    temperature,
    top_k,
    top_p,
)
from course_lib.model.cache import LayerCache
from course_lib.model.config import (
    Alibi,
    EmbedConfig,
    Learned,
    Rope,
    Shaw,
    Sinusoidal,
    StackConfig,
    T5Buckets,
)
from course_lib.model.heads import LM
from course_lib.model.seq2seq import EncoderDecoder
from course_lib.model.transformer import Transformer
from course_lib.objectives import losses
from tests.course_lib.model.test_stack import SCHEMES, shaken

VOCAB = 30
IDS = torch.tensor([[1, 2, 3]])
SOURCE = torch.tensor([[5, 6, 7], [8, 9, 3]])


def build(position=None, seed=0, **more):
    torch.manual_seed(seed)
    sizes = {"width": 16, "layers": 2, "heads": 4, "hidden": 24, "causal": True}
    config = StackConfig(EmbedConfig(VOCAB), **sizes, position=position or Learned(40), **more)
    return shaken(LM(Transformer(config)), 0.25)


@pytest.fixture
def prompts():
    return left_pad([[5, 6, 7, 8, 9], [11], [3, 4, 5]])


@pytest.fixture
def model():
    return build()


@pytest.fixture
def two_sided():
    torch.manual_seed(0)
    return shaken(bart_lm(bart(20, width=16, layers=2, heads=2, length=12)), 0.2)


@pytest.mark.parametrize("position", SCHEMES, ids=repr)
@pytest.mark.parametrize(
    "options", [{}, {"num_beams": 3}, {"do_sample": True, "top_k": 9}], ids=str
)
def test_cached_equals_uncached_to_the_token(position, options, prompts):
    model, (ids, attention_mask) = build(position), prompts
    both = [
        generate(
            model,
            ids,
            attention_mask=attention_mask,
            max_new_tokens=15,
            cache=cache,
            generator=torch.Generator().manual_seed(4),
            **options,
        )
        for cache in (True, False)
    ]
    assert torch.equal(*both) and both[0].shape == (3, 20) and torch.equal(both[0][:, :5], ids)


@pytest.mark.parametrize("position", SCHEMES, ids=repr)
def test_a_row_reads_the_same_alone_and_padded_in_a_batch(position, prompts):
    model, (ids, attention_mask) = build(position), prompts
    before = ids.clone(), attention_mask.clone()
    together = generate(model, ids, attention_mask=attention_mask, max_new_tokens=10)
    for row in range(3):
        alone = generate(model, ids[row : row + 1, attention_mask[row]], max_new_tokens=10)
        assert torch.equal(together[row, 5:], alone[0, -10:])
    assert torch.equal(ids, before[0]) and torch.equal(attention_mask, before[1])


@pytest.mark.parametrize("beams", [1, 3])
def test_a_source_reads_the_same_alone_and_padded(two_sided, beams):
    ids = torch.tensor([[5, 6, 7, 0, 0], [8, 9, 3, 4, 5]])
    attention_mask = torch.tensor([[1, 1, 1, 0, 0], [1] * 5]).bool()
    both = generate(
        two_sided, ids, attention_mask=attention_mask, max_new_tokens=8, num_beams=beams
    )
    assert torch.equal(
        both[:1], generate(two_sided, ids[:1, :3], max_new_tokens=8, num_beams=beams)
    )


def test_stream_gives_each_token_with_what_it_was_drawn_from(model, prompts):
    ids, attention_mask = prompts
    options = {
        "attention_mask": attention_mask,
        "max_new_tokens": 7,
        "do_sample": True,
        "temperature": 0.7,
        "top_k": 4,
    }
    steps = list(stream(model, ids, **options, generator=torch.Generator().manual_seed(1)))
    out = generate(model, ids, **options, generator=torch.Generator().manual_seed(1))
    assert torch.equal(torch.stack([s.token for s in steps], dim=1), out[:, 5:])
    for n, (token, distribution) in enumerate(steps):
        longer = torch.cat([attention_mask, torch.ones(3, n, dtype=torch.bool)], dim=1)
        expected = next_distribution(
            model(out[:, : 5 + n], attention_mask=longer)[:, -1], temperature=0.7, top_k=4
        )
        torch.testing.assert_close(distribution, expected, atol=1e-5, rtol=1e-4)
        assert (distribution.gather(1, token[:, None]) > 0).all()


def test_stream_is_lazy_and_training_goes_on_between_its_steps(model, two_sided):
    steps = stream(model, IDS, max_new_tokens=5)
    next(steps)
    model(IDS).sum().backward()
    assert len(list(steps)) == 4
    out = generate(two_sided, SOURCE, max_new_tokens=4)
    for _ in range(2):  # nothing of the cache is left in the model
        losses.seq2seq(two_sided, {"ids": SOURCE, "labels": out[:, 1:]}).backward()


def test_a_seed_repeats_and_another_differs(model):
    def sample(seed):
        rng = torch.Generator().manual_seed(seed)
        return generate(
            model, IDS, max_new_tokens=20, do_sample=True, temperature=2.0, generator=rng
        ).tolist()

    torch.manual_seed(0)
    first = sample(3)
    torch.manual_seed(1)
    assert sample(3) == first != sample(4)


def test_distribution_by_hand():
    p = torch.tensor([0.4, 0.3, 0.2, 0.1])
    logits = p.log()
    torch.testing.assert_close(next_distribution(logits), p)
    torch.testing.assert_close(
        next_distribution(logits, top_k=2), torch.tensor([4 / 7, 3 / 7, 0, 0])
    )
    torch.testing.assert_close(
        next_distribution(logits, top_p=0.69), torch.tensor([4 / 7, 3 / 7, 0, 0])
    )
    torch.testing.assert_close(
        next_distribution(logits, top_p=0.71), torch.tensor([4 / 9, 3 / 9, 2 / 9, 0])
    )
    torch.testing.assert_close(next_distribution(logits, top_p=0.01), torch.tensor([1.0, 0, 0, 0]))
    torch.testing.assert_close(next_distribution(logits, temperature=0.5), p**2 / (p**2).sum())
    # top_p counts what top_k has left: 4/7 reach 0.55 alone.
    torch.testing.assert_close(
        next_distribution(logits, top_k=2, top_p=0.55), torch.tensor([1.0, 0, 0, 0])
    )
    # min_p keeps what has at least half of the likeliest token's 0.4.
    torch.testing.assert_close(
        next_distribution(logits, min_p=0.49), torch.tensor([4 / 9, 3 / 9, 2 / 9, 0])
    )
    assert next_distribution(logits.expand(2, 3, 4), top_k=3).shape == (2, 3, 4)


def test_filters_by_name_come_in_the_registrys_order_and_lists_in_their_own():
    logits = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()
    named = next_distribution(logits, top_p=0.55, top_k=2)
    assert torch.equal(named, next_distribution(logits, [top_k(2), top_p(0.55)]))
    assert not torch.equal(named, next_distribution(logits, [top_p(0.55), top_k(2)]))
    with pytest.raises(CourseError, match="no filter 'blur'; there are temperature, top_k"):
        next_distribution(logits, blur=0.5)


def test_generate_takes_filters_as_a_list_and_by_name(model):
    def sample(**options):
        rng = torch.Generator().manual_seed(3)
        return generate(
            model, IDS, max_new_tokens=20, do_sample=True, generator=rng, **options
        ).tolist()

    listed = sample(filters=[temperature(2.0), top_k(5)])
    assert listed == sample(top_k=5, temperature=2.0) != sample()
    # A filter is any function of the logits.
    never_7 = sample(filters=[lambda logits: logits.index_fill(-1, torch.tensor([7]), -torch.inf)])
    assert 7 in sample()[0] and 7 not in never_7[0]


def test_the_command_line_has_an_option_for_every_filter():
    assert set(FILTERS) <= set(inspect.signature(generate_command).parameters)


@pytest.mark.parametrize("kind", ["decoder", "encoder-decoder"])
def test_dropout_is_off_and_the_mode_given_back(kind):
    torch.manual_seed(0)
    model = (
        build(dropout=0.5)
        if kind == "decoder"
        else bart_lm(bart(20, width=16, layers=1, heads=2, dropout=0.5))
    )
    expected = generate(model.eval(), SOURCE, max_new_tokens=10)
    model.train()
    assert torch.equal(generate(model, SOURCE, max_new_tokens=10), expected)
    assert all(m.training for m in model.modules())


def test_the_position_limit_is_the_last_token_that_is_read(model):
    ids = torch.zeros(1, 30, dtype=torch.long)
    for options in ({}, {"num_beams": 2}, {"cache": False}):
        assert generate(model, ids, max_new_tokens=11, **options).shape == (1, 41)
        with pytest.raises(CourseError, match="30 tokens and 12 new take 41 positions"):
            generate(model, ids, max_new_tokens=12, **options)
    assert generate(build(Alibi()), ids, max_new_tokens=30).shape == (1, 60)


@pytest.mark.parametrize(
    "position", [Learned(40), Rope(), Sinusoidal(), T5Buckets(8, 12), Shaw(3), Alibi()], ids=repr
)
def test_a_bf16_copy_generates_and_leaves_the_original(position):
    model = build(position)
    before = {n: w.clone() for n, w in model.state_dict().items()}
    small = bf16_copy(model)
    assert {p.dtype for p in small.parameters()} == {torch.bfloat16}
    assert all(b.dtype == torch.float32 for b in small.buffers())
    assert generate(small, IDS, max_new_tokens=5).shape == (1, 8)
    with torch.no_grad(), capture(small, "blocks.*.attn.probs"):
        torch.testing.assert_close(small(IDS).float(), model(IDS), atol=0.6, rtol=0.1)
    assert all(
        torch.equal(w, before[n]) and w.dtype == torch.float32
        for n, w in model.state_dict().items()
    )


def test_left_pad():
    ids, attention_mask = left_pad([[1, 2, 3], [4]], pad=9)
    assert ids.tolist() == [[1, 2, 3], [9, 9, 4]] and attention_mask.tolist() == [
        [True] * 3,
        [False, False, True],
    ]
    for bad in ([], [[1], []]):
        with pytest.raises(CourseError, match="at least one token"):
            left_pad(bad)


@torch.no_grad()
def test_several_draws_are_scored_by_their_log_probabilities(model, prompts):
    ids, attention_mask = prompts
    width, eos = ids.shape[1], 7
    found = generate_several(
        model,
        ids,
        3,
        attention_mask=attention_mask,
        max_new_tokens=6,
        do_sample=True,
        eos=eos,
        pad=0,
        generator=torch.Generator().manual_seed(0),
    )
    assert len(found.ids) == 9 and len({tuple(row) for row in found.ids.tolist()}) > 3
    whole = torch.nn.functional.pad(attention_mask.repeat_interleave(3, dim=0), (0, 6), value=True)
    logs = model(found.ids, attention_mask=whole[:, : found.ids.shape[1]]).log_softmax(-1)
    new = found.ids[:, width:]
    ended = (new == eos).cumsum(dim=1) - (new == eos).long() > 0
    picked = logs[:, width - 1 : -1].gather(2, new[..., None])[..., 0].masked_fill(ended, 0.0)
    torch.testing.assert_close(found.scores, picked.sum(dim=1), atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_new_tokens": 0}, "got 0 and 1"),
        ({"num_beams": 2, "do_sample": True}, "Beam search draws nothing"),
        ({"num_beams": 16}, "16 beams are too many for a vocabulary of 30"),
        ({"temperature": 0.5}, "add do_sample=True"),
        ({"do_sample": True, "temperature": 0.0}, "temperature is above 0 .*got 0.0"),
        ({"do_sample": True, "top_k": 0}, "top_k is at least 1; got 0"),
        ({"do_sample": True, "top_p": 1.5}, "top_p is above 0, at most 1; got 1.5"),
        ({"do_sample": True, "min_p": -0.1}, "min_p is from 0 to 1; got -0.1"),
        ({"attention_mask": torch.tensor([[1, 1, 0]])}, "ends in padding; pad on the left"),
        ({"attention_mask": torch.ones(1, 2)}, r"attention_mask is \[1, 2\].*\[1, 3\]"),
        ({"ids": torch.tensor([1, 2])}, r"ids must be token numbers \[B, T\]"),
        ({"ids": torch.ones(1, 2)}, r"ids must be token numbers \[B, T\]"),
        ({"model": torch.nn.Linear(2, 2)}, r"Linear continues no text.*heads\.LM"),
    ],
)
def test_contradictions_are_named(model, options, message):
    with pytest.raises(CourseError, match=message):
        generate(**({"model": model, "ids": IDS, "max_new_tokens": 3} | options))


def test_several_texts_are_drawn_or_searched_and_streams_are_not_searched(model):
    with pytest.raises(CourseError, match="num_return_sequences is 2"):
        generate_several(model, IDS, 2, max_new_tokens=3)
    with pytest.raises(CourseError, match="use generate"):
        stream(model, IDS, max_new_tokens=3, num_beams=2)
    with pytest.raises(CourseError, match="causal=True, cross=True"):
        EncoderDecoder(StackConfig(EmbedConfig(VOCAB), 8, 1, 1, 8))


def test_a_cache_has_room_for_everything_and_beams_move_only_their_own_columns(model):
    with torch.no_grad():
        cache = LayerCache(capacity=6)
        first = torch.randn(2, 1, 4, 3)
        k, _ = cache.extend(first, -first)
        assert k.data_ptr() != first.data_ptr() and torch.equal(k, first), (
            "what a hook has seen stays as it was"
        )
        longer, _ = cache.extend(first[:, :, :2], first[:, :, :2])
        assert longer.data_ptr() == k.data_ptr(), "the past is copied"
        cache.reorder(torch.tensor([1, 1]), since=4)
        assert torch.equal(cache.k, torch.cat((first, first[[1, 1], :, :2]), dim=2))
    read = []
    model.stack.register_forward_hook(lambda _, given, __: read.append(len(given[0])))
    out = generate(model, IDS, max_new_tokens=3, num_beams=3)
    assert read == [1, 3, 3], "the beams' prompt is read once"
    assert not out.is_inference(), "a text may be trained on"
