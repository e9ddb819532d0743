"""The exact claims of lessons 05, 15, 16 and 17: what a tokenizer restores, a corruption leaves, and a loss is."""

from functools import partial
from pydoc_data.topics import topics

import torch
from torch import Tensor

from course_lib import corrupt, zoo
from course_lib.claims.arms import town
from course_lib.claims.experiment import experiment
from course_lib.claims.lab import Lab
from course_lib.claims.ledger import published
from course_lib.claims.record import Figures
from course_lib.corrupt import generator
from course_lib.experiments import family
from course_lib.experiments.judging import percent, short
from course_lib.models.sentence import triplet_loss
from course_lib.tokenizers import Tokenizer, Vocab, train_bpe, train_wordpiece

BYTES = ("bytes alone", "byte-level BPE", "byte-level BPE, gpt-mini")
PIECES = ("WordPiece", "WordPiece, bert-mini")
TEXTS = ("all of Unicode", "random strings", "held-out documents")


def _documents(n: int, split: str = "train") -> list[str]:
    return [town(family.WORLD).document(i, split)["text"] for i in range(n)]


def _texts(seed: int) -> dict[str, list[str]]:
    """Every character that UTF-8 can write, in random company; random strings; documents that no tokenizer has read."""
    points = [point for point in range(0x110000) if not 0xD800 <= point < 0xE000]
    order = torch.randperm(len(points), generator=generator(seed, 1)).tolist()
    chars = [chr(points[i]) for i in order]
    whole = ["".join(chars[i : i + 64]) for i in range(0, len(chars), 64)]
    some = ["".join(chars[7 * i : 7 * i + i % 40 + 1]) for i in range(2000)]
    return dict(zip(TEXTS, (whole, some, _documents(300, "validation")), strict=True))


def _tokenizers() -> dict[str, Tokenizer]:
    texts = _documents(2000)
    return {
        "bytes alone": train_bpe(texts[:50], 258),
        "byte-level BPE": train_bpe(texts, 4096),
        "byte-level BPE, gpt-mini": zoo.load("gpt-mini")[1],
        "WordPiece": train_wordpiece(texts, 4096, lowercase=False),
        "WordPiece, bert-mini": zoo.load("bert-mini")[1],
    }


def _no_unknown(f: Figures) -> tuple[str, str]:
    def restores(name: str) -> bool:
        return all(f[f"restored/{name}/{kind}"].mean == 1 for kind in TEXTS) and f[f"unknown/{name}"].mean == 0

    never_fail = all(restores(name) and f[f"has an unknown token/{name}"].mean == 0 for name in BYTES)
    fails = not any(restores(name) for name in PIECES)
    verdict = ("not at this scale", "partly", "reproduced")[never_fail + fails]
    sizes = ", ".join(f"{f[f'vocabulary/{name}'].mean:,.0f}" for name in BYTES)
    lost = " and ".join(f"{f[f'unknown/{name}'].mean:,.0f}" for name in PIECES)
    return verdict, (
        f"Byte-level vocabularies of {sizes} entries restore {'every text' if never_fail else 'not every text'}, each "
        f"code point of Unicode among them; the two of WordPiece meet {lost} unknown tokens."
    )


@experiment(
    "bytes-bpe",
    rule="""Every code point of Unicode, random strings and held-out documents are encoded and decoded. Reproduced if
    every byte-level tokenizer, from one without any merge to gpt-mini's, restores every text and has no unknown token,
    and WordPiece does not restore them all. Partly if only one of the two holds.""",
    judge=_no_unknown,
    config={"tokenizers": "trained on 2,000 documents of the town, two shipped; the lesson's are of Python's manual"},
)
def bytes_bpe(lab: Lab, seed: int) -> dict[str, float]:
    """Share of the texts that come back to the letter, unknown tokens, size of the vocabulary, by tokenizer."""
    values: dict[str, float] = {}
    texts = _texts(seed)
    for name, tokenizer in _tokenizers().items():
        rows = {kind: tokenizer.ids(some, special=False) for kind, some in texts.items()}
        for kind, some in texts.items():
            back = tokenizer.backend.decode_batch(rows[kind], skip_special_tokens=False)
            values[f"restored/{name}/{kind}"] = sum(a == b for a, b in zip(some, back, strict=True)) / len(some)
        unknown = -1 if tokenizer.vocab.unk is None else tokenizer.vocab.unk
        values[f"unknown/{name}"] = float(sum(row.count(unknown) for found in rows.values() for row in found))
        values[f"has an unknown token/{name}"] = float(unknown >= 0)
        values[f"vocabulary/{name}"] = float(len(tokenizer))
    return values


TRIPLETS = 500


