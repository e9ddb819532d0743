"""`t5-english`: BART's weights in T5's form, then spans and five tasks, every one of them as text.

    python -m lab.real.text_to_text begin bart-english START
    python -m lab.real.text_to_text train START ENGLISH FIRST --steps 3800
    python -m lab.real.text_to_text train FIRST ENGLISH OUT --steps 2000
    python -m lab.real.text_to_text score OUT ENGLISH TO

ENGLISH holds the files of the corpus. The shipped weights were trained in two parts. In the first
part, two tasks stood in the place of the last three. They were not learned, and were dropped.
`score` asks about sentences that no training read, and writes the checkpoint with its card.
"""

import json
import lzma
import math
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from torch import Tensor, nn

from classroom import repairs
from course_lib import generation, zoo
from course_lib.data.inputs import SourceTarget
from course_lib.data.tokenizers import add_sentinels
from course_lib.families.t5 import t5, t5_lm
from course_lib.model.seq2seq import Seq2SeqLM
from course_lib.objectives import collate, losses
from course_lib.objectives.losses import Batch
from course_lib.training.loop import TrainConfig
from course_lib.training.loop import train as run_training
from lab.real.text import ENDS

app = typer.Typer(help=__doc__, no_args_is_help=True)
FILES = ("sentences-1", "speeches-1", "textbooks-1", "textbooks-2", "books-1", "books-2")
LETTERS = range(25, 131)  # of a sentence that is kept
SPLIT = 70  # letters of a sentence without spaces; the tokenizer reads no word of 100
SHARES = {
    "spans": 0.25, "correct": 0.25, "punctuate": 0.15, "vowels": 0.15, "split": 0.1, "genre": 0.1
}  # fmt: skip
GENRES = {
    "books-1": "novel",
    "books-2": "novel",
    "textbooks-1": "textbook",
    "textbooks-2": "textbook",
}
EXCHANGED = (
    "is/are was/were has/have does/do a/an this/these that/those he/him she/her they/them we/us "
    "I/me his/he their/there its/it's much/many don't/doesn't in/on at/in to/for went/goed "
    "came/comed saw/seed took/taked knew/knowed gave/gived thought/thinked made/maked "
    "children/childs men/mans women/womans people/peoples better/gooder your/you're then/than"
)
PAIRS = [pair.split("/") for pair in EXCHANGED.split()]
MADE_UP = {"goed", "comed", "seed", "taked", "knowed", "gived", "thinked", "maked", "childs"}
MADE_UP |= {"mans", "womans", "peoples", "gooder"}
WRONG = dict(PAIRS) | {b: a for a, b in PAIRS if b not in MADE_UP}
NOVELS = ("Understood Betsy", "The Blue Ghost", "Penny Nichols")  # of the held-out part
SPEECHES = ("State of the Union", "Wikinews", "Address by")
FIRST = {"steps": 3800, "tokens": 4_107_608, "seconds": 4090}  # of the first part
ASKED = 200  # held-out sentences of a task
DROPPED = {"the", "a", "an", "of", "to", "is", "was", "are", "in", "be", "at", "for", "with"}


@app.command()
def begin(
    body: Annotated[str, typer.Argument(help="A pre-norm encoder-decoder that has read English.")],
    out: Annotated[Path, typer.Argument(help="Folder of the model in T5's form.")],
) -> None:
    """Take over the matrices. What is added gets mean 0, so layer norm becomes RMSNorm."""
    torch.manual_seed(0)
    opened: Any = zoo.open_model(body)
    tokenizer = add_sentinels(opened.tokenizer, 100)
    old: Any = opened.model
    shape = old.stack.decoder.config
    sizes = {"width": shape.width, "layers": shape.layers, "heads": shape.heads}
    config = replace(t5(tokenizer.vocab.size, **sizes, dropout=0.0), activation="gelu", scale=True)
    made = t5_lm(config, start=tokenizer.vocab.padding_id)
    made.scaled = False  # the trained form
    known = dict(old.named_parameters())
    with torch.no_grad():
        for name, weight in made.named_parameters():
            if name.endswith("position.table.weight"):
                weight.zero_()
            elif name.endswith("tokens.weight"):
                rows = centred(known[name], 1)
                mask = rows[opened.tokenizer.vocab.mask]
                noise = 0.5 * rows.std() * torch.randn(len(weight) - len(rows), rows.shape[1])
                weight.copy_(torch.cat([rows, centred(mask + noise, 1)]))
            elif name.endswith(("out.weight", "down.weight")):
                weight.copy_(centred(known[name], 0))
            else:
                weight.copy_(known[name])
    out.mkdir(parents=True, exist_ok=True)
    zoo.export("start", made, tokenizer, {}, out)


