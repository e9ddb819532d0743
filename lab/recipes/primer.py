"""What the minis learn first, from the pages of the world's primer: to find again what a text has
said before.

Without it a network of this size says the commonest words and never looks back
(docs/checkpoints.md).
"""

from collections.abc import Collection
from typing import Any, cast

import torch
from torch import Tensor, nn

from course_lib.data.tokenizers import Tokenizer
from course_lib.model import masks
from course_lib.objectives import collate, losses, mark_spans
from course_lib.objectives.draws import mask_id
from course_lib.objectives.losses import Batch
from course_lib.objectives.masking import Corrupted
from course_lib.vocab import IGNORE, Vocab


def mask_known(
    ids: Tensor,
    rng: torch.Generator,
    *,
    vocab: Vocab,
    names: Collection[int],
    rate: float = 0.5,
) -> Corrupted:
    """Hide what a reader of the sentences before can know.

    Of the sentences whose names all stood before, `rate` lose one name, drawn at random. Compare
    recurring span selection (Ram et al. 2021, ACL).

    Args:
        ids: Int[B T].
        rng: of the draws.
        vocab: names [MASK] and the tokens that end a sentence.
        names: tokens that are names or parts of them.
        rate: share of these sentences.
    """
    is_name = torch.isin(ids, torch.tensor(list(names), dtype=ids.dtype, device=ids.device))
    hidden = torch.zeros_like(ids, dtype=torch.bool)
    for row, tokens in enumerate(ids.tolist()):
        said: set[int] = set()  # tokens of all names so far
        sentence: list[list[int]] = []  # its names, each the positions of its tokens
        for i, token in enumerate(tokens):
            if is_name[row, i]:
                goes_on = sentence and sentence[-1][-1] == i - 1
                if goes_on:
                    sentence[-1].append(i)
                else:
                    sentence.append([i])
            elif token in vocab.ends:
                inside = [tokens[position] for name in sentence for position in name]
                is_known = bool(sentence) and said.issuperset(inside)
                if is_known and float(torch.rand((), generator=rng)) < rate:
                    name = int(torch.randint(len(sentence), (), generator=rng))
                    hidden[row, sentence[name]] = True
                said.update(inside)
                sentence = []
    labels = ids.masked_fill(~hidden, IGNORE)
    return Corrupted(ids.masked_fill(hidden, mask_id(vocab)), labels, hidden)


def behind_sentinels(ids: Tensor, hidden: Tensor, tokenizer: Tokenizer) -> dict[str, Tensor]:
    """A page for T5: each hidden token behind a sentinel of its own.

    Returns:
        ids Int[B T], as long as they were, and labels Int[B U], the targets.
    """
    vocab = tokenizer.vocab
    marked = []
    for row, positions in zip(ids, hidden, strict=True):
        spans = [(position, 1) for position in positions.nonzero().flatten().tolist()]
        marked.append(mark_spans(row, spans, vocab.sentinels))
    targets = [[*row.target.tolist(), vocab.sep or 0] for row in marked]
    labels = collate.pad(targets, IGNORE)["ids"]
    return {"ids": torch.stack([row.input for row in marked]), "labels": labels}


def left_to_right(model: nn.Module, batch: Batch) -> Tensor:
    """Next-token prediction by an encoder that sees nothing to the right (Charpentier and Samuel
    2024).

    It does it as a decoder does, by the token vectors on its hidden states. A masked-language head
    is left as it is.
    """
    ids = batch["ids"]
    labels = losses.next_tokens(ids, batch.get("attention_mask"))
    at = labels != IGNORE
    stack: Any = model.stack
    mask = masks.causal(ids.shape[1], device=ids.device)
    h = stack(ids, attention_mask=losses.needed_mask(batch), mask=mask)  # B T D
    return losses.cross_entropy(h[at] @ stack.embed.tokens.weight.T, labels[at])


def fill_in_without_decoder(model: nn.Module, batch: Batch, first_sentinel: int) -> Tensor:
    """T5's encoder alone: a sentinel's hidden state says which token is missing there.

    For a decoder to find the place by, it also says which sentinel it is.
    """
    ids, at = batch["ids"], batch["loss_mask"]
    encoder = cast(Any, model).stack.encoder
    h = encoder(ids, attention_mask=batch["attention_mask"])[at]  # N D
    scores = h @ encoder.embed.tokens.weight.T  # N V
    missing = losses.cross_entropy(scores[:, :first_sentinel], batch["labels"][at])
    which = losses.cross_entropy(scores[:, first_sentinel:], ids[at] - first_sentinel)
    return missing + which
