"""Sentence-BERT (Reimers and Gurevych 2019): one vector a text, compared by cosine.

Differs from BERT by: a pooling over the tokens' vectors in place of the tanh pooler, and training on pairs of texts
that go through the same weights ("siamese"), so that a million texts are encoded once and compared by products.
`cross_scores` is the contrast: BERT reads both texts together, better and once for every pair.

Letters: B rows, N texts a row (2 in a pair, 3 in a triplet), T positions, E width of a sentence vector.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.config import Learned, to_dict
from course_lib.corrupt import generator
from course_lib.errors import CourseError
from course_lib.heads import Pool, pool
from course_lib.losses import Batch
from course_lib.stack import Stack
from course_lib.tokenizers import Tokenizer

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "identity": nn.Identity, "tanh": nn.Tanh, "relu": nn.ReLU, "gelu": nn.GELU, "silu": nn.SiLU,
}  # fmt: skip
Part = Literal["u", "v", "|u-v|", "u*v"]
PARTS: tuple[Part, ...] = get_args(Part)


class Dense(nn.Module):
    """A linear layer on the sentence vector and an activation: [B, Ein] -> [B, Eout]."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool = True, activation: str = "tanh") -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise CourseError(f"Activation {activation!r} is not one of {', '.join(ACTIVATIONS)}.")
        self.name = activation
        self.linear = nn.Linear(inputs, outputs, bias=bias)
        self.activation = ACTIVATIONS[activation]()

    def forward(self, x: Float[Tensor, "*B I"]) -> Float[Tensor, "*B O"]:
        out: Tensor = self.activation(self.linear(x))
        return out


class Normalize(nn.Module):
    """Vectors of length 1, so that their product is their cosine."""

    def forward(self, x: Float[Tensor, "*B E"]) -> Float[Tensor, "*B E"]:
        return F.normalize(x, dim=-1)


class Sentence(nn.Module):
    """A stack, a pooling and what stands on top: ids [B, T] to vectors [B, E], or [B, N, T] to [B, N, E].

    Args:
        stack: any; a BERT without further training is the paper's baseline "Avg. BERT embeddings".
        pool: "mean" (the paper's default), "first" (the CLS token), "max", or "last" for causal stacks (section 3).
        top: `Dense` and `Normalize` layers, in order.
    """

    def __init__(self, stack: Stack, pool: Pool = "mean", top: Sequence[Dense | Normalize] = ()) -> None:
        super().__init__()
        if pool not in get_args(Pool):
            raise CourseError(f"Unknown pooling {pool!r}; there are {', '.join(get_args(Pool))}.")
        self.stack, self.pool = stack, pool
        self.top = nn.Sequential(*top)
        self.width = stack.config.width
        for layer in top:
            if isinstance(layer, Dense):
                if layer.linear.in_features != self.width:
                    raise CourseError(f"A Dense layer takes {layer.linear.in_features} values, but gets {self.width}.")
                self.width = layer.linear.out_features

    def forward(self, ids: Int[Tensor, "*B T"], *, keep: Bool[Tensor, "*B T"] | None = None) -> Float[Tensor, "*B E"]:
        rows, t = ids.shape[:-1], ids.shape[-1]
        keep = None if keep is None else keep.reshape(-1, t)
        vectors: Tensor = self.top(pool(self.stack(ids.reshape(-1, t), keep=keep), keep, self.pool))
        return vectors.view(*rows, -1)


class Embedder(Protocol):
    """Anything that turns a few texts into vectors: `encode` and the search engine ask for no more."""

    def embed(self, texts: Sequence[str]) -> Float[Tensor, "B E"]:
        """One vector a text."""
        ...


