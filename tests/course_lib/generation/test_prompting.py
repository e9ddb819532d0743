"""Prompts to the letter; given continuations are scored as the model alone scores them, without
cache or padding.
"""

import re

import pytest
import torch
from torch import Tensor, nn

from classroom.town import World
from classroom.town.templates import WORLD, world_template
from course_lib.data.tokenizers import Tokenizer, train_bpe, train_wordpiece
from course_lib.errors import CourseError
from course_lib.families import preset
from course_lib.families.gpt import gpt
from course_lib.generation import generate, prompting, scoring
from course_lib.generation.prompting import Question, Template, clause, questions
from course_lib.model.config import EmbedConfig, StackConfig
from course_lib.model.heads import LM, MLM
from course_lib.model.transformer import Transformer
from tests.parity.public import randomise

SENTIMENT = Template("{text} It was {answer}.", ("bad", "good"))
ROWS = [{"text": f"Row {i}.", "label": i % 2} for i in range(8)]
TEXTS = [
    "the cat sat on the mat and the dog sat on the log",
    "a good book is a good friend",
    "the bad boat sank",
] * 4
ASKED = {
    "the cat": [" sat", "s", " on the boat", " xyz"],
    "the cat sat on the mat and the dog sat on a ": ["log"],
    "": ["the", "a"],
    "a good boo": ["k sat", " sat", "k"],  # one token stands across the boundary in two of these
}
PROMPTS, CHOICES = list(ASKED), list(ASKED.values())


def test_zero_one_and_two_shots() -> None:
    row = {"text": "I slept.", "label": 0}
    assert SENTIMENT.ask(row) == Question("I slept. It was ", ".", ("bad", "good"), ("bad",), 0)
    assert SENTIMENT.ask(row, ROWS[1:2]).left == "Row 1. It was good. I slept. It was "
    told = Template(
        "{text} It was {answer}.", ("bad", "good"), between="\n\n", instruction="Judge."
    )
    assert (
        told.ask(row, ROWS[:2]).left
        == "Judge.\n\nRow 0. It was bad.\n\nRow 1. It was good.\n\nI slept. It was "
    )
    assert told.ask(row).left == "Judge.\n\nI slept. It was "


def test_where_answers_come_from() -> None:
    choice = Template("{text} {answer}")
    assert choice.ask({"text": "a", "choices": ["b", "c"], "label": 1, "answer": "z"}).answers == (
        "c",
    )
    free = choice.ask({"text": "a", "target": "b"})
    assert (free.choices, free.answers, free.label) == ((), ("b",), -1)
    assert choice.ask({"text": "a", "answer": "b", "answers": ["b", "c"]}).answers == ("b", "c")
    assert choice.show({"text": "a", "answer": "b", "answers": ["b", "c"]}) == "a b"


def test_columns_may_hold_braces_and_join_sentences() -> None:
    template = Template("{{{text}}} {number} so {pair:clause}? {answer}", ("no", "yes"))
    row = {"text": "{answer} {x}", "pair": "The boat was lost.", "number": 3, "label": 1}
    assert template.show(row) == "{{answer} {x}} 3 so the boat was lost? yes"
    assert clause("Anna lost it!") == "Anna lost it" and clause("It rained.") == "it rained"
    assert clause("Theo slept.") == "Theo slept" and clause("A") == "a" and clause("") == ""


def test_shots_are_drawn_anew_for_each_question_by_seed() -> None:
    def lefts(**options: int) -> list[str]:
        return [q.left for q in questions(SENTIMENT, ROWS[:4], examples=ROWS, **options)]

    three, one = lefts(shots=3), lefts(shots=1)
    assert three == lefts(shots=3) != lefts(shots=3, seed=1)
    assert len({tuple(left.split(" Row ")[:3]) for left in three}) > 1  # not the same for all
    # one shot is the last of three
    assert all(few.endswith(single) for few, single in zip(three, one, strict=True))
    assert lefts(shots=0) == [f"{row['text']} It was " for row in ROWS[:4]]
    for left in lefts(shots=8):  # none twice
        assert left.count("It was") == 9 and set(re.findall(r"Row (\d)", left)[:8]) == set(
            "01234567"
        )


