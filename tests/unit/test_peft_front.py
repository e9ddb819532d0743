"""What stands in front of a text: prefixes (a cache filled beforehand) and prompts (vectors at the input)."""

import copy
from functools import partial

import pytest
import torch

from course_lib import heads, peft
from course_lib.attention import KVCache
from course_lib.config import Alibi, EmbedConfig, Learned, Rope, Shaw, StackConfig, T5Buckets
from course_lib.errors import CourseError
from course_lib.generate import generate, left_pad
from course_lib.models.bart import bart, bart_lm
from course_lib.models.bert import bert
from course_lib.models.t5 import t5, t5_lm
from course_lib.seq2seq import EncoderDecoder, Seq2SeqLM
from course_lib.stack import Stack

SCHEMES = [Learned(40), Rope(), T5Buckets(8, 12), Shaw(3), Alibi()]
each_scheme = pytest.mark.parametrize("position", SCHEMES, ids=lambda p: type(p).__name__)
FRONTS = {
    "prefix": partial(peft.prefix, length=3, std=0.7),
    "prefix with network": partial(peft.prefix, length=3, hidden=5),
    "prompt": partial(peft.prompt, length=3),
}
each_front = pytest.mark.parametrize("front", FRONTS.values(), ids=FRONTS)


def build(position=None, *, seed=0, **more):
    torch.manual_seed(seed)
    values = {"embed": EmbedConfig(30), "width": 16, "layers": 2, "heads": 4, "hidden": 24, "causal": True,
              "position": position or Learned(40)} | more  # fmt: skip
    stack = Stack(StackConfig(**values))
    with torch.no_grad():
        for weight in stack.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    return stack.eval()


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


def test_of_an_encoder_too_where_attention_looks_both_ways():
    """A prompt is read with the text; a prefix has been read before it, so it does not see the text."""
    stack = build(causal=False, embed=EmbedConfig(30, segments=2, norm=True))
    both = torch.cat((torch.tensor([WORDS, WORDS]), text()), dim=1)
    segments = torch.tensor([[0, 0, 1, 1, 1, 1]] * 2)
    padded = torch.nn.functional.pad(segments, (3, 0))
    near(peft.prompt(stack, 3, words=WORDS)(text(), segments=segments), stack(both, segments=padded)[:, 3:])
    mask = torch.ones(1, 1, 9, 9, dtype=torch.bool)
    mask[..., :3, 3:] = False
    near(peft.prefix(stack, words=WORDS)(text(), segments=segments), stack(both, segments=padded, mask=mask)[:, 3:])


@each_front
@each_scheme
def test_padding_on_either_side_changes_nothing(front, position):
    stack = front(build(position))
    ids = text(1)
    expected = stack(ids)
    right = torch.arange(9)[None] < 6
    near(stack(torch.nn.functional.pad(ids, (0, 3)), keep=right)[:, :6], expected)
    near(stack(torch.nn.functional.pad(ids, (3, 0)), keep=right.flip(1))[:, 3:], expected)


@each_front
@each_scheme
def test_cached_equals_uncached(front, position):
    stack = front(build(position)).requires_grad_(False)
    ids, keep = text(), torch.tensor([[True] * 6, [False] * 2 + [True] * 4])
    cache = KVCache(2)
    out = [stack(ids[:, a:b], keep=keep[:, :b], cache=cache) for a, b in ((0, 3), (3, 4), (4, 6))]
    near(torch.cat(out, dim=1)[keep], stack(ids, keep=keep)[keep])
    assert cache.length == 9


@each_front
def test_the_future_is_not_seen(front):
    stack = front(build())
    other = text().clone()
    other[:, 4:] = 7
    near(stack(other)[:, :4], stack(text())[:, :4])
    assert not torch.allclose(stack(other)[:, 4:], stack(text())[:, 4:])


