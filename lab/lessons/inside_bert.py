"""The claims of lesson 11: what single heads find, and which layers serve as features."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from course_lib import zoo
from course_lib.analysis import probing
from course_lib.data import tokenizers
from course_lib.model import initialization, transformer
from lab.lessons import Lab, Tuning, experiment, given, small_models, town
from lab.town import views

BODY = "bert-mini"
SIZES: dict[str, dict[str, int]] = given("inside_bert")["sizes"]
# heads and distances are chosen on the one and scored on the other
PARTS = {"choose": "train", "score": "test"}
LONGEST = 160  # pieces
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
        right = scored[relation] == probing.usual(chosen[relation])
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
