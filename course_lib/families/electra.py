"""ELECTRA (Clark et al. 2020).

Differs from BERT by: two encoders over one embedding. A small generator fills the masked positions
with samples. The discriminator predicts for every token whether it was replaced (section 2), and is
the model that is fine-tuned later. Its base and large sizes are BERT's. In the small size, token
vectors are narrower than the model.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.families import bert
from course_lib.families.encoder_heads import (
    CLASSIFIER,
    DENSE_CLASSIFIER,
    gelu_head,
    per_token,
    pooled,
)
from course_lib.families.family import Architecture
from course_lib.families.fields import Values
from course_lib.families.weight_tables import Table
from course_lib.model import heads
from course_lib.model.config import StackConfig
from course_lib.model.seq2seq import Hidden
from course_lib.model.transformer import Transformer
from course_lib.objectives import original, replace_tokens, sample


def electra(
    vocab: int = 30522,
    *,
    width: int,
    layers: int,
    heads: int,
    hidden: int | None = None,
    dropout: float = 0.1,
    length: int = 512,
    embed: int | None = None,
) -> StackConfig:
    """A discriminator of any size.

    Args:
        vocab: number of tokens in the vocabulary.
        width: size D of the hidden states.
        layers: number of layers.
        heads: number of attention heads in each layer.
        hidden: size of the feed-forward layer inside a block; by default 4 D.
        dropout: dropout rate for hidden states and attention weights.
        length: maximum number of tokens in an input.
        embed: size of the token embeddings; by default D. If it is smaller, a matrix projects them
            to D.
    """
    config = bert.bert(
        vocab,
        width=width,
        layers=layers,
        heads=heads,
        hidden=hidden,
        dropout=dropout,
        length=length,
    )
    return replace(config, embed=replace(config.embed, width=embed))


def generator(config: StackConfig, times: float = 1 / 4) -> StackConfig:
    """The generator's configuration: as deep as the discriminator, but narrower.

    Args:
        config: the discriminator's configuration.
        times: the generator's width divided by the discriminator's. The paper takes 1/4, and 1/3
            for the base size (table 6).
    """
    width = round(config.width * times)
    # Both share the token vectors. If the generator is narrower, a linear layer projects them.
    shared_width = config.embed.width or config.width
    embed_width = None if shared_width == width else shared_width
    return replace(
        config,
        embed=replace(config.embed, width=embed_width),
        width=width,
        heads=max(1, round(config.heads * times)),
        hidden=round(config.hidden * times),
    )


def pair(
    config: StackConfig, generator_config: StackConfig | None = None
) -> tuple[heads.MLM, heads.RTD]:
    """Generator and discriminator over one embedding (section 3.2), for `Electra(*pair(config))`.

    Args:
        config: the discriminator's configuration.
        generator_config: the generator's configuration; by default `generator(config)`.
    """
    small = heads.MLM(Transformer(generator_config or generator(config)), activation="gelu")
    discriminator = heads.RTD(Transformer(config))
    share_embedding(discriminator.stack, small.stack)
    return small, discriminator


def share_embedding(owner: Transformer, other: Transformer) -> None:
    """Let two models share their token, segment and position vectors, and the norm on their sum.

    Args:
        owner: the model whose vectors both use.
        other: a model with vectors of the same sizes. Its own are dropped.
    """
    other.embed.tokens = owner.embed.tokens
    other.embed.segments = owner.embed.segments
    other.embed.norm = owner.embed.norm
    other.position = owner.position


class ElectraOutput(NamedTuple):
    """The predictions of both models for a batch."""

    guesses: Float[Tensor, "N V"]  # the generator's logits at the masked positions
    ids: Int[Tensor, "B T"]  # the text with the generator's samples in it
    replaced: Bool[Tensor, "B T"]  # True where a sample differs from the original
    verdicts: Float[Tensor, "B T"]  # the discriminator's logits: above 0 = replaced


class Electra(nn.Module):
    """Generator and discriminator, trained together (section 2).

    The samples have no gradient: the generator learns from its own masked-token loss alone.

    Args:
        generator: a `heads.MLM`, or a module that is called like it.
        discriminator: a `heads.RTD`, or a module that is called like it.
    """

    def __init__(self, generator: nn.Module, discriminator: nn.Module) -> None:
        super().__init__()
        self.generator = generator
        self.discriminator = discriminator

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        *,
        labels: Int[Tensor, "B T"],
        loss_mask: Bool[Tensor, "B T"],
        rng: torch.Generator | None = None,
        **options: Any,
    ) -> ElectraOutput:
        """Fill the masked positions with samples, and predict for every token if it was replaced.

        Args:
            ids: the masked text. All chosen tokens are [MASK], which is what
                `objectives.mask_tokens` does with parts=(1, 0, 0).
            labels: the original tokens at the masked positions.
            loss_mask: True = masked.
            rng: draws the samples; by default PyTorch's global generator. A resumed run restores
                that one, so it draws the same samples.
            options: the options of `Transformer.run`.
        """
        guesses = self.generator(ids, loss_mask=loss_mask, **options)  # N V
        sampled = sample(guesses, rng)  # N
        text = original(ids, labels, loss_mask)  # B T
        filled, replaced = replace_tokens(text, loss_mask, sampled)  # B T each
        verdicts = self.discriminator(filled, **options)  # B T
        return ElectraOutput(guesses, filled, replaced, verdicts)


def _read_config(values: Values) -> StackConfig:
    config = bert.FIELDS.read(values)
    embed_width = values["embedding_size"]
    if embed_width == config.width:
        return config
    return replace(config, embed=replace(config.embed, width=embed_width))


def _write_config(config: StackConfig) -> dict[str, Any]:
    return bert.FIELDS.write(config) | {"embedding_size": config.embed.width or config.width}


def body_table(model: Any) -> Table:
    """BERT's table, and the projection if the token vectors are narrower than the model."""
    if model.stack.config.embed.width is None:
        return bert.BODY
    return {**bert.BODY, "embeddings_project.*": "embed.project.*"}


MASKED: Table = {
    "generator_predictions.dense.*": "head.dense.*",
    "generator_predictions.LayerNorm.*": "head.norm.*",
    "generator_lm_head.bias": "head.bias",
}
REPLACED: Table = {
    "discriminator_predictions.dense.*": "dense.*",
    "discriminator_predictions.dense_prediction.*": "score.*",
}
CHOICE: Table = {"sequence_summary.summary.*": "pooler.dense.*", **CLASSIFIER}

FAMILY = replace(
    bert.FAMILY,
    name="electra",
    config=electra,
    model=lambda config, start: Electra(*pair(config)),
    objective="replaced",
    read_config=_read_config,
    write_config=_write_config,
    prefix="electra.",
    table=body_table,
    pooler={},
    architectures={
        "ElectraModel": Architecture(Hidden, has_prefix=False),
        "ElectraForPreTraining": Architecture(heads.RTD, REPLACED),
        "ElectraForMaskedLM": Architecture(
            heads.MLM,
            MASKED,
            gelu_head,
            output={"generator_lm_head.weight": "head.output.weight"},
        ),
        "ElectraForSequenceClassification": pooled(
            heads.Classifier,
            DENSE_CLASSIFIER,
            "classifier_dropout",
            activation=F.gelu,
            pooler_dropout_entry="classifier_dropout",
        ),
        "ElectraForMultipleChoice": pooled(
            heads.MultipleChoice, CHOICE, "summary_last_dropout", 0.1, activation=F.gelu
        ),
        **per_token("Electra", "classifier_dropout"),
    },
)
