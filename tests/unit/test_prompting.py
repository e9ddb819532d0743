"""Given continuations are scored as the model alone would score them, one at a time, without cache or padding."""

import math

import pytest
import torch
from torch import Tensor, nn

from course_lib import hf, prompting
from course_lib.config import EmbedConfig, StackConfig
from course_lib.errors import CourseError
from course_lib.heads import LM, MLM, Pretraining
from course_lib.models.bart import bart_lm, bart_mini
from course_lib.models.bert import bert_mini
from course_lib.models.gpt import gpt
from course_lib.prompting import Question, Template
from course_lib.prompting.scoring import encode
from course_lib.stack import Stack
from course_lib.tokenizers import Tokenizer, train_bpe, train_wordpiece

TEXTS = ["the cat sat on the mat and the dog sat on the log", "a good book is a good friend", "the bad boat sank"] * 4
PROMPTS = [
    "the cat sat on the",
    "the cat",
    "the cat sat on the mat and the dog sat on a ",
    "",
    "a good book is a good",
    "a good boo",
]
CHOICES = [
    [" mat", " log and the cat"],
    [" sat", "s", " on the boat", " xyz"],
    ["log"],
    ["the", "a"],
    [" friend", "ies"],
    ["k sat", " sat", "k"],  # one token stands across the boundary in two of these
]


@pytest.fixture(scope="module")
def bpe() -> Tokenizer:
    return train_bpe(TEXTS, 320)


@pytest.fixture(scope="module")
def wordpiece() -> Tokenizer:
    return train_wordpiece(TEXTS, 90)


def random_model(model: nn.Module, seed: int = 0) -> nn.Module:
    """Weights so large that scores differ clearly; norms and biases too."""
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=rng)
            weight.copy_(1 + 0.3 * noise if weight.ndim == 1 and name.endswith("weight") else 0.3 * noise)
    return model.eval()


@pytest.fixture(scope="module")
def model(bpe: Tokenizer) -> LM:
    return random_model(LM(Stack(gpt(bpe.vocab.size, width=16, layers=2, heads=2, length=40))))


@torch.no_grad()
def alone(model: nn.Module, ids: list[int], first: int) -> float:
    """Sum of log p(ids[t] | ids[:t]) for t from `first`, by one plain pass."""
    logp = model(torch.tensor([ids])).log_softmax(-1)[0]
    return sum(float(logp[t - 1, ids[t]]) for t in range(first, len(ids)))


def by_hand(tokenizer: Tokenizer, prompt: str, choice: str, start: bool) -> tuple[list[int], int]:
    given = tokenizer.encode(prompt.rstrip()).ids
    whole = tokenizer.encode(prompt + choice).ids
    first = next((i for i, (a, b) in enumerate(zip(given, whole, strict=False)) if a != b), len(given))
    return ([tokenizer.vocab.bos, *whole], first + 1) if start or first == 0 else (whole, first)


@pytest.mark.parametrize("start", [True, False])
@pytest.mark.parametrize("batch", [1, 4, 100])
def test_scores_are_those_of_one_at_a_time(model: LM, bpe: Tokenizer, start: bool, batch: int) -> None:
    found = prompting.score(model, bpe, PROMPTS, CHOICES, batch=batch, start=start)
    for prompt, choices, scores in zip(PROMPTS, CHOICES, found, strict=True):
        assert len(scores) == len(choices)
        for choice, got in zip(choices, scores, strict=True):
            ids, first = by_hand(bpe, prompt, choice, start)
            assert got.logprob == pytest.approx(alone(model, ids, first), abs=1e-5, rel=1e-5)
            assert got.tokens == len(ids) - first and got.characters == len(choice.strip())


