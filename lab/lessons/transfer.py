"""The claims of lesson 07: how many labels pretraining saves."""

from lab.lessons import Lab, experiment
from lab.real import label_curves


@experiment("labels-saved", curves=label_curves.SETTINGS)
def labels_saved(lab: Lab, seed: int) -> dict[str, float]:
    """Accuracy of every model with every number of labels, and of the most frequent label."""
    values: dict[str, float] = {}
    for task in label_curves.TASKS:
        values[f"most frequent/{task}"] = label_curves.guess_score(lab, task, seed)
        for labels in label_curves.labels(lab):
            score = label_curves.linear_score(lab, task, labels, seed)
            values[f"linear/{task}/{labels}"] = score
            for network in label_curves.SETTINGS["networks"]:
                score = label_curves.score(lab, network, task, labels, seed)
                values[f"{network}/{task}/{labels}"] = score
    return values
