"""The primer's masks ask for what the sentences before have said; a causal start of an encoder."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from course_lib.data.tokenizers import train_wordpiece
from course_lib.model.config import EmbedConfig, Learned, StackConfig
from course_lib.model.heads import LM, MLM, Pretraining
from course_lib.model.transformer import Transformer
from course_lib.objectives import losses, original, seeded_generator
from course_lib.vocab import IGNORE
from lab.recipes.primer import left_to_right, mask_known

TEXT = "ann has lamps . bob has keys . ann has keys . bob has lamps ? cy has lamps ."
TOKENIZER = train_wordpiece([TEXT, "ann bob cy lamps keys has . ?"] * 20, 60)
NAMES = {
    token
    for ids in TOKENIZER.ids(["ann", "bob", "cy", "lamps", "keys"], special=False)
    for token in ids
}


def known(text: str, seed: int, **options):
    ids = torch.tensor(TOKENIZER.ids([text]))
    options = {"names": NAMES, "rate": 1.0} | options
    return ids, mask_known(ids, seeded_generator(seed), vocab=TOKENIZER.vocab, **options)


def test_one_whole_name_of_each_known_sentence_is_hidden() -> None:
    chosen = set()
    for seed in range(30):
        ids, (seen, labels, at) = known(TEXT, seed)
        assert (
            torch.equal(original(seen, labels, at), ids)
            and (seen[at] == TOKENIZER.vocab.mask).all()
        )
        assert (labels[~at] == IGNORE).all()
        hidden = TOKENIZER.decode(ids[0][at[0]]).split()
        # of the third and the fourth sentence: of the first two and the last not all is known
        assert len(hidden) == 2
        assert hidden[0] in ("ann", "keys") and hidden[1] in ("bob", "lamps")
        chosen |= set(hidden)
    assert chosen == {"ann", "keys", "bob", "lamps"}
    masks = [known(TEXT, seed, rate=0.5)[1].loss_mask for seed in range(200)]
    counts = [len(TOKENIZER.decode(ids[0][mask[0]]).split()) for mask in masks]
    assert 0.4 < sum(counts) / 400 < 0.6 and not known(TEXT, 1, rate=0.0)[1].loss_mask.any()
    assert torch.equal(masks[3], known(TEXT, 3, rate=0.5)[1].loss_mask)


@pytest.mark.parametrize("head", [MLM, Pretraining])
def test_left_to_right_is_the_loss_of_a_decoder_with_the_same_weights(head: Any) -> None:
    torch.manual_seed(0)
    config = StackConfig(
        EmbedConfig(23, segments=2),
        width=8,
        layers=2,
        heads=2,
        hidden=16,
        position=Learned(7),
        dropout=0.0,
        attention_dropout=0.0,
        init_std=0.5,
    )
    model = head(Transformer(config))
    decoder = LM(Transformer(replace(config, causal=True)))
    decoder.stack.load_state_dict(model.stack.state_dict())
    ids = torch.randint(0, 23, (3, 7), generator=seeded_generator(1))
    right = torch.arange(7) < torch.tensor([[7], [4], [2]])
    for attention_mask in (right, right.flip(1)):
        batch = {"ids": ids, "attention_mask": attention_mask}
        expected = losses.clm(decoder, batch)
        torch.testing.assert_close(left_to_right(model, batch), expected)
        assert not torch.isclose(expected, losses.clm(LM(model.stack), batch)), "it looked ahead"