class SentenceEncoder:
    """A `Sentence` with its tokenizer: texts to vectors.

    Args:
        model, tokenizer: of one vocabulary.
        max_length: longest text in tokens; longer ones are cut. By default what the positions allow, else 512.
        prompt: put before every text, for models trained with one.
    """

    def __init__(self, model: Sentence, tokenizer: Tokenizer, max_length: int | None = None, prompt: str = "") -> None:
        position = model.stack.config.position
        limit = position.length if isinstance(position, Learned) else max_length or 512
        self.model, self.tokenizer, self.prompt = model, tokenizer, prompt
        self.max_length = min(limit, max_length or limit)

    def embed(self, texts: Sequence[str]) -> Float[Tensor, "B E"]:
        """One vector a text, as one batch, without dropout; gradients flow if they are on."""
        batch = text_batch(self.tokenizer, [[self.prompt + text] for text in texts], self.max_length)
        device = self.model.stack.embed.tokens.weight.device
        training = self.model.training
        try:
            vectors: Tensor = self.model.eval()(batch["ids"].to(device), keep=batch["keep"].to(device))
        finally:
            self.model.train(training)
        return vectors[:, 0]

    def fingerprint(self) -> str:
        """SHA-256 of all that decides a vector: configuration, weights, tokenizer, length, prompt."""
        model = self.model
        layers = [getattr(layer, "name", "normalize") for layer in model.top]
        settings = [to_dict(model.stack.config), model.pool, layers, self.max_length, self.prompt]
        return digest([json.dumps(settings, sort_keys=True), self.tokenizer.backend.to_str()], model.state_dict())


class WordAverage:
    """The mean of a text's word vectors, the paper's GloVe baseline (table 1); unknown words do not count.

    Args:
        numbers: word (lower case) -> row. vectors: [V, E].
    """

    def __init__(self, numbers: Mapping[str, int], vectors: Float[Tensor, "V E"]) -> None:
        self.numbers, self.vectors = numbers, vectors

    def embed(self, texts: Sequence[str]) -> Float[Tensor, "B E"]:
        """One vector a text: zeros if no word of it is known."""
        from course_lib.search import words

        known = [[self.numbers[w] for w in words(text) if w in self.numbers] for text in texts]
        rows = [self.vectors[torch.tensor(row)].mean(0) if row else torch.zeros_like(self.vectors[0]) for row in known]
        return torch.stack(rows)

    def fingerprint(self) -> str:
        """SHA-256 of the words and their vectors."""
        return digest([json.dumps(sorted(self.numbers.items()))], {"vectors": self.vectors})


def encode(
    embedder: Embedder, texts: Sequence[str], *, batch: int = 32, normalize: bool = False, progress: bool = False
) -> Float[Tensor, "n E"]:
    """Vectors of many texts, in their order, on the CPU; texts of like length are read together to spare padding.

    Args:
        embedder: a `SentenceEncoder`, a `WordAverage`, or anything else with `embed(texts)`.
        normalize: to length 1. progress: show a bar.

    Raises:
        CourseError: no texts, one string instead of a list, a batch below 1, or vectors that do not fit the texts.
    """
    if isinstance(texts, str) or not texts:
        raise CourseError("encode takes a list of texts, at least one.")
    if batch < 1:
        raise CourseError(f"batch is {batch}; at least one text must be read at a time.")
    order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))  # the longest first: memory is short at once
    starts: Any = range(0, len(texts), batch)
    if progress:
        from tqdm import tqdm

        starts = tqdm(starts, unit="batch", dynamic_ncols=True)
    parts = []
    with torch.no_grad():
        for start in starts:
            chosen = [texts[i] for i in order[start : start + batch]]
            vectors = embedder.embed(chosen)
            if vectors.ndim != 2 or len(vectors) != len(chosen):
                raise CourseError(f"embed gave a {list(vectors.shape)} tensor for {len(chosen)} texts.")
            parts.append(vectors.float().cpu())
    sorted_vectors = torch.cat(parts)
    out = torch.empty_like(sorted_vectors)
    out[torch.tensor(order)] = sorted_vectors
    return F.normalize(out, dim=-1) if normalize else out


def cosines(u: Float[Tensor, "... E"], v: Float[Tensor, "... E"]) -> Float[Tensor, "..."]:
    """Cosine of each pair."""
    return F.cosine_similarity(u, v, dim=-1)


def sts(
    embedder: Embedder, texts: Sequence[str], pairs: Sequence[str], labels: Sequence[float], *, batch: int = 32
) -> float:
    """Semantic textual similarity: Spearman's correlation of the cosines and the labels (section 4.1)."""
    from course_lib.metrics import spearman

    if len(texts) != len(pairs):
        raise CourseError(f"{len(texts)} texts came with {len(pairs)} second texts; give one for each.")
    u, v = encode(embedder, [*texts, *pairs], batch=batch).chunk(2)
    return spearman(cosines(u, v).tolist(), list(labels))