def centred(matrix: Tensor, dim: int) -> Tensor:
    """The matrix without its mean over a dimension."""
    return matrix - matrix.mean(dim, keepdim=True)


def in_form(model: Seq2SeqLM, scaled: bool) -> Seq2SeqLM:
    """The same function with or without T5 1.0's form.

    T5 1.0 does not scale its queries by 1 / sqrt(Dh), and divides by sqrt(D) before the output.
    Muon trains the form that scales (`scaled`). The shipped weights are in T5's own.
    """
    config = model.stack.decoder.config
    if config.scale == scaled:
        return model
    state = model.state_dict()
    sign = -1 if scaled else 1
    for name in state:
        if name.endswith((".attn.q.weight", ".cross.q.weight")):
            state[name] = state[name] * config.dh ** (-0.5 * sign)
    last = "stack.decoder.norm.weight"
    state[last] = state[last] * config.width ** (0.5 * sign)
    made = t5_lm(replace(config, scale=scaled), start=model.stack.start)
    made.scaled = not scaled
    made.load_state_dict(state)
    return made


def sentences(english: Path, split: str, limit: int) -> dict[str, list[str]]:
    """Sentences of the corpus in random order: "all", `limit` of each file, and by genre."""
    rng = random.Random(0)
    kept: dict[str, list[str]] = {"all": [], "novel": [], "textbook": []}
    for name in FILES:
        with lzma.open(english / f"{split}-{name}.txt.xz", "rt", encoding="utf-8") as file:
            paragraphs = [line for line in file if not line.startswith("=")]
        rng.shuffle(paragraphs)
        found: list[str] = []
        for paragraph in paragraphs:
            found += plain_sentences(paragraph)
            if len(found) > limit:
                break
        kept["all"] += found
        if name in GENRES:
            kept[GENRES[name]] += found
    rng.shuffle(kept["all"])
    return kept


def held_out(english: Path) -> dict[str, list[str]]:
    """The same of the part that no training read. Its documents tell the genre."""
    kept: dict[str, list[str]] = {"all": [], "novel": [], "textbook": []}
    genre = ""
    with lzma.open(english / "dev.txt.xz", "rt", encoding="utf-8") as file:
        for line in file:
            if line.startswith("= "):
                title = line.strip("= \n")
                genre = "novel" if title.startswith(NOVELS) else "textbook"
                genre = "" if title.startswith(SPEECHES) else genre
                continue
            found = plain_sentences(line)
            kept["all"] += found
            if genre:
                kept[genre] += found
    return kept


def plain_sentences(paragraph: str) -> list[str]:
    """The ordinary sentences of a paragraph."""
    return [s for s in ENDS.split(" ".join(paragraph.split())) if is_plain(s)]


def is_plain(sentence: str) -> bool:
    """A whole sentence of ordinary signs."""
    return (
        len(sentence) in LETTERS
        and re.fullmatch(r"[A-Z][A-Za-z0-9 ,;:'!?-]*[.!?]", sentence) is not None
        and sentence.count(" ") > 3
    )


