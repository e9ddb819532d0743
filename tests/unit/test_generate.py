"""Generation: the cache changes no token, seeds repeat, rows end, limits and contradictions are named."""

from itertools import pairwise

import pytest
import torch

from course_lib.attention import KVCache
from course_lib.config import Alibi, EmbedConfig, Learned, NoPosition, Rope, Shaw, Sinusoidal, StackConfig, T5Buckets
from course_lib.errors import CourseError
from course_lib.generate import bf16_copy, draw, generate, left_pad, next_distribution, stream
from course_lib.heads import LM, MLM
from course_lib.models.bert import bert
from course_lib.stack import Stack
from course_lib.trace import record

SCHEMES = [
    Learned(40), Sinusoidal(), Rope(), Rope(interleaved=True), T5Buckets(8, 12), Shaw(3), Alibi(), NoPosition(),
]  # fmt: skip
VOCAB = 30


def build(position=None, seed=0, **more):
    torch.manual_seed(seed)
    sizes = {"width": 16, "layers": 2, "heads": 4, "hidden": 24, "causal": True}
    model = LM(Stack(StackConfig(EmbedConfig(VOCAB), **sizes, position=position or Learned(40), **more)))
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.25 * torch.randn_like(weight))
    return model.eval()


@pytest.fixture
def prompts():
    return left_pad([[5, 6, 7, 8, 9], [11], [3, 4, 5]])


@pytest.fixture
def model():
    return build()


@pytest.mark.parametrize("position", SCHEMES, ids=repr)
@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"do_sample": True, "top_k": 9}], ids=str)
def test_cached_equals_uncached_to_the_token(position, options, prompts):
    model, (ids, keep) = build(position), prompts
    with_seed = {"generator": torch.Generator()} if "do_sample" in options else {}
    out = []
    for cache in (True, False):
        for rng in with_seed.values():
            rng.manual_seed(4)
        out.append(generate(model, ids, keep=keep, max_new_tokens=15, cache=cache, **options, **with_seed))
    assert torch.equal(*out)
    assert out[0].shape == (3, 20) and torch.equal(out[0][:, :5], ids)


@pytest.mark.parametrize("position", SCHEMES, ids=repr)
def test_a_row_reads_the_same_alone_and_padded_in_a_batch(position, prompts):
    model, (ids, keep) = build(position), prompts
    together = generate(model, ids, keep=keep, max_new_tokens=10)
    for row in range(3):
        alone = generate(model, ids[row : row + 1, keep[row]], max_new_tokens=10)
        assert torch.equal(together[row, 5:], alone[0, -10:])


def test_greedy_is_the_argmax_of_the_model(model):
    out = generate(model, torch.tensor([[1, 2]]), max_new_tokens=6)
    for end in range(2, 8):
        assert out[0, end] == model(out[:, :end])[0, -1].argmax()


def test_beam_search_finds_a_likelier_text_than_greedy():
    better = 0
    for seed in range(6):
        model, ids = build(seed=seed), torch.tensor([[1, 2]])

        def score(out, model=model):
            logp = model(out).log_softmax(-1)[0]
            return sum(logp[n - 1, out[0, n]].item() for n in range(2, out.shape[1]))

        scores = [score(generate(model, ids, max_new_tokens=8, num_beams=n)) for n in (1, 8)]
        assert scores[1] >= scores[0] - 1e-4
        better += scores[1] > scores[0] + 1e-3
    assert better > 0


def test_two_tokens_of_beam_search_by_enumeration(model):
    ids = torch.tensor([[3, 1, 4]])
    first = model(ids)[0, -1].log_softmax(-1)
    both = torch.stack([first[t] + model(torch.cat([ids, torch.tensor([[t]])], 1))[0, -1].log_softmax(-1)
                        for t in range(VOCAB)])  # fmt: skip
    best = divmod(int(both.argmax()), VOCAB)
    out = generate(model, ids, max_new_tokens=2, num_beams=15)
    assert tuple(out[0, 3:].tolist()) == best


def test_eos_ends_a_row_and_padding_fills_it(model, prompts):
    ids, keep = prompts
    free = generate(model, ids, keep=keep, max_new_tokens=12)
    eos = int(free[0, 8])
    out = generate(model, ids, keep=keep, max_new_tokens=12, eos=eos, pad=29)
    for row in range(3):
        new = free[row, 5:].tolist()
        end = new.index(eos) + 1 if eos in new else len(new)
        expected = new[:end] + [29] * (12 - end)
        assert out[row, 5:].tolist() == expected[: out.shape[1] - 5]
    default = generate(model, ids, keep=keep, max_new_tokens=12, eos=eos)
    assert torch.equal(default, out.masked_fill(out == 29, eos))


def test_generation_stops_when_every_row_has_ended(model):
    ids = torch.tensor([[1, 2]])
    eos = int(generate(model, ids, max_new_tokens=1)[0, -1])
    assert generate(model, ids, max_new_tokens=30, eos=eos).shape == (1, 3)
    assert len(list(stream(model, ids, max_new_tokens=30, eos=eos))) == 1


