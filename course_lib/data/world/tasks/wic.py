"""Has the word the same sense in both sentences (after Word in Context)?"""

import random
from collections import defaultdict
from itertools import permutations

from course_lib.data.world.documents import Writer
from course_lib.data.world.grammar import Template
from course_lib.data.world.lexicon import read_table
from course_lib.data.world.tasks.base import Example, Task, balanced
from course_lib.errors import CourseError

Sense = tuple[str, str]  # word, sense
CONTENT = ("NOUN", "VERB", "ADJ", "ADV")


class WordInContext(Task):
    """Sentences of senses.tsv, which documents have, and of wic.tsv, which none has.

    Two sentences of one sense share no noun, verb or adjective but the word itself, so that shared words do not tell.
    In the test split every second row is about a word that training does not ask about (every fourth word is kept).
    """

    columns = ("text", "pair", "word", "label")
    labels = ("different", "same")
    group = 2

    def __init__(self, writer: Writer) -> None:
        super().__init__(writer)
        sentences: dict[Sense, list[Template]] = defaultdict(list)
        for template, word, sense in writer.senses:
            sentences[word, sense].append(template)
        for row in read_table("wic.tsv", ("word", "sense", "sentence"), self.lexicon.folder):
            if (row["word"], row["sense"]) not in sentences:
                raise CourseError(f"wic.tsv: {row['word']}/{row['sense']} is not in senses.tsv; add it there.")
            sentences[row["word"], row["sense"]].append(self.template(row["sentence"].replace("{X}", "{A}")))
        # Word -> sense -> pairs of sentences that share no content.
        self.pairs: dict[str, dict[str, list[tuple[Template, Template]]]] = defaultdict(dict)
        for (word, sense), found in sentences.items():
            content = {template.text: self._content(template) - {word} for template in found}
            pairs = [(a, b) for a, b in permutations(found, 2) if not content[a.text] & content[b.text]]
            if pairs:
                self.pairs[word][sense] = pairs
        words = sorted(word for word, senses in self.pairs.items() if len(senses) > 1)
        self.words = {True: words[::4], False: [word for i, word in enumerate(words) if i % 4]}

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        """Two sentences, their word, label; gold: the two senses."""
        label, rng = balanced(rng, member, 2)
        word = rng.choice(self.words[split == "test" and rng.random() < 0.5])
        senses = self.pairs[word]
        first, second = rng.sample(sorted(senses), 2)
        one, two = rng.choice(senses[first])
        if not label:
            two = rng.choice(senses[second])[1]
        people = self.casting.some(rng, self.lexicon.people, 2, split)
        text, pair = (
            template.render(rng, {"A": self.lexicon.people[person]})[0].text
            for template, person in zip((one, two), people, strict=True)
        )
        gold = {"senses": [first, first if label else second]}
        return {"text": text, "pair": pair, "word": word, "label": label, "gold": gold}

    def _content(self, template: Template) -> set[str]:
        """The sentence's content words, without a plural's s."""
        sentence = template.render(random.Random(0), {"A": self.lexicon.people[0]})[0]
        return {
            word.lower().rstrip("s") for word, tag in zip(sentence.words, sentence.tags, strict=True) if tag in CONTENT
        }
