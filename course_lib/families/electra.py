"""ELECTRA (Clark et al. 2020).

Differs from BERT by: two encoders over one embedding. A small generator fills masked places by
sampling, and the discriminator, which is the model that is kept, says of every token whether it was
replaced (section 3.1). The discriminator's base and large sizes are BERT's; the small one has token
vectors narrower than the model."""

from dataclasses import replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.families import bert
from course_lib.families.bert import CLASSIFIER, DENSE_CLASSIFIER, gelu_head, per_token, pooled
from course_lib.families.rules import Architecture, Rule, Values, pairs
from course_lib.model import heads
from course_lib.model.config import StackConfig
from course_lib.model.seq2seq import Hidden
from course_lib.model.transformer import Transformer
from course_lib.objectives import original, replace_tokens, sample


def electra(vocab: int = 30522, *, embed: int | None = None, **size: Any) -> StackConfig:
    """A discriminator of any size; `embed` is the width of the token vectors, by default the
    model's. Other arguments as for `bert.bert`."""
    config = bert.bert(vocab, **size)
    return replace(config, embed=replace(config.embed, width=embed))


def generator(config: StackConfig, times: float = 1 / 4) -> StackConfig:
    """The generator of a discriminator: as deep, `times` as wide (table 6: 1/4, base 1/3), over
    token vectors of the same width."""
    width, vectors = round(config.width * times), config.embed.width or config.width
    return replace(
        config,
        embed=replace(config.embed, width=None if vectors == width else vectors),
        width=width,
        heads=max(1, round(config.heads * times)),
        hidden=round(config.hidden * times),
    )


def pair(
    config: StackConfig, generator_config: StackConfig | None = None
) -> tuple[heads.MLM, heads.RTD]:
    """Generator and discriminator over one embedding (section 3.2), from the discriminator's
    configuration and the generator's, by default a quarter as wide. `Electra(*pair(config))`
    trains."""
    small = heads.MLM(Transformer(generator_config or generator(config)), activation="gelu")
    discriminator = heads.RTD(Transformer(config))
    share_embedding(discriminator.stack, small.stack)
    return small, discriminator


def share_embedding(owner: Transformer, other: Transformer) -> None:
    """Let `other` read the token, segment and position vectors of `owner`, and their norm, all of
    its own sizes.
    """
    for name in ("tokens", "segments", "norm"):
        setattr(other.embed, name, getattr(owner.embed, name))
    other.position = owner.position


class ElectraOutput(NamedTuple):
    """What both models said about a batch."""

    guesses: Float[Tensor, "N V"]  # the generator's logits at the masked places
    ids: Int[Tensor, "B T"]  # the text with its samples in it
    replaced: Bool[Tensor, "B T"]  # where that differs from the original
    verdicts: Float[Tensor, "B T"]  # above 0 where the discriminator takes a token for replaced


class Electra(nn.Module):
    """A generator (as `heads.MLM`) and a discriminator (as `heads.RTD`), trained together (section
    2). The samples carry no gradient: the generator learns from its own masked-token loss alone."""

    def __init__(self, generator: nn.Module, discriminator: nn.Module) -> None:
        super().__init__()
        self.generator, self.discriminator = generator, discriminator

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        *,
        labels: Int[Tensor, "B T"],
        loss_mask: Bool[Tensor, "B T"],
        rng: torch.Generator | None = None,
        **options: Any,
    ) -> ElectraOutput:
        """ids, labels, loss_mask: as `objectives.mask_tokens` gives them with parts=(1, 0, 0). rng:
        of the samples; PyTorch's global generator if None, as dropout has it, so that a resumed run
        draws the same."""
        guesses = self.generator(ids, loss_mask=loss_mask, **options)
        sampled = sample(guesses, rng)
        seen, replaced = replace_tokens(original(ids, labels, loss_mask), loss_mask, sampled)
        return ElectraOutput(guesses, seen, replaced, self.discriminator(seen, **options))


def _read_config(values: Values) -> StackConfig:
    config, embed = bert.FIELDS.read(values), values["embedding_size"]
    return replace(
        config, embed=replace(config.embed, width=None if embed == config.width else embed)
    )


def body(model: Any) -> tuple[Rule, ...]:
    """BERT's rules, and one more layer where the token vectors are narrower than the model."""
    if model.stack.config.embed.width is None:
        return bert.BODY
    return bert.BODY + pairs("embeddings_project", "embed.project")


MASKED = bert.masked(
    "generator_predictions.dense",
    "generator_predictions.LayerNorm",
    "generator_lm_head.bias",
    "generator_lm_head",
)
REPLACED = (
    *pairs("discriminator_predictions.dense", "dense"),
    *pairs("discriminator_predictions.dense_prediction", "score"),
)
CHOICE = (*pairs("sequence_summary.summary", "pooler.dense"), *CLASSIFIER)

FAMILY = replace(
    bert.FAMILY,
    name="electra",
    config=electra,
    model=lambda config, start: Electra(*pair(config)),
    objective="replaced",
    read_config=_read_config,
    write_config=lambda config: (
        bert.FIELDS.write(config) | {"embedding_size": config.embed.width or config.width}
    ),
    prefix="electra.",
    rules=body,
    pooler=(),
    architectures={
        "ElectraModel": Architecture(Hidden, has_prefix=False),
        "ElectraForPreTraining": Architecture(heads.RTD, REPLACED),
        "ElectraForMaskedLM": Architecture(heads.MLM, MASKED, gelu_head),
        "ElectraForSequenceClassification": pooled(
            heads.Classifier,
            DENSE_CLASSIFIER,
            "classifier_dropout",
            activation=F.gelu,
            inner="classifier_dropout",
        ),
        "ElectraForMultipleChoice": pooled(
            heads.MultipleChoice, CHOICE, "summary_last_dropout", 0.1, activation=F.gelu
        ),
        **per_token("Electra"),
    },
)
