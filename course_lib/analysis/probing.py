"""What is inside a trained body: who attends to whom, word by word, against a known parse; what its
layers know.

Rows are sentences with the columns `tokens`, `heads` and `deprels`. The word that a word hangs from
is its head in grammar; here it is called its governor, because attention has heads too."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.analysis import capture
from course_lib.data.columns import Row
from course_lib.data.tokenizers import Encoding, Tokenizer
from course_lib.errors import CourseError
from course_lib.model.layers import evaluating
from course_lib.objectives.collate import pad_to_longest

ENDS = (".", "?", "!")
BATCH = 32  # texts read at once


def sentences(documents: Sequence[Row]) -> list[dict[str, Any]]:
    """The sentences of the world's documents, each once; heads count from 0 in the sentence, -1 is
    its root.
    """
    found: dict[str, dict[str, Any]] = {}
    for document in documents:
        start = 0
        for end in [i + 1 for i, token in enumerate(document["tokens"]) if token in ENDS]:
            row = {
                name: list(document[name][start:end])
                for name in ("tokens", "tags", "heads", "deprels")
            }
            row["heads"] = [head - start if head >= 0 else -1 for head in row["heads"]]
            found.setdefault(" ".join(row["tokens"]), row)
            start = end
    return list(found.values())


def by_words(
    weights: Float[Tensor, "... T T"], words: Sequence[int | None]
) -> Float[Tensor, "... W W"]:
    """Attention between words from that between pieces (Clark et al. 2019, section 4.1): to a word
    goes what goes to all its pieces, from it comes the mean of what comes from them. words: of each
    piece; None, special, is left out."""
    numbers = torch.tensor([-1 if word is None else word for word in words])
    belongs = (torch.arange(int(numbers.max()) + 1)[:, None] == numbers).to(weights.dtype)  # W T
    return (belongs / belongs.sum(dim=1, keepdim=True)) @ weights @ belongs.T


def word_attention(
    model: nn.Module, tokenizer: Tokenizer, texts: Sequence[Sequence[str]]
) -> list[Float[Tensor, "L H W W"]]:
    """Attention between the words of each text, in every layer and head of a body, or of a model
    with one.
    """
    found = _parts(model, tokenizer, texts, "blocks.*.attn.probs")  # L H T T
    return [by_words(weights[..., : len(code), : len(code)], code.words) for code, weights in found]


def word_layers(
    model: nn.Module, tokenizer: Tokenizer, texts: Sequence[Sequence[str]]
) -> list[Float[Tensor, "L1 W D"]]:
    """One vector a word from every layer: layer 0 is the embeddings, the last one the top. A word's
    vector is its first piece's, as in BERT's tagging."""
    found = _parts(model, tokenizer, texts, "embed", "blocks.*")  # L1 T D
    return [
        layers[:, [code.words.index(word) for word in range(len(text))]]
        for text, (code, layers) in zip(texts, found, strict=True)
    ]


@torch.no_grad()
def _parts(
    model: nn.Module, tokenizer: Tokenizer, texts: Sequence[Sequence[str]], *names: str
) -> list[tuple[Encoding, Float[Tensor, "L ..."]]]:
    """Each text's encoding and what the named parts give for it; texts of like length are read
    together.
    """
    codes, device = (
        tokenizer.encode_batch([list(text) for text in texts]),
        next(model.parameters()).device,
    )
    for text, code in zip(texts, codes, strict=True):
        if missing := set(range(len(text))) - set(code.words):
            raise CourseError(
                f"The tokenizer leaves nothing of the word {text[min(missing)]!r}; leave it out."
            )
    found: dict[int, Tensor] = {}
    order = sorted(range(len(texts)), key=lambda number: len(codes[number]))
    for start in range(0, len(order), BATCH):
        numbers = order[start : start + BATCH]
        inputs = pad_to_longest([codes[number].ids for number in numbers], tokenizer.vocab.pad or 0)
        with evaluating(model), capture(model, *names) as seen:
            getattr(model, "stack", model)(
                **{name: value.to(device) for name, value in inputs.items()}
            )
        found |= zip(numbers, torch.stack(list(seen.values()), dim=1).cpu(), strict=True)
    return [(code, found[number]) for number, code in enumerate(codes)]


def hits(
    attention: Sequence[Float[Tensor, "L H W W"]], rows: Sequence[Row]
) -> dict[str, Bool[Tensor, "2 L H N"]]:
    """Relation -> of each of its N arcs, for every head: does the one end look most at the other,
    [0] the dependent at its governor, [1] the governor at its dependent? A word does not count as
    looking at itself."""
    found: dict[str, list[Tensor]] = {}
    for weights, row in zip(attention, rows, strict=True):
        looked = looks(weights)
        for relation, dependent, governor in arcs(row):
            both = torch.stack(
                [looked[..., dependent] == governor, looked[..., governor] == dependent]
            )
            found.setdefault(relation, []).append(both)
    return {relation: torch.stack(all_of, dim=-1) for relation, all_of in found.items()}


def looks(weights: Float[Tensor, "*H W W"]) -> Int[Tensor, "*H W"]:
    """The other word that each word looks at most."""
    itself = torch.eye(weights.shape[-1], dtype=torch.bool)
    return weights.masked_fill(itself, -1.0).argmax(dim=-1)


def distances(rows: Sequence[Row]) -> dict[str, Int[Tensor, " N"]]:
    """Relation -> governor's place minus dependent's of each of its arcs, in the order of
    `hits`.
    """
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
    for dependent, (governor, relation) in enumerate(
        zip(row["heads"], row["deprels"], strict=True)
    ):
        if governor >= 0 and relation != "punct":
            yield relation, dependent, governor


def arc_table(
    attention: Sequence[Float[Tensor, "L H W W"]], rows: Sequence[Row], *, reach: int = 0
) -> dict[str, Tensor]:
    """All arcs as questions: which word governs this one? A batch for a linear model (Clark et al.
    2019, section 5). x Float[N Wmax F]: the features of each candidate, heads' weights in both
    directions and one each for the distances from -reach to reach. ids Int[N Wmax]: its place.
    attention_mask Bool[N Wmax]: all other words of the sentence. labels Int[N]: the governor."""
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
    return {
        "x": x[..., :-1],
        "ids": places,
        "attention_mask": x[..., -1] > 0,
        "labels": torch.tensor(labels),
    }


def linear_probe(
    x: Float[Tensor, "N D"], y: Int[Tensor, " N"], classes: int, *, steps: int = 60
) -> nn.Linear:
    """Logistic regression from vectors as they are to labels, trained to the end (L-BFGS), with
    weight decay.
    """
    mean, spread = x.mean(dim=0), x.std(dim=0) + 1e-6
    scaled, probe = (x - mean) / spread, nn.Linear(x.shape[1], classes)
    nn.init.zeros_(probe.weight)
    nn.init.zeros_(probe.bias)
    optimizer = torch.optim.LBFGS(probe.parameters(), max_iter=steps, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value: Tensor = F.cross_entropy(probe(scaled), y) + 1e-3 * probe.weight.square().sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    with torch.no_grad():  # W (x - m) / s + b = (W / s) x + b - (W / s) m
        probe.weight.div_(spread)
        probe.bias.sub_(probe.weight @ mean)
    return probe.requires_grad_(False)
