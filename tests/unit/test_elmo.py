"""The LSTM's own way back, what each half of ELMo can see, spelling, batches, pretraining, and its files."""

import json

import h5py
import numpy as np
import pytest
import torch
from torch import nn

from course_lib import heads
from course_lib.data.world import World
from course_lib.errors import CourseError
from course_lib.lstm import BiLSTM, ProjectedLSTM, turned, turning
from course_lib.models import bert, elmo
from course_lib.models.elmo import ElmoConfig, Vocabulary, characters
from course_lib.models.elmo.words import spelling
from course_lib.stack import Stack
from course_lib.train import train

SMALL = ElmoConfig(
    0, width=6, hidden=9, filters=((1, 4), (3, 8)), length=10, cell_clip=0.5, projection_clip=0.3, dropout=0.0
)
TEXTS = [["The", "dog", "barks", "at", "the", "poet"], ["Who", "left", "?"], ["Yes"]]


def small(seed: int = 0, **changes) -> elmo.Elmo:
    torch.manual_seed(seed)
    return elmo.Elmo(elmo.from_dict({**vars(SMALL), **changes})).eval()


def public(ours: ProjectedLSTM) -> nn.LSTM:
    """torch.nn.LSTM with the same weights; its gates stand in the order i, f, j, o."""
    outputs, cells = ours.project.shape
    theirs = nn.LSTM(ours.inputs.in_features, cells, proj_size=outputs)
    order = torch.arange(4 * cells).view(4, cells)[[0, 1, 3, 2]].flatten()
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(ours.inputs.weight[order])
        theirs.weight_hh_l0.copy_(ours.recurrent[order])
        theirs.weight_hr_l0.copy_(ours.project)
        theirs.bias_ih_l0.copy_(ours.inputs.bias[order])
        theirs.bias_hh_l0.zero_()
        theirs.bias_ih_l0[cells : 2 * cells] += 1.0
    return theirs


@pytest.mark.parametrize("clip", [None, 1e6])
def test_without_clipping_it_is_torch_s_lstm(clip):
    torch.manual_seed(0)
    ours = ProjectedLSTM(5, 7, 3, cell_clip=clip, output_clip=clip)
    nn.init.normal_(ours.inputs.bias)
    theirs, x = public(ours), torch.randn(11, 4, 5)
    mine, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    found, expected = ours(mine)[0], theirs(other)[0]
    assert torch.allclose(found, expected, atol=1e-6)
    weight = torch.randn_like(found)
    (found * weight).sum().backward()
    (expected * weight).sum().backward()
    assert torch.allclose(mine.grad, other.grad, atol=1e-5)
    assert torch.allclose(ours.project.grad, theirs.weight_hr_l0.grad, atol=1e-5)
    gates = torch.arange(28).view(4, 7)[[0, 1, 3, 2]].flatten()
    assert torch.allclose(ours.recurrent.grad[gates], theirs.weight_hh_l0.grad, atol=1e-5)
    assert torch.allclose(ours.inputs.weight.grad[gates], theirs.weight_ih_l0.grad, atol=1e-5)
    assert torch.allclose(ours.inputs.bias.grad[gates], theirs.bias_ih_l0.grad, atol=1e-5)
    assert torch.allclose(ours.run_fused(x), expected, atol=1e-6)


@pytest.mark.parametrize("clips", [(None, None), (0.4, 0.15)])
def test_the_way_back_is_the_derivative(clips):
    torch.manual_seed(1)
    lstm = ProjectedLSTM(3, 5, 4, cell_clip=clips[0], output_clip=clips[1]).double()
    weights = dict(lstm.named_parameters())

    def outputs(x, h, c, *values):
        return torch.func.functional_call(lstm, dict(zip(weights, values, strict=True)), (x, (h, c)))[0]

    start = [torch.randn(6, 2, 3), 0.1 * torch.randn(2, 4), 0.2 * torch.randn(2, 5), *weights.values()]
    start = [value.detach().double().requires_grad_() for value in start]
    assert torch.autograd.gradcheck(outputs, start)
    if clips[0]:
        found, cells = lstm(start[0], (start[1], start[2]))
        assert 0 < (cells.abs() == clips[0]).double().mean() < 1
        assert 0 < (found.abs() == clips[1]).double().mean() < 1


def test_steps_that_are_not_kept_compute_the_same():
    torch.manual_seed(2)
    lstm, x = ProjectedLSTM(3, 8, 4, cell_clip=0.3, output_clip=0.2), torch.randn(9, 2, 3)
    learning = lstm(x)[0]
    with torch.no_grad():
        assert torch.equal(lstm(x)[0], learning)


