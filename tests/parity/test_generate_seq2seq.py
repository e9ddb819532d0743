"""Generation with penalties, blocking and forced tokens against transformers: GPT-2, BART and T5, token for token."""

import itertools

import pytest
import torch
import transformers

from course_lib import hf
from course_lib.generate import generate, left_pad
from course_lib.trace import record
from tests.parity.public import randomise

PAD, EOS, START, VOCAB, NEW = 1, 2, 3, 60, 14
IDS = {"pad_token_id": PAD, "eos_token_id": EOS, "bos_token_id": 0}


def public(kind):
    if kind == "gpt2":
        config = transformers.GPT2Config(vocab_size=VOCAB, n_positions=48, n_embd=32, n_head=4, n_layer=2, **IDS)
        return transformers.GPT2LMHeadModel(config)
    if kind == "bart":
        sides = {f"{s}_{n}": v for s in ("encoder", "decoder")
                 for n, v in {"layers": 2, "attention_heads": 4, "ffn_dim": 40}.items()}  # fmt: skip
        config = transformers.BartConfig(
            vocab_size=VOCAB, max_position_embeddings=48, d_model=32, decoder_start_token_id=START,
            forced_eos_token_id=None, **sides, **IDS,
        )  # fmt: skip
        return transformers.BartForConditionalGeneration(config)
    config = transformers.T5Config(
        vocab_size=VOCAB, d_model=32, d_kv=8, d_ff=40, num_layers=2, num_heads=4, decoder_start_token_id=START,
        feed_forward_proj="gated-gelu" if kind == "t5 1.1" else "relu", tie_word_embeddings=kind != "t5 1.1", **IDS,
    )  # fmt: skip
    return transformers.T5ForConditionalGeneration(config)


@pytest.fixture(scope="module", params=list(itertools.product(["gpt2", "bart", "t5", "t5 1.1"], range(2))), ids=str)
def models(request, tmp_path_factory):
    """The same random model, ours and theirs; the output is peaked enough to tell beams apart."""
    kind, seed = request.param
    theirs = randomise(public(kind), seed)
    if kind != "gpt2":  # larger scores, so that not every row says the same
        with torch.no_grad():
            for name, weight in theirs.named_parameters():
                if name.endswith(("shared.weight", "EncDecAttention.o.weight", "encoder_attn.out_proj.weight")):
                    weight.mul_(4)
    folder = tmp_path_factory.mktemp("model")
    theirs.save_pretrained(folder)
    return hf.load_pretrained(folder), theirs


@pytest.fixture
def prompts(models):
    rng = torch.Generator().manual_seed(100)
    rows = [torch.randint(4, VOCAB, (n,), generator=rng).tolist() for n in (9, 4, 1, 6)]
    ids, keep = left_pad(rows, PAD)
    return (ids.flip(1), keep.flip(1)) if models[1].config.is_encoder_decoder else (ids, keep)


def both(models, prompts, eos=None, **options):
    """(ours, theirs). eos: which of the most frequent free tokens ends a text; None: nothing does."""
    ours, theirs = models
    ids, keep = prompts
    options = {"max_new_tokens": NEW} | options
    if eos is not None:
        free = generate(ours, ids, keep=keep, max_new_tokens=NEW)[:, -NEW:]
        eos = int(free.flatten().bincount().argsort(descending=True)[eos])
    if options.get("forced_eos") == "eos":
        options["forced_eos"] = eos
    public_names = {"forced_bos": "forced_bos_token_id", "forced_eos": "forced_eos_token_id"}
    public_options = {public_names.get(name, name): value for name, value in options.items()}
    expected = theirs.generate(
        ids, attention_mask=keep.long(), pad_token_id=PAD, eos_token_id=VOCAB + 5 if eos is None else eos,
        **{"do_sample": False} | public_options,
    )  # fmt: skip
    rng = {"generator": torch.Generator().manual_seed(options.pop("seed"))} if "seed" in options else {}
    return generate(ours, ids, keep=keep, eos=eos, pad=PAD, **options, **rng), expected


CONSTRAINTS = [
    {},
    {"repetition_penalty": 1.8},
    {"repetition_penalty": 0.7},
    {"no_repeat_ngram_size": 1},
    {"no_repeat_ngram_size": 2},
    {"no_repeat_ngram_size": 3},
    {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2, "min_new_tokens": 6},
]


