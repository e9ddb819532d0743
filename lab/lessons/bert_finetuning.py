"""The claims of lesson 10: frozen or tuned, and pretrained encoders on public tasks."""

from dataclasses import replace
from typing import Any

from datasets import Dataset

from classroom.records.record import RESULTS
from course_lib import data
from course_lib.files import read_json
from lab.lessons import Lab, experiment, given
from lab.real import label_curves, tasks
from lab.real.baselines import linear, most_frequent

FROZEN: dict[str, Any] = given("bert_finetuning")["frozen or tuned"]
PUBLIC: dict[str, Any] = given("bert_finetuning")["public tasks"]
KINDS = {task: tasks.TASKS[name] for task, name in label_curves.TASKS.items()}
KINDS["names"] = tasks.TASKS["wnut17"]  # the same metric, other rows


def rows_of(lab: Lab, task: str, seed: int) -> tuple[Dataset, Dataset]:
    """The rows to train on and the rows to score; a pilot scores training rows."""
    if task != "names":
        return label_curves.sample(lab, task, FROZEN["labels"][lab.plan.scale], seed)
    train, test = (data.task("tasks/names", split=split) for split in ("train", "test"))
    known, asked = FROZEN["names"][lab.plan.scale]
    mixed = train.shuffle(seed=seed)
    if seed >= label_curves.PILOT:
        half = len(mixed) // 2
        return mixed.select(range(half)), mixed.select(range(half, len(mixed)))
    return mixed.select(range(known)), test.select(range(asked))


def frozen_score(lab: Lab, network: str, task: str, seed: int, rate: float) -> float:
    """The score of a head on vectors that stay as they are."""
    how = FROZEN["frozen head"]
    return run_kept(lab, network, task, seed, epochs=how["epochs"], batch=how["batch"], lr=rate)


def tuned_score(lab: Lab, network: str, task: str, seed: int) -> float:
    """The score of the same head and pooling where all weights are tuned."""
    if task == "names":
        return tuned_names(lab, network, seed, FROZEN["tuned names"]["lr"][network])
    return label_curves.score(lab, network, task, FROZEN["labels"][lab.plan.scale], seed)


def tuned_names(lab: Lab, network: str, seed: int, rate: float) -> float:
    """F1 of the names that a tuned network finds."""
    how = FROZEN["tuned names"]
    epochs = how["epochs"][network]
    return run_kept(
        lab, network, "names", seed, epochs=epochs, batch=how["batch"], lr=rate, frozen=False
    )


def run_kept(
    lab: Lab,
    network: str,
    task: str,
    seed: int,
    *,
    epochs: int,
    batch: int,
    lr: float,
    frozen: bool = True,
) -> float:
    """The score of one training, computed once."""
    if lab.plan.scale == "smoke":
        epochs = 1
    checkpoint = label_curves.SETTINGS["networks"][network]["checkpoint"]

    def measure() -> dict[str, float]:
        run = tasks.tuner(
            checkpoint,
            replace(KINDS[task], epochs=epochs),
            frozen=frozen,
            batch=batch,
            precision="bf16",
            device=lab.device,
        )
        return {"score": run(*rows_of(lab, task, seed), lr, seed)}

    follows = {
        "model": label_curves.weights(checkpoint),
        "rows": [FROZEN["labels"][lab.plan.scale], FROZEN["names"][lab.plan.scale]],
        "task": task,
        "seed": seed,
        "epochs": epochs,
        "batch": batch,
        "lr": lr,
        "frozen": frozen,
    }
    return lab.kept(f"frozen-or-tuned-{task}", follows, measure)["score"]


@experiment("frozen-or-tuned", compared=FROZEN, networks=label_curves.SETTINGS["networks"])
def frozen_or_tuned(lab: Lab, seed: int) -> dict[str, float]:
    """Scores of each network, frozen and tuned, of a linear model and of the most frequent label.

    Accuracy of sentiment and tags, F1 of names; who always says that no word is a name, finds none.
    """
    values: dict[str, float] = {}
    for task, kind in KINDS.items():
        rows, test = rows_of(lab, task, seed)
        values[f"linear/{task}"] = linear(kind.metric)(rows, test, FROZEN["penalties"][task], seed)
        values[f"most frequent/{task}"] = 0.0 if task == "names" else most_frequent(rows, test)
        for network in FROZEN["networks"]:
            rate = FROZEN["frozen head"]["lr"][network][task]
            values[f"{network} frozen/{task}"] = frozen_score(lab, network, task, seed, rate)
            values[f"{network} tuned/{task}"] = tuned_score(lab, network, task, seed)
    return values


def minilm_score(lab: Lab, task: str, seed: int) -> float:
    """The score of MiniLM tuned on a public task; each is kept, because a seed takes long."""
    how = PUBLIC["tasks"][task]
    is_smoke = lab.plan.scale == "smoke"

    def measure() -> dict[str, float]:
        rows, test = tasks.parts(tasks.TASKS[task], lab.public_data)
        rows = rows.shuffle(seed=seed)
        rows = rows.select(range(min(8 if is_smoke else how["rows"], len(rows))))
        if is_smoke:
            test = test.select(range(min(6, len(test))))
        run = tasks.tuner(
            "minilm",
            replace(tasks.TASKS[task], epochs=how["epochs"]),
            batch=PUBLIC["batch"],
            precision="bf16",
            device=lab.device,
        )
        return {"score": run(rows, test, how["lr"], seed)}

    follows = {"task": task, "seed": seed, "batch": PUBLIC["batch"], "scale": lab.plan.scale, **how}
    return lab.kept(f"minilm-{task}", follows, measure)["score"]


@experiment("public-tasks", minilm=PUBLIC)
def public_tasks(lab: Lab, seed: int) -> dict[str, float]:
    """Scores of MiniLM, and of the other arms as they were recorded with this seed.

    The linear model was fitted once; it has no seed.
    """
    values: dict[str, float] = {}
    for task in PUBLIC["tasks"]:
        recorded = read_json(RESULTS / f"real_{task}.json")["arms"]
        for arm, name in PUBLIC["recorded"].items():
            scores = recorded[name]["seeds"]
            values[f"{arm}/{task}"] = scores[0] if len(scores) == 1 else scores[seed]
        values[f"MiniLM/{task}"] = minilm_score(lab, task, seed)
    return values