@pytest.mark.parametrize("task", WORLD)
def test_every_wording_of_the_worlds_tasks_fits(task: str) -> None:
    rows = World(0).task(task, 6, "train", seed=0)
    for number, template in enumerate(WORLD[task]):
        assert world_template(task, number) is template
        assert not template.words or len(set(template.words)) == len(World.label_names(task))
        for question, row in zip(
            questions(template, rows, examples=rows, shots=2), rows, strict=True
        ):
            assert question.left.endswith(template.ask(row).left) and row["text"] in question.left
            assert "{" not in question.left + question.right
            assert (
                template.show(row) == template.ask(row).left + question.answers[0] + question.right
            )
            assert question.label == row.get("label", -1)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: Template("{text} is good"), "the place of the answer, once"),
        (
            lambda: SENTIMENT.ask({"pair": "a", "label": 0}),
            "needs the column 'text'; the row has pair, label",
        ),
        (
            lambda: SENTIMENT.ask({"text": "a", "label": 2}),
            "label 2 is none of the 2 choices bad, good",
        ),
        (lambda: Template("{text} {answer}").ask({"text": "a"}), "neither choices nor an answer"),
        (
            lambda: questions(SENTIMENT, ROWS, examples=ROWS, shots=9),
            "9 shots cannot be drawn from 8",
        ),
        (lambda: world_template("similarity"), "no template for the task 'similarity'"),
        (lambda: world_template("cloze", 5), "worded in 1 ways"),
    ],
)
def test_bad_templates_and_rows(call, said) -> None:
    with pytest.raises(CourseError, match=said):
        call()


@pytest.fixture(scope="module")
def bpe() -> Tokenizer:
    return train_bpe(TEXTS, 320)


@pytest.fixture(scope="module")
def wordpiece() -> Tokenizer:
    return train_wordpiece(TEXTS, 90)


@pytest.fixture(scope="module")
def model(bpe: Tokenizer) -> LM:
    return randomise(
        LM(Transformer(gpt(bpe.vocab.size, width=16, layers=2, heads=2, length=40))), scale=0.3
    )


@torch.no_grad()
def alone(model: nn.Module, ids: list[int], first: int) -> float:
    """Sum of log p(ids[t] | ids[:t]) for t from `first`, by one plain pass."""
    out = model(torch.tensor([ids]))
    logp = getattr(out, "logits", out).log_softmax(-1)[0]
    return sum(float(logp[t - 1, ids[t]]) for t in range(first, len(ids)))


def by_hand(tokenizer: Tokenizer, prompt: str, choice: str) -> tuple[list[int], int]:
    given = tokenizer.encode(prompt.rstrip()).ids
    whole = tokenizer.encode(prompt + choice).ids
    first = 0
    while first < min(len(given), len(whole)) and given[first] == whole[first]:
        first += 1
    return [tokenizer.vocab.bos, *whole], first + 1


@pytest.mark.parametrize("batch", [1, 2, 3, 100])
def test_scores_are_those_of_one_text_at_a_time(model: LM, bpe: Tokenizer, batch: int) -> None:
    found = prompting.score(model, bpe, PROMPTS, CHOICES, batch=batch)
    for prompt, choices, scores in zip(PROMPTS, CHOICES, found, strict=True):
        for choice, got in zip(choices, scores, strict=True):
            ids, first = by_hand(bpe, prompt, choice)
            assert got.logprob == pytest.approx(alone(model, ids, first), abs=1e-5, rel=1e-5)
            assert got.tokens == len(ids) - first


def test_a_prompt_is_read_once_for_all_its_continuations(model: LM, bpe: Tokenizer) -> None:
    read: list[int] = []
    hook = model.stack.embed.register_forward_hook(
        lambda module, args, out: read.append(out.shape[0] * out.shape[1])
    )
    prompt, choices = (
        "the cat sat on the mat and the dog sat on the log a good",
        [" book", " friend", " boat"],
    )
    prompting.score(model, bpe, [prompt], [choices])
    hook.remove()
    longest = max(
        len(ids) - first for ids, first in (by_hand(bpe, prompt, choice) for choice in choices)
    )
    assert read == [len(bpe.encode(prompt).ids), 3 * longest]


def test_without_a_start_token_the_first_token_is_not_scored(
    model: LM, bpe: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "start_tokens", lambda tokenizer: [])
    assert len(bpe.encode("the").ids) == 1  # so it lies across the boundary of "t" and "he"
    for prompt, choice in (("", "the"), ("t", "he")):
        with pytest.raises(CourseError, match=f"nothing predicts the first token of '{choice}'"):
            prompting.score(model, bpe, ["the cat", prompt], [[" sat"], [choice]])
    ((found,),) = prompting.score(model, bpe, ["the"], [[" cat"]])
    ids, first = by_hand(bpe, "the", " cat")
    assert found.logprob == pytest.approx(alone(model, ids[1:], first - 1), abs=1e-5, rel=1e-5)
    assert found.tokens == len(ids) - first