@pytest.mark.parametrize("prompts", [PROMPTS[:1], [p + " sat" for p in ("a cat", "a cat and the dog", "a cat and a")]])
def test_what_all_prompts_share_is_read_once(model: LM, bpe: Tokenizer, prompts: list[str]) -> None:
    """Fixed examples in front: their tokens pass the model one time, and the scores are the same."""
    examples = "the cat sat on the mat and the dog sat on the log a good book"
    choices = [[" on the mat", " on a log", " friend"]] * len(prompts)
    long = [f"{examples} {p}" for p in prompts]
    read: list[int] = []
    hook = model.stack.embed.register_forward_hook(lambda module, args, out: read.append(out.shape[0] * out.shape[1]))
    found = prompting.score(model, bpe, long, choices)
    hook.remove()
    rows = [[by_hand(bpe, p, c, True) for c in some] for p, some in zip(long, choices, strict=True)]
    shared = len(bpe.encode(examples).ids)
    longest = max(len(ids) - first for some in rows for ids, first in some)
    assert read[0] > shared and read[-1] == 3 * len(prompts) * longest
    assert len(read) == (2 if len(prompts) == 1 else 3) and sum(read[1:]) < 60
    for scores, some in zip(found, rows, strict=True):
        assert [s.logprob for s in scores] == pytest.approx([alone(model, *row) for row in some], abs=1e-5, rel=1e-5)


def test_the_order_of_questions_does_not_matter(model: LM, bpe: Tokenizer) -> None:
    forth = prompting.score(model, bpe, PROMPTS, CHOICES, batch=3)
    back = prompting.score(model, bpe, PROMPTS[::-1], CHOICES[::-1], batch=3)[::-1]
    for a, b in zip(forth, back, strict=True):
        assert [s.logprob for s in a] == pytest.approx([s.logprob for s in b], abs=1e-5)