def damaged(sentence: str, rng: random.Random) -> str:
    """The sentence with one mistake or two."""
    words = sentence[:-1].split()
    for _ in range(rng.choice((1, 1, 2))):
        places = [i for i, word in enumerate(words) if word.lower() in WRONG or word == "I"]
        kind = rng.random()
        if places and kind < 0.6:
            i = rng.choice(places)
            new = WRONG.get(words[i], WRONG.get(words[i].lower(), words[i]))
            words[i] = new.capitalize() if words[i][0].isupper() and new != "I" else new
        elif kind < 0.75:
            places = [i for i, word in enumerate(words) if word in DROPPED]
            if places:
                del words[rng.choice(places)]
        elif kind < 0.88:
            i = rng.randrange(1, len(words) - 1)
            words[i], words[i + 1] = words[i + 1], words[i]
        else:
            i = rng.randrange(1, len(words))
            words.insert(i, words[i])
    return " ".join(words) + sentence[-1]


def bare(sentence: str) -> str:
    """In lower case, without punctuation."""
    return " ".join(re.sub(r"[^a-z0-9' -]", " ", sentence.lower()).split())


def example(task: str, texts: dict[str, list[str]], rng: random.Random) -> dict[str, str]:
    """A random sentence as an input and a target of a task."""
    sentence = rng.choice(texts["all"])
    if task == "spans":  # for scores only: one word is missing
        word = rng.choice(list(re.finditer(r"\b[a-z]+\b", sentence)))
        given = sentence[: word.start()] + "<extra_id_0>" + sentence[word.end() :]
        return {"text": given, "target": f"<extra_id_0> {word.group()} <extra_id_1>"}
    if task == "correct":
        given = sentence if rng.random() < 0.15 else damaged(sentence, rng)
    elif task == "punctuate":
        given = bare(sentence)
    elif task == "vowels":
        given = re.sub("[aeiouAEIOU]", "", sentence)
    elif task == "split":
        while len(sentence) > SPLIT:
            sentence = rng.choice(texts["all"])
        sentence = bare(sentence)
        given = sentence.replace(" ", "")
    else:
        genre = rng.choice(("novel", "textbook"))
        return {"text": f"genre: {rng.choice(texts[genre])}", "target": genre}
    return {"text": f"{task}: {given}", "target": sentence}


class Mixture:
    """`mixture[step]`: rows of all tasks in one batch, a function of the step."""

    def __init__(self, model: Any, tokenizer: Any, texts: dict[str, list[str]], rows: int):
        self.frame = SourceTarget(tokenizer, model.stack.decoder.config, max_length=96)
        self.tokenizer, self.texts, self.rows = tokenizer, texts, rows

    def __getitem__(self, step: int, /) -> Batch:
        rng = random.Random(step)
        chosen = rng.choices(list(SHARES), list(SHARES.values()), k=self.rows)
        every = self.texts["all"]
        spans = [rng.choice(every) for task in chosen if task == "spans"] or every[:1]
        others = [example(task, self.texts, rng) for task in chosen if task != "spans"]
        vocab = self.tokenizer.vocab
        padded = collate.pad(self.tokenizer.ids(spans), vocab.pad)
        noise = torch.Generator().manual_seed(step)
        rate, mean = rng.choice(((0.15, 1.5), (0.15, 3.0), (0.3, 2.0), (0.3, 3.0)))
        one = collate.span_corrupted(
            padded["ids"], padded["attention_mask"], noise, vocab=vocab, rate=rate, mean=mean
        )
        two = self.frame.collate(self.frame.rows(others))
        return {name: stacked(one[name], two[name], name == "labels") for name in two}


def stacked(a: Tensor, b: Tensor, labels: bool) -> Tensor:
    """Two batches under each other, padded to one width."""
    width, value = max(a.shape[1], b.shape[1]), -100 if labels else 0
    return torch.cat([nn.functional.pad(x, (0, width - x.shape[1]), value=value) for x in (a, b)])