def test_half_precision_stays_near():
    torch.manual_seed(3)
    lstm, x = ProjectedLSTM(16, 32, 8, cell_clip=3.0, output_clip=3.0), torch.randn(20, 4, 16)
    exact = lstm(x)[0]
    with torch.autocast("cpu", torch.bfloat16):
        near = lstm(x)[0]
    assert near.dtype == torch.bfloat16
    assert (near.float() - exact).abs().max() < 0.02 * exact.abs().max() + 0.01
    grads = [torch.autograd.grad(out.float().square().sum(), lstm.recurrent)[0] for out in (exact, near)]
    assert (grads[0] - grads[1]).norm() < 0.03 * grads[0].norm()


def test_turning_rows_with_padding():
    x, lengths = torch.arange(8.0).view(4, 2, 1), torch.tensor([4, 2])
    turn = turning(4, lengths)
    assert turned(x, turn)[:, :, 0].t().tolist() == [[6, 4, 2, 0], [3, 1, 5, 7]]
    assert torch.equal(turned(turned(x, turn), turn), x)
    assert turning(4, torch.tensor([4, 4])) is None


@pytest.mark.parametrize("layers", [1, 2])
def test_bilstm_is_torch_s_over_packed_rows(layers):
    torch.manual_seed(4)
    ours, theirs = BiLSTM(5, 3, layers), nn.LSTM(5, 3, layers, batch_first=True, bidirectional=True)
    state = {}
    for depth in range(layers):
        for side, parts in (("", ours.lefts), ("_reverse", ours.rights)):
            state |= {k.replace("l0", f"l{depth}{side}"): v for k, v in parts[depth].state_dict().items()}
    theirs.load_state_dict(state)
    x, lengths = torch.randn(3, 6, 5), torch.tensor([6, 2, 4])
    keep = torch.arange(6) < lengths[:, None]
    packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    expected = nn.utils.rnn.pad_packed_sequence(theirs(packed)[0], batch_first=True)[0]
    assert torch.allclose(ours(x, keep)[keep], expected[keep], atol=1e-6)


class Given(nn.Module):
    """A token layer that gives what it was given."""

    def __init__(self, vectors):
        super().__init__()
        self.vectors = vectors

    def forward(self, ids):
        return self.vectors


@pytest.mark.parametrize("clip", [None, 0.3])
def test_the_forward_half_never_sees_what_follows_nor_the_backward_half_what_precedes(clip):
    """The claim elmo-shallow-bidirectional, exactly: in every layer the derivative is zero, not small."""
    model = small(layers=3, cell_clip=clip, projection_clip=clip)
    vectors = torch.randn(2, 7, 6, requires_grad=True)
    model.tokens = Given(vectors)
    keep = torch.arange(7) < torch.tensor([[7], [5]])
    layers = model(torch.zeros(2, 7, 10, dtype=torch.long), keep=keep)
    assert len(layers) == 4
    for depth, layer in enumerate(layers[1:], 1):
        for t in (0, 2, 4):
            left, right = layer[:, t].chunk(2, dim=-1)
            for half, unseen in ((left, slice(t + 1, None)), (right, slice(0, t))):
                grad = torch.autograd.grad(half.square().sum(), vectors, retain_graph=True)[0]
                assert grad[:, unseen].abs().sum() == 0, depth
                seen = torch.ones(7, dtype=torch.bool)
                seen[unseen] = False
                assert (grad[:, seen].abs().sum((0, 2))[: 5 - t if half is right else None] > 0).all(), depth


def test_a_changed_word_changes_the_one_half_on_each_side_of_it():
    model = small(cell_clip=None, projection_clip=None)
    rows = [TEXTS[0], [*TEXTS[0][:3], "with", *TEXTS[0][4:]]]
    with torch.no_grad():
        before, after = (torch.stack(model(**characters([row], 10)))[:, 0] for row in rows)  # L T F
    same = (before - after).abs().amax(-1) < 1e-6
    left, right = ((a - b).abs().amax(-1) < 1e-6 for a, b in zip(before.chunk(2, -1), after.chunk(2, -1), strict=True))
    place = 4  # "at", after <S>
    assert same[0].tolist() == [t != place for t in range(8)]
    for layer in (1, 2):
        assert left[layer].tolist() == [t < place for t in range(8)]
        assert right[layer].tolist() == [t > place for t in range(8)]


def test_neighbours_and_padding_change_nothing():
    model, batch = small(), characters(TEXTS, 10)
    with torch.no_grad():
        together = model(**batch)
        for b, text in enumerate(TEXTS):
            alone = model(**characters([text], 10))
            for x, y in zip(together, alone, strict=True):
                assert torch.allclose(x[b, : len(text) + 2], y[0], atol=1e-6)
        batch["ids"][~batch["keep"]] = 77  # whatever stands at padding
        assert all(torch.allclose(x[batch["keep"]], y[batch["keep"]], atol=1e-6)
                   for x, y in zip(model(**batch), together, strict=True))  # fmt: skip
    with pytest.raises(CourseError, match="padded on the right"):
        model(batch["ids"], keep=batch["keep"].flip(1))


