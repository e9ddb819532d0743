"""The small pretrained models of the claims. Few, and the same for all: what two claims both need
is trained once.
"""

from dataclasses import replace

from torch import nn

from course_lib.analysis import cost
from course_lib.families.bert import bert
from course_lib.families.lstm import LstmConfig
from course_lib.families.lstm_seq2seq import LstmEncoderDecoder, LstmSeq2Seq
from course_lib.model import heads, transformer
from course_lib.model.config import StackConfig
from lab.engine.arms import Arm, fingerprint
from lab.engine.lab import Plan, shipped

WORLD = 0
MOMENTS = (0.1, 0.2, 0.4, 0.6, 1.0)  # of the steps: where arms keep their weights
# of one recipe, smallest first
GPTS = tuple(shipped("gpt-nano", "gpt-tiny", "gpt-mini", "gpt-small"))
RECIPES = {"80/10/10": (0.8, 0.1, 0.1), "100/0/0": (1.0, 0.0, 0.0), "0/100/0": (0.0, 1.0, 0.0)}


def body(plan: Plan, layers: int | None = None, width: int | None = None) -> StackConfig:
    """The plan's BERT. Its first weights are larger than 0.02, which suits a width of 768, not one
    of 128.
    """
    width = width or plan.width
    size = {
        "layers": layers or plan.layers,
        "width": width,
        "heads": max(1, plan.width // 32),
        "length": plan.length,
    }
    return replace(bert(plan.vocab, dropout=0.0, **size), init_std=0.05)


def arm(
    plan: Plan,
    objective: str,
    model: StackConfig,
    seed: int,
    **options: object,
) -> Arm:
    """An arm of the plan's length, on the town's documents as they are now."""
    settings: dict[str, object] = {
        "world": WORLD,
        "documents": fingerprint(WORLD),
        "rows": plan.rows,
        "length": plan.length,
        "steps": plan.steps,
        "warmup": min(100, plan.steps // 10),
        "lr": 3e-3,
    }
    return Arm(objective, model, seed=seed, **settings | options)  # type: ignore[arg-type]


def after(plan: Plan, part: float) -> int:
    """The step at which this part of the training is over."""
    return max(1, round(plan.steps * part))


def moments(plan: Plan) -> tuple[int, ...]:
    """Steps at which arms keep their weights; the last is the end."""
    return tuple(dict.fromkeys(after(plan, part) for part in MOMENTS))


def compared(plan: Plan) -> int:
    """Where masking recipes are compared: before the learning rate falls."""
    return after(plan, 0.6)


def bert_arm(plan: Plan, seed: int) -> Arm:
    """BERT: masked words and next sentences, on both halves of a document in half of the rows."""
    return arm(plan, "masked_pairs", body(plan), seed, pairs=0.5, keep=(compared(plan),))


def size_arm(plan: Plan, seed: int, layers: int, width: int) -> Arm:
    """BERT in another size; in the plan's own it is the BERT arm."""
    if (layers, width) == (plan.layers, plan.width):
        return bert_arm(plan, seed)
    return arm(plan, "masked_pairs", body(plan, layers, width), seed, pairs=0.5)


def sizes(plan: Plan) -> list[tuple[int, int]]:
    """Layers and width of the family, smallest first; the third is the plan's own."""
    layers, width = plan.layers, plan.width
    return [
        (max(1, layers // 2), width // 2),
        (layers, width // 2),
        (layers, width),
        (layers, 3 * width // 2),
    ]


def masked_arm(plan: Plan, seed: int, recipe: str = "80/10/10") -> Arm:
    """Masked words alone; `recipe`: [MASK]/random/as it is, other than BERT's up to `compared`
    only.
    """
    if recipe == "80/10/10":
        return arm(plan, "masked", body(plan), seed, keep=moments(plan)[:-1])
    return arm(plan, "masked", body(plan), seed, parts=RECIPES[recipe], stop=compared(plan))


def causal_arm(plan: Plan, seed: int) -> Arm:
    """The same stack, left to right: the claims' GPT of equal size."""
    return arm(plan, "causal", replace(body(plan), causal=True), seed, keep=moments(plan)[:-1])


def two_sided_arm(plan: Plan, seed: int) -> Arm:
    """The causal arm without its mask, over the first fifth: it can look the next token up."""
    return replace(causal_arm(plan, seed), model=body(plan), keep=(), stop=after(plan, 0.2))


def attentional_lstm(
    vocab: int, width: int, cells: int, start: int, dropout: float = 0.0
) -> LstmSeq2Seq:
    """The rival of an encoder-decoder Transformer. Its token vectors start as large as the
    Transformer's where they enter, at 1: with the library's 0.1 it hardly learns in so few
    steps."""
    config = LstmConfig(vocab, width=width, cells=cells, dropout=dropout, start=start)
    model = LstmSeq2Seq(LstmEncoderDecoder(config))
    nn.init.normal_(model.stack.embed.weight)
    return model


def published_size(config: StackConfig) -> int:
    """Parameters of an encoder with its pooler, as papers count them."""
    return cost.parameters(lambda: heads.Pooled(transformer.Transformer(config)))
