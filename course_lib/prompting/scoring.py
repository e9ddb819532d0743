"""How likely a model finds given continuations: log P(continuation | prompt), in batches, every prompt read once.

Where the continuation begins. Prompt and continuation are tokenized together, as the model would meet them. White space
at the prompt's end moves to the continuation, because byte-level tokens begin with their space. The tokens that the
prompt alone has at its beginning too are given; the rest is scored. That is what evaluation harnesses do with GPT-2. It
goes one step further where a token straddles the boundary ("boo" + "k" is one token): that token counts whole, as the
first of the continuation, and is not lost.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
from torch import Tensor, nn

from course_lib.attention import KVCache
from course_lib.config import Learned, StackConfig
from course_lib.corrupt import IGNORE
from course_lib.errors import CourseError
from course_lib.probes import Blank, encode_blank, pad_blanks
from course_lib.seq2seq import Conditioned, Seq2SeqLM, shift_right
from course_lib.tokenizers import Tokenizer

T = TypeVar("T")
Unit = Literal["sum", "token", "character"]


@dataclass(frozen=True)
class Score:
    """What a continuation got. logprob: sum of the log probabilities of its tokens, in nats. tokens: how many those
    are. characters: of its text, without white space around it. greedy: each token was the likeliest one."""

    logprob: float
    tokens: int
    characters: int
    greedy: bool

    def per(self, unit: Unit) -> float:
        """The log probability: the sum, or its mean over tokens or characters."""
        if unit not in ("sum", "token", "character"):
            raise CourseError(f"A score is taken per sum, token or character, not per {unit!r}.")
        return self.logprob / {"sum": 1, "token": self.tokens, "character": self.characters}[unit]


def encode(
    tokenizer: Tokenizer, prompts: Sequence[str], continuations: Sequence[str], *, start: bool = True
) -> list[tuple[list[int], int]]:
    """(tokens of prompt and continuation, number of the first that is scored) of each pair, by this file's rule.

    Args:
        start: the vocabulary's start token stands in front, as before the documents of the course's models; False:
            only where nothing else does, as harnesses have it for GPT-2.

    Raises:
        CourseError: an empty continuation, or one with characters that the vocabulary does not have; nothing to stand
            before the first token.
    """
    vocab = tokenizer.vocab
    mark = next((i for i in (vocab.bos, vocab.cls, vocab.eos) if i is not None), None)
    bare = [prompt.rstrip() for prompt in prompts]
    given = tokenizer.ids(bare, special=False)
    whole = tokenizer.ids([p + c for p, c in zip(prompts, continuations, strict=True)], special=False)
    rows = []
    for prompt, continuation, known, ids in zip(prompts, continuations, given, whole, strict=True):
        first = _common([known, ids]) if known else 0
        if not continuation.strip() or first == len(ids):
            raise CourseError(f"There is nothing to score after {prompt[-40:]!r}: the continuation is empty.")
        if vocab.unk is not None and vocab.unk in ids[first:]:
            raise CourseError(f"The tokenizer does not know all of {continuation!r}, so the model cannot say it.")
        if first == 0 and mark is None:
            raise CourseError("An empty prompt needs a start token, which this tokenizer has not; give some text.")
        rows.append(([mark, *ids], first + 1) if mark is not None and (start or first == 0) else (ids, first))
    return rows


def score(
    model: nn.Module,
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    continuations: Sequence[Sequence[str]],
    *,
    batch: int = 32,
    start: bool = True,
) -> list[list[Score]]:
    """The scores of each prompt's continuations.

    A causal model reads what all prompts begin with (an instruction, fixed examples) once, then the rest of each prompt
    once, then its continuations, each time over the cached keys and values. An encoder-decoder reads the prompt in its
    encoder; its continuation ends as the tokenizer ends a text, and the end is scored too.

    Args:
        model: `heads.LM` or `seq2seq.Seq2SeqLM`. continuations: of each prompt those to compare. batch: so many at
            once. start: see `encode`.

    Raises:
        CourseError: what `encode` raises; a text over the model's positions; a model of another kind.
    """
    if len(prompts) != len(continuations) or not prompts or not all(map(len, continuations)):
        raise CourseError(f"Each of {len(prompts)} prompts needs continuations; {len(continuations)} lists are given.")
    if batch < 1:
        raise CourseError(f"batch is {batch}; it must be at least 1.")
    flat = [text for some in continuations for text in some]
    repeated = [prompt for prompt, some in zip(prompts, continuations, strict=True) for _ in some]
    if isinstance(model, Seq2SeqLM):
        config, run = model.stack.config, _encoder_decoder
        sources, targets = tokenizer.ids(repeated), tokenizer.ids(flat)
        rows = [_Row(target, 0, source) for source, target in zip(sources, targets, strict=True)]
    else:
        config, run = _causal(model), _decoder
        rows = [_Row(ids, first) for ids, first in encode(tokenizer, repeated, flat, start=start)]
    counts = [len(some) for some in continuations]
    for row, prompt in zip(rows, repeated, strict=True):
        _fits(max(len(row.ids) - min(row.first, 1), len(row.source)), config, prompt)  # a last token is not fed back
    grouped = [list(part) for part in _split(rows, counts)]
    with reading(model):
        found = run(model, grouped, batch)
    return [
        [Score(total, n, len(text.strip()), greedy) for (total, n, greedy), text in zip(some, texts, strict=True)]
        for some, texts in zip(found, continuations, strict=True)
    ]


def fill(
    model: nn.Module, tokenizer: Tokenizer, blanks: Sequence[tuple[str, str]], choices: Sequence[Sequence[str]],
    *, batch: int = 32,
) -> list[list[Score]]:  # fmt: skip
    """The same of a masked language model: how likely it finds each choice in the gap between (left, right).

    All pieces of a choice are masked at once, as many as it has, and their log probabilities are summed (Schick and
    Schütze 2021, section 3, without its order of filling).

    Args:
        model: `heads.MLM` or `heads.Pretraining`; its tokenizer has a mask token.

    Raises:
        CourseError: as `score` does; a tokenizer without a mask.
    """
    mask = tokenizer.vocab.mask
    if mask is None:
        raise CourseError("This tokenizer has no mask token; a causal model is asked by `score`.")
    if len(blanks) != len(choices) or not blanks or not all(map(len, choices)):
        raise CourseError(f"Each of {len(blanks)} gaps needs choices; {len(choices)} lists are given.")
    asked = [Blank(left, text, right) for (left, right), some in zip(blanks, choices, strict=True) for text in some]
    rows = [encode_blank(tokenizer, blank) for blank in asked]
    for blank, (ids, inside) in zip(asked, rows, strict=True):
        _fits(len(ids), _config(model), blank.left)
        pieces = [i for i, hidden in zip(ids, inside, strict=True) if hidden]
        if not pieces or tokenizer.vocab.unk in pieces:
            raise CourseError(f"{blank.answer!r} is no word that the tokenizer knows, so the model cannot say it.")
    order = sorted(range(len(rows)), key=lambda i: len(rows[i][0]))
    found: list[Score] = [Score(0.0, 0, 0, False)] * len(rows)
    device = next(model.parameters()).device
    with reading(model):
        for begin in range(0, len(order), batch):
            numbers = order[begin : begin + batch]
            targets, keep, at = (x.to(device) for x in pad_blanks([rows[i] for i in numbers], tokenizer))
            logits = model(targets.masked_fill(at, mask), keep=keep, at=at)
            logits = logits[0] if isinstance(logits, tuple) else logits
            for i, (total, tokens, greedy) in zip(numbers, _results(logits, targets[at], at), strict=True):
                found[i] = Score(total, tokens, len(asked[i].answer.strip()), greedy)
    return [list(part) for part in _split(found, [len(some) for some in choices])]


@dataclass(frozen=True)
class _Row:
    ids: list[int]
    first: int  # of ids that is scored
    source: Sequence[int] = ()


_Result = tuple[float, int, bool]  # log probability, tokens, greedy


def _decoder(model: nn.Module, questions: list[list[_Row]], batch: int) -> list[list[_Result]]:
    config, device = _causal(model), next(model.parameters()).device
    # Given to all rows of a question, and to all rows of all. The last given token is left to the rows: it is what
    # their first scored token is predicted from.
    known = [_given(rows) for rows in questions]
    shared = _given([row for rows in questions for row in rows])
    trunk = KVCache(config.layers)
    if shared:
        _read(model, torch.tensor([questions[0][0].ids[:shared]], device=device), None, trunk)
    found: list[list[_Result]] = [[] for _ in questions]
    for numbers in _batches(questions, batch):
        prompts = [questions[q][0].ids[shared : known[q]] for q in numbers]
        ids, keep = (x.to(device) for x in _pad(prompts, left=True))
        cache = trunk.copy()
        cache.reorder(torch.zeros(len(numbers), dtype=torch.long, device=device))
        seen = nn.functional.pad(keep, (shared, 0), value=True)
        if ids.shape[1]:
            _read(model, ids, seen, cache)
        owner = torch.tensor([place for place, q in enumerate(numbers) for _ in questions[q]], device=device)
        cache.reorder(owner)
        tails = [(row.ids[known[q] :], row.first - known[q]) for q in numbers for row in questions[q]]
        ids, keep = (x.to(device) for x in _pad([tail for tail, _ in tails]))
        firsts = torch.tensor([first for _, first in tails], device=device)
        at = keep[:, 1:] & (torch.arange(1, ids.shape[1], device=device) >= firsts[:, None])
        logits = model(ids[:, :-1], keep=_needed(torch.cat([seen[owner], keep[:, :-1]], dim=1)), cache=cache, at=at)
        _sort_in(found, numbers, questions, _results(logits, ids[:, 1:][at], at))
    return found


def _encoder_decoder(model: nn.Module, questions: list[list[_Row]], batch: int) -> list[list[_Result]]:
    assert isinstance(model, Seq2SeqLM)
    device = next(model.parameters()).device
    found: list[list[_Result]] = [[] for _ in questions]
    for numbers in _batches(questions, batch):
        ids, keep = (x.to(device) for x in _pad([questions[q][0].source for q in numbers]))
        owner = torch.tensor([place for place, q in enumerate(numbers) for _ in questions[q]], device=device)
        memory = model.stack.encoder(ids, keep=keep)[owner]
        targets, at = (x.to(device) for x in _pad([row.ids for q in numbers for row in questions[q]]))
        read = shift_right(targets.masked_fill(~at, IGNORE), model.stack.start)
        logits = Conditioned(model, memory, keep[owner])(read, at=at)
        _sort_in(found, numbers, questions, _results(logits, targets[at], at))
    return found


def _read(model: nn.Module, ids: Tensor, keep: Tensor | None, cache: KVCache) -> None:
    """Only for the cache: no position's scores are computed."""
    model(ids, keep=None if keep is None else _needed(keep), cache=cache, at=torch.zeros_like(ids, dtype=torch.bool))


