"""The mimetic start: heads that look near, attention near the identity, positions as sinusoids."""

from dataclasses import replace

import pytest
import torch

from course_lib import initial
from course_lib.config import EmbedConfig, Learned, NoPosition, StackConfig
from course_lib.errors import CourseError
from course_lib.models.bart import bart
from course_lib.models.bert import bert_mini
from course_lib.models.gpt import gpt, gpt_mini
from course_lib.models.megatron_bert import moved_norms
from course_lib.seq2seq import EncoderDecoder
from course_lib.stack import Stack
from course_lib.tokenizers import train_bpe, train_wordpiece
from course_lib.trace import record

CONFIG = StackConfig(
    embed=EmbedConfig(vocab=11), position=Learned(7), width=12, layers=3, heads=3, hidden=24, init_std=0.02, dropout=0.0
)  # fmt: skip


def stack(config: StackConfig = CONFIG) -> Stack:
    torch.manual_seed(3)
    return Stack(config)


def test_value_then_output_is_a_multiple_of_the_identity():
    model = stack()
    initial.mimetic(model, strength=0.3)
    for block, strength in zip(model.blocks, (1.0, 0.3, 0.3), strict=True):
        found = block.attn.out.weight @ block.attn.v.weight
        torch.testing.assert_close(found, strength * torch.eye(12), atol=1e-5, rtol=0)


def test_later_queries_and_keys_agree_up_to_noise():
    model = stack(replace(CONFIG, init_std=0.001))
    initial.mimetic(model, strength=0.7)
    for block in list(model.blocks)[1:]:
        found = block.attn.q.weight.T @ block.attn.k.weight
        torch.testing.assert_close(found, 0.7 * torch.eye(12), atol=0.02, rtol=0)
        assert not torch.equal(block.attn.q.weight, block.attn.k.weight)


@pytest.mark.parametrize(("preset", "offsets"), [(gpt_mini, [-1, -2, -3, -4]), (bert_mini, [-1, 1, -2, 2])])
def test_the_first_layers_heads_look_at_near_positions(preset, offsets):
    model = stack(replace(preset(50), init_std=0.05))
    initial.mimetic(model)
    with record(model, "blocks.0.attn.probs") as seen:
        model(torch.randint(5, 50, (8, 40)))
    where = torch.arange(8, 32)
    for head, offset in enumerate(offsets):
        probs = seen["blocks.0.attn.probs"][:, head, where]  # 8 24 40
        near = sum(probs.gather(-1, (where + offset + d).expand(8, 24)[..., None]) for d in (-1, 0, 1))
        assert near.mean() > 0.9
        assert (probs * (torch.arange(40) - where[:, None])).sum(-1).mean().sub(offset).abs() < 0.4


def test_without_local_heads_all_layers_are_alike():
    model = stack()
    words = model.embed.tokens.weight.clone()
    initial.mimetic(model, strength=0.3, local=0.0)
    first = model.blocks[0].attn
    torch.testing.assert_close(first.out.weight @ first.v.weight, 0.3 * torch.eye(12), atol=1e-5, rtol=0)
    assert torch.equal(model.embed.tokens.weight, words)


def test_learned_positions_start_as_scaled_sinusoids():
    model = stack()
    initial.mimetic(model, positions=0.5)
    angles = torch.arange(7)[:, None] * 10_000 ** (-torch.arange(0, 12, 2) / 12)
    table = model.position.table.weight
    torch.testing.assert_close(table[:, 0::2], 0.5 * angles.sin())
    torch.testing.assert_close(table[:, 1::2], 0.5 * angles.cos())
    assert table.requires_grad


def test_other_positions_are_refused_in_one_sentence():
    with pytest.raises(CourseError, match="needs learned positions"):
        initial.mimetic(stack(replace(CONFIG, position=NoPosition())))


