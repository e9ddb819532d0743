"""Fresh models that take over what another kind of model has learned."""

from typing import Any

import torch
from torch import Tensor

from course_lib.analysis import capture
from course_lib.data.tokenizers import Tokenizer
from course_lib.errors import CourseError
from course_lib.model.initialization import attend_to_similar
from course_lib.model.transformer import Transformer

NEAR = 4  # tokens; how far a head's looks are compared


@torch.no_grad()
def t5_from_bert(body: Any, parent: Any, page: list[int], mask: int) -> None:
    """Overwrite a fresh T5's encoder with the first layers of a pre-norm BERT.

    Where all that is added has mean 0, RMSNorm is LayerNorm without bias (Zhang and Sennrich 2019).
    Biases are left out; training heals that. Cross-attention begins as a search for the same token.

    T5's layers share their biases of distance: those of the first layer's heads on a page. So the
    heads of the other layers are put in the same order, by where they look near by.

    Args:
        body: the T5's stacks.
        parent: the BERT's stack.
        page: tokens of a text, on which the heads are looked at.
        mask: the BERT's mask token, as which the sentinels begin.
    """
    encoder = body.encoder
    _tokens_from_bert(encoder, parent, mask)
    encoder.norm.weight.copy_(parent.norm.weight)

    positions = torch.arange(len(page))
    distance = positions - positions[:, None]  # T T, of a key from its query
    with capture(parent, "blocks.*.attn.probs") as seen:
        parent(torch.tensor([page]))
    for layer, block in enumerate(encoder.blocks):
        (looks,) = seen[f"blocks.{layer}.attn.probs"]  # H T T
        # From the heads that look to the left to those that look to the right
        order = (looks * distance.clamp(-NEAR, NEAR)).sum((1, 2)).argsort()
        if layer == 0:
            _distances_from_looks(encoder.position, looks[order], distance)
        _block_from_bert(block, parent.blocks[layer], order)

    width = encoder.embed.tokens.weight.shape[1]
    turn = torch.linalg.qr(torch.randn(width, width)).Q * 0.4**0.5
    for block in body.decoder.blocks:
        attend_to_similar(block.cross, turn)
    body.decoder.norm.weight.fill_(4.0)


def _tokens_from_bert(encoder: Any, parent: Any, mask: int) -> None:
    """BERT's token vectors with its mean position and first segment; sentinels begin as [MASK]."""
    table = encoder.embed.tokens.weight
    old = parent.embed.tokens.weight
    known = len(old)
    table[:known] = old + parent.embed.segments.weight[0] + parent.position.table.weight.mean(0)
    noise = torch.randn(len(table) - known, table.shape[1])
    table[known:] = table[mask] + 0.2 * noise
    table.sub_(table.mean(1, keepdim=True))


def _distances_from_looks(position: Any, looks: Tensor, distance: Tensor) -> None:
    """Biases that look, at each distance, as often as these heads do.

    looks: Float[H T T], attention probabilities. distance: Int[T T].
    """
    buckets = position.bucket(distance)  # T T
    for bucket, bias in enumerate(position.table.weight):
        often = looks[:, buckets == bucket].mean(1).nan_to_num()  # H
        bias.copy_((often + 1e-4).log())


def _block_from_bert(block: Any, theirs: Any, order: Tensor) -> None:
    """A BERT's layer without its biases, its heads in this order."""
    # Rows of q, k and v that belong to the heads, in the new order: D
    rows = torch.arange(len(theirs.attn.q.weight)).view(len(order), -1)[order].flatten()
    scale = block.attn.dh**-0.5  # T5 does not divide by sqrt(d)
    for ours, public, factor in (
        (block.attn.q, theirs.attn.q, scale),
        (block.attn.k, theirs.attn.k, 1.0),
        (block.attn.v, theirs.attn.v, 1.0),
    ):
        # The norm's weight, which T5's norm has not, goes into the matrix behind it.
        ours.weight.copy_(public.weight[rows] * theirs.attn_norm.weight * factor)
    block.ff.up.weight.copy_(theirs.ff.up.weight * theirs.ff_norm.weight)
    out = theirs.attn.out.weight[:, rows]
    down = theirs.ff.down.weight
    block.attn.out.weight.copy_(out - out.mean(0))  # what is added has mean 0
    block.ff.down.weight.copy_(down - down.mean(0))


@torch.no_grad()
def warm_start_from(
    stack: Transformer, words: Tokenizer, parent: Transformer, parents: Tokenizer
) -> None:
    """Overwrite a fresh model with another one's positions and blocks.

    A word piece gets the mean of the vectors that the parent has for its text, in small letters or
    with a capital, whichever takes fewer pieces.

    A decoder may so become an encoder (BehnamGhader et al. 2024, COLM), or both sides of an
    encoder-decoder (Rothe et al. 2020, TACL), whose cross-attention stays as it is.

    Args:
        stack: the fresh model's.
        words: its tokenizer, WordPiece.
        parent: the other model's stack.
        parents: its tokenizer, byte-level.
    """
    weights = {
        name: weight
        for name, weight in parent.state_dict().items()
        if not name.startswith("embed.")
    }
    odd = stack.load_state_dict(weights, strict=False)
    missing = [
        name for name in odd.missing_keys if not name.startswith("embed.") and ".cross" not in name
    ]
    if odd.unexpected_keys or missing:
        raise CourseError(
            "The parent does not fit this model; give both the same layers, widths and norms."
        )
    table = parent.embed.tokens.weight
    special = set(words.vocab.special)
    for token, text in enumerate(words.tokens(range(words.vocab.size))):
        if token in special:
            continue
        forms = [f" {text}", f" {text.capitalize()}"]
        if text.startswith("##"):  # inside a word
            forms = [text[2:]]
        shortest = min(parents.ids(forms, special=False), key=len)
        stack.embed.tokens.weight[token] = table[shortest].mean(0)