def test_spelling():
    assert spelling("Thé", 8) == (259, 85, 105, 196, 170, 260, 261, 261)
    assert spelling("<S>", 5) == (259, 257, 260, 261, 261)
    assert spelling("</S>", 5) == (259, 258, 260, 261, 261)
    assert spelling("abcdef", 5) == (259, 98, 99, 100, 260)
    batch = characters([["a", "b"], []], 5)
    assert batch["keep"].tolist() == [[True] * 4, [True, True, False, False]]
    assert batch["ids"][1, 2:].abs().sum() == 0
    assert tuple(batch["ids"][0, 1].tolist()) == spelling("a", 5)


def test_splitting_finds_the_words_of_the_world():
    world = World(0)
    for i in range(100):
        document = world.document(i)
        assert elmo.split(document["text"]) == document["tokens"]


def test_vocabulary(tmp_path):
    words = Vocabulary.count([["a", "b", "b"], ["c", "b", "a"]], most=2)
    assert words.words == ["<S>", "</S>", "<UNK>", "b", "a"]
    assert words.ids(["a", "c", "</S>"]) == [4, 2, 1]
    assert "c" not in words and "b" in words
    words.save(tmp_path / "words.txt")
    assert Vocabulary.load(tmp_path / "words.txt").words == words.words
    with pytest.raises(CourseError, match="needs the entry </S>"):
        Vocabulary(["<S>", "<UNK>"])
    with pytest.raises(CourseError, match="cannot be read"):
        Vocabulary.load(tmp_path / "none.txt")


def numbered(length=5, rows=2, pool=3, seed=0):
    """Documents whose words say which document they are of, from one to five words long."""
    texts = [[f"d{i}"] * (1 + i % 5) for i in range(24)]
    vocabulary = Vocabulary.count(texts)
    config = elmo.from_dict({**vars(SMALL), "vocab": len(vocabulary)})
    return vocabulary, elmo.Batches(
        lambda i: texts[i], vocabulary, config, length=length, rows=rows, pool=pool, seed=seed
    )


def test_batches_hold_every_document_once_whole_and_both_targets():
    vocabulary, batches = numbered(length=7)
    read = []
    for step in range(12):
        batch = batches[step]
        for keep, ids, labels in zip(batch["keep"], batch["ids"], batch["labels"], strict=True):
            n = int(keep.sum())
            following, before = labels[0, : n - 1].tolist(), labels[1, 1:n].tolist()
            assert following[-1] == vocabulary.eos
            assert before[0] == vocabulary.bos
            assert following[:-1] == before[1:]
            assert labels[0, n - 1 :].eq(-100).all() and labels[1, n:].eq(-100).all() and labels[1, 0] == -100
            word = vocabulary.words[before[1]]
            assert tuple(ids[1].tolist()) == spelling(word, 10)
            assert len(before) == 1 + 1 + int(word[1:]) % 5
            read.append(word)
    assert sorted(read) == sorted(f"d{i}" for i in range(24))
    again = numbered(length=7)[1]
    for step in (11, 0, 5):
        assert all(torch.equal(again[step][name], batches[step][name]) for name in again[step])
    assert any(not torch.equal(numbered(length=7, seed=1)[1][s]["ids"], batches[s]["ids"]) for s in range(3))
    assert max(numbered(length=4)[1][s]["ids"].shape[1] for s in range(3)) == 4
    with pytest.raises(CourseError, match="words, the configuration"):
        elmo.Batches(lambda i: [], vocabulary, SMALL)


def test_it_learns_and_micro_batches_are_the_whole_batch():
    vocabulary, batches = numbered(length=7)
    config = batches.config

    def run(accumulate):
        torch.manual_seed(0)
        return [step.loss for step in train(elmo.model(config), batches, elmo.loss, steps=4, accumulate=accumulate)]

    whole = run(1)
    assert np.allclose(whole, run(2), rtol=1e-4)
    assert abs(whole[0] - np.log(len(vocabulary))) < 0.2
    torch.manual_seed(0)
    model = elmo.model(config)
    losses = [
        s.loss for s in train(model, [batches[0]], elmo.loss, torch.optim.Adam(model.parameters(), 0.02), steps=40)
    ]
    assert losses[-1] < 0.5 * losses[0]


