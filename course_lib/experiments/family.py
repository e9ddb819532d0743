"""The pretrained models of the claims. Few, and the same for all: what two claims both need is trained once."""

from dataclasses import replace

from course_lib.claims.arms import Arm, Objective, fingerprint
from course_lib.claims.lab import Plan
from course_lib.config import StackConfig
from course_lib.models.bert import bert
from course_lib.models.elmo import ElmoConfig

WORLD = 0
EARLY = 0.4  # of the steps: where the short arms end
RECIPES = {"80/10/10": (0.8, 0.1, 0.1), "100/0/0": (1.0, 0.0, 0.0), "0/100/0": (0.0, 1.0, 0.0)}


def body(plan: Plan, layers: int | None = None, width: int | None = None) -> StackConfig:
    """The plan's BERT. Its first weights are larger than the paper's 0.02, which suits a width of 768."""
    width = width or plan.width
    size = {"layers": layers or plan.layers, "width": width, "heads": max(1, width // 32), "length": plan.length}
    return replace(bert(plan.vocab, dropout=0.0, **size), init_std=round(0.8 * width**-0.5, 4))


def arm(plan: Plan, objective: Objective, model: StackConfig | ElmoConfig, seed: int, **options: object) -> Arm:
    """An arm of the plan's length, on the town's documents as they are now."""
    return Arm(
        objective,
        model,
        seed,
        world=WORLD,
        documents=fingerprint(WORLD),
        rows=plan.rows,
        length=plan.length,
        steps=plan.steps,
        warmup=plan.steps // 10,
        **options,  # type: ignore[arg-type]
    )


def moments(plan: Plan) -> tuple[int, ...]:
    """Steps at which the arms of the race keep their weights; the last is the end."""
    return tuple(dict.fromkeys(max(1, round(plan.steps * part)) for part in (0.1, 0.2, EARLY, 0.7, 1.0)))


def bert_arm(plan: Plan, seed: int, layers: int | None = None, width: int | None = None) -> Arm:
    """BERT: masked words and next sentences, on both halves of a document in half of the rows."""
    return arm(plan, "mlm_nsp", body(plan, layers, width), seed, pairs=0.5)


def masked_arm(plan: Plan, seed: int, recipe: str = "80/10/10") -> Arm:
    """Masked words alone; `recipe`: [MASK]/random/as it is."""
    keep = moments(plan)[:-1] if recipe == "80/10/10" else ()
    return arm(plan, "mlm", body(plan), seed, parts=RECIPES[recipe], keep=keep)


def causal_arm(plan: Plan, seed: int) -> Arm:
    """The same stack, left to right: the paper's LTR row, and the claims' GPT of equal size."""
    return arm(plan, "clm", replace(body(plan), causal=True), seed, keep=moments(plan)[:-1])


def early(plan: Plan) -> int:
    """Where the short arms end; the causal arm keeps its weights there."""
    return max(1, round(plan.steps * EARLY))


def relu_arm(plan: Plan, seed: int) -> Arm:
    """The causal arm with ReLU in place of GELU, up to `early`."""
    return replace(causal_arm(plan, seed), model=replace(causal_arm(plan, seed).model, activation="relu"), keep=(),
                   stop=early(plan))  # fmt: skip


def two_sided_arm(plan: Plan, seed: int) -> Arm:
    """The causal arm without its mask, up to `early`: it can look the next token up."""
    return replace(causal_arm(plan, seed), model=body(plan), keep=(), stop=early(plan))


def sizes(plan: Plan) -> list[tuple[int, int]]:
    """Layers and width of the family, smallest first; the third is the plan's own."""
    layers, width = plan.layers, plan.width
    return [(max(1, layers // 2), width // 2), (layers, width // 2), (layers, width), (layers + 1, 3 * width // 2)]


def large_arm(plan: Plan, seed: int) -> Arm:
    """The largest of the family."""
    return bert_arm(plan, seed, *sizes(plan)[-1])
