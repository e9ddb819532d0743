"""A miniature of the public data sets in their published layout.

    public = public_data.write(tmp_path)
    Lab(PLANS["smoke"], arms, public=public)

The texts are the course's own (data/tasks, data/text) or stand here; about 20 rows make a set. To
add a data set, write a function of its folder and put it into `WRITERS`.
"""

import gzip
import json
import zipfile
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from course_lib.files import DATA

ROWS = 20
Row = dict[str, Any]


def write(folder: Path) -> Path:
    """Write all data sets into a folder, each into its own, and return the folder."""
    for name, writer in WRITERS.items():
        (folder / name).mkdir(parents=True)
        writer(folder / name)
    return folder


def written(name: str, n: int = ROWS, split: str = "train") -> list[Row]:
    """The first n rows of a set that the course has written, "tasks/similarity" or "text"."""
    lines = (DATA / name / f"{split}.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines[:n]]


def put(path: Path, lines: Sequence[str]) -> None:
    """Write lines to a file; its folder is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", "utf-8")


def sts12_16(folder: Path) -> None:
    """A file a year: score, sentence, sentence. A pair without a score is in no test."""
    rows = written("tasks/similarity", 6 * ROWS)  # the first are STS-B's
    for number, year in enumerate(range(2012, 2017), start=1):
        some = rows[number * ROWS : (number + 1) * ROWS]
        lines = [f"{row['score']}\t{row['sentence1']}\t{row['sentence2']}" for row in some]
        put(folder / str(year) / "letters.test.tsv", [*lines, "\tNobody scored.\tThis pair."])


def stsb_en(folder: Path) -> None:
    """Three tables without a header: sentence, sentence, score."""
    for split in ("train", "dev", "test"):
        ours = "validation" if split == "dev" else split
        rows = written("tasks/similarity", split=ours)
        lines = [f'"{row["sentence1"]}","{row["sentence2"]}",{row["score"]}' for row in rows]
        put(folder / f"stsb-en-{split}.csv", lines)


def xquad_en(folder: Path) -> None:
    """SQuAD's JSON: articles, their paragraphs, the questions of each; and German paragraphs."""
    articles: dict[str, Row] = {}
    for row in written("tasks/questions"):
        text = row["context"]
        paragraph = articles.setdefault(row["title"], {"context": text, "qas": []})
        answers = [
            {"text": answer, "answer_start": text.index(answer)}
            for answer in row["answers"]["text"]
        ]
        question = {"id": row["id"], "question": row["question"], "answers": answers}
        paragraph["qas"].append(question)
    data = [{"title": title, "paragraphs": [one]} for title, one in articles.items()]
    put(folder / "xquad.en.json", [json.dumps({"data": data, "version": "1.1"})])
    german = "Die alte Fähre über den Fluss gehörte früher zwei Brüdern. " * ROWS
    paragraph = {"context": german, "qas": []}
    data = [{"title": "Die Fähre", "paragraphs": [paragraph]}]
    put(folder / "xquad.de.json", [json.dumps({"data": data, "version": "1.1"})])


def coarsewsd20(folder: Path) -> None:
    """A folder a word: the word's place and a sentence a line; the number of its sense a line."""
    ends = {
        "bank": ["of the river in the rain", "that lent them the money"],
        "bass": ["swam under the old boat", "sang in the church choir"],
    }
    names = ["the old man saw a", "in june we met the", "nobody here liked the", "she drew a"]
    for word, senses in ends.items():
        lines, gold = [], []
        for begin in names:
            for sense, end in enumerate(senses):
                lines.append(f"{len(begin.split())}\t{begin} {word} {end} .")
                gold.append(str(sense))
        for split in ("train", "test"):
            put(folder / word / f"{split}.data.txt", lines)
            put(folder / word / f"{split}.gold.txt", gold)


def wordsim_sets(folder: Path) -> None:
    """Pairs of words with people's grades, separated by tabs; one file a set."""
    pairs = [
        "water river 7.5",
        "house home 9",
        "king queen 8",
        "book paper 6",
        "tree money 0.5",
        "sun light 7",
        "door night 1",
        "man woman 8.3",
    ]
    lines = ["\t".join(pair.split()) for pair in pairs]
    for name in ("WS-353-ALL", "MEN-TR-3k", "MTurk-771", "SIMLEX-999", "MTurk-287"):
        put(folder / f"EN-{name}.txt", lines)


def english(folder: Path) -> None:
    """Documents for training: `= Title =`, then a paragraph a line."""
    for split in ("train", "dev", "test"):
        lines = []
        for row in written("text", split="validation" if split == "dev" else split):
            lines += [f"= {row.get('title', 'Untitled')} =", "", *row["text"].split("\n"), ""]
        put(folder / f"{split}.txt", lines)


def multi30k(folder: Path) -> None:
    """Captions in two languages, a line each, packed."""
    captions = [
        (f"Ein {german} {verb} {ort}.", f"A {english} {does} {place}.")
        for german, english in (("Mann", "man"), ("Hund", "dog"), ("Junge", "boy"))
        for verb, does in (("schläft", "sleeps"), ("sitzt", "sits"), ("wartet", "waits"))
        for ort, place in (("im Gras", "in the grass"), ("am Fenster", "at the window"))
    ]
    for part in ("train", "val", "test_2016_flickr"):
        for language, column in (("de", 0), ("en", 1)):
            lines = "".join(pair[column] + "\n" for pair in captions)
            with gzip.open(folder / f"{part}.{language}.gz", "wt", encoding="utf-8") as file:
                file.write(lines)


def ud_english_ewt(folder: Path) -> None:
    """CoNLL-U: ten columns a word. Head 0 is the root."""
    subjects = ["teacher", "farmer", "doctor", "driver", "painter"]
    verbs = ["found", "washed"]
    objects = ["cup", "coat"]
    for split in ("dev", "test"):
        lines = []
        for subject, verb, thing in product(subjects, verbs, objects):
            words = [
                ("The", "DET", 3, "det"),
                ("old", "ADJ", 3, "amod"),
                (subject, "NOUN", 4, "nsubj"),
                (verb, "VERB", 0, "root"),
                ("her", "PRON", 6, "nmod:poss"),
                (thing, "NOUN", 4, "obj"),
                ("in", "ADP", 9, "case"),
                ("the", "DET", 9, "det"),
                ("garden", "NOUN", 4, "obl"),
                (".", "PUNCT", 4, "punct"),
            ]
            for number, (word, tag, head, relation) in enumerate(words, start=1):
                cells = [number, word, word.lower(), tag, "_", "_", head, relation, "_", "_"]
                lines.append("\t".join(map(str, cells)))
            lines.append("")
        put(folder / f"en_ewt-ud-{split}.conllu", lines)


def sst2(folder: Path) -> None:
    """A sentence, a tab and 1 for praise a line."""
    for split in ("train", "dev", "test"):
        rows = written("tasks/sentiment", split="validation" if split == "dev" else split)
        lines = [f"{row['text']}\t{int(row['label'] == 'positive')}" for row in rows]
        put(folder / f"{split}.tsv", lines)


def blimp(folder: Path) -> None:
    """An archive with a file for each paradigm: a good and a bad sentence a line."""
    names = ["Ann", "Ben", "Carla", "Dan", "Eva"]
    with zipfile.ZipFile(folder / "BLiMP.zip", "w") as archive:
        for paradigm, bad in {"agreement": "sing", "tense": "singed"}.items():
            pairs = [
                {"sentence_good": f"{name} sings a song.", "sentence_bad": f"{name} {bad} a song."}
                for name in names
            ]
            lines = "\n".join(json.dumps(pair) for pair in pairs)
            archive.writestr(f"data/{paradigm}.jsonl", lines + "\n")


def winograd_family(folder: Path) -> None:
    """Four lines a schema: the sentence, the pronoun or mask, both names, the right one."""
    ends = {"was full": "the cup", "was empty": "the jug"}
    for file, pronoun in {"wsc273": "[MASK]", "train.c": "it", "test.c": "it"}.items():
        lines = []
        for end, answer in ends.items():
            sentence = f"The maid poured water from the jug into the cup until {pronoun} {end}."
            lines += [sentence, pronoun, "the jug,the cup", answer, ""]
        put(folder / f"{file}.txt", lines)


def cola(folder: Path) -> None:
    """Source, label, the author's mark, sentence; 1 is grammatical."""
    rows = written("tasks/sentiment")
    for name in ("in_domain_train", "in_domain_dev", "out_of_domain_dev"):
        good = [f"ours\t1\t\t{row['text']}" for row in rows[::2]]
        bad = [f"ours\t0\t*\t{' '.join(reversed(row['text'].split()))}" for row in rows[1::2]]
        put(folder / "raw" / f"{name}.tsv", [*good, *bad])


def mrpc(folder: Path) -> None:
    """A header, then label, two numbers and two sentences a line."""
    for split in ("train", "val", "test"):
        rows = written("tasks/similarity", split="validation" if split == "val" else split)
        lines = ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"]
        for number, row in enumerate(rows):
            label = int(row["score"] >= 3)
            lines.append(f"{label}\t{number}\t{number}\t{row['sentence1']}\t{row['sentence2']}")
        put(folder / f"msr-para-{split}.tsv", lines)


def wnut17(folder: Path) -> None:
    """A word, a tab and its tag a line; an empty line after each sentence."""
    kinds = {"PER": "person", "LOC": "location", "ORG": "corporation"}
    for name in ("wnut17train", "emerging.dev", "emerging.test"):
        lines = []
        for row in written("tasks/names"):
            for word, tag in zip(row["tokens"], row["ner_tags"], strict=True):
                kind = "-".join(kinds.get(part, part) for part in tag.split("-"))
                lines.append(f"{word}\t{kind}")
            lines.append("")
        put(folder / f"{name}.conll", lines)


WRITERS: dict[str, Callable[[Path], None]] = {
    "sts12_16": sts12_16,
    "stsb_en": stsb_en,
    "xquad_en": xquad_en,
    "coarsewsd20": coarsewsd20,
    "wordsim_sets": wordsim_sets,
    "english": english,
    "multi30k": multi30k,
    "ud_english_ewt": ud_english_ewt,
    "sst2": sst2,
    "cola": cola,
    "mrpc": mrpc,
    "wnut17": wnut17,
    "blimp": blimp,
    "winograd_family": winograd_family,
}