def _results(logits: Tensor, targets: Tensor, at: Tensor) -> list[_Result]:
    """One result a row of `at` from the logits [N, V] and targets [N] of its True positions."""
    logits = logits.float()
    picked = logits.log_softmax(dim=-1).gather(1, targets[:, None])[:, 0].tolist()
    likeliest = (logits.argmax(dim=-1) == targets).tolist()
    counts = at.sum(dim=1).tolist()
    parts = zip(_split(picked, counts), _split(likeliest, counts), counts, strict=True)
    return [(sum(p), count, all(g)) for p, g, count in parts]


def _sort_in(
    found: list[list[_Result]], numbers: list[int], questions: list[list[_Row]], results: list[_Result]
) -> None:
    for q, some in zip(numbers, _split(results, [len(questions[q]) for q in numbers]), strict=True):
        found[q] = list(some)


def _batches(questions: list[list[_Row]], batch: int) -> Iterator[list[int]]:
    """Numbers of questions of like length, so many that their rows together are at most `batch` (or one question's)."""
    numbers: list[int] = []
    rows = 0
    for q in sorted(range(len(questions)), key=lambda q: max(len(row.ids) + len(row.source) for row in questions[q])):
        if numbers and rows + len(questions[q]) > batch:
            yield numbers
            numbers, rows = [], 0
        numbers, rows = [*numbers, q], rows + len(questions[q])
    yield numbers