def cross_scores(
    model: nn.Module, tokenizer: Tokenizer, texts: Sequence[str], pairs: Sequence[str], *, batch: int = 32,
    max_length: int = 512,
) -> Float[Tensor, "n C"]:  # fmt: skip
    """Cross-encoder: a `heads.Classifier` reads both texts of a pair together; its logits, in the pairs' order.

    n texts against m others cost n times m readings, where a `Sentence` needs n + m.
    """
    if not texts:
        raise CourseError("cross_scores takes at least one pair of texts.")
    stack: Any = model.stack
    if isinstance(position := stack.config.position, Learned):
        max_length = min(max_length, position.length)
    rows = tokenizer.encode_batch(texts, pairs, max_length=max_length)
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    device = stack.embed.tokens.weight.device
    scores: list[Tensor] = [torch.empty(0)] * len(rows)
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            for start in range(0, len(rows), batch):
                chosen = order[start : start + batch]
                ids, keep = _padded([rows[i].ids for i in chosen], tokenizer.vocab.pad or 0)
                options = {"keep": keep.to(device)}
                if stack.config.embed.segments > 1:
                    options["segments"] = _padded([rows[i].segments for i in chosen], 0)[0].to(device)
                for i, row in zip(chosen, model(ids.to(device), **options).cpu(), strict=True):
                    scores[i] = row
    finally:
        model.train(training)
    return torch.stack(scores)


class PairClassifier(nn.Module):
    """softmax(W(u, v, |u - v|)): the classification objective (section 3); train it by `losses.classification`.

    ids [B, 2, T] to logits [B, C]. parts: which of "u", "v", "|u-v|", "u*v" are concatenated (table 6).
    """

    def __init__(self, sentence: Sentence, classes: int, parts: Sequence[Part] = ("u", "v", "|u-v|")) -> None:
        super().__init__()
        if not parts or len(set(parts)) != len(parts) or set(parts) - set(PARTS):
            raise CourseError(f"The parts {list(parts)} must be some of {', '.join(PARTS)}, each once.")
        self.sentence, self.parts = sentence, tuple(parts)
        self.out = nn.Linear(len(parts) * sentence.width, classes)

    def forward(self, ids: Int[Tensor, "B 2 T"], *, keep: Bool[Tensor, "B 2 T"] | None = None) -> Float[Tensor, "B C"]:
        u, v = self.sentence(ids, keep=keep).unbind(1)
        return self.logits(u, v)

    def logits(self, u: Float[Tensor, "B E"], v: Float[Tensor, "B E"]) -> Float[Tensor, "B C"]:
        """The classes from the two vectors."""
        made = {"u": u, "v": v, "|u-v|": (u - v).abs(), "u*v": u * v}
        out: Tensor = self.out(torch.cat([made[part] for part in self.parts], dim=-1))
        return out


def cosine_loss(u: Float[Tensor, "B E"], v: Float[Tensor, "B E"], scores: Float[Tensor, "B"]) -> Tensor:
    """Regression objective (section 3): mean squared error of the cosine; scores from -1 to 1."""
    return F.mse_loss(cosines(u, v), scores)


def triplet_loss(
    anchor: Float[Tensor, "B E"], positive: Float[Tensor, "B E"], negative: Float[Tensor, "B E"], margin: float = 1.0
) -> Tensor:
    """max(|a - p| - |a - n| + margin, 0), Euclidean (section 3): the negative lies farther by the margin."""
    near = torch.linalg.vector_norm(anchor - positive, dim=-1)
    far = torch.linalg.vector_norm(anchor - negative, dim=-1)
    return F.relu(near - far + margin).mean()


def ranking_loss(vectors: Float[Tensor, "B N E"], scale: float = 20.0, symmetric: bool = False) -> Tensor:
    """In-batch negatives (multiple negatives ranking; Henderson et al. 2017, section 4.4): among all texts of the
    batch, a query's own is the right one.

    Args:
        vectors: [query, its text, perhaps negatives of its own]. scale: on the cosines. symmetric: also rank the
            queries for each text, and take the mean of both.
    """
    unit = F.normalize(vectors, dim=-1)
    queries, texts = unit[:, 0], unit[:, 1:].transpose(0, 1).flatten(0, 1)  # B E; (N-1)*B E, the positives first
    logits = scale * queries @ texts.T
    right = torch.arange(len(queries), device=logits.device)
    loss = F.cross_entropy(logits, right)
    return (loss + F.cross_entropy(logits[:, : len(queries)].T, right)) / 2 if symmetric else loss


