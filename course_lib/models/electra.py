"""ELECTRA (Clark et al. 2020).

Differs from BERT by: two encoders over one embedding. A small generator fills masked places by sampling, and the
discriminator, which is the model that is kept, says of every token whether it was replaced (section 3.1). The
discriminator's base and large sizes are BERT's; the small one has token vectors narrower than the model.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from course_lib import heads
from course_lib.config import StackConfig
from course_lib.errors import CourseError
from course_lib.hf import Architecture, Family, Rule
from course_lib.layers import ACTIVATIONS
from course_lib.models import bert
from course_lib.models.bert import labels, pairs
from course_lib.models.roberta import classifier_dropout, write_dropout
from course_lib.seq2seq import Hidden
from course_lib.stack import Stack


def electra(
    vocab: int = 30522, *, width: int, layers: int, heads: int, hidden: int | None = None, embed: int | None = None,
    length: int = 512, dropout: float = 0.1,
) -> StackConfig:  # fmt: skip
    """A discriminator of any size; `embed` is the width of the token vectors, by default the model's."""
    config = bert.bert(vocab, width=width, layers=layers, heads=heads, hidden=hidden, length=length, dropout=dropout)
    return replace(config, embed=replace(config.embed, width=embed))


def electra_small() -> StackConfig:
    """12 layers of 256, 4 heads, token vectors of 128: 14M."""
    return electra(width=256, layers=12, heads=4, embed=128)


def electra_base() -> StackConfig:
    """12 layers of 768, 12 heads: 110M."""
    return electra(width=768, layers=12, heads=12)


def electra_large() -> StackConfig:
    """24 layers of 1024, 16 heads: 335M."""
    return electra(width=1024, layers=24, heads=16)


def electra_mini(vocab: int = 3072, length: int = 160, dropout: float = 0.0) -> StackConfig:
    """The classroom's ELECTRA: a discriminator of `bert_mini`'s size; its `generator` is a quarter as wide."""
    return electra(vocab, width=128, layers=4, heads=4, length=length, dropout=dropout)


def generator(config: StackConfig, times: float = 1 / 4) -> StackConfig:
    """The generator of a discriminator: as deep, `times` as wide, over token vectors of the same width.

    The paper's multipliers are 1/4 for small and large and 1/3 for base (table 6).

    Raises:
        CourseError: a width that the smaller number of heads does not divide.
    """
    return replace(
        config,
        embed=replace(config.embed, width=config.embed.width or config.width),
        width=round(config.width * times),
        heads=max(1, round(config.heads * times)),
        hidden=round(config.hidden * times),
    )


def pair(config: StackConfig, generator_config: StackConfig | None = None) -> tuple[heads.MLM, heads.RTD]:
    """Generator and discriminator over one embedding (section 3.2); `course_lib.electra.Electra(*pair(config))` trains.

    Args:
        config: the discriminator's. generator_config: the generator's, by default a quarter as wide.

    Raises:
        CourseError: embeddings of different sizes, which cannot be shared.
    """
    small, discriminator = heads.MLM(Stack(generator_config or generator(config))), heads.RTD(Stack(config))
    share_embedding(discriminator.stack, small.stack)
    return small, discriminator


def share_embedding(owner: Stack, other: Stack) -> None:
    """Let `other` read the token, segment and position vectors of `owner`, and their norm."""
    for name in ("embed.tokens", "embed.segments", "embed.norm", "position"):
        mine, theirs = _part(owner, name), _part(other, name)
        shapes = [[(n, tuple(w.shape)) for n, w in part.named_parameters()] if part else [] for part in (mine, theirs)]
        if type(mine) is not type(theirs) or shapes[0] != shapes[1]:
            raise CourseError(f"The two models cannot share {name}: {shapes[0]} and {shapes[1]}.")
        parent, _, last = name.rpartition(".")
        setattr(other.get_submodule(parent), last, mine)


def _part(stack: Stack, name: str) -> nn.Module | None:
    parent, _, last = name.rpartition(".")
    part: nn.Module | None = getattr(stack.get_submodule(parent), last)
    return part


def read_config(values: Mapping[str, Any]) -> StackConfig:
    """config.json of transformers' ElectraModel to ours."""
    if values.get("hidden_act", "gelu") != "gelu":
        raise CourseError("Only ELECTRA as published is read: GELU.")
    config, embed = bert.read_config(values), values["embedding_size"]
    return replace(config, embed=replace(config.embed, width=None if embed == config.width else embed))


def write_config(config: StackConfig) -> dict[str, Any]:
    """The reverse of `read_config`."""
    return bert.write_config(config) | {"embedding_size": config.embed.width or config.width}


def body(model: nn.Module) -> tuple[Rule, ...]:
    """BERT's rules, and one more layer where the token vectors are narrower than the model."""
    assert isinstance(model.stack, Stack)
    return bert.BODY if model.stack.embed.project is None else bert.BODY + pairs("embeddings_project", "embed.project")


def _classifier(config: StackConfig, values: Mapping[str, Any]) -> heads.Classifier:
    stack, rate = Stack(config), classifier_dropout(config, values)
    pooler = heads.Pooler(stack, ACTIVATIONS["gelu"], dropout=rate)
    return heads.Classifier(stack, labels(values), pooler=pooler, dropout=rate)


def _choice(config: StackConfig, values: Mapping[str, Any]) -> heads.Choice:
    stack, rate = Stack(config), values.get("summary_last_dropout", 0.1)
    return heads.Choice(stack, pooler=heads.Pooler(stack, ACTIVATIONS["gelu"]), dropout=rate)


MASKED = (
    *pairs("generator_predictions.dense", "head.dense"),
    *pairs("generator_predictions.LayerNorm", "head.norm"),
    Rule("generator_lm_head.bias", "head.bias"),
    Rule("generator_lm_head.weight", None),  # tied to the token vectors
)
REPLACED = (
    *pairs("discriminator_predictions.dense", "dense"),
    *pairs("discriminator_predictions.dense_prediction", "score"),
)

FAMILY = Family(
    model_type="electra",
    read_config=read_config,
    write_config=write_config,
    prefix="electra.",
    rules=body,
    architectures={
        "ElectraModel": Architecture(lambda c, v: Hidden(Stack(c)), has_prefix=False),
        "ElectraForPreTraining": Architecture(lambda c, v: heads.RTD(Stack(c)), REPLACED),
        "ElectraForMaskedLM": Architecture(lambda c, v: heads.MLM(Stack(c)), MASKED),
        "ElectraForSequenceClassification": Architecture(
            _classifier,
            (*pairs("classifier.dense", "pooler.dense"), *pairs("classifier.out_proj", "out")),
            write=write_dropout,
        ),
        "ElectraForMultipleChoice": Architecture(
            _choice,
            (*pairs("sequence_summary.summary", "pooler.dense"), *pairs("classifier", "out")),
            write=lambda model: {"summary_last_dropout": model.dropout.p},  # type: ignore[union-attr]
        ),
        "ElectraForTokenClassification": Architecture(
            lambda c, v: heads.Tagger(Stack(c), labels(v)), pairs("classifier", "out")
        ),
        "ElectraForQuestionAnswering": Architecture(lambda c, v: heads.Span(Stack(c)), pairs("qa_outputs", "out")),
    },
)