def test_stream_gives_each_token_with_what_it_was_drawn_from(model, prompts):
    ids, keep = prompts
    options = {"keep": keep, "max_new_tokens": 7, "do_sample": True, "temperature": 0.7, "top_k": 4}
    steps = list(stream(model, ids, **options, generator=torch.Generator().manual_seed(1)))
    out = generate(model, ids, **options, generator=torch.Generator().manual_seed(1))
    assert torch.equal(torch.stack([s.token for s in steps], dim=1), out[:, 5:])
    for n, (token, distribution) in enumerate(steps):
        longer = torch.cat([keep, torch.ones(3, n, dtype=torch.bool)], dim=1)
        expected = next_distribution(model(out[:, : 5 + n], keep=longer)[:, -1], 0.7, top_k=4)
        torch.testing.assert_close(distribution, expected, atol=1e-5, rtol=1e-4)
        assert (distribution.gather(1, token[:, None]) > 0).all()
        assert not distribution.requires_grad


def test_stream_is_lazy_and_leaves_gradients_on_between_steps(model):
    steps = stream(model, torch.tensor([[1, 2]]), max_new_tokens=5)
    next(steps)
    assert torch.is_grad_enabled()
    model(torch.tensor([[1, 2]])).sum().backward()
    assert len(list(steps)) == 4


def test_what_is_generated_can_be_trained_on(model):
    out = generate(model, torch.tensor([[1, 2]]), max_new_tokens=4)
    model(out).sum().backward()


def test_a_seed_repeats_and_another_differs(model):
    ids = torch.tensor([[1, 2, 3]])

    def sample(seed):
        rng = torch.Generator().manual_seed(seed)
        return generate(model, ids, max_new_tokens=20, do_sample=True, temperature=2.0, generator=rng).tolist()

    torch.manual_seed(0)
    first = sample(3)
    torch.manual_seed(1)
    assert sample(3) == first
    assert sample(4) != first


def test_draws_follow_the_distribution():
    p = torch.tensor([0.5, 0.3, 0.2, 0.0])
    counts = draw(p.expand(20000, 4), torch.Generator().manual_seed(0)).bincount(minlength=4) / 20000
    torch.testing.assert_close(counts, p, atol=0.02, rtol=0)
    assert counts[3] == 0


def test_distribution_by_hand():
    p = torch.tensor([0.4, 0.3, 0.2, 0.1])
    logits = p.log()
    torch.testing.assert_close(next_distribution(logits), p)
    torch.testing.assert_close(next_distribution(logits, top_k=2), torch.tensor([4 / 7, 3 / 7, 0, 0]))
    torch.testing.assert_close(next_distribution(logits, top_p=0.69), torch.tensor([4 / 7, 3 / 7, 0, 0]))
    torch.testing.assert_close(next_distribution(logits, top_p=0.71), torch.tensor([4 / 9, 3 / 9, 2 / 9, 0]))
    torch.testing.assert_close(next_distribution(logits, top_p=0.01), torch.tensor([1.0, 0, 0, 0]))
    torch.testing.assert_close(next_distribution(logits, 0.5), p**2 / (p**2).sum())
    # top_p counts what top_k has left: 4/7 reach 0.55 alone.
    torch.testing.assert_close(next_distribution(logits, top_k=2, top_p=0.55), torch.tensor([1.0, 0, 0, 0]))
    assert next_distribution(logits.expand(2, 3, 4), top_k=3).shape == (2, 3, 4)


def test_a_lower_temperature_is_surer():
    logits = torch.randn(50, generator=torch.Generator().manual_seed(0))
    peaks = [next_distribution(logits, t).max().item() for t in (2.0, 1.0, 0.5, 0.1)]
    assert all(a < b for a, b in pairwise(peaks))


@pytest.mark.parametrize("rows", [1, 3])
def test_a_cache_filled_beforehand_is_a_prefix(model, rows):
    start, ids = torch.tensor([[7, 8, 9]]).expand(rows, 3), torch.tensor([[1, 2], [3, 4], [5, 6]])
    cache = KVCache(2)
    with torch.no_grad():
        model(start, cache=cache)
    whole = generate(model, torch.cat([torch.tensor([[7, 8, 9]]).expand(3, 3), ids], dim=1), max_new_tokens=8)
    for _ in range(2):  # the prefix serves again
        for beams in (1, 3):
            out = generate(model, ids, max_new_tokens=8, cache=cache, num_beams=beams)
            if beams == 1:
                assert torch.equal(out[:, 2:], whole[:, 5:])
        assert cache.length == 3


def test_a_prefix_of_other_rows(model):
    cache = KVCache(2)
    with torch.no_grad():
        model(torch.ones(2, 3, dtype=torch.long), cache=cache)
    with pytest.raises(CourseError, match="cache holds 2 rows, the prompt 3"):
        generate(model, torch.ones(3, 1, dtype=torch.long), max_new_tokens=2, cache=cache)


