"""Generation against transformers on random weights, token for token: GPT-2, BART and T5; the same
distributions.
"""

import itertools

import pytest
import torch
import transformers

from course_lib import zoo
from course_lib.analysis import capture
from course_lib.generation import generate, generate_several, left_pad, min_p, next_distribution
from tests.parity.public import close, randomise

PAD, EOS, START, VOCAB, NEW = 1, 2, 3, 60, 14
IDS = {"pad_token_id": PAD, "eos_token_id": EOS, "bos_token_id": 0}


def public(kind):
    if kind == "gpt2":
        config = transformers.GPT2Config(
            vocab_size=VOCAB, n_positions=48, n_embd=32, n_head=4, n_layer=2, **IDS
        )
        return transformers.GPT2LMHeadModel(config)
    if kind == "bart":
        sides = {
            f"{s}_{n}": v
            for s in ("encoder", "decoder")
            for n, v in {"layers": 2, "attention_heads": 4, "ffn_dim": 40}.items()
        }
        config = transformers.BartConfig(
            vocab_size=VOCAB,
            max_position_embeddings=48,
            d_model=32,
            decoder_start_token_id=START,
            forced_eos_token_id=None,
            **sides,
            **IDS,
        )
        return transformers.BartForConditionalGeneration(config)
    config = transformers.T5Config(
        vocab_size=VOCAB,
        d_model=32,
        d_kv=8,
        d_ff=40,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=START,
        feed_forward_proj="gated-gelu" if kind == "t5 1.1" else "relu",
        tie_word_embeddings=kind != "t5 1.1",
        **IDS,
    )
    return transformers.T5ForConditionalGeneration(config)


@pytest.fixture(
    scope="module",
    params=list(itertools.product(["gpt2", "bart", "t5", "t5 1.1"], range(2))),
    ids=str,
)
def models(request, tmp_path_factory):
    """The same random model, ours and theirs; the output is peaked enough to tell beams apart."""
    kind, seed = request.param
    theirs = randomise(public(kind), seed)
    if kind != "gpt2":  # larger scores, so that not every row says the same
        with torch.no_grad():
            for name, weight in theirs.named_parameters():
                if name.endswith(
                    ("shared.weight", "EncDecAttention.o.weight", "encoder_attn.out_proj.weight")
                ):
                    weight.mul_(4)
    folder = tmp_path_factory.mktemp("model")
    theirs.save_pretrained(folder)
    return zoo.load_pretrained(folder), theirs


@pytest.fixture
def prompts(models):
    rng = torch.Generator().manual_seed(100)
    rows = [torch.randint(4, VOCAB, (n,), generator=rng).tolist() for n in (9, 4, 1, 6)]
    ids, attention_mask = left_pad(rows, PAD)
    return (
        (ids.flip(1), attention_mask.flip(1))
        if models[1].config.is_encoder_decoder
        else (ids, attention_mask)
    )


def both(models, prompts, rank=None, **options):
    """(ours, theirs). rank: which of the most frequent free tokens ends a text; None: nothing
    does.
    """
    ours, theirs = models
    ids, attention_mask = prompts
    eos = None
    if rank is not None:
        free = generate(ours, ids, attention_mask=attention_mask, max_new_tokens=NEW)[:, -NEW:]
        eos = int(free.flatten().bincount().argsort(descending=True)[rank])
    torch.manual_seed(7)
    expected = theirs.generate(
        ids,
        attention_mask=attention_mask.long(),
        pad_token_id=PAD,
        eos_token_id=VOCAB + 5 if eos is None else eos,
        max_new_tokens=NEW,
        # without a word they keep the 50 likeliest
        **{"do_sample": False, "top_k": 0} | options,
    )
    rng = torch.Generator().manual_seed(7)
    found = generate(
        ours,
        ids,
        attention_mask=attention_mask,
        eos=eos,
        pad=PAD,
        max_new_tokens=NEW,
        generator=rng,
        **options,
    )
    return found, expected


LEAST = {"min_new_tokens": 6}


@pytest.mark.parametrize(("eos", "least"), [(None, {}), (0, {}), (1, {}), (2, LEAST), (0, LEAST)])
def test_greedy(models, prompts, eos, least):
    ours, theirs = both(models, prompts, eos, **least)
    assert torch.equal(ours, theirs)
    # the source or prompt is read
    assert eos is not None or len({tuple(row) for row in ours[:, -NEW:].tolist()}) > 1


@pytest.mark.parametrize(("eos", "least"), [(None, {}), (1, {}), (1, LEAST)])
@pytest.mark.parametrize(("beams", "penalty"), [(2, 1.0), (3, 0.0), (4, 2.0), (5, -1.0)])
def test_beam_search(models, prompts, beams, penalty, eos, least):
    assert torch.equal(
        *both(models, prompts, eos, num_beams=beams, length_penalty=penalty, **least)
    )


@pytest.mark.parametrize("penalty", [1.0, 2.0])
def test_when_a_beam_search_is_through(models, prompts, penalty):
    """With these numbers the three rules give GPT-2 three different batches."""
    for stopping in (False, True, "never"):
        options = {"num_beams": 2, "length_penalty": penalty, "early_stopping": stopping}
        assert torch.equal(*both(models, prompts, 0, **options)), stopping