class Unigrams(nn.Module):
    """A language model that does not read: every token has its own fixed probability."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits)
        self.stack = nn.Module()
        self.stack.config = StackConfig(EmbedConfig(len(logits)), 4, 1, 1, 4, causal=True)

    def forward(
        self,
        ids: Tensor,
        *,
        attention_mask: object = None,
        cache: object = None,
        loss_mask: Tensor | None = None,
    ) -> Tensor:
        whole = self.logits.expand(*ids.shape, -1)
        return whole if loss_mask is None else whole[loss_mask]


@pytest.fixture
def unigrams(bpe: Tokenizer) -> Unigrams:
    logits = torch.zeros(bpe.vocab.size)
    logits[bpe.encode(" good").ids] = 5.0
    return Unigrams(logits)


def asked(*choices: str, left: str = "it was ") -> Question:
    return Question(left, ".", choices, choices[:1], 0)


def test_normalisations_do_what_they_are_for(unigrams: Unigrams, bpe: Tokenizer) -> None:
    question = [asked("good", "bad", "good good")]
    total = float(unigrams.logits.detach().logsumexp(0))
    good, bad = 5 - total, -total * len(bpe.encode(" bad").ids)
    (plain,) = prompting.rank(unigrams, bpe, question)
    assert plain.tolist() == pytest.approx([good, bad, 2 * good])
    (token,) = prompting.rank(unigrams, bpe, question, normalise="token")
    assert token[0] == pytest.approx(float(token[2])) and token[0] > token[1]
    (character,) = prompting.rank(unigrams, bpe, question, normalise="character")
    assert character.tolist() == pytest.approx([good / 4, bad / 3, 2 * good / 9])
    # A model that does not read has no preference beyond that of the words themselves.
    (unconditional,) = prompting.rank(unigrams, bpe, question, normalise="unconditional")
    assert unconditional.tolist() == pytest.approx([0, 0, 0], abs=1e-5)


def test_free_answers_are_what_generate_says(model: LM, bpe: Tokenizer) -> None:
    prompts = ["the cat sat on ", "a", "the bad boat sank and the dog"]
    said = prompting.complete(model, bpe, prompts, max_new_tokens=8, batch=2)
    for prompt, text in zip(prompts, said, strict=True):
        ids = torch.tensor([[bpe.vocab.bos, *bpe.encode(prompt.strip()).ids]])
        new = generate(model, ids, max_new_tokens=8, eos=bpe.vocab.eos)[0, ids.shape[1] :]
        assert text == bpe.decode(new).strip()


def test_free_answers_end_where_they_should(unigrams: Unigrams, bpe: Tokenizer) -> None:
    assert prompting.complete(unigrams, bpe, ["it was"], max_new_tokens=3) == ["good good good"]
    assert prompting.complete(unigrams, bpe, ["it was"], max_new_tokens=3, stop=["d g", "go"]) == [
        ""
    ]
    assert prompting.complete(unigrams, bpe, ["it was"], max_new_tokens=3, stop=["d g"]) == ["goo"]
    unigrams.logits.data[bpe.vocab.eos] = 9.0
    assert prompting.complete(unigrams, bpe, ["it was"], max_new_tokens=3) == [""]


def test_a_task_is_asked(unigrams: Unigrams, bpe: Tokenizer) -> None:
    rows = [{"text": "the cat sat.", "label": label} for label in (1, 1, 0)]
    assert prompting.answer(unigrams, bpe, rows, SENTIMENT) == ([1, 1, 1], [1, 1, 0])
    rows = [{"text": "q", "answers": ["x", "good"]}, {"text": "q", "target": "bad"}]
    free = prompting.answer(
        unigrams, bpe, rows, Template("{text} {answer}", between="\n"), max_new_tokens=1
    )
    assert free == (["good", "good"], [["x", "good"], ["bad"]])
    ended = prompting.answer(
        unigrams, bpe, [{"text": "q", "target": "bad"}], Template("{text} {answer} d g.")
    )
    assert len(ended.predictions[0].split()) > 20  # " d g." stands nowhere
    ended = prompting.answer(
        unigrams, bpe, [{"text": "q", "target": "goo"}], Template("{text} {answer} d g")
    )
    assert ended == (["goo"], [["goo"]])


def test_bad_input(model: LM, bpe: Tokenizer, wordpiece: Tokenizer) -> None:
    masked = MLM(Transformer(preset("bert-mini", vocab=wordpiece.vocab.size, length=10)))
    small = LM(Transformer(gpt(wordpiece.vocab.size, width=16, layers=1, heads=2, length=40)))
    long = "the cat sat on the mat " * 20
    for call, said in (
        (lambda: prompting.score(model, bpe, ["a"], [[" "]]), "nothing to score after 'a'"),
        (lambda: prompting.score(model, bpe, [long], [["b"]]), "has learned 40"),
        (lambda: prompting.score(masked, wordpiece, ["a"], [["cat"]]), "MLM continues no text"),
        (
            lambda: prompting.score(small, wordpiece, ["the cat "], [["ქ"]]),
            "does not know all of 'ქ'",
        ),
        (
            lambda: prompting.rank(model, bpe, [Question("a", "", (), ("b",))]),
            "has no choices to score",
        ),
        (
            lambda: prompting.rank(model, bpe, [asked("a")], normalise="length"),
            "no normalise='length'",
        ),
        (lambda: prompting.complete(model, bpe, [long]), "has learned 40"),
        (lambda: prompting.answer(model, bpe, [], SENTIMENT), "no rows to ask about"),
    ):
        with pytest.raises(CourseError, match=said):
            call()