@each_front
@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"cache": False}], ids=str)
def test_text_is_generated_behind_it(front, options):
    """Rows padded on the left give what each gives alone, cached or not."""
    model = heads.LM(front(build()))
    rows = [[4, 5, 6, 7], [8]]
    ids, keep = left_pad(rows)
    both = generate(model, ids, keep=keep, max_new_tokens=6, **options)
    for row, out in zip(rows, both, strict=True):
        alone = generate(model, torch.tensor([row]), max_new_tokens=6, **(options | {"cache": False}))
        assert torch.equal(out[-6:], alone[0, -6:])
    plain = generate(heads.LM(build()), ids, keep=keep, max_new_tokens=6, **options)
    assert not torch.equal(plain, both)


def test_a_prefix_is_a_cache_for_the_model_without_it():
    stack = FRONTS["prefix"](build())
    bare, ids = heads.LM(build()), text()
    expected = generate(heads.LM(stack), ids, max_new_tokens=5)
    assert torch.equal(generate(bare, ids, max_new_tokens=5, cache=stack.cache()), expected)
    assert torch.equal(generate(bare, ids, max_new_tokens=5, cache=stack.cache(rows=2)), expected)


def test_a_prefix_stands_layer_by_layer_first_keys_then_values():
    stack = FRONTS["prefix"](build())
    table = stack.prefix.table
    assert table.shape == (3, 2 * 2 * 16)
    own = stack.cache(rows=2).own[1]
    assert own.k.shape == (2, 4, 3, 4)
    assert torch.equal(own.k[1, 2, 0], table[0, 32 + 8 : 32 + 12])
    assert torch.equal(own.v[0, 3, 2], table[2, 48 + 12 : 48 + 16])


def test_the_network_can_be_left_out_afterwards():
    """Equation 3: P = MLP(P'), and P alone is kept."""
    stack = FRONTS["prefix with network"](build())
    expected = stack(text())
    small, (first, _, second) = stack.prefix.weight, stack.prefix.network
    near(stack.prefix.table, torch.tanh(small @ first.weight.T + first.bias) @ second.weight.T + second.bias)
    stack.prefix.fold()
    assert stack.prefix.network is None and stack.prefix.weight.shape == (3, 64)
    assert stack.prefix.weight.requires_grad
    near(stack(text()), expected)


def test_gradients_reach_a_prefix_in_every_layer_and_a_prompt():
    for name, front in FRONTS.items():
        stack = front(build())
        trained = {n for n, weight in stack.named_parameters() if weight.requires_grad}
        assert trained and all(n.startswith(("prefix.", "prompt.")) for n in trained)
        stack(text()).square().sum().backward()
        for weight_name, weight in stack.named_parameters():
            assert (weight.grad is not None) == weight.requires_grad, (name, weight_name)
        if name == "prefix":
            assert all(part.any() for part in stack.prefix.weight.grad.view(3, 4, 16).unbind(1))


def test_a_prompt_starts_from_words_or_uniform():
    stack = build()
    table = stack.embed.tokens.weight
    assert torch.equal(peft.prompt(stack, 5, words=WORDS).prompt.weight, table[[4, 9, 2, 4, 9]])
    assert torch.equal(peft.prompt(stack, 2, words=torch.tensor(WORDS)).prompt.weight, table[[4, 9]])
    drawn = peft.prompt(stack, 7).prompt.weight
    assert all((row == table).all(dim=1).any() for row in drawn)
    uniform = peft.prompt(stack, 200, start="uniform").prompt.weight
    assert -0.5 <= uniform.min() < -0.49 and 0.49 < uniform.max() <= 0.5


def test_the_given_stack_is_left_without_it_and_keeps_its_names():
    stack = build()
    expected, names = stack(text()), list(stack.state_dict())
    fronted = peft.prefix(stack, 3)
    assert torch.equal(stack(text()), expected) and list(stack.state_dict()) == names
    assert list(fronted.state_dict()) == [*names, "prefix.weight"]
    assert fronted.blocks[0].attn.q.weight is stack.blocks[0].attn.q.weight


