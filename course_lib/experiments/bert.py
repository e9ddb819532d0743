"""Claims of lesson 09 that need no training of their own: BERT's recipes, its size, and what it is as a writer."""

import math
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from course_lib import corrupt, cost
from course_lib.claims.arms import Arm, Trained, sentences
from course_lib.claims.experiment import experiment
from course_lib.claims.lab import Lab, Plan
from course_lib.claims.record import Figures, short
from course_lib.corrupt import IGNORE, generator
from course_lib.experiments import family
from course_lib.experiments.judging import percent
from course_lib.generate import draw, generate
from course_lib.models.bert import bert_base, bert_large
from course_lib.tokenizers import Vocab

SHARES = {"[MASK]": 0.8, "random": 0.1, "as it is": 0.1}
WRITTEN, STORIES = 24, 24  # tokens each text is continued by, and how many texts


def _recipe(f: Figures) -> tuple[str, str]:
    clean = (
        f["special tokens chosen"].mean == 0 and f["labels elsewhere"].mean == 0 and f["changed elsewhere"].mean == 0
    )
    inside = [f[f"{name}, lowest"].mean <= f[name].mean <= f[f"{name}, highest"].mean for name in SHARES]
    rate = f["share chosen"].mean
    fits = abs(rate - 0.15) < 0.002
    said = ", ".join(f"{name} {percent(f[name].mean / f['chosen'].mean)}" for name in SHARES)
    return "reproduced" if clean and all(inside) and fits else "not at this scale", (
        f"{100 * rate:.2f}% of {f['ordinary tokens'].mean:,.0f} ordinary tokens are chosen; of these {said}. Special "
        f"tokens chosen: {f['special tokens chosen'].mean:.0f}; loss at positions not chosen: "
        f"{f['labels elsewhere'].mean:.0f}."
    )


@experiment(
    "mlm-recipe",
    rule="""Reproduced if the share of ordinary tokens chosen is 15% to within 0.2 points, the counts of [MASK],
    random and unchanged tokens lie in their 99.9% binomial intervals around 80, 10 and 10%, no special token is
    chosen, and there are labels, and changes, at the chosen positions only. Anything else contradicts it.""",
    judge=_recipe,
    config={"rows": 4000, "length": 128, "vocabulary": 3072},
)
def mlm_recipe(lab: Lab, seed: int) -> dict[str, float]:
    """Counts over half a million tokens, some of them special, some padding."""
    from scipy.stats import binom

    vocab = Vocab(3072, pad=0, unk=1, cls=2, sep=3, mask=4, special=(0, 1, 2, 3, 4))
    rng = generator(seed)
    ids = torch.randint(3072, (4000, 128), generator=rng)
    keep = torch.arange(128)[None] < torch.randint(100, 129, (4000, 1), generator=rng)
    hidden = corrupt.mask_tokens(ids, rng, vocab=vocab, keep=keep)
    ordinary = keep & ~torch.isin(ids, torch.tensor(vocab.special))
    chosen = int(hidden.at.sum())
    same, masked = (hidden.ids == ids)[hidden.at], hidden.ids[hidden.at].eq(4)
    counts = {"[MASK]": int(masked.sum()), "random": int((~masked & ~same).sum()), "as it is": int(same.sum())}
    values: dict[str, float] = {"ordinary tokens": int(ordinary.sum()), "chosen": chosen}
    values["share chosen"] = chosen / int(ordinary.sum())
    for name, count in counts.items():
        low, high = binom.interval(0.999, chosen, SHARES[name])
        values |= {name: count, f"{name}, lowest": float(low), f"{name}, highest": float(high)}
    values["special tokens chosen"] = int((hidden.at & ~ordinary).sum())
    values["labels elsewhere"] = int(((hidden.labels != IGNORE) & ~hidden.at).sum())
    values["changed elsewhere"] = int(((hidden.ids != ids) & ~hidden.at).sum())
    return values


