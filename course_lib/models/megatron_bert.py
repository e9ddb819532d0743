"""Megatron-BERT (Shoeybi et al. 2019): BERT with the norms moved, so that deeper ones train.

Differs from BERT by: the norm stands before each sublayer and behind the last block, none on the embedding; what flows
into the residual starts smaller. The classroom's `bert-mini` is built so.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from course_lib.config import StackConfig
from course_lib.hf import Rule
from course_lib.models import bert


def moved_norms(config: StackConfig) -> StackConfig:
    """A BERT's configuration with Megatron-BERT's norms and first weights (section 3 and figure 7)."""
    return replace(
        config, norm="pre", final_norm=True, scaled_init=True, embed=replace(config.embed, norm=False)
    )  # fmt: skip


def read_config(values: Mapping[str, Any]) -> StackConfig:
    """config.json of transformers' MegatronBertModel to ours."""
    return moved_norms(bert.read_config(values))


NAMES = {  # BERT's public name of a norm -> Megatron-BERT's
    "attention.output.LayerNorm": "attention.ln",
    "layer.{}.output.LayerNorm": "layer.{}.ln",
}


def _rule(rule: Rule) -> Rule:
    theirs = rule.theirs
    for old, new in NAMES.items():
        theirs = theirs.replace(old, new)
    return replace(rule, theirs=theirs)


RULES = (
    *(_rule(rule) for rule in bert.BODY if not rule.theirs.startswith("embeddings.LayerNorm")),
    *bert.pairs("encoder.ln", "norm"),
)
FAMILY = replace(
    bert.FAMILY,
    model_type="megatron-bert",
    read_config=read_config,
    rules=RULES,
    architectures={f"Megatron{name}": made for name, made in bert.FAMILY.architectures.items()},
)
