"""Sentence-BERT (Reimers and Gurevych 2019): one vector a text, compared by cosine.

Differs from BERT by: a pooling over the tokens' vectors in place of the tanh pooler, and training
on pairs of texts that go through the same weights ("siamese").

Letters: B rows, N texts a row (2 in a pair, 3 in a triplet), T positions, E width of a sentence
vector."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.analysis.metrics import spearman
from course_lib.data.batches import Shuffled
from course_lib.data.tokenizers import Tokenizer
from course_lib.errors import CourseError
from course_lib.model.config import Learned
from course_lib.model.heads import Pool, pool
from course_lib.model.layers import evaluating
from course_lib.model.transformer import Transformer
from course_lib.objectives.collate import pad_to_longest
from course_lib.objectives.losses import Batch

WORD = re.compile(r"\w+")


class Dense(nn.Module):
    """A linear layer on the sentence vector and an activation: [B, Ein] -> [B, Eout]."""

    def __init__(
        self, inputs: int, outputs: int, *, bias: bool = True, activation: type[nn.Module] = nn.Tanh
    ) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=bias)
        self.activation = activation()

    def forward(self, x: Float[Tensor, "*B I"]) -> Float[Tensor, "*B O"]:
        return self.activation(self.linear(x))


class Normalize(nn.Module):
    """Vectors of length 1, so that their product is their cosine."""

    def forward(self, x: Float[Tensor, "*B E"]) -> Float[Tensor, "*B E"]:
        return F.normalize(x, dim=-1)


class Sentence(nn.Module):
    """A stack, a pooling and what stands on top: ids [B, T] to vectors [B, E], or [B, N, T] to [B,
    N, E]. pool: "mean" (the paper's default), "first" (the CLS token), "max", or "last" for causal
    stacks (section 3)."""

    def __init__(
        self, stack: Transformer, pool: Pool = "mean", top: Sequence[Dense | Normalize] = ()
    ) -> None:
        super().__init__()
        if pool not in get_args(Pool):
            raise CourseError(f"Unknown pooling {pool!r}; there are {', '.join(get_args(Pool))}.")
        self.stack, self.pool = stack, pool
        self.top = nn.Sequential(*top)
        self.width = [
            stack.config.width,
            *(layer.linear.out_features for layer in top if isinstance(layer, Dense)),
        ][-1]

    def forward(
        self, ids: Int[Tensor, "*B T"], *, attention_mask: Bool[Tensor, "*B T"] | None = None
    ) -> Float[Tensor, "*B E"]:
        rows, mask = (
            ids.flatten(0, -2),
            None if attention_mask is None else attention_mask.flatten(0, -2),
        )
        return self.top(pool(self.stack(rows, attention_mask=mask), mask, self.pool)).view(
            *ids.shape[:-1], -1
        )


def words(text: str) -> list[str]:
    """The words of a query or document: runs of letters and digits, in lower case."""
    return WORD.findall(text.casefold())


class Embedder(Protocol):
    """Anything that turns a few texts into vectors: `encode` and the search engine ask for no
    more.
    """

    def embed(self, texts: Sequence[str]) -> Float[Tensor, "B E"]:
        """One vector a text."""


class SentenceEncoder:
    """A `Sentence` with its tokenizer: texts to vectors. max_length: longer texts are cut; by
    default what the positions allow, else 512. prompt: put before every text."""

    def __init__(
        self, model: Sentence, tokenizer: Tokenizer, max_length: int | None = None, prompt: str = ""
    ) -> None:
        position = model.stack.config.position
        limit = position.length if isinstance(position, Learned) else max_length or 512
        self.model, self.tokenizer, self.prompt = model, tokenizer, prompt
        self.max_length = min(limit, max_length or limit)

    def embed(self, texts: Sequence[str]) -> Float[Tensor, "B E"]:
        """One vector a text, as one batch, without dropout; gradients flow if they are on."""
        batch = text_batch(
            self.tokenizer, [[self.prompt + text] for text in texts], self.max_length
        )
        device = self.model.stack.embed.tokens.weight.device
        with evaluating(self.model):
            vectors: Tensor = self.model(
                batch["ids"].to(device), attention_mask=batch["attention_mask"].to(device)
            )
        return vectors[:, 0]


class WordAverage:
    """The mean of the vectors of a text's known words, the paper's GloVe baseline (table 1).
    numbers: word -> row.
    """

    def __init__(self, numbers: Mapping[str, int], vectors: Float[Tensor, "V E"]) -> None:
        self.numbers, self.vectors = numbers, vectors

    def embed(self, texts: Sequence[str]) -> Float[Tensor, "B E"]:
        """One vector a text: zeros if no word of it is known."""
        known = [[self.numbers[w] for w in words(text) if w in self.numbers] for text in texts]
        rows = [
            self.vectors[torch.tensor(row)].mean(0) if row else torch.zeros_like(self.vectors[0])
            for row in known
        ]
        return torch.stack(rows)


def encode(
    embedder: Embedder, texts: Sequence[str], *, batch: int = 32, normalize: bool = False
) -> Float[Tensor, "n E"]:
    """Vectors of many texts, in their order, on the CPU; texts of like length are read together to
    spare padding. normalize: to length 1."""
    if isinstance(texts, str) or not texts:
        raise CourseError("encode takes a list of texts, at least one.")
    # the longest first: memory is short at once
    order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
    with torch.no_grad():
        parts = [
            embedder.embed([texts[i] for i in order[start : start + batch]]).float().cpu()
            for start in range(0, len(texts), batch)
        ]
    sorted_vectors = torch.cat(parts)
    out = torch.empty_like(sorted_vectors)
    out[torch.tensor(order)] = sorted_vectors
    return F.normalize(out, dim=-1) if normalize else out


def distil_queries(
    embedder: Embedder, queries: Sequence[str], vocabulary: Sequence[str]
) -> WordAverage:
    """The word vectors whose averages come nearest to the embedder's vectors of these queries, by
    least squares: then queries need no network. All are held near (ridge 0.1) the embedder's
    vectors of the words alone, which words of the vocabulary (as `words` cuts them) keep that no
    query holds."""
    numbers = {word: number for number, word in enumerate(vocabulary)}
    alone, wanted = (
        encode(embedder, texts, batch=256, normalize=True) for texts in (vocabulary, queries)
    )
    shares = torch.zeros(len(queries), len(vocabulary))
    for row, query in enumerate(queries):
        known = [numbers[word] for word in words(query) if word in numbers]
        for number in known:
            shares[row, number] += 1 / len(known)
    left = shares.T @ shares + 0.1 * torch.eye(len(vocabulary))
    change = torch.linalg.solve(left, shares.T @ (wanted - shares @ alone))
    return WordAverage(numbers, alone + change)


def cosines(u: Float[Tensor, "... E"], v: Float[Tensor, "... E"]) -> Float[Tensor, "..."]:
    """Cosine of each pair."""
    return F.cosine_similarity(u, v, dim=-1)


def sts(
    embedder: Embedder,
    texts: Sequence[str],
    pairs: Sequence[str],
    labels: Sequence[float],
    *,
    batch: int = 32,
) -> float:
    """Semantic textual similarity: Spearman's correlation of the cosines and the labels (section
    4.1).
    """
    u, v = encode(embedder, [*texts, *pairs], batch=batch).chunk(2)
    return spearman(cosines(u, v).tolist(), list(labels))


class PairClassifier(nn.Module):
    """softmax(W(u, v, |u - v|)): the classification objective (section 3); train it by
    `losses.classification`.
    """

    def __init__(self, sentence: Sentence, classes: int) -> None:
        super().__init__()
        self.sentence = sentence
        self.out = nn.Linear(3 * sentence.width, classes)

    def forward(
        self, ids: Int[Tensor, "B 2 T"], *, attention_mask: Bool[Tensor, "B 2 T"] | None = None
    ) -> Float[Tensor, "B C"]:
        return self.logits(*self.sentence(ids, attention_mask=attention_mask).unbind(1))

    def logits(self, u: Float[Tensor, "B E"], v: Float[Tensor, "B E"]) -> Float[Tensor, "B C"]:
        return self.out(torch.cat([u, v, (u - v).abs()], dim=-1))


def triplet_loss(
    anchor: Float[Tensor, "B E"],
    positive: Float[Tensor, "B E"],
    negative: Float[Tensor, "B E"],
    margin: float = 1.0,
) -> Tensor:
    """max(|a - p| - |a - n| + margin, 0), Euclidean (section 3): the negative lies farther by the
    margin.
    """
    near = torch.linalg.vector_norm(anchor - positive, dim=-1)
    far = torch.linalg.vector_norm(anchor - negative, dim=-1)
    return F.relu(near - far + margin).mean()


def ranking_loss(vectors: Float[Tensor, "B N E"], scale: float = 20.0) -> Tensor:
    """In-batch negatives (multiple negatives ranking; Henderson et al. 2017, section 4.4): among
    all texts of the batch, a query's own has the largest cosine (times `scale`). vectors: [query,
    its text, negatives of its own]."""
    unit = F.normalize(vectors, dim=-1)
    # B E; (N-1)*B E, the positives first
    queries, texts = unit[:, 0], unit[:, 1:].transpose(0, 1).flatten(0, 1)
    logits = scale * queries @ texts.T
    return F.cross_entropy(logits, torch.arange(len(queries), device=logits.device))


def cosine_regression(model: nn.Module, batch: Batch) -> Tensor:
    """Regression objective (section 3): mean squared error of the cosine of a pair; `labels` from
    -1 to 1.
    """
    u, v = model(batch["ids"], attention_mask=batch.get("attention_mask")).unbind(1)
    return F.mse_loss(cosines(u, v), batch["labels"])


def ranking(model: nn.Module, batch: Batch) -> Tensor:
    """`ranking_loss` of a `Sentence` on a batch of `ids`, `attention_mask` [B N T]. Cutting the
    batch in parts (`accumulate`) leaves each query fewer negatives."""
    return ranking_loss(model(batch["ids"], attention_mask=batch.get("attention_mask")))


def text_batch(
    tokenizer: Tokenizer, rows: Sequence[Sequence[str]], max_length: int
) -> dict[str, Tensor]:
    """Rows of N texts each to `ids` Int[B N T] and `attention_mask` Bool[B N T], padded to the
    longest.
    """
    encoded = tokenizer.ids([text for row in rows for text in row], max_length=max_length)
    ids, attention_mask = pad_to_longest(encoded, tokenizer.vocab.pad or 0).values()
    shape = (len(rows), len(rows[0]), -1)
    return {"ids": ids.view(shape), "attention_mask": attention_mask.view(shape)}


class TextBatches:
    """Shuffled batches of rows with text, pair, label, or query, positive, negatives (`ranking`);
    batch `step` depends on (rows, seed, step) only. best: the score that means a cosine of 1 (STS:
    5); None: labels are class numbers."""

    def __init__(
        self,
        rows: Sequence[Mapping[str, Any]],
        tokenizer: Tokenizer,
        *,
        batch: int = 16,
        seed: int = 0,
        max_length: int = 128,
        best: float | None = None,
    ) -> None:
        self.tokenizer, self.max_length = tokenizer, max_length
        self.texts = [
            [row["query"], row["positive"], *row["negatives"]]
            if "query" in row
            else [row["text"], row["pair"]]
            for row in rows
        ]
        # without labels the first candidate is the right one
        labels = [row.get("label", 0) for row in rows]
        self.labels = (
            torch.tensor(labels)
            if best is None
            else torch.tensor(labels, dtype=torch.float32) / best
        )
        self.plan = Shuffled(len(self.texts), batch, seed)
        self.per_epoch = self.plan.steps

    def __getitem__(self, step: int, /) -> Batch:
        chosen = self.plan[step]
        made = text_batch(self.tokenizer, [self.texts[i] for i in chosen], self.max_length)
        return made | {"labels": self.labels[chosen]}
