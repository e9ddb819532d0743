"""The claims of lesson 11: what single heads find, and which layers serve as features."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from course_lib import data, inside, metrics, zoo
from course_lib.claims.arms import town
from course_lib.claims.experiment import experiment
from course_lib.claims.lab import Lab, Tuning
from course_lib.claims.record import Figures
from course_lib.experiments import family
from course_lib.experiments.judging import above, clearly_above, gap, percent, points
from course_lib.initial import mimetic
from course_lib.stack import Stack
from course_lib.tokenizers import Tokenizer

BODY = "bert-mini"
SIZES = {"smoke": (8, 4, 24), "cpu": (120, 90, 300), "gpu": (1000, 500, 2000)}  # documents parsed; linked; sentences
PARTS = {"choose": "train", "score": "test"}  # heads and distances are chosen on the one and scored on the other
LONGEST = 160  # pieces
LEAD = 0.05
RULES = {"det": ("best distance",), "obj": ("best distance",), "coreference": ("nearest mention", "same word")}
Rows = Mapping[str, Sequence[Any]]
CONFIG = {
    "documents parsed, documents with mentions, sentences for a probe": SIZES,
    "checkpoints": family.shipped(BODY),
}


def mentions(document: Mapping[str, Any]) -> Iterator[tuple[int, list[int], list[int]]]:
    """Of each mention whose entity was named before: its word, the earlier mentions' words, the right ones of them.

    A mention's word is the one whose governor stands outside.
    """
    words = []
    for mention in document["mentions"]:
        places = range(mention["start"], mention["end"])
        words.append((next(i for i in places if document["heads"][i] not in places), mention["entity"]))
    for place, entity in sorted(words):
        before = sorted((p, e) for p, e in words if p < place)
        same = [p for p, e in before if e == entity]
        if same and len(before) > 1:
            yield place, [p for p, _ in before], same


def links(attention: Sequence[Tensor], documents: Sequence[Any]) -> Tensor:
    """Whether an antecedent is chosen: by the nearest mention, by the nearest of the same word, by each head.
    Bool[2 + L H, N]."""
    found = []
    for document, weights in zip(documents, attention, strict=True):
        words = [word.lower() for word in document["tokens"]]
        for place, before, same in mentions(document):
            alike = [p for p in before if words[p] == words[place]] or before
            heads = weights[..., place, before].flatten(0, 1).argmax(-1)
            choices = torch.tensor([before[-1], alike[-1], *(before[i] for i in heads.tolist())])
            found.append(torch.isin(choices, torch.tensor(same)))
    return torch.stack(found, dim=-1)


def best(chosen: Tensor, scored: Tensor) -> float:
    """The share [N heads] of the head that is best on the first set, on the second."""
    return float(scored.flatten()[chosen.flatten().argmax()])


def heads_of(body: nn.Module, tokenizer: Tokenizer, parsed: Rows, linked: Rows) -> dict[str, float]:
    """What the best head of a body finds: governors or dependents of two relations, and antecedents."""

    def look(rows: Sequence[Any]) -> list[Tensor]:
        return inside.word_attention(body, tokenizer, [row["tokens"] for row in rows])

    arcs = [inside.hits(look(parsed[part]), parsed[part]) for part in PARTS]
    values = {name: best(*(found[name].float().mean(-1) for found in arcs)) for name in ("det", "obj")}
    coref = [links(look(linked[part]), linked[part]).float().mean(-1)[2:] for part in PARTS]
    return values | {"coreference": best(*coref)}


def _syntax(f: Figures) -> tuple[str, str]:
    def ahead(relation: str) -> bool:
        controls = [f"{name}/{relation}" for name in (*RULES[relation], "random weights")]
        head = f"best head/{relation}"
        return all(above(f, head, each, by=LEAD) and clearly_above(f, head, each) for each in controls)

    clear = [relation for relation in RULES if ahead(relation)]
    verdict = {len(RULES): "reproduced", 0: "not at this scale"}.get(len(clear), "partly")
    said = "; ".join(
        f"{relation}: best head {percent(f[f'best head/{relation}'].mean)}, "
        + ", ".join(f"{name} {percent(f[f'{name}/{relation}'].mean)}" for name in (*rules, "random weights"))
        for relation, rules in RULES.items()
    )
    return verdict, f"{said}. Five points ahead of all: {', '.join(clear) or 'none'}."


@experiment(
    "heads-learn-syntax",
    rule="""For det, obj and coreference, the best head, chosen on other sentences, against the best simple rule (a
    fixed distance; the nearest mention or the same word) and against the best head of random weights. Reproduced if it
    is 5 points ahead of both in all three, means over seeds, with 95% intervals of the differences above zero; partly
    in one or two; else not at this scale. What such heads find before the first step of training is recorded and not
    judged.""",
    judge=_syntax,
    config=CONFIG,
)
def heads_learn_syntax(lab: Lab, seed: int) -> dict[str, float]:
    """Shares found by the best head, by the simple rules, and by the best heads of untrained bodies."""
    model, tokenizer, card = zoo.load(BODY)
    many, some, _ = SIZES[lab.plan.scale]
    world = town(family.WORLD)
    parsed = {p: inside.sentences(world.documents(many, split=s, seed=10 + seed)) for p, s in PARTS.items()}
    linked = {
        part: [
            document
            for document in world.documents(some, split=split, seed=20 + seed)
            if len(tokenizer.encode(document["tokens"])) <= LONGEST
        ]
        for part, split in PARTS.items()
    }
    torch.manual_seed(seed)
    bodies: dict[str, nn.Module] = {"best head": model.stack, "random weights": Stack(model.stack.config).eval()}
    if strength := card.get("recipe", {}).get("mimetic"):
        begun = Stack(model.stack.config).eval()
        mimetic(begun, strength=strength)
        bodies["before step 1"] = begun
    values: dict[str, float] = {}
    for name, body in bodies.items():
        found = heads_of(body.to(lab.device), tokenizer, parsed, linked)
        values |= {f"{name}/{relation}": share for relation, share in found.items()}
    apart = {part: inside.distances(rows) for part, rows in parsed.items()}
    for relation in ("det", "obj"):
        usual = inside.usual(apart["choose"][relation])
        values[f"best distance/{relation}"] = float((apart["score"][relation] == usual).float().mean())
    silent = [torch.zeros(0, 1, len(row["tokens"]), len(row["tokens"])) for row in linked["score"]]
    nearest, same = links(silent, linked["score"]).float().mean(-1).tolist()
    return values | {"nearest mention/coreference": nearest, "same word/coreference": same}


MIXED = ("sum of all", "last 4, summed", "last 4, side by side")


def features(layers: Tensor) -> dict[str, Tensor]:
    """The ways to use layers [L+1 N D] as features [N D], the embeddings being layer 0."""
    single = {f"layer {number}": layer for number, layer in enumerate(layers)}
    mixed = (layers.sum(0), layers[-4:].sum(0), torch.cat(list(layers[-4:]), dim=-1))
    return single | dict(zip(MIXED, mixed, strict=True))


def _layers(f: Figures) -> tuple[str, str]:
    blocks = [name for name in f if name.startswith("layer ") and name != "layer 0"]
    mixed = max(MIXED, key=lambda name: f[name].mean)
    every = all(above(f, block, "layer 0") for block in blocks)
    better = above(f, mixed, blocks[-1])
    least = min(blocks, key=lambda block: f[block].mean)
    said = ", ".join(f"{name} {percent(f[name].mean)}" for name in ("layer 0", *blocks, *MIXED))
    return "reproduced" if every and better else "partly" if every or better else "not at this scale", (
        f"F1 of names: {said}; fine-tuned {percent(f['fine-tuned'].mean)}. {least.capitalize()} is ahead of the "
        f"embeddings by {points(gap(f, least, 'layer 0'))}, {mixed} of the top layer by "
        f"{points(gap(f, mixed, blocks[-1]))}."
    )


@experiment(
    "layers-as-features",
    rule="""A linear probe for names, one draw of training sentences a seed, mean F1 of whole names. (a) Every block's
    output is better than the embeddings. (b) The best combination of layers (sum of all, sum or concatenation of the
    last four) is better than the top layer alone. Reproduced if both hold, partly if one does, else not at this scale.
    Fine-tuning on the same sentences is recorded and not judged.""",
    judge=_layers,
    config=CONFIG,
)
def layers_as_features(lab: Lab, seed: int) -> dict[str, float]:
    """F1 of names from every layer and combination, and of the same body fine-tuned."""
    model, tokenizer, _ = zoo.load(BODY)
    n = SIZES[lab.plan.scale][2]
    rows = {split: data.task("world/entities", split=split, n=n, seed=seed) for split in ("train", "test")}
    tags = rows["train"].features["labels"].feature.names
    made = {s: features(torch.cat(inside.word_layers(model, tokenizer, r["tokens"]), dim=1)) for s, r in rows.items()}
    truth = [[tags[label] for label in labels] for labels in rows["test"]["labels"]]
    labels = torch.tensor([label for row in rows["train"]["labels"] for label in row])
    values = {}
    for name, x in made["train"].items():
        said = inside.linear_probe(x, labels, len(tags), steps=40)(made["test"][name]).argmax(-1)
        guessed = [[tags[i] for i in part.tolist()] for part in said.split([len(row) for row in truth])]
        values[name] = metrics.entity_f1(guessed, truth)
    return values | {"fine-tuned": lab.score(Tuning(BODY, "entities", seed, labels=n, tests=n))}