def test_the_score_is_transformers_sum_of_log_softmax(bpe: Tokenizer, tmp_path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(vocab_size=bpe.vocab.size, n_embd=16, n_layer=2, n_head=2, n_positions=40)
    theirs = random_model(transformers.GPT2LMHeadModel(config), seed=3)
    theirs.save_pretrained(tmp_path)
    ours = hf.load_pretrained(tmp_path)
    found = prompting.score(ours, bpe, PROMPTS, CHOICES, start=False)
    for prompt, choices, scores in zip(PROMPTS, CHOICES, found, strict=True):
        for choice, got in zip(choices, scores, strict=True):
            ids, first = by_hand(bpe, prompt, choice, False)
            with torch.no_grad():
                logp = theirs(torch.tensor([ids])).logits.log_softmax(-1)[0]
            expected = sum(float(logp[t - 1, ids[t]]) for t in range(first, len(ids)))
            assert got.logprob == pytest.approx(expected, abs=1e-5, rel=1e-5)


def test_where_the_continuation_begins(bpe: Tokenizer) -> None:
    def parts(prompt: str, continuation: str, start: bool = False) -> tuple[list[str], list[str]]:
        ((ids, first),) = encode(bpe, [prompt], [continuation], start=start)
        return bpe.tokens(ids[:first]), bpe.tokens(ids[first:])

    assert parts("the cat", " sat") == (["the", "Ġcat"], ["Ġsat"])
    assert parts("the cat ", "sat") == (["the", "Ġcat"], ["Ġsat"])  # the space belongs to the token
    assert parts("a good boo", "k") == (["a", "Ġgood"], ["Ġbook"])  # one token stands across: it is scored, not lost
    assert parts("a good boo", "k sat") == (["a", "Ġgood"], ["Ġbook", "Ġsat"])
    assert parts("", "the") == (["<|endoftext|>"], ["the"])
    assert parts("  ", "sat") == (["<|endoftext|>"], bpe.tokens(bpe.encode("  sat").ids))
    assert parts("the", " cat", start=True) == (["<|endoftext|>", "the"], ["Ġcat"])


def test_a_continuation_can_be_the_likeliest(model: LM, bpe: Tokenizer) -> None:
    ids = bpe.encode("the cat sat").ids
    with torch.no_grad():
        first = int(model(torch.tensor([[bpe.vocab.bos, *ids]]))[0, -1].argmax())
    said = bpe.decode([first])
    other = " log" if said != " log" else " mat"
    ((top, not_top),) = prompting.score(model, bpe, ["the cat sat"], [[said, other]])
    assert top.tokens == 1 and top.greedy and not not_top.greedy


def test_units() -> None:
    score = prompting.Score(-6.0, 3, 12, False)
    assert (score.per("sum"), score.per("token"), score.per("character")) == (-6, -2, -0.5)
    with pytest.raises(CourseError, match="not per 'byte'"):
        score.per("byte")


class Unigrams(nn.Module):
    """A language model that does not read: every token has its own fixed probability."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits)
        self.stack = nn.Module()
        self.stack.config = StackConfig(EmbedConfig(len(logits)), 4, 1, 1, 4, causal=True)

    def forward(self, ids: Tensor, *, keep: object = None, cache: object = None, at: Tensor | None = None) -> Tensor:
        whole = self.logits.expand(*ids.shape, -1)
        return whole if at is None else whole[at]


@pytest.fixture
def unigrams(bpe: Tokenizer) -> Unigrams:
    logits = torch.zeros(bpe.vocab.size)
    logits[bpe.encode(" good").ids] = 5.0
    return Unigrams(logits)


def asked(*choices: str, left: str = "it was ", right: str = ".", label: int = 0) -> Question:
    return Question(left, right, choices, (choices[label],), label)


def test_greedy_means_every_token(unigrams: Unigrams, bpe: Tokenizer) -> None:
    ((both, one),) = prompting.score(unigrams, bpe, ["it was"], [[" good good", " good bad"]])
    assert both.greedy and not one.greedy


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


def test_unconditional_is_a_ratio(model: LM, bpe: Tokenizer) -> None:
    questions = [asked("good", "bad", left="the cat was "), asked("good", "log", left="the book is ")]
    ranks = prompting.rank(model, bpe, questions, normalise="unconditional", answer_context="a:")
    for question, got in zip(questions, ranks, strict=True):
        (given,), (bare,) = (prompting.score(model, bpe, [left], [question.choices]) for left in (question.left, "a: "))
        assert got.tolist() == pytest.approx(
            [g.logprob - b.logprob for g, b in zip(given, bare, strict=True)], abs=1e-5
        )


@pytest.mark.parametrize("head", [MLM, Pretraining])
@pytest.mark.parametrize("batch", [1, 2, 50])
def test_a_masked_model_scores_all_pieces_in_the_gap(wordpiece: Tokenizer, head: type, batch: int) -> None:
    config = bert_mini(vocab=wordpiece.vocab.size, length=30)
    model = random_model(head(Stack(config)))
    questions = [
        asked("good", "bad", "boatsank", left="the cat was ", right=" and sat"),
        asked("cat", "friend", left="", right=" sat on the mat."),
    ]
    pieces = [wordpiece.encode(c, special=False).ids for c in questions[0].choices]
    assert sorted(map(len, pieces))[-1] > 1
    got = prompting.rank(model, wordpiece, questions, batch=batch)
    for question, ranks in zip(questions, got, strict=True):
        for choice, value in zip(question.choices, ranks.tolist(), strict=True):
            hidden = wordpiece.encode(choice, special=False).ids
            before = wordpiece.encode(question.left, special=False).ids
            after = wordpiece.encode(question.right, special=False).ids
            v = wordpiece.vocab
            ids = torch.tensor([[v.cls, *before, *[v.mask] * len(hidden), *after, v.sep]])
            with torch.no_grad():
                out = model(ids)
            logp = (out[0] if isinstance(out, tuple) else out).log_softmax(-1)[0]
            expected = sum(float(logp[1 + len(before) + i, piece]) for i, piece in enumerate(hidden))
            assert value == pytest.approx(expected, abs=1e-5, rel=1e-5)


def test_label_words_share_all_probability(model: LM, bpe: Tokenizer, wordpiece: Tokenizer) -> None:
    masked = random_model(MLM(Stack(bert_mini(vocab=wordpiece.vocab.size, length=30))))
    questions = [asked("good", "bad"), asked("good", "bad", left="the book is ")]
    for some, tokenizer in ((model, bpe), (masked, wordpiece)):
        probabilities = prompting.label_words(some, tokenizer, questions)
        ranks = torch.stack(prompting.rank(some, tokenizer, questions))
        assert probabilities.shape == (2, 2) and torch.allclose(probabilities.sum(1), torch.ones(2))
        odds = (probabilities[:, 0] / probabilities[:, 1]).log()
        assert torch.allclose(odds, ranks[:, 0] - ranks[:, 1], atol=1e-5)
    with pytest.raises(CourseError, match="same number"):
        prompting.label_words(model, bpe, [asked("good", "bad"), asked("good")])


@pytest.mark.parametrize("batch", [1, 50])
def test_an_encoder_decoder_scores_whole_targets(wordpiece: Tokenizer, batch: int) -> None:
    model = random_model(bart_lm(bart_mini(vocab=wordpiece.vocab.size)))
    prompts, choices = ["the cat sat on the mat", "a book"], [["good", "the bad boat"], ["friend"]]
    found = prompting.score(model, wordpiece, prompts, choices, batch=batch)
    for prompt, some, scores in zip(prompts, choices, found, strict=True):
        for choice, got in zip(some, scores, strict=True):
            target = wordpiece.encode(choice).ids
            read = torch.tensor([[model.stack.start, *target[:-1]]])
            with torch.no_grad():
                logp = model(torch.tensor([wordpiece.encode(prompt).ids]), read).log_softmax(-1)[0]
            expected = sum(float(logp[t, piece]) for t, piece in enumerate(target))
            assert got.logprob == pytest.approx(expected, abs=1e-5, rel=1e-5) and got.tokens == len(target)


def test_the_model_is_left_as_it_was(bpe: Tokenizer) -> None:
    model = random_model(LM(Stack(gpt(bpe.vocab.size, width=16, layers=1, heads=2, length=40, dropout=0.5)))).train()
    first, second = (prompting.score(model, bpe, PROMPTS, CHOICES)[0][0].logprob for _ in range(2))
    assert model.training and first == second  # no dropout inside


def test_free_answers_are_what_generate_says(model: LM, bpe: Tokenizer) -> None:
    from course_lib.generate import generate

    prompts = ["the cat sat on ", "a", "the bad boat sank and the dog"]
    said = prompting.complete(model, bpe, prompts, max_new_tokens=8, batch=2)
    assert len(said) == 3
    for prompt, text in zip(prompts, said, strict=True):
        ids = torch.tensor([[bpe.vocab.bos, *bpe.encode(prompt.strip()).ids]])
        new = generate(model, ids, max_new_tokens=8, eos=bpe.vocab.eos)[0, ids.shape[1] :]
        assert text == bpe.decode(new).strip()


def test_free_answers_end_where_they_should(unigrams: Unigrams, bpe: Tokenizer) -> None:
    assert prompting.complete(unigrams, bpe, ["it was"], max_new_tokens=3) == ["good good good"]
    assert prompting.complete(unigrams, bpe, ["it was"], max_new_tokens=3, stop=["d g", "go"]) == [""]
    assert prompting.complete(unigrams, bpe, ["it was"], max_new_tokens=3, stop=["d g"]) == ["goo"]
    unigrams.logits.data[bpe.vocab.eos] = 9.0
    assert prompting.complete(unigrams, bpe, ["it was"], max_new_tokens=3) == [""]


def test_a_task_is_asked_and_counted(unigrams: Unigrams, bpe: Tokenizer) -> None:
    rows = [{"text": "the cat sat.", "label": label} for label in (1, 1, 0)]
    result = prompting.evaluate(unigrams, bpe, rows, Template("{text} It was {answer}.", ("bad", "good")))
    assert result.predictions == [1, 1, 1] and result.truth == [1, 1, 0] and result.metric == "accuracy"
    assert result.score == pytest.approx(2 / 3) and result.by("f1") == pytest.approx(0.8) and len(result.ranks) == 3
    free = prompting.evaluate(
        unigrams, bpe, [{"text": "q", "answers": ["x", "good"]}, {"text": "q", "target": "bad"}],
        Template("{text} {answer}", between="\n"), max_new_tokens=1,
    )  # fmt: skip
    assert free.predictions == ["good", "good"] and free.truth == [["x", "good"], ["bad"]]
    assert free.score == 0.5 and free.metric == "exact_match" and free.ranks == []
    ended = prompting.evaluate(unigrams, bpe, [{"text": "q", "target": "bad"}], Template("{text} {answer} d g."))
    assert len(ended.predictions[0].split()) > 20  # " d g." stands nowhere
    ended = prompting.evaluate(unigrams, bpe, [{"text": "q", "target": "goo"}], Template("{text} {answer} d g"))
    assert ended.predictions == ["goo"] and ended.score == 1


def test_bad_input(model: LM, bpe: Tokenizer, wordpiece: Tokenizer) -> None:
    masked = MLM(Stack(bert_mini(vocab=wordpiece.vocab.size, length=10)))
    long = "the cat sat on the mat " * 20
    for call, said in (
        (lambda: prompting.score(model, bpe, [], []), "needs continuations"),
        (lambda: prompting.score(model, bpe, ["a"], [["b"], ["c"]]), "1 prompts needs continuations; 2 lists"),
        (lambda: prompting.score(model, bpe, ["a"], [[]]), "needs continuations"),
        (lambda: prompting.score(model, bpe, ["a"], [[" "]]), "nothing to score after 'a'"),
        (lambda: prompting.score(model, bpe, ["a"], [["b"]], batch=0), "batch is 0"),
        (lambda: prompting.score(model, bpe, [long], [["b"]]), "40 positions; show fewer"),
        (lambda: prompting.score(masked, wordpiece, ["a"], [["cat"]]), "continues no text"),
        (lambda: prompting.score(nn.Linear(1, 1), bpe, ["a"], [["cat"]]), "Linear is no model"),
        (lambda: prompting.rank(model, bpe, [Question("a", "", (), ("b",))]), "a question has none"),
        (lambda: prompting.rank(model, bpe, [asked("a")], normalise="length"), "not per 'length'"),
        (lambda: prompting.rank(masked, wordpiece, [asked("ქ", "cat")]), "no word that the tokenizer knows"),
        (lambda: prompting.rank(masked, wordpiece, [asked("cat", left=long)]), "10 positions"),
        (lambda: prompting.fill(model, bpe, [("a", "b")], [["c"]]), "no mask token"),
        (lambda: prompting.complete(model, bpe, [long]), "beyond the 40 positions"),
        (lambda: prompting.evaluate(model, bpe, [{"text": "a", "answer": "b"}], Template("{text} {answer}"),
                                    metric="x"), "no metric 'x'"),
    ):  # fmt: skip
        with pytest.raises(CourseError, match=said):
            call()


def test_a_continuation_that_cannot_be_spelt(wordpiece: Tokenizer) -> None:
    config = gpt(wordpiece.vocab.size, width=16, layers=1, heads=2, length=40)
    with pytest.raises(CourseError, match="does not know all of 'ქ'"):
        prompting.score(LM(Stack(config)), wordpiece, ["the cat "], [["ქ"]])


def test_the_worst_score_is_finite(unigrams: Unigrams, bpe: Tokenizer) -> None:
    unigrams.logits.data[0] = 1e4
    ((got,),) = prompting.score(unigrams, bpe, ["the"], [[" cat"]])
    assert math.isfinite(got.logprob) and got.logprob < -9000