def test_a_hidden_word_is_judged_by_what_stands_around_it_alone():
    vocabulary, batches = numbered()
    torch.manual_seed(0)
    model = elmo.model(batches.config).eval()
    before, after = [["d1", "d2"], []], [["d3"], ["d4", "d5", "d6"]]
    left, right = elmo.hidden_word(model, before, after)
    assert left.shape == right.shape == (2, len(vocabulary))
    for i in range(2):
        ahead = characters([["<S>", *before[i]]], 10, ends=False)
        behind = characters([[*after[i], "</S>"]], 10, ends=False)
        with torch.no_grad():
            expected = model(**ahead)[0, 0, -1], model(**behind)[0, 1, 0]
        for found, logits in zip((left[i], right[i]), expected, strict=True):
            assert torch.allclose(found, logits.log_softmax(-1), atol=1e-5)
    with pytest.raises(CourseError, match="left contexts"):
        elmo.hidden_word(model, before, after[:1])


def test_sizes():
    with torch.device("meta"):
        original = elmo.Elmo(elmo.elmo_original())
        mini = elmo.model(elmo.elmo_mini(2700))
        other = heads.Pretraining(Stack(bert.bert_mini()))
    count = {name: sum(p.numel() for p in m.parameters()) for name, m in
             {"original": original, "mini": mini, "bert": other}.items()}  # fmt: skip
    assert round(count["original"] / 1e6, 1) == 93.6  # the published model's size
    assert abs(count["mini"] / count["bert"] - 1) < 0.1


def test_dropout_is_for_training_only():
    model = small(dropout=0.5)
    batch = characters(TEXTS, 10)
    with torch.no_grad():
        assert torch.equal(model(**batch)[-1], model(**batch)[-1])
        model.train()
        assert not torch.equal(model(**batch)[-1], model(**batch)[-1])


def test_wrong_input_is_one_sentence():
    model, batch = small(), characters(TEXTS, 10)
    with pytest.raises(CourseError, match=r"character ids \[rows, words, 10\]"):
        model(batch["ids"][..., :9])
    with pytest.raises(CourseError, match="run from 0 to 300"):
        model(batch["ids"].masked_fill(batch["ids"] == 261, 300))
    with pytest.raises(CourseError, match="words to predict"):
        elmo.BiLM(model)
    with pytest.raises(CourseError, match="weights for 2 layers"):
        elmo.ScalarMix(2)(model(**batch))
    with pytest.raises(CourseError, match="project to fewer"):
        ElmoConfig(5, width=9, hidden=9, filters=((1, 2),))
    with pytest.raises(CourseError, match="does not fit words"):
        ElmoConfig(5, width=3, hidden=9, filters=((1, 9), (6, 2)), length=5)
    with pytest.raises(CourseError, match="no ELMo's"):
        elmo.from_dict({"vocab": 3})
    with pytest.raises(CourseError, match="cell_clip"):
        ProjectedLSTM(2, 3, 1, cell_clip=0.0)


def test_damaged_files_are_one_sentence(tmp_path):
    elmo.save(small(), tmp_path)
    for change, sentence in {
        "missing": "has no CNN_proj/b_proj", "more": "do not speak of, RNN_0/more", "shape": "where .* is expected"
    }.items():  # fmt: skip
        elmo.save(small(), tmp_path)
        with h5py.File(tmp_path / "weights.hdf5", "a") as file:
            if change == "more":
                file["RNN_0/more"] = np.zeros(2)
            else:
                del file["CNN_proj/b_proj"]
            if change == "shape":
                file["CNN_proj/b_proj"] = np.zeros(2)
        with pytest.raises(CourseError, match=sentence):
            elmo.load(tmp_path)
    (tmp_path / "weights.hdf5").write_bytes(b"nothing of the kind")
    with pytest.raises(CourseError, match="cannot be read"):
        elmo.load(tmp_path)
    for part, value in (
        ("lstm", {"dim": 4, "projection_dim": 4}),
        ("char_cnn", {"activation": "gelu"}),
        ("lstm", None),
    ):
        options = elmo.files.write_options(SMALL)
        options[part] = value if value is None else options[part] | value
        (tmp_path / "options.json").write_text(json.dumps(options))
        with pytest.raises(CourseError):
            elmo.load(tmp_path)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")
@pytest.mark.parametrize("clip", [None, 0.3])
def test_a_gpu_computes_the_same(clip):
    model, batch = small(cell_clip=clip, projection_clip=clip), characters(TEXTS, 10)
    with torch.no_grad():
        here = model(**batch)
        there = model.cuda()(**{name: value.cuda() for name, value in batch.items()})
    assert model.forwards[0].fused is (clip is None)
    assert all(
        torch.allclose(x[batch["keep"]], y.cpu()[batch["keep"]], atol=1e-4) for x, y in zip(here, there, strict=True)
    )