def _pairs(f: Figures) -> tuple[str, str]:
    n = f["pairs"].mean
    half = f["labelled as following"].mean == n // 2
    good = f["following, and so labelled"].mean == n // 2 and f["of the same document, labelled random"].mean == 0
    return "reproduced" if half and good else "not at this scale", (
        f"Of {n:,.0f} pairs {f['labelled as following'].mean:,.0f} are labelled as following, and all of them follow; "
        f"{f['of the same document, labelled random'].mean:,.0f} random ones are of the same document."
    )


@experiment(
    "nsp-recipe",
    rule="""Reproduced if exactly half of the pairs are labelled as following and all of these are neighbours in
    their document, and no pair labelled as random is of one document. Anything else contradicts it.""",
    judge=_pairs,
    config={"documents": 2000, "pairs": 10_000},
)
def nsp_recipe(lab: Lab, seed: int) -> dict[str, float]:
    """Each sentence is its own address, so that no two look alike."""
    documents = [[f"{d} {s}" for s in range(1 + d % 9)] for d in range(2000)]
    pairs = corrupt.nsp_pairs(documents, generator(seed), n=10_000)
    placed = [(*map(int, pair.text.split()), *map(int, pair.pair.split()), pair.next) for pair in pairs]
    return {
        "pairs": len(pairs),
        "labelled as following": sum(label == 0 for *_, label in placed),
        "following, and so labelled": sum(d == e and t == s + 1 and label == 0 for d, s, e, t, label in placed),
        "of the same document, labelled random": sum(d == e and label == 1 for d, s, e, t, label in placed),
    }


def _params(f: Figures) -> tuple[str, str]:
    equal = all(f[name].mean == f[f"{name}, transformers"].mean for name in ("BERT-base", "BERT-large"))
    off = [abs(f["BERT-base"].mean / 110e6 - 1), abs(f["BERT-large"].mean / 340e6 - 1)]
    verdict = "reproduced" if equal and max(off) < 0.02 else "partly" if equal else "not at this scale"
    return verdict, (
        f"BERT-base has {f['BERT-base'].mean:,.0f} and BERT-large {f['BERT-large'].mean:,.0f} parameters, to the unit "
        f"as in transformers: {100 * off[0]:.1f}% and {100 * off[1]:.1f}% off the paper's 110M and 340M."
    )


@experiment(
    "bert-params",
    rule="""Reproduced if both configurations have the number of parameters that transformers counts, to the unit,
    and 110M and 340M are less than two percent off. Partly if only the counts agree.""",
    judge=_params,
)
def bert_params(lab: Lab, seed: int) -> dict[str, float]:
    """Counted on the meta device: embeddings, blocks, pooler."""
    from transformers import BertConfig, BertModel

    values: dict[str, float] = {}
    for name, config in {"BERT-base": bert_base(), "BERT-large": bert_large()}.items():
        theirs = BertConfig(
            hidden_size=config.width, num_hidden_layers=config.layers, num_attention_heads=config.heads,
            intermediate_size=config.hidden,
        )  # fmt: skip
        values[name] = family.published_size(config)
        values[f"{name}, transformers"] = cost.parameters(partial(BertModel, theirs))
        values[f"{name}, word pieces"] = config.embed.vocab
    return values


def _writers(plan: Plan, seed: int) -> list[Arm]:
    """BERT, GPT, and the judge: the GPT of another seed."""
    return [
        family.masked_arm(plan, seed),
        family.causal_arm(plan, seed),
        family.causal_arm(plan, (seed + 1) % max(plan.seeds, 2)),
    ]


