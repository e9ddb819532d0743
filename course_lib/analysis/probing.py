"""What does a trained model know about grammar? Look at its attention, and train probes.

`hits` compares attention with grammar. In "Anna reads books" the word "books" depends on "reads":
it is its object. (Grammar calls "reads" the head of "books". Here it is called the governor,
because attention has heads, too.) Such a dependency is an arc (relation, dependent, governor) =
("obj", 2, 1), with words counted from 0. If an attention head looks from "books" mostly to "reads",
it hits this arc.

`linear_probe` trains a linear classifier (a probe) on the vectors of a layer. If it finds, say, the
part of speech, this information is in the vectors.

A row is a sentence with the columns `tokens`, `heads` (for each word its governor, -1 for none) and
`deprels` (for each word its relation). Shapes: L layers, H heads, T tokens, W words, D width,
N arcs or examples.
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

WEIGHT_DECAY = 1e-3  # factor on the sum of a probe's squared weights, which is added to its loss
BATCH = 32  # number of texts that the model reads at once


def by_words(
    weights: Float[Tensor, "... T T"], words: Sequence[int | None]
) -> Float[Tensor, "... W W"]:
    """Turn attention between tokens into attention between words.

    (Clark et al. 2019, section 4.1.) Attention to a word is the sum over its tokens. Attention from
    a word is the mean over its tokens.

    Args:
        weights: attention from each token to each token.
        words: for each token the number of its word, from 0; None for a special token, which is
            left out. For [CLS] un ##kind man [SEP] they are None 0 0 1 None.
    """
    numbers = torch.tensor([-1 if word is None else word for word in words])  # T
    is_in_word = torch.arange(int(numbers.max()) + 1)[:, None] == numbers  # W T
    total = is_in_word.to(weights.dtype)
    mean = total / total.sum(dim=1, keepdim=True)
    return mean @ weights @ total.T  # [W T] [T T] [T W]


def word_attention(
    model: nn.Module, tokenizer: Tokenizer, texts: Sequence[Sequence[str]]
) -> list[Float[Tensor, "L H W W"]]:
    """Attention between the words of each text, in every layer and head.

    Args:
        model: a Transformer, or a model with one inside.
        tokenizer: the model's tokenizer.
        texts: the words of each text.
    """
    attention = []
    for encoding, weights in _outputs(model, tokenizer, texts, "blocks.*.attn.probs"):  # L H T T
        without_padding = weights[..., : len(encoding), : len(encoding)]
        attention.append(by_words(without_padding, encoding.words))
    return attention


def word_layers(
    model: nn.Module, tokenizer: Tokenizer, texts: Sequence[Sequence[str]]
) -> list[Float[Tensor, "L1 W D"]]:
    """One vector for each word from every layer: layer 0 is the embeddings, 1 the first block.

    A word of several tokens has the vector of its first token, as in BERT's tagging.

    Args:
        model: a Transformer, or a model with one inside.
        tokenizer: the model's tokenizer.
        texts: the words of each text.
    """
    outputs = _outputs(model, tokenizer, texts, "embed", "blocks.*")  # L1 T D
    vectors = []
    for text, (encoding, layers) in zip(texts, outputs, strict=True):
        first_tokens = [encoding.words.index(word) for word in range(len(text))]
        vectors.append(layers[:, first_tokens])  # L1 W D
    return vectors


def hits(
    attention: Sequence[Float[Tensor, "L H W W"]], rows: Sequence[Row]
) -> dict[str, Bool[Tensor, "2 L H N"]]:
    """For each relation: which attention heads hit which of its N arcs.

    A head hits an arc if one end attends to the other end more than to any other word. Index 0 of
    the result is attention from the dependent to the governor, index 1 the other direction.

    Args:
        attention: attention between the words of each sentence, from `word_attention`.
        rows: the sentences.
    """
    by_relation: dict[str, list[Tensor]] = {}
    for weights, row in zip(attention, rows, strict=True):
        target = most_attended(weights)  # L H W
        for relation, dependent, governor in arcs(row):
            from_dependent = target[..., dependent] == governor  # L H
            from_governor = target[..., governor] == dependent
            both = torch.stack([from_dependent, from_governor])  # 2 L H
            by_relation.setdefault(relation, []).append(both)
    return {relation: torch.stack(both, dim=-1) for relation, both in by_relation.items()}


def most_attended(weights: Float[Tensor, "*H W W"]) -> Int[Tensor, "*H W"]:
    """For each word, the other word that it attends to most. Attention to itself is ignored."""
    itself = torch.eye(weights.shape[-1], dtype=torch.bool)
    return weights.masked_fill(itself, -1.0).argmax(dim=-1)


def distances(rows: Sequence[Row]) -> dict[str, Int[Tensor, " N"]]:
    """For each relation: the governor's position minus the dependent's, in the order of `hits`.

    A guess without any model is that a governor is always at the most frequent distance.
    """
    by_relation: dict[str, list[int]] = {}
    for row in rows:
        for relation, dependent, governor in arcs(row):
            by_relation.setdefault(relation, []).append(governor - dependent)
    return {relation: torch.tensor(numbers) for relation, numbers in by_relation.items()}


def most_frequent(distance: Int[Tensor, " N"]) -> int:
    """The most frequent distance. If several are equally frequent, it is the shortest of them."""
    counts: Counter[int] = Counter(distance.tolist())
    return min(counts, key=lambda d: (-counts[d], abs(d), d))


def arcs(row: Row) -> Iterator[tuple[str, int, int]]:
    """Yield (relation, dependent, governor) for each word but the root and punctuation marks."""
    governors = zip(row["heads"], row["deprels"], strict=True)
    for dependent, (governor, relation) in enumerate(governors):
        if governor >= 0 and relation != "punct":
            yield relation, dependent, governor


def linear_probe(
    x: Float[Tensor, "N D"], y: Int[Tensor, " N"], classes: int, *, steps: int = 60
) -> nn.Linear:
    """Train a linear classifier (logistic regression with weight decay) on vectors.

    It is trained by L-BFGS, which uses all examples at once and finds the minimum in a few steps.

    Args:
        x: the vectors.
        y: the class of each vector.
        classes: the number of classes.
        steps: the largest number of L-BFGS iterations.

    Returns:
        A layer: vectors [* D] -> logits [* classes].
    """
    mean = x.mean(dim=0)  # D
    spread = x.std(dim=0) + 1e-6
    scaled = (x - mean) / spread  # L-BFGS converges faster if all features have the same scale
    probe = nn.Linear(x.shape[1], classes)
    nn.init.zeros_(probe.weight)
    nn.init.zeros_(probe.bias)
    optimizer = torch.optim.LBFGS(probe.parameters(), max_iter=steps, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        decay = WEIGHT_DECAY * probe.weight.square().sum()
        value: Tensor = F.cross_entropy(probe(scaled), y) + decay
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    # The probe should take x itself, so put the scaling into its weights:
    # W (x - m) / s + b = (W / s) x + b - (W / s) m.
    with torch.no_grad():
        probe.weight.div_(spread)
        probe.bias.sub_(probe.weight @ mean)
    return probe.requires_grad_(False)


@torch.no_grad()
def _outputs(
    model: nn.Module, tokenizer: Tokenizer, texts: Sequence[Sequence[str]], *names: str
) -> list[tuple[Encoding, Float[Tensor, "L ..."]]]:
    """Run the model. For each text return its encoding and the outputs of the named submodules."""
    encodings = tokenizer.encode_batch([list(text) for text in texts])
    device = next(model.parameters()).device
    for text, encoding in zip(texts, encodings, strict=True):
        missing = set(range(len(text))) - set(encoding.words)
        if missing:
            raise CourseError(
                f"The tokenizer leaves nothing of the word {text[min(missing)]!r}; leave it out."
            )
    outputs: dict[int, Tensor] = {}  # number of the text -> its outputs
    # Put texts of similar length into a batch: this needs less padding.
    order = sorted(range(len(texts)), key=lambda number: len(encodings[number]))
    for start in range(0, len(order), BATCH):
        numbers = order[start : start + BATCH]
        inputs = pad_to_longest(
            [encodings[number].ids for number in numbers], tokenizer.vocab.padding_id
        )
        inputs = {name: value.to(device) for name, value in inputs.items()}
        body = getattr(model, "stack", model)
        with evaluating(model), capture(model, *names) as captured:
            body(**inputs)
        # `captured` has the submodules in the order in which they ran: the lowest layer first.
        by_text = torch.stack(list(captured.values()), dim=1).cpu()  # B L ...
        outputs |= zip(numbers, by_text, strict=True)
    return [(encoding, outputs[number]) for number, encoding in enumerate(encodings)]