def cosine_regression(model: nn.Module, batch: Batch) -> Tensor:
    """`cosine_loss` of a `Sentence` on a batch of pairs: `ids`, `keep` [B 2 T], `labels` Float[B]."""
    u, v = model(batch["ids"], keep=batch.get("keep")).unbind(1)
    return cosine_loss(u, v, batch["labels"])


def triplets(model: nn.Module, batch: Batch, *, margin: float = 1.0) -> Tensor:
    """`triplet_loss` of a `Sentence` on a batch of triplets: `ids`, `keep` [B 3 T]."""
    anchor, positive, negative = model(batch["ids"], keep=batch.get("keep")).unbind(1)
    return triplet_loss(anchor, positive, negative, margin)


def ranking(model: nn.Module, batch: Batch, *, scale: float = 20.0, symmetric: bool = False) -> Tensor:
    """`ranking_loss` of a `Sentence` on a batch of `ids`, `keep` [B N T]. Cutting the batch in parts (`accumulate`)
    leaves each query fewer negatives."""
    return ranking_loss(model(batch["ids"], keep=batch.get("keep")), scale, symmetric)


def text_batch(tokenizer: Tokenizer, rows: Sequence[Sequence[str]], max_length: int) -> dict[str, Tensor]:
    """Rows of N texts each to `ids` Int[B N T] and `keep` Bool[B N T], padded to the longest."""
    counts = {len(row) for row in rows}
    if len(counts) != 1:
        raise CourseError(f"The rows of a batch must hold equally many texts; these hold {sorted(counts)}.")
    encoded = tokenizer.ids([text for row in rows for text in row], max_length=max_length)
    if not all(encoded):
        raise CourseError("A text has no tokens; leave empty texts out.")
    ids, keep = _padded(encoded, tokenizer.vocab.pad or 0)
    shape = (len(rows), counts.pop(), -1)
    return {"ids": ids.view(shape), "keep": keep.view(shape)}


class TextBatches:
    """Shuffled batches of pairs or triplets for `train`; batch `step` depends on (rows, seed, step) only.

    Args:
        rows: of a task with the columns text, pair, label, or query, positive, negatives (`ranking`; with one
            negative also `triplets`). tokenizer, max_length: as for `SentenceEncoder`.
        best: the label that means a cosine of 1, for scores (STS: 5); None leaves class numbers as they are.
    """

    def __init__(
        self, rows: Sequence[Mapping[str, Any]], tokenizer: Tokenizer, *, batch: int = 16, seed: int = 0,
        max_length: int = 128, best: float | None = None,
    ) -> None:  # fmt: skip
        self.tokenizer, self.batch, self.seed, self.max_length = tokenizer, batch, seed, max_length
        try:
            self.texts = [
                [row["query"], row["positive"], *row["negatives"]] if "query" in row else [row["text"], row["pair"]]
                for row in rows
            ]
        except KeyError as error:
            raise CourseError(f"A row has no column {error}; pairs have text and pair, searches query.") from None
        if not self.texts:
            raise CourseError("There are no rows to train on.")
        labels = [row.get("label", 0) for row in rows]  # without labels the first candidate is the right one
        self.labels = torch.tensor(labels) if best is None else torch.tensor(labels, dtype=torch.float32) / best
        self.per_epoch = math.ceil(len(self.texts) / batch)

    def __getitem__(self, step: int, /) -> Batch:
        """The batch of this step."""
        epoch, index = divmod(step, self.per_epoch)
        order = torch.randperm(len(self.texts), generator=generator(self.seed, epoch))
        chosen = order[index * self.batch : (index + 1) * self.batch]
        made = text_batch(self.tokenizer, [self.texts[i] for i in chosen.tolist()], self.max_length)
        return made | {"labels": self.labels[chosen]}


def digest(texts: Sequence[str], tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of texts and named tensors, shapes and types included."""
    found = hashlib.sha256("\0".join(texts).encode())
    for name, tensor in sorted(tensors.items()):
        found.update(f"\0{name} {tensor.dtype} {list(tensor.shape)}\0".encode())
        found.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return found.hexdigest()


def _padded(rows: Sequence[Sequence[int]], pad: int) -> tuple[Int[Tensor, "B T"], Bool[Tensor, "B T"]]:
    lengths = torch.tensor([len(row) for row in rows])
    keep = torch.arange(int(lengths.max())) < lengths[:, None]
    ids = torch.full(keep.shape, pad)
    ids[keep] = torch.tensor([i for row in rows for i in row])
    return ids, keep