def test_the_seed_decides():
    first, second = stack(), stack()
    for model in (first, second):
        torch.manual_seed(5)
        initial.mimetic(model)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


def test_cross_attention_looks_for_its_like_too():
    model = stack(replace(CONFIG, init_std=0.001, causal=True, cross=True))
    initial.mimetic(model, strength=0.7)
    for block in model.blocks:
        copied = block.cross.out.weight @ block.cross.v.weight
        torch.testing.assert_close(copied, 0.7 * torch.eye(12), atol=1e-5, rtol=0)
        found = block.cross.q.weight.T @ block.cross.k.weight
        torch.testing.assert_close(found, 0.7 * torch.eye(12), atol=0.02, rtol=0)


TEXTS = ["the old miller saw Anna", "Anna saw the mill", "a miller sees more of the old mill"] * 30


def test_a_decoders_blocks_and_words_are_taken_over():
    words, parents = train_wordpiece(TEXTS, 80), train_bpe(TEXTS, 300)
    torch.manual_seed(0)
    parent = Stack(replace(gpt_mini(parents.vocab.size, 20), init_std=0.05))
    child = Stack(moved_norms(bert_mini(words.vocab.size, 20)))
    before = child.embed.tokens.weight.clone()
    initial.take_over(child, words, parent, parents)
    own, theirs = dict(child.named_parameters()), dict(parent.named_parameters())
    assert all(torch.equal(own[name], theirs[name]) for name in theirs if not name.startswith("embed."))
    table = parent.embed.tokens.weight

    def piece(text: str, like: str) -> None:
        (token,) = words.ids([text], special=False)[0]
        torch.testing.assert_close(
            own["embed.tokens.weight"][token], table[parents.ids([like], special=False)[0]].mean(0)
        )

    piece("miller", " miller")
    piece("anna", " Anna")  # the text has it with a capital only, where it takes fewer pieces
    assert len(parents.ids([" anna"], special=False)[0]) > len(parents.ids([" Anna"], special=False)[0])
    inner = next(t for t in range(words.vocab.size) if words.tokens([t])[0].startswith("##"))
    inside = parents.ids([words.tokens([inner])[0][2:]], special=False)[0]
    torch.testing.assert_close(own["embed.tokens.weight"][inner], table[inside].mean(0))
    for token in words.vocab.special:
        assert torch.equal(own["embed.tokens.weight"][token], before[token])


def test_both_sides_of_an_encoder_decoder_take_over_all_but_what_joins_them():
    words, parents = train_wordpiece(TEXTS, 80), train_bpe(TEXTS, 300)
    torch.manual_seed(0)
    parent = Stack(replace(gpt_mini(parents.vocab.size, 20), init_std=0.05))
    model = EncoderDecoder(moved_norms(bart(words.vocab.size, width=128, layers=4, heads=4, length=20)))
    joins = {name: w.clone() for name, w in model.decoder.named_parameters() if ".cross" in name}
    assert len(joins) == 4 * (8 + 2)
    for side in (model.encoder, model.decoder):
        initial.take_over(side, words, parent, parents)
        own = dict(side.named_parameters())
        taken = {name: w for name, w in parent.named_parameters() if not name.startswith("embed.")}
        assert all(torch.equal(own[name], w) for name, w in taken.items())
    assert all(torch.equal(own[name], w) for name, w in joins.items())
    assert model.encoder.embed.tokens.weight is model.decoder.embed.tokens.weight


def test_a_parent_of_another_shape_is_refused():
    words = train_wordpiece(TEXTS, 80)
    child = Stack(moved_norms(bert_mini(words.vocab.size, 20)))
    sizes = [(30, 4), (20, 5), (20, 3)]
    for odd in (gpt(300, width=128, layers=layers, heads=4, length=length, norm="pre") for length, layers in sizes):
        with pytest.raises(CourseError, match="does not fit this model"):
            initial.take_over(child, words, Stack(odd), train_bpe(TEXTS, 300))
