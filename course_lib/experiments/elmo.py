"""The claims of lesson 06: what each half of a biLM can see, the sense of a word in its context, which layer a task
wants, and what ELMo adds to a task's own model."""

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_lib import trace, zoo
from course_lib.claims.arms import town
from course_lib.claims.experiment import experiment
from course_lib.claims.lab import Lab
from course_lib.claims.record import Figures
from course_lib.experiments import elmo_arms, family, senses
from course_lib.experiments.judging import above, clearly_above, gap, names, percent, points
from course_lib.finetune import finetune
from course_lib.models import baselines, elmo, static

WORDS = 16
CONFIG = elmo.ElmoConfig(0, width=16, hidden=40, filters=((1, 8), (2, 16), (3, 16)), length=12, dropout=0.0)
SIDES = ("forward", "backward")
PAIRS = 1500  # of sentences with an ambiguous word, in either split: so many that all of the town's are among them
ARMS = {"mix": None, "token layer": 0, "layer 1": 1, "layer 2": 2}
COLUMNS = {"part of speech": "tags", "relation": "deprels", "name": "entities"}
KINDS = {
    "opinions": "sentiment", "names": "entities", "relations": "", "entailment": "nli", "pronouns": "pronouns",
    "questions": "questions",
}  # fmt: skip
SHIPPED = {"elmo-mini": "the shipped checkpoint: one pretraining; the seeds are of texts, first weights and batches"}
Words = tuple[Tensor, list[str]]  # vectors in every layer, Float[layers N F], and their labels
Rows = list[tuple[list[str], list[Any]]]  # sentences as words, and each word's label, None where nothing is asked


def influence(model: elmo.Elmo, sentence: list[str]) -> Tensor:
    """Norms of the derivatives of each word's vector by each word's token vector, [layers, 2 halves, T, T]."""
    with trace.record(model, "tokens", detach=False) as seen:
        layers = model(**elmo.characters([sentence], model.config.length))[1:]
    tokens = seen["tokens"]
    found = [
        torch.autograd.grad(vector.sum(), tokens, retain_graph=True)[0][0].norm(dim=-1)
        for layer in layers
        for half in layer[0].chunk(2, dim=-1)
        for vector in half
    ]
    steps = tokens.shape[1]
    return torch.stack(found).view(len(layers), 2, steps, steps)


def _shallow(f: Figures) -> tuple[str, str]:
    other = max(max(f[f"{side}, other side"].seeds) for side in SIDES)
    own = min(min(f[f"{side}, own side"].seeds) for side in SIDES)
    return "reproduced" if other == 0 < own else "not at this scale", (
        f"In both layers, the largest derivative by a word of the other side is {other:g}, the smallest by a word of "
        f"the own side {own:.0e}."
    )


@experiment(
    "elmo-shallow-bidirectional",
    rule="""A biLM of two layers with random weights, a sentence of 16 words, in double precision. Reproduced if in
    every LSTM layer the derivative of the forward half by every later word and of the backward half by every earlier
    word is exactly 0, and by every word of its own side is not. Anything else contradicts it.""",
    judge=_shallow,
    config={"words": WORDS, "width": CONFIG.width, "layers": CONFIG.layers},
)
def shallow_bidirectional(lab: Lab, seed: int) -> dict[str, float]:
    """The largest derivative by a word of the other side, the smallest by one of the own side, for each half."""
    torch.manual_seed(seed)
    model = elmo.Elmo(CONFIG).double().eval()
    found = influence(model, [f"{chr(97 + i)}{i}" for i in range(WORDS)])
    own = torch.ones(found.shape[-2:]).tril().bool()
    values = {}
    for half, mine in enumerate((own, own.T)):
        values[f"{SIDES[half]}, other side"] = float(found[:, half][:, ~mine].max())
        values[f"{SIDES[half]}, own side"] = float(found[:, half][:, mine].min())
    return values


def nearest_use(uses: Sequence[senses.Use]) -> tuple[Tensor, Tensor, Tensor]:
    """Bool[N N]: other uses of the same word; those of them with the same sense. Float[N]: the share of these, which
    is how often a draw is right."""
    word, sense = (torch.tensor([[a[i] == b[i] for b in uses] for a in uses]) for i in (0, 1))
    other = word & ~torch.eye(len(uses)).bool()
    return other, other & sense, (other & sense).sum(1) / other.sum(1).clamp(min=1)