def test_dropout_is_off_and_the_mode_given_back():
    model = build(dropout=0.5, attention_dropout=0.5)
    ids = torch.tensor([[1, 2]])
    expected = generate(model, ids, max_new_tokens=10)
    model.train()
    assert torch.equal(generate(model, ids, max_new_tokens=10), expected)
    assert model.training and all(m.training for m in model.modules())


def test_the_position_limit_is_the_last_token_that_is_read(model):
    ids = torch.zeros(1, 30, dtype=torch.long)
    for options in ({}, {"num_beams": 2}, {"cache": False}):
        assert generate(model, ids, max_new_tokens=11, **options).shape == (1, 41)
        with pytest.raises(CourseError, match=r"30 tokens and 12 new ones go beyond the 40 positions.*at most 11"):
            generate(model, ids, max_new_tokens=12, **options)
    assert generate(build(Alibi()), ids, max_new_tokens=30).shape == (1, 60)


def test_the_prompt_is_left_as_it_was(model, prompts):
    ids, keep = prompts
    before = ids.clone(), keep.clone()
    generate(model, ids, keep=keep, max_new_tokens=3)
    assert torch.equal(ids, before[0]) and torch.equal(keep, before[1])


def test_probabilities_can_be_watched_while_generating(model):
    widths = []
    with record(model, "blocks.0.attn.probs") as seen:
        for _ in stream(model, torch.tensor([[1, 2]]), max_new_tokens=3):
            widths.append(tuple(seen["blocks.0.attn.probs"].shape[2:]))
    assert widths == [(2, 2), (1, 3), (1, 4)]


@pytest.mark.parametrize("position", [Learned(40), Rope(), Sinusoidal(), T5Buckets(8, 12), Shaw(3), Alibi()], ids=repr)
def test_a_bf16_copy_generates_and_leaves_the_original(position):
    model = build(position)
    before = {n: w.clone() for n, w in model.state_dict().items()}
    small = bf16_copy(model)
    assert {p.dtype for p in small.parameters()} == {torch.bfloat16}
    assert all(b.dtype == torch.float32 for b in small.buffers())
    ids = torch.tensor([[1, 2, 3]])
    assert generate(small, ids, max_new_tokens=5).shape == (1, 8)
    with torch.no_grad(), record(small, "blocks.*.attn.probs"):
        torch.testing.assert_close(small(ids).float(), model(ids), atol=0.6, rtol=0.1)
    assert all(torch.equal(w, before[n]) and w.dtype == torch.float32 for n, w in model.state_dict().items())


def test_left_pad():
    ids, keep = left_pad([[1, 2, 3], [4]], pad=9)
    assert ids.tolist() == [[1, 2, 3], [9, 9, 4]] and keep.tolist() == [[True] * 3, [False, False, True]]
    for bad in ([], [[1], []]):
        with pytest.raises(CourseError, match="at least one token"):
            left_pad(bad)


IDS = torch.tensor([[1, 2, 3]])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens is 0"),
        ({"num_beams": 0}, "num_beams is 0"),
        ({"num_beams": 2, "do_sample": True}, "Beam search draws nothing"),
        ({"num_beams": 16}, "16 beams are too many for a vocabulary of 30"),
        ({"temperature": 0.5}, "add do_sample=True"),
        ({"top_k": 3, "num_beams": 2}, "add do_sample=True"),
        ({"do_sample": True, "temperature": 0.0}, "temperature is 0.0"),
        ({"do_sample": True, "temperature": float("nan")}, "temperature is nan"),
        ({"do_sample": True, "top_k": 0}, "top_k is 0"),
        ({"do_sample": True, "top_p": 0.0}, "top_p is 0.0"),
        ({"do_sample": True, "top_p": 1.5}, "top_p is 1.5"),
        ({"keep": torch.tensor([[1, 1, 0]])}, "ends in padding; pad on the left"),
        ({"keep": torch.ones(1, 2)}, r"keep is \[1, 2\].*\[1, 3\]"),
    ],
)
def test_contradictions_are_named(model, options, message):
    with pytest.raises(CourseError, match=message):
        generate(model, IDS, **({"max_new_tokens": 3} | options))


@pytest.mark.parametrize("ids", [torch.tensor([1, 2]), torch.zeros(1, 0, dtype=torch.long), torch.ones(1, 2)])
def test_prompts_of_the_wrong_shape(model, ids):
    with pytest.raises(CourseError, match=r"ids must be token numbers \[B, T\]"):
        generate(model, ids, max_new_tokens=2)


def test_stream_checks_before_the_first_step(model):
    with pytest.raises(CourseError, match="max_new_tokens is 0"):
        stream(model, IDS, max_new_tokens=0)


def test_only_causal_language_models_generate(model):
    with pytest.raises(CourseError, match="Only a causal model"):
        generate(MLM(Stack(bert(VOCAB, width=8, layers=1, heads=1))), IDS, max_new_tokens=2)
    with pytest.raises(CourseError, match=r"Linear is no language model.*heads\.LM"):
        generate(torch.nn.Linear(2, 2), IDS, max_new_tokens=2)
