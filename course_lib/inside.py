"""What is inside a trained body: who attends to whom, word by word, against a known parse; what its layers know.

    attention = inside.word_attention(model, tokenizer, [row["tokens"] for row in rows])
    inside.hits(attention, rows)["det"].float().mean(-1)   # how often each head finds a determiner's noun
    layers = inside.word_layers(model, tokenizer, [row["tokens"] for row in rows])

Rows are sentences with the columns `tokens`, `heads` and `deprels`. The word that a word hangs from is its head in
grammar; here it is called its governor, because attention has heads too.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.data.batches import pad
from course_lib.errors import CourseError
from course_lib.tokenizers import Encoding, Tokenizer
from course_lib.trace import record

Row = Mapping[str, Any]
ENDS = (".", "?", "!")


def sentences(documents: Sequence[Row]) -> list[dict[str, Any]]:
    """The sentences of the world's documents, each once: tokens, tags, heads (from 0 in the sentence, -1: root),
    deprels."""
    found: dict[str, dict[str, Any]] = {}
    for document in documents:
        start = 0
        for end in [i + 1 for i, token in enumerate(document["tokens"]) if token in ENDS]:
            row = {name: list(document[name][start:end]) for name in ("tokens", "tags", "heads", "deprels")}
            row["heads"] = [head - start if head >= 0 else -1 for head in row["heads"]]
            found.setdefault(" ".join(row["tokens"]), row)
            start = end
    return list(found.values())


def by_words(weights: Float[Tensor, "... T T"], words: Sequence[int | None]) -> Float[Tensor, "... W W"]:
    """Attention between words from attention between their pieces (Clark et al. 2019, section 4.1).

    To a word goes what goes to all its pieces together; from a word comes the mean of what comes from its pieces.

    Args:
        words: of each piece the number of its word, None at special tokens, which are left out.

    Raises:
        CourseError: not one number a piece, or a word without pieces.
    """
    if len(words) != weights.shape[-1]:
        raise CourseError(
            f"by_words needs a word's number for each of {weights.shape[-1]} pieces; it got {len(words)}."
        )
    numbers = [word for word in words if word is not None]
    if sorted(set(numbers)) != list(range(len(set(numbers)))):
        raise CourseError("by_words: the words must be numbered 0, 1, 2, ..., and each needs a piece of its own.")
    belongs = weights.new_zeros(len(set(numbers)), len(words))
    for piece, word in enumerate(words):
        if word is not None:
            belongs[word, piece] = 1
    return (belongs / belongs.sum(dim=1, keepdim=True)) @ weights @ belongs.T


@torch.no_grad()
def word_attention(
    model: nn.Module, tokenizer: Tokenizer, texts: Sequence[Sequence[str]], *, batch: int = 32
) -> list[Float[Tensor, "L H W W"]]:
    """Attention between the words of each text, in every layer and head.

    Args:
        model: a body with `blocks`, or a model that holds one as its `stack`. texts: lists of words.

    Raises:
        CourseError: a word of which the tokenizer leaves nothing; a text too long for the model.
    """
    found: list[Tensor] = [torch.empty(0)] * len(texts)
    for numbers, codes, inputs in _batches(model, tokenizer, texts, batch):
        with record(model, "blocks.*.attn.probs") as seen:
            getattr(model, "stack", model)(**inputs)
        weights = torch.stack(list(seen.values()), dim=1).cpu()  # B L H T T
        for row, number, code in zip(weights, numbers, codes, strict=True):
            found[number] = by_words(row[..., : len(code), : len(code)], code.words)
    return found


@torch.no_grad()
def word_layers(
    model: nn.Module, tokenizer: Tokenizer, texts: Sequence[Sequence[str]], *, batch: int = 32
) -> list[Float[Tensor, "L1 W D"]]:
    """One vector a word from every layer: layer 0 is the embeddings, the last one the top. A word's vector is its first
    piece's, as in BERT's tagging.

    Arguments and errors as for `word_attention`.
    """
    found: list[Tensor] = [torch.empty(0)] * len(texts)
    for numbers, codes, inputs in _batches(model, tokenizer, texts, batch):
        with record(model, "embed", "blocks.*") as seen:
            getattr(model, "stack", model)(**inputs)
        layers = torch.stack([seen["embed"], *(seen[name] for name in seen if name != "embed")], dim=1).cpu()
        for row, number, code in zip(layers, numbers, codes, strict=True):
            found[number] = row[:, [code.words.index(word) for word in range(len(texts[number]))]]
    return found


def hits(attention: Sequence[Float[Tensor, "L H W W"]], rows: Sequence[Row]) -> dict[str, Bool[Tensor, "2 L H N"]]:
    """Relation -> of each of its N arcs, for every head: does the one end look most at the other?

    [0] the dependent at its governor, [1] the governor at its dependent. A word does not count as looking at itself.
    """
    found: dict[str, list[Tensor]] = {}
    for weights, row in zip(attention, rows, strict=True):
        looked = looks(weights)
        for relation, dependent, governor in arcs(row):
            both = torch.stack([looked[..., dependent] == governor, looked[..., governor] == dependent])
            found.setdefault(relation, []).append(both)
    return {relation: torch.stack(all_of, dim=-1) for relation, all_of in found.items()}


def looks(weights: Float[Tensor, "*H W W"]) -> Int[Tensor, "*H W"]:
    """The other word that each word looks at most."""
    itself = torch.eye(weights.shape[-1], dtype=torch.bool)
    return weights.masked_fill(itself, -1.0).argmax(dim=-1)


def distances(rows: Sequence[Row]) -> dict[str, Int[Tensor, " N"]]:
    """Relation -> governor's place minus dependent's of each of its arcs, in the order of `hits`."""
    found: dict[str, list[int]] = {}
    for row in rows:
        for relation, dependent, governor in arcs(row):
            found.setdefault(relation, []).append(governor - dependent)
    return {relation: torch.tensor(all_of) for relation, all_of in found.items()}


def usual(distance: Int[Tensor, " N"]) -> int:
    """The commonest distance; of several the shortest."""
    counted: Counter[int] = Counter(distance.tolist())
    return min(counted, key=lambda d: (-counted[d], abs(d), d))


def arcs(row: Row) -> Iterator[tuple[str, int, int]]:
    """(relation, dependent, governor) of a sentence's words but its root and its punctuation."""
    for dependent, (governor, relation) in enumerate(zip(row["heads"], row["deprels"], strict=True)):
        if governor >= 0 and relation != "punct":
            yield relation, dependent, governor


