"""Checks of lesson 09: masking 80/10/10, the masked-LM loss, BERT's two-segment input, next-sentence pairs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from course_lib.check.base import Case, Crash, Mistake, Verdict, WrongError, compare, difference, outcome, report, rng

if TYPE_CHECKING:
    from course_lib.tokenizers import Vocab

IGNORE = -100
ROWS, LENGTH, VOCAB = 600, 1000, 5000  # enough that 81% and 80% are eight standard errors apart


def mask_tokens(fn: object) -> Verdict:
    """`fn(ids, rng, vocab)` -> (inputs, labels), or the library's Corrupted: BERT's masking.

    ids Int[B T]; rng a torch.Generator; vocab has .size, .mask and .special (a tuple of ids). Of the tokens that are
    not special 15% are chosen; 80% of them become vocab.mask, 10% a random token, 10% stay. labels: the original
    token where chosen, -100 elsewhere.
    """

    def test() -> str:
        vocab = _vocab()
        ids = torch.randint(5, VOCAB, (ROWS, LENGTH), generator=rng(0))
        ids[:, 0], ids[:, -1] = 2, 3
        ids[::2, -20:-1] = 0
        small = {"ids": ids[:4, :40].clone(), "rng": rng(1), "vocab": vocab}
        first = _parts(fn, small)
        if not all(torch.equal(a, b) for a, b in zip(first, _parts(fn, small), strict=True)):
            raise WrongError(
                "Two calls with equal generators differ: give every torch.rand and torch.randint generator=rng."
            )
        case = {"ids": ids, "rng": rng(2), "vocab": vocab}
        _judge(ids, *_parts(fn, case), vocab)
        return "15% chosen, 80/10/10 among them, no special token, labels only there, input untouched, 600,000 tokens"

    return report("mask_tokens", test)


def mlm_loss(fn: object) -> Verdict:
    """`fn(logits, ids, at)`: mean cross-entropy at the chosen positions.

    logits [B T V], ids Int[B T] the original tokens, at Bool[B T].
    """
    cases = [_masked(1, 2, 8, 6), _masked(2, 3, 5, 11), _masked(3, 1, 9, 4)]

    def test() -> str:
        compare(fn, cases, lambda x, ids, at: _nll(x, ids)[at].mean(), _MLM_MISTAKES)
        return "the mean over the chosen positions only, three sizes"

    return report("mlm_loss", test)


def nsp_pairs(fn: object) -> Verdict:
    """`fn(documents, rng, n)` -> n tuples (first, second, label), label 0 = follows, 1 = random, or SentencePairs.

    documents: lists of sentences. Half of the pairs are neighbours in one document; in the other half the second
    sentence comes from another document.
    """
    documents = [[f"document {d} sentence {s}" for s in range(3 + d % 4)] for d in range(40)]

    def test() -> str:
        case = {"documents": documents, "rng": rng(0), "n": 2000}
        pairs = _pairs(fn, case)
        if pairs != _pairs(fn, case):
            raise WrongError("Two calls with equal generators differ: draw with torch.randint(..., generator=rng).")
        _judge_pairs(documents, pairs, 2000)
        return "2,000 pairs: half neighbours, half from another document, labels right, reproducible"

    return report("nsp_pairs", test)


def _vocab() -> "Vocab":
    from course_lib.tokenizers import Vocab

    return Vocab(size=VOCAB, pad=0, unk=1, cls=2, sep=3, mask=4, special=(0, 1, 2, 3, 4))


def _parts(fn: object, case: Case) -> tuple[Tensor, Tensor]:
    value = outcome(fn, case)
    if isinstance(value, Crash):
        raise WrongError(difference({"ids": case["ids"]}, value, None))
    if not isinstance(value, tuple | list) or len(value) not in (2, 3):
        raise WrongError("It should return a pair (inputs, labels).")
    for name, part in zip(("inputs", "labels"), value, strict=False):
        if not isinstance(part, Tensor):
            raise WrongError(f"`{name}` should be a torch.Tensor, and is a {type(part).__name__}.")
        if part.shape != case["ids"].shape:
            raise WrongError(
                f"`{name}` has shape {list(part.shape)}; it needs the shape of ids, {list(case['ids'].shape)}."
            )
        if part.is_floating_point() or part.dtype == torch.bool:
            raise WrongError(f"`{name}` has type {part.dtype}; token ids are whole numbers (torch.int64).")
    return value[0], value[1]


def _judge(ids: Tensor, inputs: Tensor, labels: Tensor, vocab: "Vocab") -> None:
    """Raise the sentence for the first thing wrong: labels, what was chosen, how often, what became of it."""
    special = torch.isin(ids, torch.tensor(vocab.special))
    at = labels != IGNORE
    changed = inputs != ids
    if bool(at.all()):
        if torch.equal(labels, ids):
            raise WrongError(
                "Every position has a label; where nothing was chosen it is -100, so that no loss falls there."
            )
        raise WrongError("No label is -100; the positions that were not chosen must have it (0 is a token too).")
    if not bool(at.any()):
        raise WrongError("All labels are -100: nothing is asked for. The chosen positions carry their original token.")
    if bool((changed & ~at).any()):
        if bool((changed & at).any()) and bool((labels[at] == ids[at]).all()):
            raise WrongError(
                "Some tokens are changed but have label -100: every chosen position carries its original token."
            )
        raise WrongError("The labels stand at the positions that were not chosen; it is the other way round.")
    if bool((labels[at] != ids[at]).any()):
        if bool((labels[at] == inputs[at]).all()):
            raise WrongError(
                "The labels hold the corrupted tokens; the model must say the original ones. Take labels from ids."
            )
        raise WrongError("A label at a chosen position is not the original token.")
    if bool((at & special).any()):
        raise WrongError("Special tokens are chosen too ([CLS], [SEP] or padding); leave out what is in vocab.special.")
    if not bool((changed & (inputs == vocab.mask)).any()):
        raise WrongError("No token became vocab.mask.")
    rate = float(at.sum() / (~special).sum())
    _judge_rate(rate, at)
    chosen = int(at.sum())
    masked = float(((inputs == vocab.mask) & at).sum()) / chosen
    kept = float((~changed & at).sum()) / chosen
    _judge_shares(masked, 1 - masked - kept, kept)
    drawn = inputs[changed & (inputs != vocab.mask)]
    spread = len(torch.unique(drawn)) / len(drawn)
    if len(torch.unique(drawn)) < VOCAB // 4:
        raise WrongError(
            f"The random tokens are not random: {len(drawn):,} draws gave {len(torch.unique(drawn))} different tokens "
            f"({100 * spread:.1f}%). Draw one for each position, from the whole vocabulary."
        )


def _judge_rate(rate: float, at: Tensor) -> None:
    if torch.equal(at[1], at[3]):
        raise WrongError("All rows have the same positions chosen; draw for each position of each row.")
    if abs(rate - 0.15) <= 0.004:
        return
    known = {
        0.0225: "15% of 15%: the rate is applied twice",
        0.12: "only those that become [MASK] (80% of 15%) have a label; the random and the kept ones are asked for too",
        0.135: "only those that are changed (90% of 15%) have a label; the kept ones are asked for too",
        0.85: "the comparison is the wrong way round: choose where the draw is below 0.15",
    }
    for value, says in known.items():
        if abs(rate - value) <= 0.004:
            raise WrongError(f"{100 * rate:.1f}% of the tokens have a label instead of 15%: {says}.")
    raise WrongError(f"{100 * rate:.1f}% of the tokens are chosen; it should be 15%.")


_SHARES: list[tuple[tuple[float, float, float], str]] = [
    (
        (0.81, 0.10, 0.09),
        "the second draw falls on what the first left over, 10% of 90%. One draw must decide among the three",
    ),
    (
        (0.81, 0.09, 0.10),
        "the second draw falls on what the first left over, 10% of 90%. One draw must decide among the three",
    ),
    (
        (0.80, 0.02, 0.18),
        "the random tokens are 10% of the 20% that were left. Take half of what is left, or one draw for all three",
    ),
    (
        (0.80, 0.18, 0.02),
        "the kept ones are 10% of the 20% that were left. Take half of what is left, or one draw for all three",
    ),
    (
        (0.72, 0.10, 0.18),
        "two independent draws overlap, and random tokens overwrite masks. One draw must decide among the three",
    ),
    ((0.80, 0.08, 0.12), "two draws overlap. One draw must decide among the three"),
    ((1.00, 0.00, 0.00), "every chosen token is masked. A tenth is replaced by a random token and a tenth stays"),
    ((0.80, 0.20, 0.00), "no chosen token stays as it is; one in ten should"),
    ((0.80, 0.00, 0.20), "no chosen token is replaced by a random one; one in ten should be"),
    ((0.10, 0.10, 0.80), "mask and keep have changed places"),
    ((0.10, 0.80, 0.10), "mask and random have changed places"),
]


def _judge_shares(masked: float, random: float, kept: float) -> None:
    """Standard error of each share is about 0.0013 at 90,000 chosen tokens; 0.005 is four of them."""
    if max(abs(masked - 0.8), abs(random - 0.1), abs(kept - 0.1)) <= 0.005:
        return
    seen = (
        f"Of the chosen tokens {100 * masked:.1f}% became [MASK], {100 * random:.1f}% random, {100 * kept:.1f}% stayed"
    )
    for (m, r, k), says in _SHARES:
        if max(abs(masked - m), abs(random - r), abs(kept - k)) <= 0.0035:
            raise WrongError(f"{seen}: {says}.")
    raise WrongError(f"{seen}; it should be 80, 10 and 10.")


def _masked(seed: int, batch: int, length: int, vocab: int) -> Case:
    generator = rng(seed)
    at = torch.rand(batch, length, generator=generator) < 0.4
    at[0, 1], at[0, 2] = True, False
    return {
        "logits": 2 * torch.randn(batch, length, vocab, generator=generator),
        "ids": torch.randint(vocab, (batch, length), generator=generator),
        "at": at,
    }


def _nll(logits: Tensor, ids: Tensor) -> Tensor:
    return -logits.log_softmax(-1).gather(-1, ids[..., None])[..., 0]


_MLM_MISTAKES = [
    Mistake(
        "The loss falls on all tokens; most of them stand readable in the input. Take the chosen positions only, at.",
        lambda x, ids, at: _nll(x, ids).mean(),
    ),
    Mistake(
        "The loss falls on the tokens that were not chosen; it is the other way round, at instead of ~at.",
        lambda x, ids, at: _nll(x, ids)[~at].mean(),
    ),
    Mistake(
        "The sum over the chosen positions is divided by all positions; divide by at.sum().",
        lambda x, ids, at: (_nll(x, ids) * at).mean(),
    ),
    Mistake(
        "It is the sum; the loss is the mean over the chosen positions.", lambda x, ids, at: _nll(x, ids)[at].sum()
    ),
    Mistake(
        "It is shifted by one as for a left-to-right model; a masked LM is asked for the token at its own position.",
        lambda x, ids, at: _nll(x[:, :-1], ids[:, 1:])[at[:, 1:]].mean(),
    ),
    Mistake(
        "Each row is averaged first, so rows with few chosen tokens count too much. Take one mean over all.",
        lambda x, ids, at: ((_nll(x, ids) * at).sum(1) / at.sum(1)).mean(),
    ),
    Mistake(
        "The softmax is applied twice: cross_entropy wants logits and does it itself.",
        lambda x, ids, at: _nll(x.softmax(-1), ids)[at].mean(),
    ),
    Mistake(
        "The sign is wrong: the loss is the negative log-probability.", lambda x, ids, at: -_nll(x, ids)[at].mean()
    ),
    Mistake(
        "The logits are multiplied by the mask but all positions still count. Select with at: logits[at], ids[at].",
        lambda x, ids, at: _nll(x * at[..., None], ids).mean(),
    ),
]


Pair = tuple[str, str, int]


def _pairs(fn: object, case: Case) -> list[Pair]:
    value = outcome(fn, case)
    if isinstance(value, Crash):
        raise WrongError(difference({"n": case["n"]}, value, None))
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise WrongError(f"It should return a list of (first, second, label), and returns a {type(value).__name__}.")
    pairs: list[Pair] = []
    for item in value:
        parts: Any = (item.text, item.pair, item.next) if hasattr(item, "next") and hasattr(item, "pair") else item
        if not isinstance(parts, Sequence) or len(parts) != 3 or not all(isinstance(p, str) for p in parts[:2]):
            raise WrongError(f"Each pair is (first sentence, second sentence, label); one of them is {item!r:.80}.")
        if parts[2] not in (0, 1):
            raise WrongError(
                f"A label is {parts[2]!r}; it is 0 where the second sentence follows, 1 where it is random."
            )
        pairs.append((parts[0], parts[1], int(parts[2])))
    return pairs


def _judge_pairs(documents: list[list[str]], pairs: list[Pair], n: int) -> None:
    place = {text: (d, s) for d, document in enumerate(documents) for s, text in enumerate(document)}
    if len(pairs) != n:
        raise WrongError(f"{n} pairs were asked for, and there are {len(pairs)}.")
    for first, second, _ in pairs:
        for text in (first, second):
            if text not in place:
                raise WrongError(f"{text!r:.60} is not one of the documents' sentences.")
    placed = [(*place[first], *place[second], label) for first, second, label in pairs]
    follows = [d == e and t == s + 1 for d, s, e, t, _ in placed]
    labels = [row[4] for row in placed]
    if labels == [int(f) for f in follows] and 0 < sum(labels) < n:
        raise WrongError(
            "The labels are inverted: 0 = the second sentence follows, 1 = it is random (as in BERT's code)."
        )
    for (d, s, e, t, label), follow in zip(placed, follows, strict=True):
        if label == 0 and not follow:
            if d == e and s == t + 1:
                raise WrongError("The sentences of a true pair are in the wrong order: the second follows the first.")
            raise WrongError("A pair with label 0 is not two neighbouring sentences of one document.")
        if label == 1 and d == e:
            raise WrongError(
                "A random second sentence comes from the same document, and may even follow; draw another document."
            )
    share = sum(labels) / n
    if abs(share - 0.5) > 0.06:
        raise WrongError(f"{100 * share:.0f}% of the pairs are random; it should be half.")
    if len({row[:2] for row in placed}) < 40:
        raise WrongError("The same few first sentences come up; draw the document and the place in it.")
