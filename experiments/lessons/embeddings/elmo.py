"""The claims of lesson 06: what each half of a biLM can see, the sense of a word in its context,
which layer a task wants, and what ELMo adds to a task's own model."""

from collections import deque
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_lib import zoo
from course_lib.analysis import capture
from course_lib.families import baselines, elmo, word_vectors
from course_lib.training.finetune import finetune
from experiments.lessons import Lab, experiment, given, small_models, town
from experiments.lessons.embeddings import senses

SIZES, KINDS = given("elmo").values()
CONFIG = elmo.ElmoConfig(
    0, width=16, hidden=40, filters=((1, 8), (2, 16), (3, 16)), length=12, dropout=0.0
)
SIDES = ("forward", "backward")
# of sentences with an ambiguous word, in either split: so many that all of the town's are among
# them
PAIRS = 1500
LAYERS = ("token layer", "layer 1", "layer 2")
COLUMNS = {"part of speech": "tags", "relation": "deprels", "name": "entities"}
_Vectors = tuple[Tensor, list[str]]  # vectors in every layer, Float[layers N F], and their labels
# sentences as words, and each word's label, None where nothing is asked
_Sentences = list[tuple[list[str], list[Any]]]


def influence(model: elmo.Elmo, sentence: list[str]) -> Tensor:
    """Norms of the derivatives of each word's vector by each word's token vector, [layers, 2
    halves, T, T].
    """
    with capture(model, "tokens", detach=False) as seen:
        layers = model(**elmo.characters([sentence], model.config.length))[1:]
    tokens = seen["tokens"]
    found = [
        torch.autograd.grad(vector.sum(), tokens, retain_graph=True)[0][0].norm(dim=-1)
        for layer in layers
        for half in layer[0].chunk(2, dim=-1)
        for vector in half
    ]
    return torch.stack(found).view(len(layers), 2, tokens.shape[1], tokens.shape[1])


@experiment("elmo-shallow-bidirectional", width=CONFIG.width, layers=CONFIG.layers)
def shallow_bidirectional(lab: Lab, seed: int) -> dict[str, float]:
    """The largest derivative by a word of the other side, the smallest by one of the own side, for
    each half.
    """
    torch.manual_seed(seed)
    found = influence(elmo.Elmo(CONFIG).double().eval(), [f"{chr(97 + i)}{i}" for i in range(16)])
    own, values = torch.ones(found.shape[-2:]).tril().bool(), {}
    for side, mine, half in zip(SIDES, (own, own.T), found.unbind(1), strict=True):
        values[f"{side}, other side"] = float(half[:, ~mine].max())
        values[f"{side}, own side"] = float(half[:, mine].min())
    return values


def nearest_use(uses: Sequence[senses.Use]) -> tuple[Tensor, Tensor, Tensor]:
    """Bool[N N]: other uses of the same word; those of them with the same sense. Float[N]: the
    share of these, which is how often a draw is right."""
    word, sense = (torch.tensor([[a[i] == b[i] for b in uses] for a in uses]) for i in (0, 1))
    other = word & ~torch.eye(len(uses)).bool()
    return other, other & sense, (other & sense).sum(1) / other.sum(1).clamp(min=1)


def hits(vectors: Tensor, other: Tensor, same: Tensor) -> Tensor:
    """Float[N]: 1 for every use whose nearest other use has its sense."""
    units = F.normalize(vectors, dim=-1)
    near = (units @ units.T).masked_fill(~other, -2).argmax(1)
    return same[torch.arange(len(near)), near].float()


