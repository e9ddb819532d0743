"""Does the reviewer like it? Negation, contrast, comparison: half of the opinion words point the wrong way."""

import random

from course_lib.data.world.documents import Writer
from course_lib.data.world.grammar import Template, write
from course_lib.data.world.tasks.base import Example, Task, of_split, order_of
from course_lib.errors import CourseError

# What had been expected, by (comparison, label): less bland than feared is praise, less tasty than hoped is not.
WISH = {("less", 1): "feared", ("less", 0): "hoped", ("more", 1): "hoped", ("more", 0): "feared"}
SHARE = {"plain": 0.5, "turned": 0.35, "both": 0.15}  # kinds of clauses; an opinion word often misleads


class Sentiment(Task):
    """Reviews of food and film: an opening, then one or two opinions that agree."""

    columns = ("text", "label")
    labels = ("negative", "positive")
    group = 2
    domains: tuple[str, ...] = ("food", "film")

    def __init__(self, writer: Writer) -> None:
        super().__init__(writer)
        self.rows = self.table("sentiment.tsv", "domain", "part", "split", "template")
        self.compiled: dict[tuple[str, int], Template] = {}
        for row in self.rows:
            if row["domain"] not in ("food", "film") or row["part"] not in ("open", "say"):
                raise CourseError(f"sentiment.tsv: {row} needs domain food or film and part open or say.")
            row["kind"] = kind_of(row["template"])
            for label in (0, 1):
                self.compiled[row["template"], label] = self.template(polar(row["template"], row["domain"], label))

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        """Text and label; gold: the domain and the kind of each opinion."""
        label = order_of(rng, 2)[member]
        rng = random.Random(f"{rng.random()}/{member}")
        domain = rng.choice(self.domains)
        rows = of_split([row for row in self.rows if row["domain"] == domain], split)
        fact = self.casting.facts(rng, "meal", 1, split)[0][0]
        fact |= {"M": self.casting.film(rng), "R": self.casting.restaurant(rng)}
        opening = rng.choice([row["template"] for row in rows if row["part"] == "open"])
        sentences = self.compiled[opening, label].render(rng, fact)
        kinds: list[str] = []
        said: set[str] = set()
        for _ in range(rng.choice((1, 1, 2))):
            kinds.append(rng.choices(list(SHARE), list(SHARE.values()))[0])
            text = rng.choice([r["template"] for r in rows if r["kind"] == kinds[-1] and r["template"] not in said])
            said.add(text)
            sentences += self.compiled[text, label].render(rng, fact)
        return {"text": write(sentences), "label": label, "gold": {"domain": domain, "kinds": kinds}}


class FoodSentiment(Sentiment):
    """Reviews of food only."""

    domains = ("food",)


class FilmSentiment(Sentiment):
    """Reviews of films only."""

    domains = ("film",)


def kind_of(template: str) -> str:
    """ "plain": the opinion word says what is meant; "turned": its opposite; "both": one of each; "": no opinion."""
    same, other = "{same}" in template, "{other}" in template
    return "both" if same and other else "plain" if same else "turned" if other else ""


def polar(template: str, domain: str, label: int) -> str:
    """The template for this label: {same} draws a word of its polarity, {other} one of the opposite."""
    same, other = ("+", "-") if label else ("-", "+")
    compared = "less" if "less/" in template else "more"
    filled = template.replace("{same}", f"{{{domain}{same}}}").replace("{other}", f"{{{domain}{other}}}")
    return filled.replace("{wish}", f"{WISH[compared, label]}/VERB")