@pytest.mark.parametrize("least", [{}, LEAST], ids=str)
@pytest.mark.parametrize(
    "filters", [{"top_k": 12, "top_p": 0.9}, {"min_p": 0.2}, {"top_p": 0.95, "min_p": 0.1}], ids=str
)
def test_sampling_from_the_same_seed(models, prompts, filters, least):
    options = {"do_sample": True, "temperature": 1.3}
    assert torch.equal(*both(models, prompts, 2, **options, **filters, **least))


@pytest.mark.parametrize(("beams", "returned", "penalty"), [(3, 3, 1.0), (4, 2, 0.5)])
def test_several_beams_with_their_scores(models, prompts, beams, returned, penalty):
    ours, theirs = models
    ids, attention_mask = prompts
    options = {"max_new_tokens": NEW, "num_beams": beams, "length_penalty": penalty}
    expected = theirs.generate(
        ids,
        attention_mask=attention_mask.long(),
        pad_token_id=PAD,
        eos_token_id=EOS,
        do_sample=False,
        num_return_sequences=returned,
        output_scores=True,
        return_dict_in_generate=True,
        **options,
    )
    found = generate_several(
        ours, ids, returned, attention_mask=attention_mask, eos=EOS, pad=PAD, **options
    )
    assert torch.equal(found.ids, expected.sequences) and close(
        found.scores, expected.sequences_scores
    )


@pytest.mark.parametrize("top_k", [None, 1, 7, 1000])
@pytest.mark.parametrize("top_p", [None, 0.05, 0.6, 0.95])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_next_distribution_equals_the_public_warpers(top_k, top_p, temperature):
    logits = 3 * torch.randn(15, VOCAB, generator=torch.Generator().manual_seed(0))
    warped = transformers.TemperatureLogitsWarper(temperature)(None, logits)
    if top_k is not None:
        warped = transformers.TopKLogitsWarper(top_k)(None, warped)
    if top_p is not None:
        warped = transformers.TopPLogitsWarper(top_p)(None, warped)
    expected = warped.softmax(-1)
    ours = next_distribution(logits, temperature=temperature, top_k=top_k, top_p=top_p)
    assert torch.equal(ours > 0, expected > 0) and close(ours, expected)


TIES = [[0.5, 0.3, 0.1, 0.1], [0.1, 0.5, 0.1, 0.3], [0.25, 0.25, 0.25, 0.25], [0.2, 0.2, 0.3, 0.3]]


@pytest.mark.parametrize("p", [0.1, 0.2, 0.25, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 1.0])
def test_top_p_at_exact_ties_equals_the_public_warper(p):
    logits = torch.tensor(TIES).log()
    expected = transformers.TopPLogitsWarper(p)(None, logits).softmax(-1)
    ours = next_distribution(logits, top_p=p)
    # At 1 transformers leaves the warper out.
    assert torch.equal(ours, logits.softmax(-1) if p == 1 else expected)


def test_top_p_at_one_keeps_every_token():
    """The float32 sum of 1,000 probabilities may pass 1 before the last tiny ones."""
    logits = 5 * torch.randn(300, 1000, generator=torch.Generator().manual_seed(0))
    assert (next_distribution(logits, top_p=1.0) > 0).all()


@pytest.mark.parametrize("p", [0.0, 0.05, 0.3, 1.0])
def test_min_p_equals_the_public_warper(p):
    logits = 3 * torch.randn(15, VOCAB, generator=torch.Generator().manual_seed(0))
    expected = transformers.MinPLogitsWarper(p)(None, logits).softmax(-1)
    ours = next_distribution(logits, [min_p(p)])
    assert torch.equal(ours > 0, expected > 0) and close(ours, expected)


@pytest.mark.parametrize("beams", [1, 3])
def test_the_source_is_read_once_and_its_keys_are_computed_once(models, prompts, beams):
    ours, theirs = models
    if not theirs.config.is_encoder_decoder:
        pytest.skip("there is no source")
    ids, attention_mask = prompts
    calls = {"encoder": 0, "k": 0}

    def count(name):
        def hook(*_):
            calls[name] += 1

        return hook

    handles = [
        ours.stack.encoder.register_forward_hook(count("encoder")),
        ours.stack.decoder.blocks[0].cross.k.register_forward_hook(count("k")),
    ]
    with_cache = generate(
        ours, ids, attention_mask=attention_mask, max_new_tokens=NEW, num_beams=beams
    )
    assert calls == {"encoder": 1, "k": 1}
    without = generate(
        ours, ids, attention_mask=attention_mask, max_new_tokens=NEW, num_beams=beams, cache=False
    )
    assert calls == {"encoder": 2, "k": 1 + NEW} and torch.equal(with_cache, without)
    for handle in handles:
        handle.remove()
    with capture(ours, "decoder.blocks.0.cross.probs") as seen:
        generate(ours, ids, attention_mask=attention_mask, max_new_tokens=2)
    probs = seen["decoder.blocks.0.cross.probs"]  # B H 1 T
    assert (probs[~attention_mask[:, None, None].expand_as(probs)] == 0).all(), (
        "padding of the source is read"
    )
