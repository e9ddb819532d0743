"""The claims of lesson 09: recipes and size, BERT as a writer; ways of pretraining, objectives,
sizes, masking.
"""

import math
from dataclasses import replace
from functools import partial
from statistics import mean

import torch
from torch import nn

from course_lib.analysis import cost, evaluation
from course_lib.families import preset
from course_lib.generation import draw, generate
from course_lib.objectives import losses, mask_tokens, nsp_pairs, seeded_generator
from course_lib.vocab import IGNORE, Vocab
from experiments.lessons import (
    Lab,
    Plan,
    Tuning,
    experiment,
    given,
    probes,
    sentences,
    small_models,
    suite,
    town,
)

SHARES = {"[MASK]": 0.8, "random": 0.1, "as it is": 0.1}
WRITTEN, STORIES = 24, 24  # tokens each text is continued by, and how many texts
SIZE_RATES = given("settings")["bert-size"]["learning rates"]
MISMATCH_TASKS = ("nli", "entities")


@experiment("mlm-recipe")
def mlm_recipe(lab: Lab, seed: int) -> dict[str, float]:
    """Counts over half a million tokens, some of them special, some padding."""
    from scipy.stats import binom

    vocab = Vocab(3072, pad=0, unk=1, cls=2, sep=3, mask=4, special=(0, 1, 2, 3, 4))
    rng = seeded_generator(seed)
    ids = torch.randint(3072, (4000, 128), generator=rng)
    attention_mask = torch.arange(128)[None] < torch.randint(100, 129, (4000, 1), generator=rng)
    hidden = mask_tokens(ids, rng, vocab=vocab, attention_mask=attention_mask)
    ordinary = attention_mask & ~torch.isin(ids, torch.tensor(vocab.special))
    chosen = int(hidden.loss_mask.sum())
    same, masked = (hidden.ids == ids)[hidden.loss_mask], hidden.ids[hidden.loss_mask].eq(4)
    counts = {
        "[MASK]": int(masked.sum()),
        "random": int((~masked & ~same).sum()),
        "as it is": int(same.sum()),
    }
    total = int(ordinary.sum())
    values: dict[str, float] = {
        "ordinary tokens": total,
        "chosen": chosen,
        "share chosen": chosen / total,
    }
    for name, count in counts.items():
        low, high = binom.interval(0.999, chosen, SHARES[name])
        values |= {name: count, f"{name}, lowest": float(low), f"{name}, highest": float(high)}
    return values | {
        "special tokens chosen": int((hidden.loss_mask & ~ordinary).sum()),
        "labels elsewhere": int(((hidden.labels != IGNORE) & ~hidden.loss_mask).sum()),
        "changed elsewhere": int(((hidden.ids != ids) & ~hidden.loss_mask).sum()),
    }


@experiment("nsp-recipe")
def nsp_recipe(lab: Lab, seed: int) -> dict[str, float]:
    """Each sentence is its own address, so that no two look alike."""
    documents = [[f"{d} {s}" for s in range(1 + d % 9)] for d in range(2000)]
    pairs = nsp_pairs(documents, seeded_generator(seed), n=10_000)
    placed = [
        (*map(int, pair.text.split()), *map(int, pair.pair.split()), pair.next) for pair in pairs
    ]
    return {
        "pairs": len(pairs),
        "labelled as following": sum(label == 0 for *_, label in placed),
        "following, and so labelled": sum(
            d == e and t == s + 1 and label == 0 for d, s, e, t, label in placed
        ),
        "of the same document, labelled random": sum(
            d == e and label == 1 for d, s, e, t, label in placed
        ),
    }


