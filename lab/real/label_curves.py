"""How a score grows with the number of labels, on two public tasks.

A seed draws the training rows, the head's first weights and the order of rows. Its smaller training
sets are the beginnings of its larger ones, and all models see the same rows. The rows to score are
the same with every seed. A pilot, whose seeds are 100 and above, scores training rows that it did
not draw. Sizes, learning rates and what else was chosen stand in lab/lessons/transfer.yaml.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from datasets import Dataset

from course_lib import zoo
from lab.engine.experiment import given
from lab.engine.lab import Lab, checkpoint_hash
from lab.real import tasks
from lab.real.baselines import linear, most_frequent

PILOT = 100  # the first seed of a pilot
FEW = 200  # up to so many labels a model has one learning rate, above them another
SETTINGS: dict[str, Any] = given("transfer")["curves"]
TASKS: dict[str, str] = SETTINGS["tasks"]  # our name of a task -> its name in `tasks.TASKS`


def labels(lab: Lab) -> list[int]:
    """The sizes of the training sets, as the figures name them."""
    return list(SETTINGS["sizes"][lab.plan.scale]["rows"])


def sample(lab: Lab, task: str, labels: int, seed: int) -> tuple[Dataset, Dataset]:
    """The rows to train on and the rows to score.

    Args:
        lab: gives the sizes and the data.
        task: of `TASKS`.
        labels: one of `labels(lab)`.
        seed: draws the training rows.
    """
    size = SETTINGS["sizes"][lab.plan.scale]
    train, test = tasks.parts(tasks.TASKS[TASKS[task]], lab.public_data)
    mixed = train.shuffle(seed=seed)
    rows = mixed.select(range(size["rows"][labels]))
    n = size["tests"][task]
    if seed >= PILOT:
        return rows, mixed.select(range(len(mixed) - n, len(mixed)))
    return rows, test.shuffle(seed=0).select(range(n))


def score(lab: Lab, network: str, task: str, labels: int, seed: int) -> float:
    """The score of a network tuned on so many rows, computed once for all claims.

    Args:
        lab: as of `sample`, and so are task, labels and seed.
        network: of the settings' networks.
    """
    how = SETTINGS["networks"][network]
    rate = how["lr"][task][labels > FEW]
    return tuned_score(lab, how, task, labels, seed, rate)


def tuned_score(
    lab: Lab, how: Mapping[str, Any], task: str, labels: int, seed: int, rate: float
) -> float:
    """The same with another learning rate. how: a network's settings."""
    name = how["checkpoint"]
    epochs = how["epochs"][task][labels] if lab.plan.scale != "smoke" else 1
    batch = SETTINGS["batch"][labels > FEW]

    def measure() -> dict[str, float]:
        rows, test = sample(lab, task, labels, seed)
        run = tasks.tuner(
            name,
            replace(tasks.TASKS[TASKS[task]], epochs=epochs),
            pretrained=how["pretrained"],
            batch=batch,
            precision="bf16",
            device=lab.device,
        )
        return {"score": run(rows, test, rate, seed)}

    size = SETTINGS["sizes"][lab.plan.scale]
    follows = {
        "task": task,
        "rows": size["rows"][labels],
        "tests": size["tests"][task],
        "model": weights(name),
        "pretrained": how["pretrained"],
        "epochs": epochs,
        "batch": batch,
        "lr": rate,
        "seed": seed,
    }
    return lab.kept(f"labels-{task}", follows, measure)["score"]


def weights(name: str) -> list[str]:
    """What tells a checkpoint's weights; those of a public model are pinned by its name."""
    return [name, checkpoint_hash(name) if name in zoo.names() else "public"]


def linear_score(lab: Lab, task: str, labels: int, seed: int) -> float:
    """The score of the linear model of `baselines.linear`."""
    rows, test = sample(lab, task, labels, seed)
    run = linear(tasks.TASKS[TASKS[task]].metric)
    return run(rows, test, SETTINGS["penalties"][task][labels > FEW], seed)


def guess_score(lab: Lab, task: str, seed: int) -> float:
    """The score of the most frequent label of the largest training set."""
    return most_frequent(*sample(lab, task, labels(lab)[-1], seed))
