"""The log probabilities that a causal model gives to continuations of a prompt.

    score(model, tokenizer, ["the cat "], [["sat", "ran"]])
    [[Score(logprob=-2.1, tokens=1), Score(logprob=-3.4, tokens=1)]]

`encode` turns a prompt and a continuation into token ids, and finds where the continuation begins.
`score` adds up the log probabilities of the continuation's tokens. The model reads a prompt only
once for all of its continuations.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import torch
from torch import nn

from course_lib.data.tokenizers import Tokenizer
from course_lib.errors import CourseError
from course_lib.generation.state import causal_config, check_positions
from course_lib.generation.text import start_tokens
from course_lib.model.cache import KVCache
from course_lib.model.modes import evaluating
from course_lib.objectives.collate import pad_to_longest


class Score(NamedTuple):
    """How probable a continuation is."""

    logprob: float  # the sum of its tokens' log probabilities, in nats
    tokens: int  # the number of its tokens


class Encoded(NamedTuple):
    """A prompt with one continuation."""

    ids: list[int]  # of the start token, the prompt and the continuation
    first: int  # the index in `ids` of the first token to score, at least 1


def encode(
    tokenizer: Tokenizer, prompts: Sequence[str], continuations: Sequence[str]
) -> list[Encoded]:
    """The token ids of each prompt and its continuation, with the start token before them.

    The two are joined and then tokenized. The prompt "the cat " and the continuation "sat" give

        the prompt alone    the | cat
        joined              the | cat | sat
        ids                 [start] the | cat | sat
        first               3, the index of "sat"

    White space at the prompt's end belongs to the continuation, because a byte-level token holds
    the space before its word: the last token above is " sat".

    A token may cross the boundary: "boo" and "k" can give the one token "book". It counts as the
    first token of the continuation. (An evaluation that cuts the joined ids at the length of the
    prompt's ids would not score it.)

    Args:
        tokenizer: the model's tokenizer.
        prompts: the texts to read.
        continuations: one text for each prompt.

    Raises:
        CourseError: a continuation is empty or has an unknown token, or there is no token before it
            that could predict its first token.
    """
    start = start_tokens(tokenizer)
    unk_id = tokenizer.vocab.unk
    all_prompt_ids = tokenizer.ids([prompt.rstrip() for prompt in prompts], special=False)
    joined = [prompt + text for prompt, text in zip(prompts, continuations, strict=True)]
    all_joined_ids = tokenizer.ids(joined, special=False)
    rows = []
    columns = zip(prompts, continuations, all_prompt_ids, all_joined_ids, strict=True)
    for prompt, continuation, prompt_ids, joined_ids in columns:
        boundary = common_prefix_length([prompt_ids, joined_ids])
        if not continuation.strip() or boundary == len(joined_ids):
            raise CourseError(
                f"There is nothing to score after {prompt[-40:]!r}: the continuation is empty."
            )
        if unk_id is not None and unk_id in joined_ids[boundary:]:
            raise CourseError(
                f"The tokenizer does not know all of {continuation!r}, so the model cannot"
                " generate it."
            )
        first = len(start) + boundary
        if first == 0:
            raise CourseError(
                "The tokenizer has no start token, so nothing predicts the first token of"
                f" {continuation!r}; give it a longer prompt than {prompt!r}."
            )
        rows.append(Encoded([*start, *joined_ids], first))
    return rows


def common_prefix_length(rows: Sequence[Sequence[int]]) -> int:
    """The number of tokens at the beginning that are the same in all rows.

    >>> common_prefix_length([[5, 6, 7, 8], [5, 6, 9]])
    2
    """
    length = 0
    for column in zip(*rows, strict=False):
        if len(set(column)) > 1:
            break
        length += 1
    return length


@torch.no_grad()
def score(
    model: nn.Module,
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    continuations: Sequence[Sequence[str]],
    *,
    batch: int = 32,
) -> list[list[Score]]:
    """log P(continuation | prompt), for each continuation of each prompt.

    The model reads the common tokens of a prompt's continuations once. Then it reads the other
    tokens of each, with the cached keys and values.

    Args:
        model: a causal model (`heads.LM`).
        tokenizer: the model's tokenizer.
        prompts: the texts to read; `encode` says what happens to white space at their ends.
        continuations: for each prompt, one or more texts.
        batch: the largest number of continuations in a batch. All continuations of one prompt are
            in the same batch, even if they are more.

    Raises:
        CourseError: a prompt has no continuation, a prompt with its continuation is too long for
            the model, or `encode` refuses one.
    """
    if not all(map(len, continuations)):
        raise CourseError(
            "A question has no choices to score; a free answer is generated by `complete`."
        )
    config = causal_config(model)
    groups = _encode_groups(tokenizer, prompts, continuations)
    for prompt, rows in zip(prompts, groups, strict=True):
        longest = max(len(row.ids) for row in rows)
        # The model does not read the last token, which it only predicts.
        check_positions(
            config, longest - 1, f"The prompt that begins {prompt[:40]!r} and its continuation"
        )
    scores: list[list[Score]] = [[] for _ in groups]
    with evaluating(model):
        for numbers in _batches(groups, batch):
            batch_scores = _score_batch(model, config.layers, [groups[i] for i in numbers])
            for number, group_scores in zip(numbers, batch_scores, strict=True):
                scores[number] = group_scores
    return scores


def _encode_groups(
    tokenizer: Tokenizer, prompts: Sequence[str], continuations: Sequence[Sequence[str]]
) -> list[list[Encoded]]:
    """One group for each prompt, with one row for each of its continuations.

    One call of the tokenizer for all of them is faster than one call for each.
    """
    repeated_prompts: list[str] = []
    flat_continuations: list[str] = []
    for prompt, texts in zip(prompts, continuations, strict=True):
        repeated_prompts += [prompt] * len(texts)
        flat_continuations += texts
    rows = iter(encode(tokenizer, repeated_prompts, flat_continuations))
    return [list(islice(rows, len(texts))) for texts in continuations]


def _batches(groups: Sequence[Sequence[Encoded]], batch: int) -> Iterator[list[int]]:
    """The numbers of the groups in each batch: at most `batch` rows, or one larger group.

    Groups of similar length are in one batch, so that there is little padding.
    """
    lengths = [max(len(row.ids) for row in rows) for rows in groups]
    numbers: list[int] = []
    row_count = 0
    for number in sorted(range(len(groups)), key=lambda i: lengths[i]):
        if numbers and row_count + len(groups[number]) > batch:
            yield numbers
            numbers = []
            row_count = 0
        numbers.append(number)
        row_count += len(groups[number])
    if numbers:
        yield numbers


def _score_batch(
    model: nn.Module, layers: int, groups: Sequence[Sequence[Encoded]]
) -> list[list[Score]]:
    """The scores of G groups, which have R rows together.

    The rows of one group are equal up to its prefix length, here 2; tokens in ( ) are scored:

                 prefix: read once    tail: read for every row
        row 0    [start] the          cat (sat)
        row 1    [start] the          cat (ran)
        row 2    [start] the          cat (sat) (down)

    "cat" is in the tail because its logits predict the first scored token.
    """
    device = next(model.parameters()).device
    cache = KVCache(layers)

    # 1. Read the prefix of each group. This fills the cache. No logits are needed, so the loss mask
    # is False everywhere.
    prefix_lengths = [_prefix_length(rows) for rows in groups]
    prefixes = [rows[0].ids[:length] for rows, length in zip(groups, prefix_lengths, strict=True)]
    padded_prefixes = pad_to_longest(prefixes, 0, left=True)
    prefix_ids = padded_prefixes["ids"].to(device)  # G P
    prefix_mask = padded_prefixes["attention_mask"].to(device)  # G P
    if prefix_ids.shape[1]:
        no_logits = torch.zeros_like(prefix_ids, dtype=torch.bool)
        model(prefix_ids, attention_mask=prefix_mask, cache=cache, loss_mask=no_logits)

    # 2. Copy the keys and values of each group to all of its rows: the cache's G rows become R.
    group_sizes = torch.tensor([len(rows) for rows in groups], device=device)
    group_of_row = torch.arange(len(groups), device=device).repeat_interleave(group_sizes)  # R
    cache.reorder(group_of_row)

    # 3. Read the tail of every row. The logits at position t predict the token at t + 1.
    tails = []
    first_scored = []
    for rows, length in zip(groups, prefix_lengths, strict=True):
        tails += [row.ids[length:] for row in rows]
        first_scored += [row.first - length for row in rows]
    padded_tails = pad_to_longest(tails, 0)
    tail_ids = padded_tails["ids"].to(device)  # R T
    tail_mask = padded_tails["attention_mask"].to(device)  # R T
    inputs = tail_ids[:, :-1]  # R T-1
    targets = tail_ids[:, 1:]  # R T-1
    target_positions = torch.arange(1, tail_ids.shape[1], device=device)
    is_in_continuation = target_positions >= torch.tensor(first_scored, device=device)[:, None]
    is_scored = tail_mask[:, 1:] & is_in_continuation  # R T-1, N of them True
    attention_mask = torch.cat([prefix_mask[group_of_row], tail_mask[:, :-1]], dim=1)  # R P+T-1
    # N V: first the scored positions of row 0, then those of row 1, and so on.
    logits = model(inputs, attention_mask=attention_mask, cache=cache, loss_mask=is_scored)

    # 4. Add up the log probabilities of each row's scored tokens.
    scored_ids = targets[is_scored]  # N, in the same order as the logits
    log_probs = logits.float().log_softmax(dim=-1).gather(1, scored_ids[:, None])[:, 0]  # N
    by_row = log_probs.split(is_scored.sum(dim=1).tolist())
    row_scores = iter(Score(float(row.double().sum()), len(row)) for row in by_row)
    return [list(islice(row_scores, len(rows))) for rows in groups]


def _prefix_length(rows: Sequence[Encoded]) -> int:
    """The number of tokens that are read once for all rows of a group.

    The token before the first scored one is never among them, because its logits are needed.
    `first` is at least 1, so the result is at least 0.
    """
    common = common_prefix_length([row.ids for row in rows])
    return min(common, min(row.first for row in rows) - 1)
