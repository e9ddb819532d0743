"""Generation against transformers on random weights: the same tokens, the same distributions."""

import pytest
import torch
import transformers

from course_lib import hf
from course_lib.attention import KVCache
from course_lib.generate import generate, left_pad, next_distribution
from tests.parity.public import close, randomise

PAD, EOS, VOCAB = 1, 2, 60


@pytest.fixture(scope="module", params=range(4))
def models(request, tmp_path_factory):
    """The same random GPT-2, ours and theirs; the output is peaked enough to tell beams apart."""
    config = transformers.GPT2Config(
        vocab_size=VOCAB, n_positions=48, n_embd=32, n_head=4, n_layer=2, bos_token_id=EOS, eos_token_id=EOS,
        pad_token_id=PAD,
    )  # fmt: skip
    theirs = randomise(transformers.GPT2LMHeadModel(config), seed=request.param)
    folder = tmp_path_factory.mktemp("gpt2")
    theirs.save_pretrained(folder)
    return hf.load_pretrained(folder), theirs


@pytest.fixture(params=range(2))
def prompts(request):
    rng = torch.Generator().manual_seed(100 + request.param)
    rows = [torch.randint(3, VOCAB, (n,), generator=rng).tolist() for n in (9, 4, 1, 6)]
    return left_pad(rows, PAD)


def theirs_on(model, ids, keep, eos, **options):
    # An id outside the vocabulary never comes: generation without an end.
    return model.generate(
        ids, attention_mask=keep.long(), max_new_tokens=20, pad_token_id=PAD, eos_token_id=eos, **options
    )


def often(out, width, rank):
    """The `rank`-th most frequent new token: as eos it ends rows early, at different columns."""
    return int(out[:, width:].flatten().bincount().argsort(descending=True)[rank])


@pytest.mark.parametrize("rank", [None, 0, 1, 2])
def test_greedy_token_for_token(models, prompts, rank):
    ours, theirs = models
    ids, keep = prompts
    free = generate(ours, ids, keep=keep, max_new_tokens=20)
    eos = None if rank is None else often(free, 9, rank)
    expected = theirs_on(theirs, ids, keep, VOCAB + 5 if eos is None else eos, do_sample=False)
    out = generate(ours, ids, keep=keep, max_new_tokens=20, eos=eos, pad=PAD)
    assert torch.equal(out, expected)
    assert (eos is None) == torch.equal(out, free)


@pytest.mark.parametrize("rank", [None, 0, 1])
@pytest.mark.parametrize(("beams", "penalty"), [(2, 1.0), (3, 0.0), (4, 2.0), (5, -1.0)])
def test_beam_search_token_for_token(models, prompts, beams, penalty, rank):
    ours, theirs = models
    ids, keep = prompts
    options = {"num_beams": beams, "length_penalty": penalty}
    free = generate(ours, ids, keep=keep, max_new_tokens=20, **options)
    eos = None if rank is None else often(free, 9, min(rank, len(free[:, 9:].unique()) - 1))
    expected = theirs_on(theirs, ids, keep, VOCAB + 5 if eos is None else eos, do_sample=False, **options)
    out = generate(ours, ids, keep=keep, max_new_tokens=20, eos=eos, pad=PAD, **options)
    assert torch.equal(out, expected)
    if eos is not None and penalty <= 0:  # short texts win, so some must have ended
        assert (out[:, 9:] == eos).any()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("top_k", [None, 1, 7, 1000])
@pytest.mark.parametrize("top_p", [None, 0.05, 0.6, 0.95])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_next_distribution_equals_the_public_warpers(seed, top_k, top_p, temperature):
    logits = 3 * torch.randn(5, VOCAB, generator=torch.Generator().manual_seed(seed))
    warped = transformers.TemperatureLogitsWarper(temperature)(None, logits)
    if top_k is not None:
        warped = transformers.TopKLogitsWarper(top_k)(None, warped)
    if top_p is not None:
        warped = transformers.TopPLogitsWarper(top_p)(None, warped)
    expected = warped.softmax(-1)
    ours = next_distribution(logits, temperature, top_k, top_p)
    assert torch.equal(ours > 0, expected > 0)
    assert close(ours, expected)


def test_sampling_draws_the_same_tokens_from_the_same_seed(models, prompts):
    ours, theirs = models
    ids, keep = prompts
    torch.manual_seed(5)
    expected = theirs_on(theirs, ids, keep, EOS, do_sample=True, top_k=12, top_p=0.9, temperature=0.8)
    rng = torch.Generator().manual_seed(5)
    out = generate(
        ours, ids, keep=keep, max_new_tokens=20, do_sample=True, top_k=12, top_p=0.9, temperature=0.8, eos=EOS,
        pad=PAD, generator=rng,
    )  # fmt: skip
    assert torch.equal(out, expected)


def test_a_filled_cache_is_a_prefix_as_in_the_public_model(models):
    ours, theirs = models
    rng = torch.Generator().manual_seed(3)
    heads, dh, length, layers = 4, 8, 5, 2
    filled = [(torch.randn(3, heads, length, dh, generator=rng), torch.randn(3, heads, length, dh, generator=rng))
              for _ in range(layers)]  # fmt: skip
    ids = torch.randint(3, VOCAB, (3, 7), generator=rng)

    public = transformers.DynamicCache()
    cache = KVCache(layers)
    for layer, (k, v) in enumerate(filled):
        public.update(k.clone(), v.clone(), layer)
        cache.own[layer].extend(k, v)
    with torch.no_grad():
        expected = theirs(input_ids=ids, past_key_values=public).logits
        assert close(ours(ids, cache=cache.copy()), expected)
    assert cache.length == length
    first = generate(ours, ids, max_new_tokens=6, cache=cache)
    assert cache.length == length, "generate changed the caller's prefix"
    assert torch.equal(first[:, 7], expected[:, -1].argmax(-1))
