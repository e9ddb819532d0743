"""The claims of lesson 11: what single heads find, which layers serve as features, and what probes
find in them.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier
from torch import Tensor, nn

from course_lib import zoo
from course_lib.analysis import probing
from course_lib.data import tokenizers
from course_lib.model import initialization, transformer
from course_lib.objectives import seeded_generator
from lab.lessons import Lab, Tuning, experiment, given, small_models, town
from lab.real import treebank
from lab.town import views

BODY = "bert-mini"
SIZES: dict[str, dict[str, int]] = given("inside_bert")["sizes"]
# heads and distances are chosen on the one and scored on the other
PARTS = {"choose": "train", "score": "test"}
LONGEST = 160  # pieces
TREES: dict[str, Any] = given("inside_bert")["treebank"]
_Columns = Mapping[str, Sequence[Any]]


def mentions(document: Mapping[str, Any]) -> Iterator[tuple[int, list[int], list[int]]]:
    """Of each mention whose entity was named before: its word, the earlier mentions' words, the
    right ones of them.

    A mention's word is the one whose governor stands outside.
    """
    spans = [
        (range(mention["start"], mention["end"]), mention["entity"])
        for mention in document["mentions"]
    ]
    words = sorted(
        (next(i for i in span if document["heads"][i] not in span), entity)
        for span, entity in spans
    )
    for place, entity in words:
        before = [(p, e) for p, e in words if p < place]
        same = [p for p, e in before if e == entity]
        if same and len(before) > 1:
            yield place, [p for p, _ in before], same


def links(attention: Sequence[Tensor], documents: Sequence[Any]) -> Tensor:
    """Whether an antecedent is chosen: by the nearest mention, by the nearest of the same word, by
    each head. Bool[2 + L H, N]."""
    found = []
    for document, weights in zip(documents, attention, strict=True):
        words = [word.lower() for word in document["tokens"]]
        for place, before, same in mentions(document):
            alike = [p for p in before if words[p] == words[place]] or before
            heads = weights[..., place, before].flatten(0, 1).argmax(-1)
            choices = torch.tensor([before[-1], alike[-1], *(before[i] for i in heads.tolist())])
            found.append(torch.isin(choices, torch.tensor(same)))
    return torch.stack(found, dim=-1)


def heads_of(
    body: nn.Module, tokenizer: tokenizers.Tokenizer, parsed: _Columns, linked: _Columns
) -> dict[str, float]:
    """What the best head of a body finds: governors or dependents of two relations, and
    antecedents.
    """

    def look(rows: Sequence[Any]) -> list[Tensor]:
        return probing.word_attention(body, tokenizer, [row["tokens"] for row in rows])

    found = [probing.hits(look(parsed[part]), parsed[part]) for part in PARTS]
    for part, right in zip(PARTS, found, strict=True):
        right["coreference"] = links(look(linked[part]), linked[part])[2:]
    values: dict[str, float] = {}
    for name in ("det", "obj", "coreference"):
        chosen, scored = (right[name].float().mean(-1).flatten() for right in found)
        values[name] = float(scored[chosen.argmax()])
    return values


@experiment("heads-learn-syntax")
def heads_learn_syntax(lab: Lab, seed: int) -> dict[str, float]:
    """Shares found by the best head, by the simple rules, and by the best heads of untrained
    bodies.
    """
    model, tokenizer, card = zoo.load(BODY)
    size = SIZES[lab.plan.scale]
    world = town(small_models.WORLD)
    parsed = {
        p: world.sentences(world.documents(size["parsed"], split=s, seed=10 + seed))
        for p, s in PARTS.items()
    }
    linked = {
        p: [
            d
            for d in world.documents(size["linked"], split=s, seed=20 + seed)
            if len(tokenizer.encode(d["tokens"])) <= LONGEST
        ]
        for p, s in PARTS.items()
    }
    torch.manual_seed(seed)
    fresh = transformer.Transformer(model.stack.config).eval()
    bodies: dict[str, nn.Module] = {"best head": model.stack, "random weights": fresh}
    if strength := card.get("recipe", {}).get("mimetic"):
        begun = transformer.Transformer(model.stack.config).eval()
        initialization.mimetic(begun, strength=strength)
        bodies["before step 1"] = begun
    values: dict[str, float] = {}
    for name, body in bodies.items():
        found = heads_of(body.to(lab.device), tokenizer, parsed, linked)
        values |= {f"{name}/{relation}": share for relation, share in found.items()}
    chosen, scored = (probing.distances(parsed[part]) for part in PARTS)
    for relation in ("det", "obj"):
        right = scored[relation] == probing.most_frequent(chosen[relation])
        values[f"best distance/{relation}"] = float(right.float().mean())
    silent = [torch.zeros(0, 1, len(row["tokens"]), len(row["tokens"])) for row in linked["score"]]
    nearest, same = links(silent, linked["score"]).float().mean(-1).tolist()
    return values | {"nearest mention/coreference": nearest, "same word/coreference": same}


def features(layers: Tensor) -> dict[str, Tensor]:
    """The ways to use layers [L+1 N D] as features [N D], the embeddings being layer 0."""
    single = {f"layer {number}": layer for number, layer in enumerate(layers)}
    summed = {"sum of all": layers.sum(0), "last 4, summed": layers[-4:].sum(0)}
    return single | summed | {"last 4, side by side": torch.cat(list(layers[-4:]), dim=-1)}


@experiment("layers-as-features")
def layers_as_features(lab: Lab, seed: int) -> dict[str, float]:
    """F1 of names from every layer and combination, and of the same body fine-tuned."""
    model, tokenizer, _ = zoo.load(BODY)
    n = SIZES[lab.plan.scale]["sentences"]
    what = views.view("entities")
    rows = what.rows(n, "train", seed), what.rows(n, "test", seed)
    words = ([row["tokens"] for row in part] for part in rows)
    x, x_test = (
        features(torch.cat(probing.word_layers(model, tokenizer, texts), dim=1)) for texts in words
    )
    values = {name: views.probed(what, x[name], x_test[name], *rows) for name in x}
    return values | {"fine-tuned": lab.score(Tuning(BODY, "entities", seed, labels=n, tests=n))}


@experiment("heads")
def heads(lab: Lab, seed: int) -> dict[str, float]:
    """Shares of arcs found by the best head, the best distance, the best rule of a neighbour, and
    the best head of random weights.

    A seed is a part of both splits: each is chosen on a part of one and scored on a part of the
    other.
    """
    size = TREES["sizes"][lab.plan.scale]
    model, tokenizer, _ = zoo.open_model(size["model"])
    folder = lab.public_data("ud_english_ewt")
    parts = [
        treebank.rows(folder, split, tokenizer, seed, size["parts"])
        for split in ("validation", "test")
    ]
    torch.manual_seed(seed)
    fresh = transformer.Transformer(model.stack.config).eval()
    right = {
        "best head": [_head_hits(model.stack, tokenizer, rows) for rows in parts],
        "random weights": [_head_hits(fresh, tokenizer, rows) for rows in parts],
        "best neighbour": [treebank.neighbours(rows) for rows in parts],
    }
    distances = [probing.distances(rows) for rows in parts]
    values: dict[str, float] = {}
    for relation in TREES["relations"]:
        for name, (chosen, scored) in right.items():
            best = chosen[relation].float().mean(-1).argmax()
            values[f"{name}/{relation}"] = float(scored[relation][best].float().mean())
        usual = probing.most_frequent(distances[0][relation])
        found = distances[1][relation] == usual
        values[f"best distance/{relation}"] = float(found.float().mean())
        values[f"arcs/{relation}"] = len(found)
    return values


def _head_hits(
    body: nn.Module, tokenizer: tokenizers.Tokenizer, rows: Sequence[Any]
) -> dict[str, Tensor]:
    """For each relation, whether each head finds each arc, in either direction: Bool[2LH, N]."""
    attention = probing.word_attention(body, tokenizer, [row["tokens"] for row in rows])
    return {name: found.flatten(0, 2) for name, found in probing.hits(attention, rows).items()}


def _mlp_probe(x: Tensor, y: Tensor, seed: int) -> Any:
    """A probe with one hidden layer, vectors -> labels."""
    mean, spread = x.mean(0), x.std(0) + 1e-6
    settings = TREES["hidden layer"]
    probe = MLPClassifier(random_state=seed, **settings)
    with warnings.catch_warnings():  # the number of epochs is fixed, so it may warn that it stops
        warnings.simplefilter("ignore", ConvergenceWarning)
        probe.fit(((x - mean) / spread).numpy(), y.numpy())
    return lambda new: torch.from_numpy(probe.predict(((new - mean) / spread).numpy()))


def _linear(x: Tensor, y: Tensor, classes: int) -> Any:
    """A linear probe, vectors -> labels."""
    probe = probing.linear_probe(x, y, classes)
    return lambda new: probe(new).argmax(-1)


@experiment("probes")
def probes_of_layers(lab: Lab, seed: int) -> dict[str, float]:
    """Accuracy and selectivity (Hewitt and Liang 2019) of probes by task, probe and layer.

    A seed is a part of both splits, and draws the labels of the control task.
    """
    size = TREES["sizes"][lab.plan.scale]
    model, tokenizer, _ = zoo.open_model(size["model"])
    folder = lab.public_data("ud_english_ewt")
    train, test = (
        treebank.rows(folder, split, tokenizer, seed, size["parts"])
        for split in ("validation", "test")
    )
    words, new_words = treebank.words(train), treebank.words(test)
    torch.manual_seed(seed)
    fresh = transformer.Transformer(model.stack.config).eval()
    vectors = [_layers(model.stack, tokenizer, rows) for rows in (train, test)]  # L1 N D
    untrained = [_layers(fresh, tokenizer, rows)[TREES["middle"]] for rows in (train, test)]
    values: dict[str, float] = {"words": len(words)}
    for task, column in TREES["tasks"].items():
        known, asked = treebank.labels(train, column), treebank.labels(test, column)
        names = sorted(set(known))
        drawn = treebank.control(words + new_words, known, seeded_generator(seed))
        y, y_test = treebank.numbered(names, known), treebank.numbered(names, asked)
        random_y = treebank.numbered(names, [drawn[word] for word in words])
        random_y_test = treebank.numbered(names, [drawn[word] for word in new_words])

        usual = treebank.numbered(names, treebank.most_frequent(words, known, new_words))
        values[f"accuracy, {task}/the word's usual label"] = _share(usual, y_test)
        values[f"accuracy, {task}/most frequent label"] = _share(y.mode().values, y_test)
        probe = _linear(untrained[0], y, len(names))
        values[f"accuracy, {task}, linear/random weights"] = _share(probe(untrained[1]), y_test)

        kinds = {
            "linear": partial(_linear, classes=len(names)),
            "hidden layer": partial(_mlp_probe, seed=seed),
        }
        for kind, fit_probe in kinds.items():
            for layer in TREES["layers"][kind]:
                if layer >= len(vectors[0]):
                    continue  # the small scale's model has fewer layers
                x, x_test = (part[layer] for part in vectors)
                right = _share(fit_probe(x, y)(x_test), y_test)
                by_heart = _share(fit_probe(x, random_y)(x_test), random_y_test)
                values[f"accuracy, {task}, {kind}/{layer}"] = right
                values[f"selectivity, {task}, {kind}/{layer}"] = right - by_heart
    return values


def _layers(body: nn.Module, tokenizer: tokenizers.Tokenizer, rows: Sequence[Any]) -> Tensor:
    """The vectors of all words of all sentences, by layer: [L+1 N D]."""
    texts = [row["tokens"] for row in rows]
    return torch.cat(probing.word_layers(body, tokenizer, texts), dim=1)


def _share(predictions: Tensor, truth: Tensor) -> float:
    return float((predictions == truth).float().mean())
