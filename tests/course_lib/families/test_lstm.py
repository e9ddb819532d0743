"""The LSTM baselines against plain loops over cells and tokens, and what they learn and pass on."""

import pytest
import torch

from course_lib.data.words import word_tokenizer
from course_lib.errors import CourseError
from course_lib.families.lstm import LstmBody, LstmConfig, LstmLM
from course_lib.families.lstm_seq2seq import LstmEncoderDecoder, LstmSeq2Seq
from course_lib.model.seq2seq import shift_right
from course_lib.objectives import losses
from course_lib.training.finetune import FinetuneConfig, finetune, predict
from course_lib.vocab import IGNORE

CONFIG = LstmConfig(vocab=11, width=5, cells=7, layers=2, dropout=0.3)
LENGTHS = [6, 4, 1]


def rows(lengths=LENGTHS, vocab=11):
    ids = torch.randint(
        1, vocab, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(1)
    )
    attention_mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return ids, attention_mask


def randomized(model):
    rng = torch.Generator().manual_seed(2)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.5, generator=rng)
    return model.eval()


def cell(lstm, layer, x, h, c, suffix=""):
    """One step of one layer for one row, by the gates' formulas."""
    w, r, b, d = (
        getattr(lstm, f"{n}_l{layer}{suffix}")
        for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    i, f, g, o = (w @ x + b + r @ h + d).chunk(4)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def stepped(lstm, x, state):
    """All layers, one token; state: a list of (h, c)."""
    new = []
    for layer, (h, c) in enumerate(state):
        x, c = cell(lstm, layer, x, h, c)
        new.append((x, c))
    return x, new


def zeros(config):
    return [(torch.zeros(config.cells), torch.zeros(config.cells)) for _ in range(config.layers)]


def read_by_hand(body, ids):
    """States after each token of one row, and the last state of all layers."""
    states, state = [], zeros(body.lstm_config)
    for token in ids:
        h, state = stepped(body.lstm, body.embed.weight[token], state)
        states.append(h)
    return torch.stack(states), state


@torch.no_grad()
def test_the_language_model_s_loss_by_hand():
    model, (ids, attention_mask) = randomized(LstmLM(LstmBody(CONFIG))), rows()
    terms = []
    for b, length in enumerate(LENGTHS):
        states, _ = read_by_hand(model.body, ids[b, :length])
        logits = model.body.embed.weight @ model.project.weight @ states.T + model.bias[:, None]
        assert torch.allclose(
            model(ids, attention_mask=attention_mask)[b, :length], logits.T, atol=1e-5
        )
        terms += [-logits.log_softmax(0)[ids[b, t + 1], t] for t in range(length - 1)]
    assert torch.allclose(
        losses.clm(model, {"ids": ids, "attention_mask": attention_mask}),
        torch.stack(terms).mean(),
        atol=1e-5,
    )


def encoder_by_hand(stack, ids):
    """One source's memory, [T 2H]: one direction, then the other, a layer at a time."""
    x = [stack.embed.weight[token] for token in ids]
    for left, right in zip(stack.encoder.lefts, stack.encoder.rights, strict=True):
        sides = []
        for lstm, line in ((left, x), (right, x[::-1])):
            state, side = [(torch.zeros(lstm.hidden_size), torch.zeros(lstm.hidden_size))], []
            for item in line:
                h, state = stepped(lstm, item, state)
                side.append(h)
            sides.append(side)
        x = [torch.cat(pair) for pair in zip(sides[0], sides[1][::-1], strict=True)]
    return torch.stack(x)


def target_by_hand(model, ids, decoder_ids):
    """Logits [U V] of one row, one step at a time."""
    stack, config = model.stack, model.stack.lstm_config
    memory, cells = encoder_by_hand(stack, ids), config.cells
    begin = stack.bridge(torch.cat([memory[-1, :cells], memory[0, cells:]])).view(
        2, config.layers, cells
    )
    state = [(begin[0, layer].tanh(), begin[1, layer]) for layer in range(config.layers)]
    logits = []
    for token in decoder_ids:
        s, state = stepped(stack.decoder, stack.embed.weight[token], state)
        weight = torch.stack([s @ stack.keys.weight @ m for m in memory]).softmax(0)
        found = sum(w * m for w, m in zip(weight, memory, strict=True))
        logits.append(stack.embed.weight @ stack.combine(torch.cat([s, found])).tanh() + model.bias)
    return torch.stack(logits)


def seq2seq():
    config = LstmConfig(11, width=5, cells=6, layers=2, dropout=0.3, start=3)
    return randomized(LstmSeq2Seq(LstmEncoderDecoder(config)))


@torch.no_grad()
def test_the_encoder_decoder_by_hand():
    model, (ids, attention_mask) = seq2seq(), rows()
    labels, real = rows([3, 5, 2])
    labels = labels.masked_fill(~real, IGNORE)
    decoder_ids, terms = shift_right(labels, 3), []
    logits = model(ids, decoder_ids, attention_mask=attention_mask)
    for b, (length, target) in enumerate(zip(LENGTHS, [3, 5, 2], strict=True)):
        stated = target_by_hand(model, ids[b, :length], decoder_ids[b, :target])
        assert torch.allclose(logits[b, :target], stated, atol=1e-5)
        terms += [
            -row.log_softmax(0)[label]
            for row, label in zip(stated, labels[b, :target], strict=True)
        ]
    batch = {"ids": ids, "attention_mask": attention_mask, "labels": labels}
    assert torch.allclose(losses.seq2seq(model, batch), torch.stack(terms).mean(), atol=1e-5)


@torch.no_grad()
def test_greedy_says_what_teacher_forcing_finds_likeliest():
    model, (ids, attention_mask) = seq2seq().train(), rows([6, 4, 1, 5, 6, 2])
    for weight in model.parameters():
        weight *= 6  # so that rows and steps differ
    model.bias.zero_()
    said = model.greedy(ids, attention_mask=attention_mask, max_new_tokens=6)
    assert model.training and said.shape == (6, 7)
    model.eval()
    assert (said[:, 0] == 3).all()
    assert torch.equal(
        model(ids, said[:, :-1], attention_mask=attention_mask).argmax(-1), said[:, 1:]
    )
    ends = {}
    for eos in said[:, 1:].unique().tolist():
        ends[eos] = [row.index(eos, 1) if eos in row[1:] else 7 for row in said.tolist()]
        stopped = model.greedy(ids, attention_mask=attention_mask, max_new_tokens=6, eos=eos)
        assert stopped.shape[1] == min(7, max(ends[eos]) + 1)
        for full, row, end in zip(said.tolist(), stopped.tolist(), ends[eos], strict=True):
            assert row == (full[: end + 1] + [eos] * 7)[: len(row)]
    # not all rows ended at once
    assert any(min(places) < max(places) - 1 for places in ends.values())


TOKENIZER = word_tokenizer(["The", "dog", "cat", "barks", "sleeps", "."])


def learnable(n):
    words = ["dog", "cat"]
    return [
        {"text": f"The {words[i % 2]} {['barks', 'sleeps'][i // 2 % 2]} .", "label": i % 2}
        for i in range(n)
    ]


def test_finetuning_starts_from_a_copy_of_the_body():
    torch.manual_seed(0)
    body = LstmBody(LstmConfig(TOKENIZER.vocab.size, width=8, cells=12, dropout=0.0))
    start = {name: value.clone() for name, value in body.state_dict().items()}
    task = {"train": learnable(32), "test": learnable(8)}
    result = finetune(
        body,
        task,
        TOKENIZER,
        FinetuneConfig(epochs=25, lr=0.03, batch=8, classes=["cat", "dog"]),
    )
    assert result.score == 1.0 and predict(result, learnable(2)) == [0, 1]
    copied, fresh = (
        body.for_task("single", 2, pretrained=pretrained).body for pretrained in (True, False)
    )
    for name, value in start.items():
        assert torch.equal(body.state_dict()[name], value) and torch.equal(
            copied.state_dict()[name], value
        )
    assert not torch.equal(fresh.embed.weight, body.embed.weight)


def test_frozen_bodies():
    body = LstmBody(CONFIG)
    model = body.for_task("single", 2, frozen=True, dropout=0.0)
    assert (
        not any(weight.requires_grad for weight in model.body.parameters())
        and model.out.weight.requires_grad
    )
    assert model.dropout.p == model.body.lstm.dropout == 0.0 and body.dropout.p == 0.3
    with pytest.raises(CourseError, match="kind 'tagging'"):
        body.for_task("tagging", 3)
