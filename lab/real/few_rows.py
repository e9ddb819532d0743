"""Public tasks with few labelled rows: what a decoder, an encoder and a linear model make of the
same rows.

A seed draws the training rows, the head's first weights and the order of rows. All models see the
same rows with the same seed. The rows to score are the same with every seed. A pilot, whose seeds
are 100 and above, scores training rows that it did not draw. Sizes, learning rates and what else
was chosen stand in lab/lessons/bert.yaml.
"""

from dataclasses import replace
from typing import Any

from datasets import Dataset

from lab.engine.experiment import given
from lab.engine.lab import Lab, checkpoint_hash
from lab.real import tasks
from lab.real.baselines import linear

PILOT = 100  # the first seed of a pilot
SETTINGS: dict[str, Any] = given("bert")["few rows"]
TASKS: list[str] = SETTINGS["tasks"]


def sample(lab: Lab, task: str, seed: int) -> tuple[Dataset, Dataset]:
    """The rows to train on and the rows to score."""
    size = SETTINGS["sizes"][lab.plan.scale][task]
    train, test = tasks.parts(tasks.TASKS[task], lab.public_data)
    mixed = train.shuffle(seed=seed)
    rows = mixed.select(range(min(size["rows"], len(mixed))))
    if seed >= PILOT:
        test = mixed.select(range(len(rows), len(mixed)))
    test = test.shuffle(seed=0)
    return rows, test.select(range(min(size["tests"], len(test))))


def score(lab: Lab, task: str, name: str, seed: int) -> float:
    """The score of a fine-tuned model, computed once for all claims.

    Args:
        lab: gives the sizes and the data.
        task: of `TASKS`.
        name: of the settings' models.
        seed: of everything that is random.
    """
    size = SETTINGS["sizes"][lab.plan.scale][task]
    how = SETTINGS["models"][name]

    def measure() -> dict[str, float]:
        rows, test = sample(lab, task, seed)
        run = tasks.tuner(
            how["checkpoint"],
            replace(tasks.TASKS[task], epochs=size["epochs"]),
            pretrained=how["pretrained"],
            pool=how["pool"],
            batch=SETTINGS["batch"],
            device=lab.device,
        )
        return {"score": run(rows, test, how["lr"][task], seed)}

    follows = {
        "task": task,
        "size": size,
        "batch": SETTINGS["batch"],
        "model": how | {"lr": how["lr"][task], "hash": checkpoint_hash(how["checkpoint"])},
        "seed": seed,
    }
    return lab.kept(f"few-rows-{task}", follows, measure)["score"]


def linear_score(lab: Lab, task: str, seed: int) -> float:
    """The score of the linear model of `baselines.linear`."""
    rows, test = sample(lab, task, seed)
    run = linear(tasks.TASKS[task].metric)
    return run(rows, test, SETTINGS["penalties"][task], seed)