def hits(vectors: Tensor, other: Tensor, same: Tensor) -> Tensor:
    """Float[N]: 1 for every use whose nearest other use has its sense."""
    units = F.normalize(vectors, dim=-1)
    near = (units @ units.T).masked_fill(~other, -2).argmax(1)
    return same[torch.arange(len(near)), near].float()


def _sense(f: Figures) -> tuple[str, str]:
    arms = clearly_above(f, "biLM/layer 2", "static")
    low = min(f["elmo-mini/layer 2 minus static, low end"].seeds)
    held = arms + (low > 0)
    said = ", ".join(f"{name}'s top layer {percent(f[f'{name}/layer 2'].mean)}" for name in ("biLM", "elmo-mini"))
    return ("not at this scale", "partly", "reproduced")[held], (
        f"The nearest use has the same sense: a draw {percent(f['static'].mean)}, {said}. Above the draw: the small "
        f"biLMs by {points(gap(f, 'biLM/layer 2', 'static'))}, elmo-mini by "
        f"{points(gap(f, 'elmo-mini/layer 2', 'static'))}, use by use by at least {percent(low)}."
    )


@experiment(
    "elmo-picks-sense",
    rule="""A static vector is the same in every sentence, so all other uses of a word are equally near and one of them
    is drawn: its accuracy is the share of the other uses that have the same sense. The biLM's top layer must be more
    accurate than that: (1) three small biLMs, each pretrained from its own seed, by a difference whose 95% interval
    lies above 0; (2) elmo-mini, by a difference whose 95% interval, use by use, does. reproduced if both hold, partly
    if one does, not at this scale otherwise.""",
    judge=_sense,
    needs=lambda plan, seed: [elmo_arms.elmo_arm(plan, seed)],
    config={"uses": "all sentences of the town's task word in context", "elmo-mini": "one pretraining, the same uses"},
)
def picks_sense(lab: Lab, seed: int) -> dict[str, float]:
    """How often the nearest use of a word shares its sense, by every layer; without training; by the company alone."""
    uses = senses.uses(PAIRS, seed)
    other, same, drawn = nearest_use(uses)
    choice = (drawn > 0) & (drawn < 1)  # where there is a choice to make
    values = {"static": float(drawn[choice].mean())}
    torch.manual_seed(seed)
    arm: Any = lab.model(elmo_arms.elmo_arm(lab.plan, seed)).model
    bodies = {"biLM": arm.elmo, "elmo-mini": shipped(), "untrained": elmo.Elmo(shipped().config).eval()}
    for name, body in bodies.items():
        layers = senses.elmo_vectors(body.cpu(), [use.words for use in uses], [use.at for use in uses])
        found = {f"layer {k}": hits(layers[k], other, same)[choice] for k in (1, 2)}
        found["mean of the other words"] = hits(company(body, uses), other, same)[choice]
        values |= {f"{name}/{key}": float(right.mean()) for key, right in found.items()}
        if name == "elmo-mini":
            more = found["layer 2"] - drawn[choice]
            values[f"{name}/layer 2 minus static, low end"] = float(more.mean() - 1.96 * more.std() / len(more) ** 0.5)
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
    model: Any = zoo.load("elmo-mini")[0]
    body: elmo.Elmo = model.elmo
    return body


def questions(smoke: bool, seed: int) -> dict[str, dict[str, Rows]]:
    """Task -> split -> sentences with a label a word. For the senses, all marked sentences of many documents, and for
    the test the uses whose sentence is none of them."""
    world = town(family.WORLD)
    documents = world.documents(150 if smoke else 2000, seed=seed)
    parts = {"train": documents[: 12 if smoke else 150], "test": world.documents(8 if smoke else 80, "test", seed=seed)}
    tasks = {
        task: {s: [row for d in docs for row in senses.by_sentence(d, d[column])] for s, docs in parts.items()}
        for task, column in COLUMNS.items()
    }
    marked = [row for d in documents for row in senses.by_sentence(d, senses.marks(d)) if any(row[1])]
    learned = {senses.without_names(words) for words, _ in marked}
    uses = [use for use in senses.uses(PAIRS, seed) if senses.without_names(use.words) not in learned]
    label = {(i, use.at): f"{use.word}/{use.sense}" for i, use in enumerate(uses)}
    unread = [(use.words, [label.get((i, t)) for t in range(len(use.words))]) for i, use in enumerate(uses)]
    return tasks | {"sense": {"train": marked, "test": unread}}


