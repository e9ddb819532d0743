"""Has the word the same sense in both sentences (after Word in Context)?"""

import random
from collections import defaultdict

from course_lib.data.world.documents import Writer
from course_lib.data.world.grammar import Template
from course_lib.data.world.lexicon import read_table
from course_lib.data.world.tasks.base import Example, Task, balanced
from course_lib.errors import CourseError


class WordInContext(Task):
    """Sentences of senses.tsv, and of wic.tsv, whose sentences no document has; the test split's second text is new.

    Test rows are to one half about words that training does not ask about (every fourth word).
    """

    columns = ("text", "pair", "word", "label")
    labels = ("different", "same")
    group = 2

    def __init__(self, writer: Writer) -> None:
        super().__init__(writer)
        self.known: dict[str, dict[str, list[Template]]] = defaultdict(lambda: defaultdict(list))
        self.new: dict[str, dict[str, list[Template]]] = defaultdict(lambda: defaultdict(list))
        for template, word, sense in writer.senses:
            self.known[word][sense].append(template)
        for row in read_table("wic.tsv", ("word", "sense", "sentence"), self.lexicon.folder):
            if not self.known[row["word"]][row["sense"]]:
                raise CourseError(f"wic.tsv: {row['word']}/{row['sense']} is not in senses.tsv; add it there.")
            self.new[row["word"]][row["sense"]].append(self.template(row["sentence"].replace("{X}", "{A}")))
        # A word takes part if one sense has two sentences and another has one.
        words = sorted(w for w, s in self.known.items() if len(s) > 1 and min(map(len, s.values())) > 1)
        self.words = {
            True: [w for i, w in enumerate(words) if i % 4 == 0],
            False: [w for i, w in enumerate(words) if i % 4],
        }

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        """Two sentences, their word, label; gold: the two senses."""
        label, rng = balanced(rng, member, 2)
        word = rng.choice(self.words[split == "test" and rng.random() < 0.5])
        first = rng.choice(list(self.known[word]))
        second = first if label else rng.choice([sense for sense in self.known[word] if sense != first])
        one = rng.choice(self.known[word][first])
        others = self.new[word][second] if split == "test" else []
        two = rng.choice(others or [t for t in self.known[word][second] if t is not one])
        people = self.casting.some(rng, self.lexicon.people, 2, split)
        text, pair = (
            template.render(rng, {"A": self.lexicon.people[person]})[0].text
            for template, person in zip((one, two), people, strict=True)
        )
        if rng.random() < 0.5:
            text, pair = pair, text
        return {"text": text, "pair": pair, "word": word, "label": label, "gold": {"senses": sorted((first, second))}}