@app.command()
def train(
    start: Annotated[Path, typer.Argument(help="Folder that `begin` wrote.")],
    english: Annotated[Path, typer.Argument(help="Folder of the corpus.")],
    out: Annotated[Path, typer.Argument(help="Folder of the checkpoint.")],
    steps: Annotated[int, typer.Option(help="Updates.")] = 3000,
    rows: Annotated[int, typer.Option(help="Rows of a batch.")] = 48,
    lr: Annotated[float, typer.Option(help="Highest learning rate.")] = 2e-3,
) -> None:
    """Train on the mixture; every 100 steps the state is saved, at the end the checkpoint."""
    name = next(path.parent.name for path in start.glob("*/model.safetensors"))
    model, tokenizer, _ = zoo.load(name, folder=start)
    model = in_form(model, scaled=True)
    texts = sentences(english, "train", 40_000)
    typer.echo({name: len(part) for name, part in texts.items()})
    mixture = Mixture(model, tokenizer, texts, rows)
    out.mkdir(parents=True, exist_ok=True)
    config = TrainConfig(
        steps=steps, lr=lr, schedule="wsd", warmup=50, optimizer="muon", weight_decay=0.1,
        beta2=0.98, precision="bf16", save_to=out / "state.pt", save_every=100,
    )  # fmt: skip
    curve, seen, seconds, total = [], 0, 0.0, 0.0
    for step in run_training(model, mixture, losses.seq2seq, config):
        seen, seconds, total = seen + step.tokens, seconds + step.seconds, total + step.loss
        if step.step % 50 == 0:
            curve.append({"step": step.step, "loss": round(total / 50, 4), "lr": step.lr})
            typer.echo(json.dumps(curve[-1] | {"tokens": seen, "seconds": round(seconds)}))
            total = 0.0
        if step.step % 200 == 0 or step.step == steps:
            about = {"steps": step.step, "tokens": seen, "seconds": round(seconds), "curve": curve}
            zoo.export("t5-english", in_form(model, scaled=False), tokenizer, about, out)


@app.command()
def score(
    trained: Annotated[Path, typer.Argument(help="Folder that `train` wrote.")],
    english: Annotated[Path, typer.Argument(help="Folder of the corpus.")],
    to: Annotated[Path, typer.Argument(help="Folder of all checkpoints.")],
    limit: Annotated[
        int, typer.Option(help="Training sentences of each file, for rules.")
    ] = 40_000,
) -> None:
    """Score every task on held-out sentences, and write the checkpoint with its card."""
    torch.set_num_threads(1)
    name = "t5-english"
    model, tokenizer, card = zoo.load(name, folder=trained)
    known, asked = sentences(english, "train", limit), held_out(english)
    rules = {"spans": most_frequent_word(known["all"]), **rules_of(known)}
    scores: dict[str, float] = {}
    answers: list[dict[str, str]] = []
    for task in SHARES:
        rng = random.Random(1)
        rows = [example(task, asked, rng) for _ in range(ASKED)]
        targets = [spelt(tokenizer, row["target"]) for row in rows]
        written = answered(model, tokenizer, [row["text"] for row in rows])
        givens = [row["text"].removeprefix(f"{task}: ") for row in rows]
        by = {"": written, ", rule": [spelt(tokenizer, rules[task](given)) for given in givens]}
        if task not in ("spans", "genre"):
            by[", copied"] = [spelt(tokenizer, given) for given in givens]
        for who, texts in by.items():
            scores[f"{task}{who}"] = share(texts, targets)
            if task not in ("spans", "genre"):
                scores[f"{task}{who}, word errors"] = word_errors(texts, targets)
        answers += [
            {"text": row["text"], "written": text} for row, text in zip(rows, written, strict=True)
        ][:2]
        typer.echo(json.dumps({k: v for k, v in scores.items() if k.startswith(task)}))
    about = {
        "name": name,
        "recipe": {
            "begin": "python -m lab.real.text_to_text begin bart-english START",
            "first": "the same as second for 3,800 steps, with two other tasks, since dropped",
            "second": "python -m lab.real.text_to_text train FIRST ENGLISH OUT --steps 2000",
        },
        "seed": 0,
        "data": "16.5 million words of openly licensed English (OpenStax textbooks, Project"
        " Gutenberg, speeches, Common Voice sentences), split train; the text is not part of the"
        " course",
        "shares": SHARES,
        **{key: card[key] + value for key, value in FIRST.items()},
        "scores": {key: round(value, 3) for key, value in scores.items()},
        "asked": ASKED,
        "answers": answers,
        "torch": torch.__version__,
        "made": time.strftime("%Y-%m-%d"),
    }
    zoo.export(name, model, tokenizer, card | about, to)