def _writing(f: Figures) -> tuple[str, str]:
    worse = f["perplexity/BERT"].mean / f["perplexity/GPT"].mean
    dearer = f["positions/BERT"].mean / f["positions/GPT"].mean
    clear = all(b >= 1.5 * g for b, g in zip(f["perplexity/BERT"].seeds, f["perplexity/GPT"].seeds, strict=True))
    held = [clear, dearer >= 3]
    verdict = "reproduced" if all(held) else "partly" if any(held) else "not at this scale"
    return verdict, (
        f"Judged by a GPT of another seed, BERT's continuations have perplexity {short(f['perplexity/BERT'].mean)}, "
        f"GPT's {short(f['perplexity/GPT'].mean)}, the town's own {short(f['perplexity/real text'].mean)}: "
        f"{worse:.1f} times. BERT computes {dearer:.0f} times as many positions."
    )


@experiment(
    "bert-cannot-generate",
    rule="""BERT writes by a [MASK] at the end, again and again; GPT, of equal size and training, token by token
    with its cache; a GPT of another seed judges. Reproduced if with every seed the perplexity of BERT's
    continuations is at least one and a half times that of GPT's, and BERT computes at least three times as many
    positions. Partly if one of the two holds.""",
    judge=_writing,
    needs=_writers,
    config={"tokens written": WRITTEN, "texts": STORIES, "temperature": 1.0},
)
def bert_cannot_generate(lab: Lab, seed: int) -> dict[str, float]:
    """Continue held-out documents, and let the judge read the new part."""
    bert, gpt, judge = (lab.model(arm) for arm in _writers(lab.plan, seed))
    tokens = judge.tokenizer
    documents = [" ".join(sentences(family.WORLD, "validation", seed + 50)(i)) for i in range(STORIES)]
    whole = [[tokens.vocab.cls or 0, *tokens.encode(text, special=False).ids] for text in documents]
    whole = [ids for ids in whole if len(ids) > 2 * WRITTEN][:STORIES]
    starts = [ids[:WRITTEN] for ids in whole]
    rng, spent, values = generator(seed, 5), Counter[str](), {}
    written = {"real text": [ids[: 2 * WRITTEN] for ids in whole]}
    writers: dict[str, Callable[[list[int], torch.Generator], tuple[list[int], int]]] = {
        "GPT": lambda ids, rng: _next_tokens(gpt, ids, rng),
        "BERT": lambda ids, rng: _masks_at_the_end(bert, ids, rng),
    }
    for name, writer in writers.items():
        begin, written[name] = time.perf_counter(), []
        for start in starts:
            ids, positions = writer(start, rng)
            written[name].append(ids)
            spent[name] += positions
        values[f"seconds/{name}"] = time.perf_counter() - begin
        values[f"positions/{name}"] = spent[name]
    for name, texts in written.items():
        values[f"perplexity/{name}"] = _perplexity(judge, texts)
    return values


def _next_tokens(gpt: Trained, ids: list[int], rng: torch.Generator) -> tuple[list[int], int]:
    out = generate(gpt.model, torch.tensor([ids]), max_new_tokens=WRITTEN, do_sample=True, generator=rng)
    return out[0].tolist(), len(out[0]) - 1


@torch.no_grad()
def _masks_at_the_end(bert: Trained, ids: list[int], rng: torch.Generator) -> tuple[list[int], int]:
    vocab, positions, ids = bert.tokenizer.vocab, 0, list(ids)
    for _ in range(WRITTEN):
        row = torch.tensor([[*ids, vocab.mask or 0, vocab.sep or 0]])
        logits = bert.model(row, at=torch.arange(row.shape[1])[None] == len(ids))
        ids.append(int(draw(logits.softmax(-1), rng)))
        positions += row.shape[1]
    return ids, positions


@torch.no_grad()
def _perplexity(judge: Trained, texts: list[list[int]]) -> float:
    """Of what follows the first `WRITTEN` tokens, a token."""
    total = count = 0.0
    for ids in texts:
        row = torch.tensor([ids])
        terms = -judge.model(row).log_softmax(-1)[0, :-1].gather(1, row[0, 1:, None])[:, 0]
        fresh: Tensor = terms[WRITTEN - 1 :]
        total, count = total + fresh.sum().item(), count + len(fresh)
    return math.exp(total / count)