def _triplets(f: Figures) -> tuple[str, str]:
    agree = all(f[f"{what} that agree"].mean == f["triplets"].mean for what in ("values", "gradients"))
    held, idle = f["margin held"].mean, f["of these without loss and gradient"].mean
    return "reproduced" if agree and held == idle > 0 else "not at this scale", (
        f"Of {short(f['triplets'].mean)} random triplets {short(f['values that agree'].mean)} values and "
        f"{short(f['gradients that agree'].mean)} gradients are the formula's; {short(held)} hold the margin, "
        f"{short(idle)} of them without loss and gradient."
    )


@experiment(
    "sbert-triplet",
    rule="""The library's loss of random triplets in double precision. Reproduced if values and gradients agree with
    the formula's to 1e-12 and are zero wherever the margin holds. Anything else contradicts it.""",
    judge=_triplets,
    config={"width": 8, "margin": 1.0},
)
def sbert_triplet(lab: Lab, seed: int) -> dict[str, float]:
    """How many values, and gradients by anchor, positive and negative, agree with the formula."""
    triplets = torch.randn(3, TRIPLETS, 1, 8, generator=generator(seed), dtype=torch.float64)
    values, slopes = [], []
    for triplet in triplets.unbind(1):
        parts = [part.clone().requires_grad_() for part in triplet]
        values.append(triplet_loss(parts[0], parts[1], parts[2], 1.0))
        slopes.append(torch.cat(torch.autograd.grad(values[-1], parts)))
    near, far = (triplets[0] - triplets[i] for i in (1, 2))
    pull, push = (side / side.norm(dim=-1, keepdim=True) for side in (near, far))
    loss = (near.norm(dim=-1) - far.norm(dim=-1) + 1.0)[:, 0]
    slope = torch.cat((pull - push, -pull, push), dim=1) * (loss > 0)[:, None, None]
    value, given = torch.stack(values).detach(), torch.stack(slopes)
    idle = (value == 0) & (given == 0).all(dim=(1, 2))
    return {
        "triplets": TRIPLETS,
        "values that agree": float(((value - loss.clamp(min=0)).abs() < 1e-12).sum()),
        "gradients that agree": float(((given - slope).abs() < 1e-12).all(dim=(1, 2)).sum()),
        "margin held": float((loss <= 0).sum()),
        "of these without loss and gradient": float((idle & (loss <= 0)).sum()),
    }


NOISED, MASK = 900, 1
VOCAB = Vocab(100, mask=MASK, special=(MASK,))


def _as_it_says(name: str, text: Tensor, left: Tensor, ends: Tensor, spans: int) -> bool:
    """Whether a corruption has done to a text what its name says; every token of the text is another number."""
    masked = left.eq(MASK)
    kept = left[~masked]
    lost, masks, breaks = len(text) - len(kept), len(left) - len(kept), torch.ne(left.diff(), 1)
    in_order, whole = bool((kept.diff() > 0).all()), torch.equal(left.sort().values, text)
    if name == "token masking":
        return lost == max(1, round(0.15 * len(text))) and bool(((left == text) | masked).all())
    if name == "token deletion":
        return lost == max(1, round(0.15 * len(text))) and in_order and masks == 0
    if name == "text infilling":  # nothing is missing where there is no mask
        edges = torch.cat((text[:1] - 1, left, text[-1:] + 1))
        beside_mask = edges[1:].eq(MASK) | edges[:-1].eq(MASK)
        hidden = lost == max(1, round(0.3 * len(text)))
        return hidden and in_order and masks == spans and bool(((edges.diff() == 1) | beside_mask).all())
    if name == "sentence permutation":  # between two sentences only
        return whole and bool(torch.isin(left[:-1][breaks], torch.cat((ends, text[-1:]))).all())
    return whole and bool((left[:-1][breaks] == text[-1]).all())


def _noises(f: Figures) -> tuple[str, str]:
    texts = f["texts"].mean
    failed = [name for name in corrupt.NOISES if f[f"holds/{name}"].mean != texts]
    return "not at this scale" if failed else "reproduced", (
        f"On {texts:,.0f} texts the corruptions do what their names say{', but for ' if failed else ''}"
        f"{', '.join(failed)}. Infilling's spans are {f['tokens a span'].mean:.2f} tokens long on average, "
        f"{percent(f['spans of length 0'].mean)} of them empty."
    )