@experiment("bert-params")
def bert_params(lab: Lab, seed: int) -> dict[str, float]:
    """Counted on the meta device, beside what transformers counts: embeddings, blocks, pooler."""
    from transformers import BertConfig, BertModel

    values: dict[str, float] = {}
    for name, config in {
        name: preset(name.lower()) for name in ("BERT-base", "BERT-large")
    }.items():
        theirs = BertConfig(
            hidden_size=config.width,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            intermediate_size=config.hidden,
        )
        values[name] = small_models.published_size(config)
        values[f"{name}, word pieces"] = config.embed.vocab
        values[f"{name}, transformers"] = cost.parameters(partial(BertModel, theirs))
    return values


@experiment("bert-cannot-generate")
def bert_cannot_generate(lab: Lab, seed: int) -> dict[str, float]:
    """Continue held-out documents, and let a judge, the GPT of another seed, read the new part."""
    bert, tokens, _ = lab.model(small_models.masked_arm(lab.plan, seed))
    seeds = seed, (seed + 1) % max(lab.plan.seeds, 2)
    gpt, judge = (lab.model(small_models.causal_arm(lab.plan, number)).model for number in seeds)
    read = sentences(small_models.WORLD, "validation", seed + 50)
    coded = tokens.ids([" ".join(read(i)) for i in range(STORIES)], special=False)
    whole = [[tokens.vocab.cls or 0, *ids] for ids in coded if len(ids) >= 2 * WRITTEN]
    rng, values = seeded_generator(seed, 5), dict[str, float]()
    written = {"real text": [ids[: 2 * WRITTEN] for ids in whole]}
    for name, model, write in (("GPT", gpt, _next_tokens), ("BERT", bert, _masks_at_the_end)):
        made = [write(model, tokens.vocab, ids[:WRITTEN], rng) for ids in whole]
        values[f"positions/{name}"] = sum(positions for _, positions in made)
        written[name] = [ids for ids, _ in made]
    for name, texts in written.items():  # of what follows the first `WRITTEN` tokens
        labels = losses.next_tokens(torch.tensor(texts))
        labels[:, : WRITTEN - 1] = IGNORE
        batch = {"ids": torch.tensor(texts), "labels": labels}
        values[f"perplexity/{name}"] = math.exp(evaluation.mean_loss(judge, losses.clm, [batch]))
    return values


def _next_tokens(
    gpt: nn.Module, vocab: Vocab, ids: list[int], rng: torch.Generator
) -> tuple[list[int], int]:
    out = generate(gpt, torch.tensor([ids]), max_new_tokens=WRITTEN, do_sample=True, generator=rng)
    return out[0].tolist(), len(out[0]) - 1


@torch.no_grad()
def _masks_at_the_end(
    bert: nn.Module, vocab: Vocab, ids: list[int], rng: torch.Generator
) -> tuple[list[int], int]:
    positions = 0
    for _ in range(WRITTEN):
        row = torch.tensor([[*ids, vocab.mask or 0, vocab.sep or 0]])
        logits = bert(row, loss_mask=torch.arange(row.shape[1])[None] == len(ids))
        ids = [*ids, int(draw(logits.softmax(-1), rng))]
        positions += row.shape[1]
    return ids, positions


@experiment("two-sided-lm-cheats")
def two_sided_lm_cheats(lab: Lab, seed: int) -> dict[str, float]:
    """Training loss at the end, and words guessed from the left alone."""
    end, values = small_models.after(lab.plan, 0.2), {}
    for name, make in (
        ("causal", small_models.causal_arm),
        ("two-sided", small_models.two_sided_arm),
    ):
        source = lab.model(arm := make(lab.plan, seed), at=end)
        values[f"loss/{name}"] = next(p["loss"] for p in source.card["curve"] if p["step"] >= end)
        values[f"hidden word/{name}"] = probes.hidden_word(
            source, probes.gaps(arm, source.tokenizer)
        )
    return values