@experiment("elmo-picks-sense")
def picks_sense(lab: Lab, seed: int) -> dict[str, float]:
    """How often the nearest use of a word shares its sense, by every layer; without training; by
    the company alone.
    """
    uses = senses.uses(PAIRS, seed)
    other, same, drawn = nearest_use(uses)
    choice = (drawn > 0) & (drawn < 1)  # where there is a choice to make
    values = {"static": float(drawn[choice].mean())}
    torch.manual_seed(seed)
    arm: Any = lab.model(small_models.elmo_arm(lab.plan, seed)).model
    bodies = {
        "biLM": arm.elmo,
        "elmo-mini": shipped(),
        "untrained": elmo.Elmo(shipped().config).eval(),
    }
    for name, body in bodies.items():
        layers = senses.elmo_vectors(
            body.cpu(), [use.words for use in uses], [use.place for use in uses]
        )
        found = {
            "layer 1": layers[1],
            "layer 2": layers[2],
            "mean of the other words": company(body, uses),
        }
        right = {key: hits(vectors, other, same)[choice] for key, vectors in found.items()}
        values |= {f"{name}/{key}": float(hit.mean()) for key, hit in right.items()}
        if name == "elmo-mini":
            more = right["layer 2"] - drawn[choice]
            values[f"{name}/layer 2 minus static, low end"] = float(
                more.mean() - 1.96 * more.std() / len(more) ** 0.5
            )
    return values


@torch.no_grad()
def company(body: elmo.Elmo, uses: Sequence[senses.Use]) -> Tensor:
    """The mean of the other words' token vectors, Float[N F]: the words around, in no order."""
    tokens = body(**elmo.characters([use.words for use in uses], body.config.length))[0]
    kept = [[i + 1 for i, word in enumerate(use.words) if word.lower() != use.word] for use in uses]
    return torch.stack([row[places].mean(0) for row, places in zip(tokens, kept, strict=True)])


@cache
def shipped() -> elmo.Elmo:
    """elmo-mini's body."""
    return cast(elmo.Elmo, zoo.load("elmo-mini").model.elmo)


def questions(size: Mapping[str, int], seed: int) -> dict[str, dict[str, _Sentences]]:
    """Task -> split -> sentences with a label a word. For the senses, all marked sentences of many
    documents, and for the test the uses whose sentence is none of them."""
    world = town(small_models.WORLD)
    documents = world.documents(size["documents"], seed=seed)
    parts = {
        "train": documents[: size["parsed"]],
        "test": world.documents(size["asked"], "test", seed=seed),
    }
    tasks = {
        task: {s: senses.labelled(docs, c) for s, docs in parts.items()}
        for task, c in COLUMNS.items()
    }
    marked = [
        row for d in documents for row in senses.by_sentence(d, senses.marks(d)) if any(row[1])
    ]
    learned = {senses.without_names(words) for words, _ in marked}
    uses = [
        use for use in senses.uses(PAIRS, seed) if senses.without_names(use.words) not in learned
    ]
    label = {(i, use.place): f"{use.word}/{use.sense}" for i, use in enumerate(uses)}
    unread = [
        (use.words, [label.get((i, t)) for t in range(len(use.words))])
        for i, use in enumerate(uses)
    ]
    return tasks | {"sense": {"train": marked, "test": unread}}


@lru_cache(maxsize=2)
@torch.no_grad()
def read(sentences: tuple[tuple[str, ...], ...]) -> Tensor:
    """elmo-mini's vectors of the words of some sentences, Float[layers B T F]; kept: several tasks
    ask for them.
    """
    return torch.stack(shipped()(**elmo.characters(sentences, shipped().config.length)))


def asked(rows: _Sentences) -> _Vectors:
    """elmo-mini's vectors of the labelled words, and their labels."""
    layers = read(tuple(tuple(words) for words, _ in rows))
    places = [
        (b, t + 1, x)
        for b, (_, labels) in enumerate(rows)
        for t, x in enumerate(labels)
        if x is not None
    ]
    row, column, labels = zip(*places, strict=True)
    return layers[:, row, column], list(labels)


