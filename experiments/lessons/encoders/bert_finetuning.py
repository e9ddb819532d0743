"""The claims of lesson 10: systems on the suite, continuations, answer spans, frozen against tuned, the recipe."""

from dataclasses import replace
from itertools import product

from experiments.lessons import Arm, Lab, Plan, Tuning, experiment, given, small_models, suite

SUITE = ("sentiment", "similarity", "qnli")
SIZES, RATE = given("bert_finetuning").values()
SYSTEMS = ("BiLSTM+ELMo+Attn", "GPT", "BERT", "bert-mini")
READER_RATE, FROZEN_RATE = 2e-3, 5e-3  # for the BiLSTM on top, which starts from nothing: of ELMo, of a frozen BERT
TUNED_TASKS = ("entities", "sentiment", "nli", "similarity")
SWEEP_TASK, RATES, EPOCHS, *_ = given("settings")["finetuning-recipe"].values()


def _systems(plan: Plan, seed: int) -> dict[str, Tuning]:
    """How each system is tuned; the last is a shipped checkpoint."""
    makers = (small_models.elmo_arm, small_models.causal_arm, small_models.bert_arm)
    sources: list[Arm | str] = [*(make(plan, seed) for make in makers), "bert-mini"]
    tuned = {name: Tuning(source, "", seed) for name, source in zip(SYSTEMS, sources, strict=True)}
    return tuned | {SYSTEMS[0]: replace(tuned[SYSTEMS[0]], frozen=True, lr=READER_RATE)}


def _taught(plan: Plan, seed: int) -> dict[str, Tuning]:
    """The systems with the suite's labels, each at its own learning rate."""
    return {name: replace(s, lr=RATE[name], **SIZES[plan.scale]) for name, s in _systems(plan, seed).items()}


suite("bert-glue", _taught, SUITE)


@experiment("bert-swag")
def bert_swag(lab: Lab, seed: int) -> dict[str, float]:
    """Accuracy of each system at choosing the continuation."""
    systems = _systems(lab.plan, seed) | {"gpt-mini": Tuning("gpt-mini", "", seed)}
    return {name: lab.score(replace(system, task="continuation")) for name, system in systems.items()}


SCRATCH = {"BERT": "from scratch", "bert-mini": "bert-mini's shape, from scratch"}


@experiment("bert-squad")
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


suite("frozen-or-tuned", _ways, TUNED_TASKS)


@experiment("finetuning-recipe")
def finetuning_recipe(lab: Lab, seed: int) -> dict[str, float]:
    """Score at every learning rate and number of epochs."""
    tuning = Tuning("bert-mini", SWEEP_TASK, seed, tests=2 * lab.plan.tests)
    grid = product(EPOCHS, RATES)
    return {f"{lr:g}/{epochs} epochs": lab.score(replace(tuning, lr=lr, epochs=epochs)) for epochs, lr in grid}