@lru_cache(maxsize=2)
@torch.no_grad()
def read(sentences: tuple[tuple[str, ...], ...]) -> Tensor:
    """elmo-mini's vectors of the words of some sentences, Float[layers B T F]; kept: several tasks ask for them."""
    return torch.stack(shipped()(**elmo.characters(sentences, shipped().config.length)))


def asked(rows: Rows) -> Words:
    """elmo-mini's vectors of the labelled words, and their labels."""
    layers = read(tuple(tuple(words) for words, _ in rows))
    places = [(b, t + 1, x) for b, (_, labels) in enumerate(rows) for t, x in enumerate(labels) if x is not None]
    return layers[:, [b for b, _, _ in places], [t for _, t, _ in places]], [x for *_, x in places]


def fit(train: Words, test: Words, layer: int | None, seed: int, steps: int) -> tuple[float, list[float]]:
    """The smallest model of a task, a mix of layers and one matrix: its accuracy, and the layers' shares.

    layer: the only one that counts; None: shares are learned.
    """
    (x, y), (x_test, y_test) = train, test
    number = {label: i for i, label in enumerate(sorted(set(y)))}
    truth = torch.tensor([number[label] for label in y])
    torch.manual_seed(seed)
    mix, out = elmo.ScalarMix(len(x)), nn.Linear(x.shape[-1], len(number))
    if layer is not None:
        mix.scores.data[layer] = 40.0
        mix.scores.requires_grad_(False)
    optimizer = torch.optim.Adam([{"params": out.parameters(), "lr": 0.02}, {"params": mix.parameters(), "lr": 0.05}])
    for _ in range(steps):
        some = torch.randint(len(truth), (256,))
        optimizer.zero_grad()
        F.cross_entropy(out(mix(list(x[:, some]))), truth[some]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    with torch.no_grad():
        said = out(mix(list(x_test))).argmax(1).tolist()
        right = [number.get(label) == i for label, i in zip(y_test, said, strict=True)]
        return sum(right) / len(right), mix.weights.tolist()


def _mix(f: Figures) -> tuple[str, str]:
    tasks = [*COLUMNS, "sense"]
    layers = [arm for arm in ARMS if arm != "mix"]
    first = {task: max(layers, key=lambda layer: f[f"share/{task}/{layer}"].mean) for task in tasks}
    gains = {task: gap(f, f"accuracy/{task}/mix", f"accuracy/{task}/layer 2") for task in tasks}
    differ = len(set(first.values())) > 1
    means = [gain.mean for gain in gains.values()]
    helps = min(means) >= -0.005 and max(means) > 0.01
    verdict = ("not at this scale", "partly", "reproduced")[differ + helps]
    shares = ", ".join(f"{t} {layer} ({f[f'share/{t}/{layer}'].mean:.2f})" for t, layer in first.items())
    return verdict, (
        f"Largest learned share: {shares}. The mix minus the top layer: "
        f"{', '.join(f'{task} {points(gain)}' for task, gain in gains.items())}."
    )


@experiment(
    "elmo-layer-mix",
    rule="""Four questions about each word; for each the smallest model there is: the mix of the biLM's layers, then one
    matrix; means of three seeds with three fits each. reproduced if both hold, partly if one does: (1) the layer with
    the largest learned share is not the same for all tasks; (2) on no task is the mix worse than the top layer alone
    by more than half a point, and on one it is better by more than a point. Otherwise not at this scale.""",
    judge=_mix,
    config=SHIPPED | {"documents": 2000, "of them for all but the senses": 150, "fits": 3, "steps": 150},
)
def layer_mix(lab: Lab, seed: int) -> dict[str, float]:
    """Learned shares, and test accuracies with the mix and with each layer alone."""
    smoke = lab.plan.scale == "smoke"
    fits, steps = (1, 5) if smoke else (3, 150)
    values: dict[str, float] = {}
    for task, rows in questions(smoke, seed).items():
        parts = [asked(rows[split]) for split in ("train", "test")]
        for arm, layer in ARMS.items():
            runs = [fit(parts[0], parts[1], layer, 10 * seed + i, steps) for i in range(fits)]
            values[f"accuracy/{task}/{arm}"] = sum(score for score, _ in runs) / fits
            if layer is None:
                mean = torch.tensor([shares for _, shares in runs]).mean(0).tolist()
                values |= {f"share/{task}/{name}": mean[i] for name, i in ARMS.items() if i is not None}
    return values


def _improves(f: Figures) -> tuple[str, str]:
    tasks = names(f, "static")
    higher = [task for task in tasks if above(f, f"static + ELMo/{task}", f"static/{task}")]
    all_of, most = len(higher) == len(tasks), 2 * len(higher) > len(tasks)
    verdict = "reproduced" if all_of else "partly" if most else "not at this scale"
    clear = [task for task in tasks if clearly_above(f, f"static + ELMo/{task}", f"static/{task}")]
    gains = ", ".join(f"{task} {points(gap(f, f'static + ELMo/{task}', f'static/{task}'))}" for task in tasks)
    return verdict, (
        f"With ELMo minus without: {gains}. Higher on {len(higher)} of {len(tasks)} tasks; the interval lies above "
        f"zero on {', '.join(clear) or 'none'}."
    )


@experiment(
    "elmo-improves-baselines",
    rule="""Six kinds of task, each with the same task model on frozen static vectors, with and without ELMo's beside
    them; means of three seeds. reproduced if the score with ELMo is higher on every task, partly if on more than half
    of them, not at this scale otherwise.""",
    judge=_improves,
    config=SHIPPED
    | {"kinds": KINDS, "labels": 400, "tests": 300, "epochs": 6, "lr": 5e-3, "static": "skip-gram, 2,000 documents"},
)
def improves_baselines(lab: Lab, seed: int) -> dict[str, float]:
    """Scores of every kind of task with both inputs."""
    smoke = lab.plan.scale == "smoke"
    sizes = {"train": 16, "test": 16} if smoke else {"train": 400, "test": 300}
    vectors = skip_gram(100 if smoke else 2000, seed)
    values: dict[str, float] = {}
    for kind in KINDS:
        task, classes = task_of(kind, sizes, seed)
        tokenizer = baselines.word_tokenizer(baselines.task_words(task))
        inputs = {"static": vectors.table(tokenizer.tokens(range(tokenizer.vocab.size)))}
        for name, more in (("static", {}), ("static + ELMo", {"elmo": shipped()})):
            reader = baselines.ReaderConfig(cells=48, hidden=48, dropout=0.1)
            body = baselines.Words(tokenizer, **inputs, **more, reader=reader)  # type: ignore[arg-type]
            how: dict[str, Any] = {"epochs": 1 if smoke else 6, "lr": 5e-3, "classes": classes or None, "seed": seed}
            values[f"{name}/{kind}"] = finetune(body, task, tokenizer, frozen=True, device=lab.device, **how).score
    return values


def skip_gram(documents: int, seed: int) -> static.WordVectors:
    """Static vectors of the town's words."""
    texts = (document["text"] for document in town(family.WORLD).documents(documents, seed=seed))
    counted = static.count(static.sentences(texts), least=2)
    learner = static.Word2Vec(counted, static.Word2VecConfig("skip-gram", size=64, epochs=4, seed=seed))
    for _ in learner.train():
        pass
    return learner.vectors()


def task_of(kind: str, sizes: Mapping[str, int], seed: int) -> tuple[dict[str, list[dict[str, Any]]], Sequence[str]]:
    """The rows of a kind of task, and the names of its labels. Relations are the documents' own, a row a sentence."""
    world, name = town(family.WORLD), KINDS[kind]
    if name:
        return {split: world.task(name, n, split, seed=seed) for split, n in sizes.items()}, world.label_names(name)
    documents = {split: world.documents(n // 8, split, seed=seed + 7) for split, n in sizes.items()}
    rows = {s: [row for d in docs for row in senses.by_sentence(d, d["deprels"])] for s, docs in documents.items()}
    labels = sorted({label for part in rows.values() for _, found in part for label in found})
    numbered = {
        split: [{"tokens": words, "labels": [labels.index(x) for x in found]} for words, found in part]
        for split, part in rows.items()
    }
    return numbered, labels