def _given(rows: list[_Row]) -> int:
    """How many tokens the rows have in common, before the last one that is given to all."""
    return max(0, min(_common([row.ids for row in rows]), min(row.first for row in rows) - 1))


def _common(rows: Sequence[list[int]]) -> int:
    """How many tokens the rows have in common at the beginning: all, if the first and the last in order have."""
    low, high = min(rows), max(rows)
    return next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))


def _pad(rows: Sequence[Sequence[int]], *, left: bool = False) -> tuple[Tensor, Tensor]:
    """ids Int[B T] and keep Bool[B T]; rows may be empty. What stands in the padding is never seen."""
    width = max(map(len, rows))
    padding = [[0] * (width - len(row)) for row in rows]
    ids = torch.tensor([[*p, *row] if left else [*row, *p] for row, p in zip(rows, padding, strict=True)])
    places, lengths = torch.arange(width), torch.tensor([[len(row)] for row in rows])
    return ids.long(), places >= width - lengths if left else places < lengths


def _needed(keep: Tensor) -> Tensor | None:
    return None if keep.all() else keep


def _split(items: Sequence[T], counts: Sequence[int]) -> Iterator[Sequence[T]]:
    rest = iter(items)
    for count in counts:
        yield [next(rest) for _ in range(count)]


def _config(model: nn.Module) -> StackConfig:
    config = getattr(getattr(model, "stack", None), "config", None)
    if not isinstance(config, StackConfig):
        raise CourseError(f"{type(model).__name__} is no model that can be asked; give heads.LM or heads.MLM.")
    return config


def _causal(model: nn.Module) -> StackConfig:
    if not (config := _config(model)).causal:
        raise CourseError(f"{type(model).__name__} continues no text; a masked model's choices are scored by `fill`.")
    return config


def _fits(length: int, config: StackConfig, prompt: str) -> None:
    if isinstance(config.position, Learned) and length > config.position.length:
        raise CourseError(
            f"The prompt that begins {prompt[:40]!r} and its continuation take {length} tokens, the model has "
            f"{config.position.length} positions; show fewer examples."
        )


@contextmanager
def reading(model: nn.Module) -> Iterator[None]:
    """Inside the block no gradients and no dropout; after it the model's mode is as before."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)
