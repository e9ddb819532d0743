"""The claims of lesson 09: the two-sided model that cheats, sizes, BERT as a writer, masking, and
missing words whose evidence is left or right.
"""

import math
from dataclasses import replace
from functools import partial
from statistics import mean

import torch
from torch import nn

from course_lib import data, zoo
from course_lib.analysis import cost, evaluation
from course_lib.families import preset
from course_lib.generation import draw, generate
from course_lib.objectives import losses, seeded_generator
from course_lib.vocab import IGNORE, Vocab
from lab.lessons import (
    Lab,
    Tuning,
    experiment,
    given,
    probes,
    sentences,
    small_models,
)
from lab.real import few_rows, gaps, ngrams

WRITTEN, STORIES = 24, 24  # tokens each text is continued by, and how many texts
SIZE_RATES = given("bert")["settings"]["bert-size"]["learning rates"]
SUITE = given("bert")["suite"]
GAPS = given("bert")["gaps"]
MISMATCH_TASKS = ("nli", "entities")


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


@experiment("bert-size", **SUITE)
def bert_size(lab: Lab, seed: int) -> dict[str, float]:
    """Perplexity and mean score of each size."""
    values: dict[str, float] = {}
    for (layers, width), lr in zip(small_models.sizes(lab.plan), SIZE_RATES, strict=True):
        arm = replace(small_models.size_arm(lab.plan, seed, layers, width), lr=lr, keep=())
        name, (model, tokens, _) = f"{layers} x {width}", lab.model(arm)
        loss = evaluation.mean_loss(model, probes.words_loss, probes.held_out(arm, tokens))
        values[f"perplexity/{name}"] = math.exp(loss)
        taught = Tuning(arm, "", seed, **SUITE["sizes"][lab.plan.scale])
        scores = {
            f"{task}/{name}": lab.score(replace(taught, task=task)) for task in SUITE["tasks"]
        }
        values |= scores | {f"average/{name}": mean(scores.values())}
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


@experiment("gaps")
def missing_words(lab: Lab, seed: int) -> dict[str, float]:
    """Accuracy at missing words by the side of the evidence, of both models and of counts.

    A seed is a part of the held-out texts, every tenth one.
    """
    size = GAPS["sizes"][lab.plan.scale]
    folder = lab.public_data("english")
    decoder, decoder_tokens, _ = zoo.load("gpt-english")
    encoder, encoder_tokens, _ = zoo.load("bert-english")
    tokenizers = [decoder_tokens, encoder_tokens]
    finder = gaps.Finder(ngrams.english(folder), tokenizers, size["choices"])
    split = "validation" if seed >= 100 else "test"
    texts = data.corpus(folder, split=split)["text"]
    part = texts[seed % size["parts"] :: size["parts"]]
    values: dict[str, float] = {}
    for side, found in finder.gaps(part, size["gaps"], seed).items():
        counted = [finder.bigrams(gap) for gap in found]
        answers = {name: [row[name] for row in counted] for name in counted[0]}
        answers["encoder"] = gaps.both_sides(encoder, encoder_tokens, found)
        answers["decoder, up to the gap"] = gaps.up_to_the_gap(decoder, decoder_tokens, found)
        answers["decoder, whole sentence"] = gaps.whole_sentence(decoder, decoder_tokens, found)
        values |= {f"{side}/{name}": gaps.accuracy(rows) for name, rows in answers.items()}
        values[f"{side}/gaps"] = len(found)
    return values


@experiment("decoder-encoder", **few_rows.SETTINGS)
def decoder_encoder(lab: Lab, seed: int) -> dict[str, float]:
    """Scores of the decoder, the encoder and a linear model that were tuned on the same rows."""
    values: dict[str, float] = {}
    for task in few_rows.TASKS:
        scores = {name: few_rows.score(lab, task, name, seed) for name in ("decoder", "encoder")}
        scores["linear"] = few_rows.linear_score(lab, task, seed)
        values |= {f"{task}/{name}": score for name, score in scores.items()}
    for name in ("decoder", "encoder", "linear"):
        values[f"mean/{name}"] = mean(values[f"{task}/{name}"] for task in few_rows.TASKS)
    return values