def arc_table(
    attention: Sequence[Float[Tensor, "L H W W"]], rows: Sequence[Row], *, reach: int = 0
) -> dict[str, Tensor]:
    """All arcs as questions with answers: which word governs this one? For a linear model over heads (Clark et al.
    2019, section 5).

    Args:
        attention: of each sentence; heads' weights in both directions are features. [0 0 W W] leaves them out.
        reach: distances from -reach to reach are features too, one each (what is further away counts as at the end).

    Returns:
        A batch for `train`: x Float[N Wmax F], the features of each candidate; ids Int[N Wmax], its place; keep
        Bool[N Wmax], the candidates: all other words of the sentence; labels Int[N], the governor.
    """
    xs, labels = [], []
    for weights, row in zip(attention, rows, strict=True):
        flat = weights.flatten(0, 1)
        both = torch.cat([flat, flat.mT]).permute(1, 2, 0)  # W W F
        if reach:
            at = torch.arange(len(row["tokens"]))
            apart: Tensor = (at - at[:, None]).clamp(-reach, reach) + reach
            both = torch.cat([both, F.one_hot(apart, 2 * reach + 1).float()], dim=-1)
        for _, dependent, governor in arcs(row):
            candidates = F.pad(both[dependent], (0, 1), value=1.0)  # the last feature: a candidate
            candidates[dependent, -1] = 0.0
            xs.append(candidates)
            labels.append(governor)
    x = nn.utils.rnn.pad_sequence(xs, batch_first=True)
    places = torch.arange(x.shape[1]).expand(x.shape[:2])
    return {"x": x[..., :-1], "ids": places, "keep": x[..., -1] > 0, "labels": torch.tensor(labels)}


def linear_probe(
    x: Float[Tensor, "N D"], y: Int[Tensor, " N"], classes: int, *, decay: float = 1e-3, steps: int = 60
) -> nn.Linear:
    """Logistic regression from vectors to labels, trained to the end (L-BFGS), for vectors as they are.

    decay: weight of the squared weights in the loss, of vectors scaled to mean 0 and variance 1.
    """
    mean, spread = x.mean(dim=0), x.std(dim=0) + 1e-6
    scaled, probe = (x - mean) / spread, nn.Linear(x.shape[1], classes)
    nn.init.zeros_(probe.weight)
    nn.init.zeros_(probe.bias)
    optimizer = torch.optim.LBFGS(probe.parameters(), max_iter=steps, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value: Tensor = F.cross_entropy(probe(scaled), y) + decay * probe.weight.square().sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    with torch.no_grad():  # W (x - m) / s + b = (W / s) x + b - (W / s) m
        probe.weight.div_(spread)
        probe.bias.sub_(probe.weight @ mean)
    return probe.requires_grad_(False)


def _batches(
    model: nn.Module, tokenizer: Tokenizer, texts: Sequence[Sequence[str]], size: int
) -> Iterator[tuple[list[int], list[Encoding], dict[str, Tensor]]]:
    """Texts of similar length together: their numbers, their encodings, the model's inputs."""
    codes = tokenizer.encode_batch([list(text) for text in texts])
    for text, code in zip(texts, codes, strict=True):
        if missing := set(range(len(text))) - set(code.words):
            raise CourseError(f"The tokenizer leaves nothing of the word {text[min(missing)]!r}; leave it out.")
    order = sorted(range(len(texts)), key=lambda number: len(codes[number]))
    device, training = next(model.parameters()).device, model.training
    model.eval()
    for start in range(0, len(order), size):
        numbers = order[start : start + size]
        rows = [codes[number].ids for number in numbers]
        batch = pad(rows, tokenizer.vocab.pad or 0, max(map(len, rows)))
        yield numbers, [codes[n] for n in numbers], {name: value.to(device) for name, value in batch.items()}
    model.train(training)
