"""What a language model knows of real English.

    python -m lab.real.text MODEL --corpus ENGLISH --wikitext FILE --blimp ZIP --out FILE

MODEL is what `zoo.open_model` takes: causal, masked, or an encoder-decoder, which only
fills in words. The figures are of float32 weights on the CPU."""

import csv
import io
import json
import math
import random
import re
import time
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any

import torch
import torch.nn.functional as F
import typer
from torch import nn

from course_lib import data, zoo
from course_lib.analysis.copy_probe import Blank, fill_in_accuracy, restore_accuracy
from course_lib.data.batches import CorruptedBatches
from course_lib.data.token_store import encode_corpus
from course_lib.data.tokenizers import Tokenizer
from course_lib.files import COURSE, write_json
from course_lib.generation import prompting
from course_lib.model import heads
from course_lib.model.seq2seq import Seq2SeqLM
from course_lib.objectives.collate import pad_to_longest

KNOWLEDGE = COURSE / "data" / "probes" / "knowledge.tsv"
ENDS = re.compile(r"(?<=[.!?])\s+")  # of sentences
# sentences to choose from -> number of the likeliest
Scorer = Callable[[Sequence[Sequence[str]]], list[int]]


def likelihood(
    model: heads.LM, tokenizer: Tokenizer, texts: Iterable[str], length: int
) -> dict[str, float]:
    """How well a causal model predicts texts, each token once, with at least half a window before
    it where there is.

    Args:
        model: the causal model.
        tokenizer: its own.
        texts: each is read for itself.
        length: of a window, in tokens; the next one begins half a window later.

    Returns:
        bits a byte; perplexity a token, and a word as WikiText counts them: what stands between
        spaces, and one for each line's end.
    """
    nats = tokens = size = words = 0.0
    for text in texts:
        ids = torch.tensor([tokenizer.vocab.bos or 0, *tokenizer.encode(text).ids])
        for start in range(0, max(1, len(ids) - 1 - length // 2), length // 2):
            window = ids[start : start + length + 1]
            known = length // 2 if start else 0  # the window before has said them
            logits = model(window[None, :-1])[0, known:]  # T V
            nats += F.cross_entropy(logits, window[1 + known :], reduction="sum").item()
        tokens += len(ids) - 1
        size += len(text.encode())
        words += sum(len(line.split()) + 1 for line in text.split("\n"))
        words -= text.endswith("\n")  # no line begins behind the last line's end
    return {
        "bits_per_byte": nats / math.log(2) / size,
        "perplexity_per_token": math.exp(nats / tokens),
        "perplexity_per_word": math.exp(nats / words),
        "tokens": tokens,
    }


def detokenized(text: str) -> str:
    """WikiText as people write: signs stand at their words again (Radford et al. 2019, section 3.1,
    do the same).
    """
    text = re.sub(r" @([-,.])@ ", r"\1", text)
    text = re.sub(r" ([,.;:!?%)\]'’]|n't|'s)(?= )|(?<=[(\[$£]) ", r"\1", text)
    return re.sub(r'" ([^"\n]*?) "', r'"\1"', text)


def causal(model: heads.LM, tokenizer: Tokenizer, choices: Sequence[Sequence[str]]) -> list[int]:
    """The sentence of each row that is likeliest as a whole."""
    scores = prompting.score(model, tokenizer, [""] * len(choices), choices)
    return [max(range(len(row)), key=lambda i: row[i].logprob) for row in scores]


def masked(
    model: nn.Module, tokenizer: Tokenizer, choices: Sequence[Sequence[str]], batch: int = 250
) -> list[int]:
    """The same by pseudo-log-likelihood: each token is masked in turn (Salazar et al. 2020,
    equation 2).
    """
    encoded = tokenizer.ids([sentence for row in choices for sentence in row])
    mask = tokenizer.vocab.mask or 0
    # Every token but the marks of both ends is one question: (sentence, position).
    questions = [
        (i, position) for i, ids in enumerate(encoded) for position in range(1, len(ids) - 1)
    ]
    questions.sort(key=lambda question: len(encoded[question[0]]))  # like lengths, little padding

    scores = torch.zeros(len(encoded))
    for start in range(0, len(questions), batch):
        sentences, positions = torch.tensor(questions[start : start + batch]).unbind(1)
        inputs = pad_to_longest([encoded[i] for i in sentences], tokenizer.vocab.padding_id)
        ids = inputs["ids"]
        loss_mask = F.one_hot(positions, ids.shape[1]).bool()
        logits = heads.word_logits(
            model,
            ids.masked_fill(loss_mask, mask),
            attention_mask=inputs["attention_mask"],
            loss_mask=loss_mask,
        )
        nats = F.cross_entropy(logits, ids[loss_mask], reduction="none")
        scores.index_add_(0, sentences, -nats)

    following = iter(scores.tolist())
    likeliest = []
    for row in choices:
        row_scores = [next(following) for _ in row]
        likeliest.append(row_scores.index(max(row_scores)))
    return likeliest


def blimp(likeliest: Scorer, archive: Path, pairs: int) -> dict[str, Any]:
    """Share of minimal pairs whose good sentence is the likelier one (Warstadt et al. 2020): a mean
    over the 67 paradigms, and of each term of linguistics."""
    terms: defaultdict[str, list[float]] = defaultdict(list)
    with zipfile.ZipFile(archive) as files:
        names = [name for name in files.namelist() if name.endswith(".jsonl")]
        for name in sorted(names):
            if "__MACOSX" in name:
                continue
            lines = io.TextIOWrapper(files.open(name), "utf-8")
            rows = [json.loads(line) for line in islice(lines, pairs)]
            chosen = likeliest([(row["sentence_good"], row["sentence_bad"]) for row in rows])
            terms[rows[0]["linguistics_term"]].append(chosen.count(0) / len(chosen))
    return {
        "mean": mean([*chain.from_iterable(terms.values())]),
        "terms": {name: mean(shares) for name, shares in terms.items()},
        "pairs": pairs,
    }


def mean(shares: Sequence[float]) -> float:
    """Their arithmetic mean."""
    return sum(shares) / len(shares)


def knowledge(likeliest: Scorer, path: Path = KNOWLEDGE) -> dict[str, float]:
    """Share of cloze sentences whose right word makes the likeliest sentence of four (chance 0.25),
    by kind.
    """
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    answers = ("answer", "wrong_1", "wrong_2", "wrong_3")
    chosen = likeliest([[_filled(row["sentence"], row[name]) for name in answers] for row in rows])
    kinds: defaultdict[str, list[bool]] = defaultdict(list)
    for row, choice in zip(rows, chosen, strict=True):
        kinds[row["kind"]].append(choice == 0)
        kinds["all"].append(choice == 0)
    return {kind: sum(right) / len(right) for kind, right in sorted(kinds.items())}


def _filled(sentence: str, answer: str) -> str:
    return sentence.replace("___", answer)


def masked_accuracy(
    model: nn.Module, tokenizer: Tokenizer, rows: Any, length: int
) -> dict[str, float]:
    """Share of 15% masked tokens that the model's first guess is, and the mean loss."""
    batches = CorruptedBatches(
        encode_corpus(rows, tokenizer), tokenizer, length=length, tokens=4096, seed=1
    )
    right = nats = total = 0.0
    for step in range(batches.steps):
        batch = batches[step]
        labels = batch["labels"][batch["loss_mask"]]
        logits = model(
            batch["ids"], attention_mask=batch["attention_mask"], loss_mask=batch["loss_mask"]
        )
        right += (logits.argmax(-1) == labels).sum().item()
        nats += F.cross_entropy(logits, labels, reduction="sum").item()
        total += len(labels)
    return {"accuracy": right / total, "loss": nats / total, "tokens": total}


def hidden_words(
    model: nn.Module, tokenizer: Tokenizer, texts: Iterable[str], count: int = 1000
) -> dict[str, float]:
    """Share of words that the model fills in rightly, all pieces of them: one small-letter word of
    a sentence of 8 to 30 words. Standard error: of the share."""
    rng = random.Random(0)
    blanks = []
    for sentence in chain.from_iterable(ENDS.split(text) for text in texts):
        words = list(re.finditer(r"\b[a-z]+\b", sentence))
        if words and 8 <= len(sentence.split()) <= 30:
            word = rng.choice(words)
            blanks.append(Blank(sentence[: word.start()], word.group(), sentence[word.end() :]))
    chosen = rng.sample(blanks, min(count, len(blanks)))
    fill: Callable[..., float] = (
        restore_accuracy if isinstance(model, Seq2SeqLM) else fill_in_accuracy
    )
    right = fill(model, tokenizer, chosen)
    return {
        "right": right,
        "standard error": math.sqrt(right * (1 - right) / len(chosen)),
        "words": len(chosen),
    }


@torch.inference_mode()
def main(
    name: Annotated[
        str, typer.Argument(help="A checkpoint, or a folder in the Hugging Face layout.")
    ],
    out: Annotated[Path, typer.Option(help="File of the figures.")],
    corpus: Annotated[str | None, typer.Option(help="Scored on its test split.")] = None,
    wikitext: Annotated[
        Path | None, typer.Option(help="A text file that is scored as one text.")
    ] = None,
    archive: Annotated[
        Path | None, typer.Option("--blimp", help="BLiMP.zip, as published.")
    ] = None,
    pairs: Annotated[
        int, typer.Option(help="Of each BLiMP paradigm, at most so many.", min=1)
    ] = 1000,
) -> None:
    """Score a model on real English."""
    model, tokenizer, _ = zoo.open_model(name)
    model.eval()
    length, is_causal = model.stack.config.position.length, isinstance(model, heads.LM)
    likeliest: Scorer = partial(causal if is_causal else masked, model, tokenizer)
    found: dict[str, Any] = {
        "model": name,
        "torch": torch.__version__,
        "made": time.strftime("%Y-%m-%d"),
    }
    rows = None if corpus is None else data.corpus(corpus, split="test")
    if rows is not None:
        found["hidden words"] = hidden_words(model, tokenizer, rows["text"])
    if isinstance(model, Seq2SeqLM):
        rows = wikitext = archive = None
    else:
        found["knowledge"] = knowledge(likeliest)
    if rows is not None and is_causal:
        found["corpus"] = likelihood(model, tokenizer, rows["text"], length)
    elif rows is not None:
        found["corpus"] = masked_accuracy(model, tokenizer, rows, length)
    if wikitext is not None and is_causal:
        raw = wikitext.read_text("utf-8")
        found["wikitext"] = likelihood(model, tokenizer, [raw], length)
        found["wikitext, detokenized"] = likelihood(model, tokenizer, [detokenized(raw)], length)
    if archive is not None:
        found["blimp"] = blimp(likeliest, archive, pairs)
    write_json(out, found)
    typer.echo(json.dumps(found))


if __name__ == "__main__":
    typer.run(main)