@pytest.mark.parametrize("make", [lambda: t5_lm(t5(30, width=16, layers=2, heads=4, hidden=24)),
                                  lambda: bart_lm(bart(30, width=16, layers=2, heads=4, length=30))])  # fmt: skip
def test_an_encoder_decoders_prompt_is_seen_by_the_decoder(make):
    """As in Lester et al.: the encoder reads the prompt's vectors, the decoder attends to what it made of them."""
    torch.manual_seed(0)
    model = make().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    ids, keep = text(), torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    target = text(2, 4)
    both = torch.cat((torch.tensor([WORDS, WORDS]), ids), dim=1)
    wide = torch.nn.functional.pad(keep, (3, 0), value=True)
    expected = model(both, target, keep=wide)
    generated = generate(model, both, keep=wide, max_new_tokens=5)
    prompted = peft.prompt(copy.deepcopy(model), 3, words=WORDS)
    near(prompted(ids, target, keep=keep), expected)
    near(prompted(ids[:1], target[:1]), expected[:1])
    assert torch.equal(generate(prompted, ids, keep=keep, max_new_tokens=5), generated)
    assert {n for n, w in prompted.named_parameters() if w.requires_grad} == {"stack.encoder.prompt.weight"}


def test_an_encoder_decoders_prefixes_stand_on_both_sides():
    torch.manual_seed(0)
    model = peft.prefix(bart_lm(bart(30, width=16, layers=2, heads=4, length=30)), 3, std=0.7).eval()
    trained = {n for n, w in model.named_parameters() if w.requires_grad}
    assert trained == {"stack.encoder.prefix.weight", "stack.decoder.prefix.weight"}
    ids, keep, target = text(), torch.tensor([[True] * 6, [True] * 4 + [False] * 2]), text(2, 4)
    out = model(ids, target, keep=keep)
    near(model(ids[1:, :4], target[1:]), out[1:])
    out.sum().backward()
    assert all(w.grad.any() for n, w in model.named_parameters() if n in trained)
    cached = generate(model, ids, keep=keep, max_new_tokens=5)
    assert torch.equal(cached, generate(model, ids, keep=keep, max_new_tokens=5, cache=False))
    assert isinstance(model, Seq2SeqLM) and isinstance(model.stack, EncoderDecoder)


def test_a_classifier_still_reads_cls():
    torch.manual_seed(0)
    stack = Stack(bert(30, width=16, layers=1, heads=2, length=30, dropout=0.0))
    prompted = peft.prompt(heads.Classifier(stack, 2), 3).eval()
    hidden = prompted.stack(text())
    assert hidden.shape == (2, 6, 16)
    near(prompted(text()), prompted.out(prompted.pooler(hidden)))


@pytest.mark.parametrize(("act", "words"), [
    (lambda: peft.prefix(build(), 0), "at least one position"),
    (lambda: peft.prompt(build(), 3, words=[]), "at least one position"),
    (lambda: peft.prefix(build(), words=WORDS, hidden=4), "leave hidden out, or words"),
    (lambda: peft.prompt(build(), 3, words=[99]), "vocabulary has 30"),
    (lambda: peft.prefix(peft.prompt(build(), 3), 3), "a prefix or a prompt in front already"),
    (lambda: peft.prefix(torch.nn.Linear(2, 2), 3), "A Linear owns no Stack"),
    (lambda: peft.prefix(bart_lm(bart(30, width=16, layers=1, heads=2)), words=WORDS), "without a source"),
    (lambda: peft.prefix(build(), 38)(text()), "reaches 44 positions, but this model has learned 40"),
    (lambda: peft.prompt(build(), 3)(text(), mask=torch.ones(1, 1, 6, 6).bool()), "leave it out and give keep"),
])  # fmt: skip
def test_bad_input_is_one_sentence(act, words):
    with pytest.raises(CourseError, match=words):
        act()