@experiment("bidirectional-wins")
def bidirectional_wins(lab: Lab, seed: int) -> dict[str, float]:
    """Hidden words of documents, and of the evidence probe, for each model."""
    makers = (small_models.masked_arm, small_models.causal_arm, small_models.elmo_arm)
    bert, gpt, bilm = (lab.model(make(lab.plan, seed)) for make in makers)
    questions = probes.gaps(small_models.masked_arm(lab.plan, seed), bert.tokenizer)
    values = {
        f"hidden word/{name}": probes.hidden_word(m, questions)
        for name, m in (("BERT", bert), ("GPT", gpt))
    }
    values["hidden word/biLM"] = probes.elmo_hidden_word(bilm, seed)
    shipped = {name: lab.source(Tuning(name, "nli")) for name in ("bert-mini", "gpt-mini")}
    for side in ("left", "right", "both"):
        items = town(small_models.WORLD).evidence(lab.plan.probes, seed=seed, side=side)
        for name, source in {"BERT": bert, "GPT": gpt, **shipped, "biLM": bilm}.items():
            values[f"{name}/{side}"] = probes.fill_in(source, items)
    return values


def _ablated(plan: Plan, seed: int) -> dict[str, Tuning]:
    """The four rows of the table."""
    arms = (small_models.bert_arm, small_models.masked_arm, small_models.causal_arm)
    bert, masked, causal = (Tuning(arm(plan, seed), "", seed) for arm in arms)
    return {
        "BERT": bert,
        "no NSP": masked,
        "LTR, no NSP": causal,
        "+ BiLSTM": replace(causal, top="bilstm"),
    }


suite("bert-ablation", _ablated)


@experiment("bert-size", **given("suite"))
def bert_size(lab: Lab, seed: int) -> dict[str, float]:
    """Perplexity and mean score of each size."""
    values: dict[str, float] = {}
    for (layers, width), lr in zip(small_models.sizes(lab.plan), SIZE_RATES, strict=True):
        arm = replace(small_models.size_arm(lab.plan, seed, layers, width), lr=lr, keep=())
        name, (model, tokens, _) = f"{layers} x {width}", lab.model(arm)
        loss = evaluation.mean_loss(model, probes.words_loss, probes.held_out(arm, tokens))
        values[f"perplexity/{name}"] = math.exp(loss)
        taught = Tuning(arm, "", seed, **given("suite")["sizes"][lab.plan.scale])
        scores = {
            f"{task}/{name}": lab.score(replace(taught, task=task))
            for task in given("suite")["tasks"]
        }
        values |= scores | {f"average/{name}": mean(scores.values())}
    return values


@experiment("mlm-converges-slower", tasks=("entities",))
def mlm_converges_slower(lab: Lab, seed: int) -> dict[str, float]:
    """Hidden words and task scores at five moments of the race."""
    values: dict[str, float] = {}
    masked = small_models.masked_arm(lab.plan, seed)
    arms = {"masked": masked, "left to right": small_models.causal_arm(lab.plan, seed)}
    for moment in small_models.moments(lab.plan):
        for name, arm in arms.items():
            source = lab.model(arm, at=moment)
            values[f"hidden word/{name}/{moment}"] = probes.hidden_word(
                source, probes.gaps(masked, source.tokenizer)
            )
            values[f"tasks/{name}/{moment}"] = lab.score(Tuning(arm, "entities", seed, at=moment))
    return values


@experiment("mask-mismatch", tasks=MISMATCH_TASKS)
def mask_mismatch(lab: Lab, seed: int) -> dict[str, float]:
    """Scores of the three recipes, frozen and fine-tuned."""
    values: dict[str, float] = {}
    for recipe in small_models.RECIPES:
        arm = small_models.masked_arm(lab.plan, seed, recipe)
        tuned = Tuning(arm, "", seed, at=small_models.compared(lab.plan))
        for how, way in (("frozen", replace(tuned, frozen=True, lr=1e-2)), ("fine-tuned", tuned)):
            scores = [lab.score(replace(way, task=task)) for task in MISMATCH_TASKS]
            values |= {
                f"{task}, {how}/{recipe}": score
                for task, score in zip(MISMATCH_TASKS, scores, strict=True)
            }
            values[f"{how}/{recipe}"] = mean(scores)
    return values
