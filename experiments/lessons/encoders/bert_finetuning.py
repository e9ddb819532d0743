"""The claims of lesson 10: systems on the suite, continuations, answer spans, frozen against tuned, the recipe."""

from dataclasses import replace
from itertools import pairwise, product

from experiments.engine.judging import Judge, above, all_of, any_of, at_least, by_figures, clearly, such_that, verdict
from experiments.lessons import Arm, Figures, Lab, Plan, Tuning, experiment, given, small_models, suite

SUITE = ("nli", "paraphrase", "qnli", "sentiment", "acceptability", "similarity")
SYSTEMS = ("BiLSTM+ELMo+Attn", "GPT", "BERT", "bert-mini")
READER_RATE = 2e-3  # for the BiLSTM on top of ELMo, which starts from nothing
FROZEN_RATE = 5e-3
TUNED_TASKS = ("entities", "sentiment", "nli", "similarity")
SWEEP_TASK, RATES, EPOCHS = given("settings")["finetuning-recipe"].values()
_arms = small_models.together(small_models.elmo_arm, small_models.causal_arm, small_models.bert_arm)


def _systems(plan: Plan, seed: int) -> dict[str, Tuning]:
    """How each system is tuned; the last is a shipped checkpoint."""
    sources: list[Arm | str] = [*_arms(plan, seed), "bert-mini"]
    tuned = {name: Tuning(source, "", seed) for name, source in zip(SYSTEMS, sources, strict=True)}
    return tuned | {SYSTEMS[0]: replace(tuned[SYSTEMS[0]], frozen=True, lr=READER_RATE)}


AVERAGE = "{}/average".format
STEPS = [above(AVERAGE(b), AVERAGE(a)) for a, b in pairwise(SYSTEMS)]
BEST_OF_THREE = all_of(*[above(AVERAGE("BERT"), AVERAGE(system)) for system in SYSTEMS[:2]])
ALL_STEPS = all_of(*STEPS, clearly(AVERAGE(SYSTEMS[-1]), AVERAGE(SYSTEMS[0])))
suite("bert-glue", _systems, SUITE, verdict(ALL_STEPS, BEST_OF_THREE | at_least(2, *STEPS)))

CLEARLY, AHEAD = ([better("BERT", other) for other in ("GPT", SYSTEMS[0])] for better in (clearly, above))
LEARNED, SHIPPED = above("BERT", 0.3), clearly("bert-mini", "gpt-mini")


@experiment("bert-swag", verdict(all_of(*CLEARLY, LEARNED), all_of(*AHEAD, LEARNED) | SHIPPED), _arms)
def bert_swag(lab: Lab, seed: int) -> dict[str, float]:
    """Accuracy of each system at choosing the continuation."""
    systems = _systems(lab.plan, seed) | {"gpt-mini": Tuning("gpt-mini", "", seed)}
    return {name: lab.score(replace(system, task="continuation")) for name, system in systems.items()}


SCRATCH = {"BERT": "from scratch", "bert-mini": "bert-mini's shape, from scratch"}
HELPS = [(f"F1/{name}", f"F1/{start}") for name, start in SCRATCH.items()]


BOTH, ONE = all_of(*[clearly(*pair) for pair in HELPS]), any_of(*[above(*pair) for pair in HELPS])


@experiment("bert-squad", verdict(BOTH, ONE), small_models.together(small_models.bert_arm))
def bert_squad(lab: Lab, seed: int) -> dict[str, float]:
    """Exact match and F1, pretrained and from scratch."""
    values: dict[str, float] = {}
    for name, scratch in SCRATCH.items():
        source = small_models.bert_arm(lab.plan, seed) if name == "BERT" else name
        for start, pretrained in ((scratch, False), (name, True)):
            tuning = Tuning(source, "questions", seed, pretrained=pretrained)
            values |= {f"exact match/{start}": lab.score(tuning), f"F1/{start}": lab.score(tuning, "token_f1")}
    return values


def _ways(plan: Plan, seed: int) -> dict[str, Tuning]:
    """ELMo and BERT, frozen and tuned."""
    elmo = Tuning(small_models.elmo_arm(plan, seed), "", seed, lr=READER_RATE)
    bert = Tuning(small_models.bert_arm(plan, seed), "", seed)
    return {
        "ELMo frozen": replace(elmo, frozen=True),
        "ELMo tuned": elmo,
        "BERT frozen": replace(bert, frozen=True, top="bilstm", lr=FROZEN_RATE),
        "BERT tuned": bert,
    }


ELMO, BERT = [(f"{name} tuned/average", f"{name} frozen/average") for name in ("ELMo", "BERT")]
GAINS = clearly(*BERT)
suite("frozen-or-tuned", _ways, TUNED_TASKS, verdict(GAINS & ~above(*ELMO), GAINS & above(BERT, ELMO)))


def _plateau(f: Figures) -> Judge:
    """Rates at least three times apart are level with the best, a larger one falls off, a smaller one lags behind."""
    score = {rate: f[f"{rate:g}/{max(EPOCHS)} epochs"].mean for rate in RATES}
    best = max(score.values())
    level = [rate for rate in RATES if score[rate] >= best - 0.03]
    told = f"Learning rates within three points of the best: {', '.join(f'{rate:g}' for rate in level)}"
    plateau = such_that(lambda f: len(level) >= 2 and max(level) >= 3 * min(level), lambda f: told)
    cliff = such_that(lambda f: any(score[rate] <= best - 0.1 for rate in RATES if rate > max(level)))
    slope = such_that(lambda f: any(score[rate] <= best - 0.05 for rate in RATES if rate < min(level)))
    return verdict(plateau & cliff & slope, plateau & (cliff | slope))


@experiment("finetuning-recipe", by_figures(_plateau), small_models.together(small_models.bert_arm))
def finetuning_recipe(lab: Lab, seed: int) -> dict[str, float]:
    """Score at every learning rate and number of epochs."""
    tuning = Tuning(small_models.bert_arm(lab.plan, seed), SWEEP_TASK, seed)
    grid = product(EPOCHS, RATES)
    return {f"{lr:g}/{epochs} epochs": lab.score(replace(tuning, lr=lr, epochs=epochs)) for epochs, lr in grid}
