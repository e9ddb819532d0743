"""In-context learning: what the words mean is said by the examples in the prompt alone (after Brown et al. 2020).

Words of two kinds (animals, foods, ...) are each given a colour that stands for their kind, another one in every
prompt. In the control the examples' colours are drawn at random (after Min et al. 2022), so that only guessing is left.
"""

import random

from course_lib.data.world.facts import held_out
from course_lib.data.world.tasks.base import Example, Task

SHOTS = 6  # examples in a prompt, three of each kind
POOLS = ("animal", "job", "food", "object", "feel", "kin")
SAYS = {"animal": "The {} is {}.", "job": "The {} is {}.", "food": "The {} is {}.", "object": "The {} is {}.",
        "kin": "The {} is {}.", "feel": "The {} man is {}."}  # fmt: skip


class InContext(Task):
    """The owl is red. The soup is blue. ... The horse is - red or blue?"""

    columns = ("text", "answer", "choices", "label")
    labels = ("first", "second")
    true_examples = True

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        """Prompt `text`, the colour that comes next, both colours, the right one's number; gold: the kinds."""
        pools = self.lexicon.pools
        kinds = rng.sample(POOLS, 2)
        colours = rng.sample([" ".join(item[""][0]) for item in pools["adj.colour"].items], 2)
        asked = rng.randrange(2)
        shown = [n % 2 for n in range(SHOTS)]
        rng.shuffle(shown)
        words: list[str] = []
        for kind in (*shown, asked):
            new = split == "test" and len(words) == SHOTS  # the asked word is held out in the test split
            items = [i for i in range(len(pools[kinds[kind]].items)) if held_out(i) == new]
            while True:
                word = " ".join(pools[kinds[kind]].items[rng.choice(items)][""][0])
                if word not in words:
                    words.append(word)
                    break
        said = shown if self.true_examples else [rng.randrange(2) for _ in shown]
        lines = [
            SAYS[kinds[kind]].format(word, colours[label])
            for kind, label, word in zip(shown, said, words, strict=False)
        ]
        lines.append(SAYS[kinds[asked]].format(words[-1], "").removesuffix(" ."))
        choices = colours if rng.random() < 0.5 else colours[::-1]
        gold = {"kinds": kinds, "colours": colours, "asked": words[-1]}
        answer = colours[asked]
        return {
            "text": " ".join(lines), "answer": answer, "choices": choices, "label": choices.index(answer), "gold": gold
        }  # fmt: skip


class InContextRandom(InContext):
    """The control: the examples' colours are random, so that they tell nothing."""

    true_examples = False