@experiment(
    "bart-noise",
    rule="""Each corruption of texts whose tokens are numbered. Masking: 15% of the tokens are masks, the others where
    they were. Deletion: 15% are gone, the others in their order. Infilling: 30% are gone, one mask for each span drawn,
    nothing gone without one. Sentence permutation: the sentences are whole. Rotation: one cut, the halves exchanged.
    Reproduced if every property holds on every text. Anything else contradicts it.""",
    judge=_noises,
    config={"tokens a text": "4 to 59", "a full stop": "one token of seven"},
)
def bart_noise(lab: Lab, seed: int) -> dict[str, float]:
    """On how many texts each corruption does what its name says, and the lengths that infilling draws."""
    lengths = partial(corrupt.denoising.poisson_lengths, mean=3.0)
    values: dict[str, float] = {"texts": NOISED} | {f"holds/{name}": 0.0 for name in corrupt.NOISES}
    for number in range(NOISED):
        rng = generator(seed, number)
        text = torch.arange(10, 10 + int(torch.randint(4, 60, (1,), generator=rng)))
        ends = text[torch.rand(len(text), generator=rng) < 0.15]
        spans = len(lengths(max(1, round(0.3 * len(text))), generator(seed, number, 1)))
        for name, noise in corrupt.NOISES.items():
            options = {"ends": ends.tolist()} if name == "sentence permutation" else {}
            left = noise(text, generator(seed, number, 1), vocab=VOCAB, **options)
            values[f"holds/{name}"] += _as_it_says(name, text, left, ends, spans)
    drawn = lengths(9000, generator(seed))
    return values | {"tokens a span": sum(drawn) / len(drawn), "spans of length 0": drawn.count(0) / len(drawn)}


CORPORA = ("world", "Python's manual")
EXAMPLE = published("17_t5")["t5-span-corruption"]
SPANS, SIGNS = [(2, 2), (8, 1)], ("<X>", "<Y>", "<Z>")  # "for inviting", "last": (start, length)


def _spans(f: Figures) -> tuple[str, str]:
    letters = all(f[f"as in the lecture/{side}"].mean == 1 for side in ("input", "target"))
    back = f["restored/the lecture's example"].mean == 1 and all(f[f"restored/{name}"].mean == 1 for name in CORPORA)
    share, span = ([f[f"{what}/{name}"].mean for name in CORPORA] for what in ("share hidden", "mean span"))
    amounts = all(abs(x - 0.15) < 0.005 for x in share) and all(abs(x - 3) < 0.3 for x in span)
    verdict = "reproduced" if letters and back and amounts else "partly" if letters else "not at this scale"
    return verdict, (
        f"The lecture's input and target come out {'to the letter' if letters else 'otherwise'}; "
        f"{'every' if back else 'not every'} text comes back; on the town's documents and Python's manual "
        f"{share[0]:.1%} and {share[1]:.1%} of the tokens are hidden, in spans of {span[0]:.1f} and {span[1]:.1f}."
    )


@experiment(
    "t5-span-corruption",
    rule="""reproduced if both strings of the lecture are equal, every text comes back exactly, and on both corpora the
    share is within 0.5 points of 15% and the mean span within 0.3 of 3; partly if the strings are equal and not all of
    the rest holds; otherwise not at this scale.""",
    judge=_spans,
    config={"texts": "of 50 tokens and more; the manual is that of the Python that runs", "vocabulary": 2000},
)
def t5_span_corruption(lab: Lab, seed: int) -> dict[str, float]:
    """The lecture's example, and the amounts on documents of the town and on Python's manual."""
    words = EXAMPLE["text"].split()
    signs = list(range(len(words), len(words) + len(SIGNS)))
    marked = corrupt.mark_spans(torch.arange(len(words)), SPANS, signs)
    said = {side: " ".join([*words, *SIGNS][i] for i in ids.tolist()) for side, ids in marked._asdict().items()}
    values = {f"as in the lecture/{side}": float(text == EXAMPLE[side]) for side, text in said.items()}
    back = corrupt.restore(*marked, signs)
    values["restored/the lecture's example"] = float(torch.equal(back, torch.arange(len(words))))
    for name, texts in zip(CORPORA, (_documents(750), list(topics.values())), strict=True):
        values |= {f"{what}/{name}": value for what, value in _amounts(texts, seed).items()}
    return values


def _amounts(texts: list[str], seed: int) -> dict[str, float]:
    """Over the texts of one corpus, in its own word pieces: their number, share hidden, mean span, share restored."""
    pieces = corrupt.add_sentinels(train_wordpiece(texts, 2000))
    signs, rng = corrupt.sentinels(pieces), generator(seed, 2)
    found: list[tuple[float, ...]] = []
    for ids in pieces.ids([text[:2000] for text in texts], special=False):
        if len(ids) >= 50:
            pair = corrupt.span_corruption(torch.tensor(ids), rng, vocab=pieces.vocab, sentinels=signs)
            spans = int(torch.isin(pair.input, torch.tensor(signs)).sum())
            hidden, back = len(ids) - len(pair.input) + spans, corrupt.restore(*pair, signs).tolist() == ids
            found.append((hidden / len(ids), (len(pair.target) - spans - 1) / spans, back))
    means = (sum(column) / len(found) for column in zip(*found, strict=True))
    return {"texts": len(found)} | dict(zip(("share hidden", "mean span", "restored"), means, strict=True))