def answered(model: Any, tokenizer: Any, texts: Sequence[str], batch: int = 50) -> list[str]:
    """What the model writes, greedily. Sentinels stay visible."""
    vocab, written = tokenizer.vocab, []
    for start in range(0, len(texts), batch):
        source = collate.pad(tokenizer.ids(texts[start : start + batch]), vocab.pad)
        rows = generation.generate(model, **source, max_new_tokens=60, eos=vocab.sep, pad=vocab.pad)
        hidden = {vocab.pad, vocab.sep, vocab.cls}
        for row in rows.tolist():
            kept = [i for i in row if i not in hidden]
            written.append(tokenizer.decode(kept, special=True))
    return written


def spelt(tokenizer: Any, text: str) -> str:
    """The text as the tokenizer spells it, with spaces about apostrophes and hyphens."""
    ids = tokenizer.encode(text).ids[1:-1]  # without [CLS] and [SEP]
    return str(tokenizer.decode(ids, special=True))


def share(texts: Sequence[str], targets: Sequence[str]) -> float:
    """Of texts that are the target to the letter."""
    return sum(a == b for a, b in zip(texts, targets, strict=True)) / len(targets)


def word_errors(texts: Sequence[str], targets: Sequence[str]) -> float:
    """Words to insert, delete or replace, as a share of the targets' words."""
    pairs = [(a.split(), b.split()) for a, b in zip(texts, targets, strict=True)]
    return sum(repairs.edits(a, b) for a, b in pairs) / sum(len(b) for _, b in pairs)


def most_frequent_word(texts: Iterable[str]) -> Callable[[str], str]:
    """The simplest filler of a gap."""
    counts = Counter(re.findall(r"\b[a-z]+\b", " ".join(texts)))
    [(word, _)] = counts.most_common(1)
    return lambda given: f"<extra_id_0> {word} <extra_id_1>"


def rules_of(known: dict[str, list[str]]) -> dict[str, Callable[[str], str]]:
    """For every other task what one would try first, by rules and counted words."""
    counts = Counter(word for text in known["all"] for word in text.split(" "))
    by_consonants: dict[str, str] = {}
    for word, _ in counts.most_common():
        by_consonants.setdefault(re.sub("[aeiouAEIOU]", "", word), word)
    small = Counter(word for text in known["all"] for word in bare(text).split())
    genre = make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True), LogisticRegression(C=10)
    )
    some = {name: known[name][:10_000] for name in ("novel", "textbook")}
    labels = [name for name, texts in some.items() for _ in texts]
    genre.fit([text for texts in some.values() for text in texts], labels)
    return {
        "correct": lambda given: given,
        "punctuate": lambda given: f"{given[0].upper()}{given[1:]}.",
        "vowels": lambda given: " ".join(by_consonants.get(w, w) for w in given.split(" ")),
        "split": lambda given: likeliest_split(given, small),
        "genre": lambda given: str(genre.predict([given])[0]),
    }


def likeliest_split(letters: str, counts: Counter[str]) -> str:
    """The split whose words are the most frequent as a product (Viterbi, lesson 05)."""
    total = sum(counts.values())
    best = [(0.0, "")] + [(-math.inf, "")] * len(letters)
    for end in range(1, len(letters) + 1):
        for start in range(max(0, end - 20), end):
            word = letters[start:end]
            seen = counts[word] if word in counts else 10.0 ** (-len(word))
            value = best[start][0] + math.log(seen / total)
            if value > best[end][0]:
                best[end] = value, f"{best[start][1]} {word}"
    return best[-1][1].strip()


if __name__ == "__main__":
    app()
