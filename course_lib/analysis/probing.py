"""Attention between words, and linear probes on the vectors of each layer.

Rows are sentences with the columns `tokens`, `heads` and `deprels`. In grammar the word that a word
depends on is its head. Here it is its governor, because attention has heads too.

Letters: L layers, H heads, T tokens, W words, D width, N arcs or examples.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.analysis.look_inside import capture
from course_lib.data.columns import Row
from course_lib.data.tokenizers import Encoding, Tokenizer
from course_lib.errors import CourseError
from course_lib.model.modes import evaluating
from course_lib.objectives.collate import pad_to_longest

BATCH = 32  # texts in a batch


def by_words(
    weights: Float[Tensor, "... T T"], words: Sequence[int | None]
) -> Float[Tensor, "... W W"]:
    """Attention between words from attention between tokens (Clark et al. 2019, section 4.1).

    Attention to a word is the sum over its tokens; attention from a word is the mean over them.

    Args:
        weights: attention between tokens.
        words: the number of the word that each token belongs to; None for a special token, which
            is left out.
    """
    numbers = torch.tensor([-1 if word is None else word for word in words])
    belongs = (torch.arange(int(numbers.max()) + 1)[:, None] == numbers).to(weights.dtype)  # W T
    return (belongs / belongs.sum(dim=1, keepdim=True)) @ weights @ belongs.T


def word_attention(
    model: nn.Module, tokenizer: Tokenizer, texts: Sequence[Sequence[str]]
) -> list[Float[Tensor, "L H W W"]]:
    """Attention between the words of each text, in every layer and head.

    Args:
        model: a body, or a model with one.
        tokenizer: the model's tokenizer.
        texts: the words of each text.
    """
    attention = []
    for code, weights in _parts(model, tokenizer, texts, "blocks.*.attn.probs"):  # L H T T
        without_padding = weights[..., : len(code), : len(code)]
        attention.append(by_words(without_padding, code.words))
    return attention


def word_layers(
    model: nn.Module, tokenizer: Tokenizer, texts: Sequence[Sequence[str]]
) -> list[Float[Tensor, "L1 W D"]]:
    """One vector for each word from every layer. Layer 0 is the embeddings.

    A word's vector is that of its first token, as in BERT's tagging.

    Args:
        model: a body, or a model with one.
        tokenizer: the model's tokenizer.
        texts: the words of each text.
    """
    parts = _parts(model, tokenizer, texts, "embed", "blocks.*")  # L1 T D
    vectors = []
    for text, (code, layers) in zip(texts, parts, strict=True):
        first_tokens = [code.words.index(word) for word in range(len(text))]
        vectors.append(layers[:, first_tokens])
    return vectors


@torch.no_grad()
def _parts(
    model: nn.Module, tokenizer: Tokenizer, texts: Sequence[Sequence[str]], *names: str
) -> list[tuple[Encoding, Float[Tensor, "L ..."]]]:
    """Each text's encoding, and the stacked outputs of the named submodules for it."""
    codes = tokenizer.encode_batch([list(text) for text in texts])
    device = next(model.parameters()).device
    for text, code in zip(texts, codes, strict=True):
        missing = set(range(len(text))) - set(code.words)
        if missing:
            raise CourseError(
                f"The tokenizer leaves nothing of the word {text[min(missing)]!r}; leave it out."
            )
    outputs: dict[int, Tensor] = {}
    # Texts of similar length are read together, which needs less padding.
    order = sorted(range(len(texts)), key=lambda number: len(codes[number]))
    for start in range(0, len(order), BATCH):
        numbers = order[start : start + BATCH]
        inputs = pad_to_longest(
            [codes[number].ids for number in numbers], tokenizer.vocab.padding_id
        )
        inputs = {name: value.to(device) for name, value in inputs.items()}
        body = getattr(model, "stack", model)
        with evaluating(model), capture(model, *names) as seen:
            body(**inputs)
        by_text = torch.stack(list(seen.values()), dim=1).cpu()  # B L ...
        outputs |= zip(numbers, by_text, strict=True)
    return [(code, outputs[number]) for number, code in enumerate(codes)]


def hits(
    attention: Sequence[Float[Tensor, "L H W W"]], rows: Sequence[Row]
) -> dict[str, Bool[Tensor, "2 L H N"]]:
    """For each relation, whether a head attends most to the other end of each of its N arcs.

    Index 0 is attention from the dependent to its governor, index 1 from the governor to its
    dependent. Attention of a word to itself is ignored.
    """
    by_relation: dict[str, list[Tensor]] = {}
    for weights, row in zip(attention, rows, strict=True):
        looked = looks(weights)
        for relation, dependent, governor in arcs(row):
            from_dependent = looked[..., dependent] == governor  # L H
            from_governor = looked[..., governor] == dependent
            both = torch.stack([from_dependent, from_governor])
            by_relation.setdefault(relation, []).append(both)
    return {relation: torch.stack(found, dim=-1) for relation, found in by_relation.items()}


def looks(weights: Float[Tensor, "*H W W"]) -> Int[Tensor, "*H W"]:
    """The other word that each word attends to most."""
    itself = torch.eye(weights.shape[-1], dtype=torch.bool)
    return weights.masked_fill(itself, -1.0).argmax(dim=-1)


def distances(rows: Sequence[Row]) -> dict[str, Int[Tensor, " N"]]:
    """For each relation, the governor's position minus the dependent's, arc by arc as in `hits`."""
    by_relation: dict[str, list[int]] = {}
    for row in rows:
        for relation, dependent, governor in arcs(row):
            by_relation.setdefault(relation, []).append(governor - dependent)
    return {relation: torch.tensor(numbers) for relation, numbers in by_relation.items()}


def usual(distance: Int[Tensor, " N"]) -> int:
    """The most frequent distance. Of equally frequent ones it is the shortest."""
    counted: Counter[int] = Counter(distance.tolist())
    return min(counted, key=lambda d: (-counted[d], abs(d), d))


def arcs(row: Row) -> Iterator[tuple[str, int, int]]:
    """The arcs of a sentence as (relation, dependent, governor), without root and punctuation."""
    governors = zip(row["heads"], row["deprels"], strict=True)
    for dependent, (governor, relation) in enumerate(governors):
        if governor >= 0 and relation != "punct":
            yield relation, dependent, governor


def linear_probe(
    x: Float[Tensor, "N D"], y: Int[Tensor, " N"], classes: int, *, steps: int = 60
) -> nn.Linear:
    """Logistic regression from vectors to labels, trained to the end (L-BFGS), with weight decay.

    Args:
        x: the vectors.
        y: the class of each vector.
        classes: the number of classes.
        steps: the largest number of L-BFGS iterations.
    """
    mean = x.mean(dim=0)  # D
    spread = x.std(dim=0) + 1e-6
    scaled = (x - mean) / spread  # L-BFGS converges faster if all features have one scale
    probe = nn.Linear(x.shape[1], classes)
    nn.init.zeros_(probe.weight)
    nn.init.zeros_(probe.bias)
    optimizer = torch.optim.LBFGS(probe.parameters(), max_iter=steps, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value: Tensor = F.cross_entropy(probe(scaled), y) + 1e-3 * probe.weight.square().sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    # Fold the scaling into the weights: W (x - m) / s + b = (W / s) x + b - (W / s) m.
    with torch.no_grad():
        probe.weight.div_(spread)
        probe.bias.sub_(probe.weight @ mean)
    return probe.requires_grad_(False)