@pytest.mark.parametrize("eos", [None, 0, 1])
@pytest.mark.parametrize("constraints", CONSTRAINTS, ids=str)
def test_greedy(models, prompts, constraints, eos):
    if eos is None and "min_new_tokens" in constraints:
        eos = 2
    ours, theirs = both(models, prompts, eos, **constraints)
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("eos", [None, 1])
@pytest.mark.parametrize("constraints", CONSTRAINTS[::3], ids=str)
@pytest.mark.parametrize(
    ("beams", "penalty", "early"),
    [(2, 1.0, False), (3, 0.0, "never"), (4, 2.0, True), (4, 2.0, "never"), (4, 2.0, False), (5, -1.0, True)],
)
def test_beam_search(models, prompts, beams, penalty, early, constraints, eos):
    if eos is None and "min_new_tokens" in constraints:
        eos = 2
    options = {"num_beams": beams, "length_penalty": penalty, "early_stopping": early}
    ours, theirs = both(models, prompts, eos, **options, **constraints)
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("forced", [{"forced_bos": 7}, {"forced_eos": "eos"}, {"forced_bos": 7, "forced_eos": "eos"}])
def test_forced_first_and_last_tokens(models, prompts, beams, forced):
    """The public library forces the first token of an empty text only; a longer prompt is begun already."""
    theirs = models[1]
    if not theirs.config.is_encoder_decoder:
        prompts = prompts[0][:, -1:], prompts[1][:, -1:]
    ours, expected = both(models, prompts, 2, num_beams=beams, **forced)
    assert torch.equal(ours, expected)
    if "forced_bos" in forced:
        assert (ours[:, 1] == 7).all()


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("constraints", [{}, {"repetition_penalty": 1.5, "no_repeat_ngram_size": 2}], ids=str)
def test_sampling_from_the_same_seed(models, prompts, constraints, seed):
    torch.manual_seed(seed)
    options = {"do_sample": True, "top_k": 12, "top_p": 0.9, "temperature": 1.3}
    ids, keep = prompts
    expected = models[1].generate(
        ids,
        attention_mask=keep.long(),
        pad_token_id=PAD,
        eos_token_id=EOS,
        max_new_tokens=NEW,
        **options,
        **constraints,
    )
    rng = torch.Generator().manual_seed(seed)
    ours = generate(
        models[0], ids, keep=keep, pad=PAD, eos=EOS, max_new_tokens=NEW, generator=rng, **options, **constraints
    )
    assert torch.equal(ours, expected)


@pytest.mark.parametrize("beams", [1, 3])
def test_targets_begun_by_the_caller(models, prompts, beams):
    ours, theirs = models
    if not theirs.config.is_encoder_decoder:
        pytest.skip("a decoder alone continues its prompt")
    ids, keep = prompts
    begun = torch.tensor([[START, 11, 12]]).expand(4, 3)
    expected = theirs.generate(
        ids, attention_mask=keep.long(), decoder_input_ids=begun, num_beams=beams, max_new_tokens=NEW,
        eos_token_id=VOCAB + 5, pad_token_id=PAD, do_sample=False,
    )  # fmt: skip
    assert torch.equal(generate(ours, ids, keep=keep, decoder_ids=begun, num_beams=beams, max_new_tokens=NEW), expected)


def test_the_settings_tell_texts_apart(models, prompts):
    """Each option changes something, so that equality above says something."""
    ids, keep = prompts
    free = generate(models[0], ids, keep=keep, max_new_tokens=NEW)
    assert len({tuple(row) for row in free.tolist()}) > 1, "the source or prompt is read"
    changed = [
        not torch.equal(generate(models[0], ids, keep=keep, max_new_tokens=NEW, **options), free)
        for options in ({"no_repeat_ngram_size": 1}, {"repetition_penalty": 1.8}, {"num_beams": 4})
    ]
    assert any(changed)


@pytest.mark.parametrize("beams", [1, 3])
def test_the_source_is_read_once_and_its_keys_are_computed_once(models, prompts, beams):
    ours, theirs = models
    if not theirs.config.is_encoder_decoder:
        pytest.skip("there is no source")
    ids, keep = prompts
    calls = {"encoder": 0, "k": 0}
    stack = ours.stack

    def count(name):
        def hook(*_):
            calls[name] += 1

        return hook

    handles = [
        stack.encoder.register_forward_hook(count("encoder")),
        stack.decoder.blocks[0].cross.k.register_forward_hook(count("k")),
    ]
    names = {name for name, _ in ours.named_modules()}, set(ours.state_dict())
    with_cache = generate(ours, ids, keep=keep, max_new_tokens=NEW, num_beams=beams)
    assert calls == {"encoder": 1, "k": 1}
    without = generate(ours, ids, keep=keep, max_new_tokens=NEW, num_beams=beams, cache=False)
    assert calls == {"encoder": 2, "k": 1 + NEW}
    assert torch.equal(with_cache, without)
    for handle in handles:
        handle.remove()
    assert names == ({name for name, _ in ours.named_modules()}, set(ours.state_dict())), "the module remembers"
    with record(ours, "decoder.blocks.0.cross.probs") as seen:
        generate(ours, ids, keep=keep, max_new_tokens=2)
    probs = seen["decoder.blocks.0.cross.probs"]  # B H 1 T
    assert (probs[~keep[:, None, None].expand_as(probs)] == 0).all(), "padding of the source is read"