def fit(
    train: _Vectors, test: _Vectors, layer: int | None, seed: int, steps: int
) -> tuple[float, list[float]]:
    """The smallest model of a task, a mix of layers and one matrix: its accuracy, and the layers'
    shares.

    layer: the only one that counts; None: shares are learned.
    """
    (x, y), (x_test, y_test) = train, test
    known = sorted(set(y))
    truth = torch.tensor([known.index(label) for label in y])
    torch.manual_seed(seed)
    mix, out = elmo.ScalarMix(len(x)), nn.Linear(x.shape[-1], len(known))
    if layer is not None:
        mix.scores.data[layer] = 40.0
        mix.scores.requires_grad_(False)
    optimizer = torch.optim.Adam(
        [{"params": out.parameters(), "lr": 0.02}, {"params": mix.parameters(), "lr": 0.05}]
    )
    for _ in range(steps):
        some = torch.randint(len(truth), (256,))
        optimizer.zero_grad()
        F.cross_entropy(out(mix(list(x[:, some]))), truth[some]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    with torch.no_grad():
        said = out(mix(list(x_test))).argmax(1).tolist()
    right = [known[i] == label for i, label in zip(said, y_test, strict=True)]
    return sum(right) / len(right), mix.weights.tolist()


@experiment("elmo-layer-mix")
def layer_mix(lab: Lab, seed: int) -> dict[str, float]:
    """Learned shares, and test accuracies with the mix and with each LSTM layer alone."""
    size = SIZES[lab.plan.scale]
    values: dict[str, float] = {}
    for task, rows in questions(size, seed).items():
        train, test = asked(rows["train"]), asked(rows["test"])
        for arm, layer in (("mix", None), ("layer 1", 1), ("layer 2", 2)):
            runs = [
                fit(train, test, layer, 10 * seed + i, size["steps"]) for i in range(size["fits"])
            ]
            values[f"accuracy/{task}/{arm}"] = sum(score for score, _ in runs) / len(runs)
            if layer is None:
                mean = torch.tensor([shares for _, shares in runs]).mean(0).tolist()
                values |= {
                    f"share/{task}/{name}": share for name, share in zip(LAYERS, mean, strict=True)
                }
    return values


@experiment("elmo-improves-baselines")
def improves_baselines(lab: Lab, seed: int) -> dict[str, float]:
    """Scores of every kind of task with static vectors, with ELMo's vectors of letters or all of
    ELMo beside them.
    """
    size, reader = SIZES[lab.plan.scale], baselines.ReaderConfig(cells=48, hidden=48, dropout=0.1)
    documents = town(small_models.WORLD).documents(size["read"], seed=seed)
    counted = word_vectors.count(
        word_vectors.sentences(document["text"] for document in documents), least=2
    )
    learner = word_vectors.Word2Vec(
        counted, word_vectors.Word2VecConfig("skip-gram", size=64, epochs=4, seed=seed)
    )
    deque(learner.train(), maxlen=0)
    vectors, values = learner.vectors(), {}
    for kind in KINDS:
        task, classes = task_of(kind, {"train": size["labels"], "test": size["tests"]}, seed)
        tokenizer = baselines.word_tokenizer(baselines.task_words(task))
        known = tokenizer.tokens(range(tokenizer.vocab.size))
        static = vectors.table(known)
        # no word beside it
        letters = torch.cat((static, read(tuple((word,) for word in known))[0, :, 1]), dim=-1)
        how: dict[str, Any] = {
            "epochs": size["epochs"],
            "lr": 5e-3,
            "classes": classes or None,
            "seed": seed,
        }
        for name, table, body in (
            ("static", static, None),
            ("static + letters", letters, None),
            ("static + ELMo", static, shipped()),
        ):
            words = baselines.Words(tokenizer, static=table, elmo=body, reader=reader)
            values[f"{name}/{kind}"] = finetune(
                words, task, tokenizer, frozen=True, device=lab.device, **how
            ).score
    return values


def task_of(
    kind: str, sizes: Mapping[str, int], seed: int
) -> tuple[dict[str, list[dict[str, Any]]], Sequence[str]]:
    """The rows of a kind of task, and the names of its labels. Relations are the documents' own, a
    row a sentence.
    """
    world, name = town(small_models.WORLD), KINDS[kind]
    if name:
        return {
            split: world.task(name, n, split, seed=seed) for split, n in sizes.items()
        }, world.label_names(name)
    rows = {
        s: senses.labelled(world.documents(n // 8, s, seed=seed + 7), "deprels")
        for s, n in sizes.items()
    }
    names = sorted({label for part in rows.values() for _, found in part for label in found})
    number = {
        s: [{"tokens": words, "labels": [*map(names.index, found)]} for words, found in rows[s]]
        for s in rows
    }
    return number, names
