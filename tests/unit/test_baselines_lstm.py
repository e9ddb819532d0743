"""The LSTM baselines against plain loops over cells and tokens, and what they learn and pass on."""

import pytest
import torch

from course_lib import losses
from course_lib.corrupt import IGNORE
from course_lib.errors import CourseError
from course_lib.finetune import finetune, predict
from course_lib.inputs import Frame, SourceTarget
from course_lib.models.baselines import word_tokenizer
from course_lib.models.lstm import LstmAutoencoder, LstmBody, LstmConfig, LstmLM, reconstruction
from course_lib.models.lstm_seq2seq import LstmEncoderDecoder, LstmSeq2Seq, LstmSeq2SeqConfig
from course_lib.seq2seq import shift_right

CONFIG = LstmConfig(vocab=11, width=5, cells=7, layers=2, dropout=0.3)
LENGTHS = [6, 4, 1]
ATTENTIONS = ["luong", "bahdanau"]


def rows(lengths=LENGTHS, vocab=11):
    ids = torch.randint(1, vocab, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(1))
    keep = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return ids, keep


def randomized(model):
    rng = torch.Generator().manual_seed(2)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.5, generator=rng)
    return model.eval()


def cell(lstm, layer, x, h, c, suffix=""):
    """One step of one layer for one row, by the gates' formulas."""
    w, r, b, d = (
        getattr(lstm, f"{name}_l{layer}{suffix}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
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
def test_the_body_reads_as_a_loop_does():
    body, (ids, keep) = randomized(LstmBody(CONFIG)), rows()
    h, (last_h, last_c) = body(ids, keep=keep), body.read(ids, keep)
    for b, length in enumerate(LENGTHS):
        states, last = read_by_hand(body, ids[b, :length])
        assert torch.allclose(h[b, :length], states, atol=1e-6)
        for layer in range(2):
            assert torch.allclose(last_h[layer, b], last[layer][0], atol=1e-6)
            assert torch.allclose(last_c[layer, b], last[layer][1], atol=1e-6)


@torch.no_grad()
def test_the_language_model_s_loss_by_hand():
    model, (ids, keep) = randomized(LstmLM(LstmBody(CONFIG))), rows()
    terms = []
    for b, length in enumerate(LENGTHS):
        states, _ = read_by_hand(model.body, ids[b, :length])
        logits = model.body.embed.weight @ model.out.project.weight @ states.T + model.out.bias[:, None]
        assert torch.allclose(model(ids, keep=keep)[b, :length], logits.T, atol=1e-5)
        terms += [-logits.log_softmax(0)[ids[b, t + 1], t] for t in range(length - 1)]
    assert torch.allclose(losses.clm(model, {"ids": ids, "keep": keep}), torch.stack(terms).mean(), atol=1e-5)


@torch.no_grad()
def test_the_autoencoder_s_loss_by_hand():
    model, (ids, keep) = randomized(LstmAutoencoder(LstmBody(CONFIG))), rows()
    terms = []
    for b, length in enumerate(LENGTHS):
        states, state = read_by_hand(model.body, ids[b, :length])
        h = states[-1]
        for t in range(length):
            logits = model.body.embed.weight @ model.out.project.weight @ h + model.out.bias
            terms.append(-logits.log_softmax(0)[ids[b, t]])
            h, state = stepped(model.body.lstm, model.body.embed.weight[ids[b, t]], state)
    assert torch.allclose(reconstruction(model, {"ids": ids, "keep": keep}), torch.stack(terms).mean(), atol=1e-5)
    one = ids[:, :1]
    assert model(one).shape == (3, 1, 11)


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
    """Logits [U V] and weights [U T] of one row, one step at a time."""
    stack, config = model.stack, model.stack.lstm_config
    memory, cells = encoder_by_hand(stack, ids), config.cells
    begin = stack.bridge(torch.cat([memory[-1, :cells], memory[0, cells:]])).view(2, config.layers, cells)
    state = [(begin[0, layer].tanh(), begin[1, layer]) for layer in range(config.layers)]
    logits, weights = [], []
    for token in decoder_ids:
        y = stack.embed.weight[token]
        if config.attention == "luong":
            s, state = stepped(stack.decoder, y, state)
            scores = torch.stack([s @ stack.attention.keys.weight @ m for m in memory])
        else:
            a, query = stack.attention, state[-1][0]
            scores = torch.stack([a.v.weight[0] @ (a.query.weight @ query + a.keys(m)).tanh() for m in memory])
        weight = scores.softmax(0)
        found = sum(w * m for w, m in zip(weight, memory, strict=True))
        if config.attention == "luong":
            h = stack.combine(torch.cat([s, found])).tanh()
        else:
            s, state = stepped(stack.decoder, torch.cat([y, found]), state)
            h = stack.combine(torch.cat([s, found, y])).tanh()
        logits.append(stack.embed.weight @ h + model.bias)
        weights.append(weight)
    return torch.stack(logits), torch.stack(weights)


def seq2seq(attention, layers=2, dropout=0.3):
    config = LstmSeq2SeqConfig(11, width=5, cells=6, layers=layers, attention=attention, dropout=dropout, start=3)
    return randomized(LstmSeq2Seq(LstmEncoderDecoder(config)))


@pytest.mark.parametrize("attention", ATTENTIONS)
@torch.no_grad()
def test_the_encoder_decoder_by_hand(attention):
    model, (ids, keep) = seq2seq(attention), rows()
    labels, real = rows([3, 5, 2])
    labels = labels.masked_fill(~real, IGNORE)
    decoder_ids = shift_right(labels, 3)
    logits = model(ids, decoder_ids, keep=keep)
    weights, terms = model.alignments(ids, decoder_ids, keep), []
    for b, (length, target) in enumerate(zip(LENGTHS, [3, 5, 2], strict=True)):
        stated, share = target_by_hand(model, ids[b, :length], decoder_ids[b, :target])
        assert torch.allclose(logits[b, :target], stated, atol=1e-5)
        assert torch.allclose(weights[b, :target, :length], share, atol=1e-6)
        assert not weights[b, :, length:].any()
        terms += [-row.log_softmax(0)[label] for row, label in zip(stated, labels[b, :target], strict=True)]
    batch = {"ids": ids, "keep": keep, "labels": labels}
    assert torch.allclose(losses.seq2seq(model, batch), torch.stack(terms).mean(), atol=1e-5)
    assert torch.allclose(weights.sum(-1), torch.ones(3, 5))


@pytest.mark.parametrize("attention", ATTENTIONS)
@torch.no_grad()
def test_greedy_says_what_teacher_forcing_finds_likeliest(attention):
    model, (ids, keep) = seq2seq(attention).train(), rows([6, 4, 1, 5, 6, 2])
    for weight in model.parameters():
        weight *= 6  # so that rows and steps differ
    model.bias.zero_()
    said, weights = model.greedy(ids, keep=keep, max_new_tokens=6)
    assert model.training and said.shape == (6, 7) and weights.shape == (6, 6, 6)
    model.eval()
    assert (said[:, 0] == 3).all()
    assert torch.equal(model(ids, said[:, :-1], keep=keep).argmax(-1), said[:, 1:])
    assert torch.allclose(model.alignments(ids, said[:, :-1], keep), weights, atol=1e-6)
    ends = {}
    for eos in said[:, 1:].unique().tolist():
        ends[eos] = [row.index(eos, 1) if eos in row[1:] else 7 for row in said.tolist()]
        stopped, weights = model.greedy(ids, keep=keep, max_new_tokens=6, eos=eos)
        assert stopped.shape[1] == min(7, max(ends[eos]) + 1) and weights.shape[1] == stopped.shape[1] - 1
        for full, row, end in zip(said.tolist(), stopped.tolist(), ends[eos], strict=True):
            assert row == (full[: end + 1] + [eos] * 7)[: len(row)]
    assert any(min(places) < max(places) - 1 for places in ends.values())  # not all rows ended at once


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_it_learns_to_copy_backwards_and_looks_there(attention):
    torch.manual_seed(0)
    words = [str(i) for i in range(6)]
    tokenizer = word_tokenizer(words)
    config = LstmSeq2SeqConfig(
        tokenizer.vocab.size, width=24, cells=24, attention=attention, dropout=0.0, start=tokenizer.vocab.bos
    )
    model = LstmSeq2Seq(LstmEncoderDecoder(config))
    frame = SourceTarget(tokenizer, model.stack.config)

    def some(n):
        lines = [[words[i] for i in torch.randint(6, (3,))] for _ in range(n)]
        pairs = [{"text": " ".join(line), "target": " ".join(line[::-1])} for line in lines]
        return frame.collate(frame.rows(pairs))

    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(120):
        optimizer.zero_grad()
        loss = losses.seq2seq(model, some(24))
        loss.backward()
        optimizer.step()
    batch = some(40)
    said, weights = model.greedy(batch["ids"], keep=batch["keep"], max_new_tokens=batch["labels"].shape[1])
    assert (said[:, 1:] == batch["labels"]).float().mean() > 0.95
    # <S> a b c </S> is said as <S> c b a </S>: words 3, 2, 1 are looked for where they stand.
    places = weights[:, 1:4].mean(0) @ torch.arange(5.0)
    assert torch.allclose(places, torch.tensor([3.0, 2.0, 1.0]), atol=0.3)


TOKENIZER = word_tokenizer(["The", "dog", "cat", "barks", "sleeps", "."])


def learnable(n):
    words = ["dog", "cat"]
    return [{"text": f"The {words[i % 2]} {['barks', 'sleeps'][i // 2 % 2]} .", "label": i % 2} for i in range(n)]


def test_a_start_by_language_model_or_autoencoder_reaches_the_classifier():
    torch.manual_seed(0)
    config = LstmConfig(TOKENIZER.vocab.size, width=8, cells=12, dropout=0.0)
    ids = torch.tensor([TOKENIZER.encode(row["text"]).ids for row in learnable(4)])
    for head, objective in ((LstmLM, losses.clm), (LstmAutoencoder, reconstruction)):
        body = LstmBody(config)
        model = head(body)
        optimizer, seen = torch.optim.Adam(model.parameters(), lr=0.03), []
        for _ in range(60):
            optimizer.zero_grad()
            loss = objective(model, {"ids": ids})
            loss.backward()
            optimizer.step()
            seen.append(loss.item())
        assert seen[-1] < 0.3 * seen[0]
        start = {name: value.clone() for name, value in body.state_dict().items()}
        task = {"train": learnable(32), "test": learnable(8)}
        result = finetune(body, task, TOKENIZER, epochs=25, lr=0.03, batch=8, classes=2)
        assert result.score == 1.0 and predict(result, learnable(2)) == [0, 1]
        assert all(torch.equal(value, start[name]) for name, value in body.state_dict().items())
        copied = body.for_task("single", 2).body.state_dict()
        assert all(torch.equal(copied[name], value) for name, value in start.items())
        fresh = body.for_task("single", 2, pretrained=False).body
        assert not torch.equal(fresh.embed.weight, body.embed.weight)


KINDS = {
    "single": {"text": "The dog barks .", "label": 0},
    "pair": {"text": "The dog barks .", "pair": "The cat sleeps .", "label": 1},
    "tagging": {"tokens": ["The", "dog", "barks"], "labels": [0, 1, 2]},
    "choice": {"text": "The dog", "choices": ["barks .", "sleeps", "cat"], "label": 0},
    "span": {"text": "The dog", "pair": "The cat sleeps .", "answer": "cat sleeps", "start": 4},
}


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_every_kind_of_task_reads_past_no_end(kind):
    body = LstmBody(LstmConfig(TOKENIZER.vocab.size, width=4, cells=6))
    model = randomized(body.for_task(kind, None if kind in ("choice", "span") else 3))
    frame = Frame(TOKENIZER, body.config, kind, classes=None if kind in ("choice", "span") else 3)
    longer = dict(KINDS[kind])
    if kind == "tagging":
        longer |= {"tokens": ["dog"] * 7, "labels": [0] * 7}
    elif kind == "span":
        longer |= {"pair": "The cat sleeps . The dog barks . The dog"}
    else:
        longer |= {"text": "The dog barks . The dog barks . The cat"}
    found = []
    for batch in (frame.collate(frame.rows([KINDS[kind]])), frame.collate(frame.rows([KINDS[kind], longer]))):
        out = model(batch["ids"], keep=batch["keep"])
        found.append(torch.stack(out, dim=-1) if kind == "span" else out)
    alone, together = found
    shapes = {"single": (1, 3), "pair": (1, 3), "choice": (1, 3), "tagging": (1, 5, 3), "span": (1, 10, 2)}
    assert alone.shape == shapes[kind]
    n = alone.shape[1]
    assert torch.allclose(together[:1, :n], alone, atol=1e-6)
    if kind == "choice":  # one candidate does not see another
        turned = frame.collate(frame.rows([KINDS[kind] | {"choices": ["cat", "sleeps", "barks ."]}]))
        assert torch.allclose(model(turned["ids"], keep=turned["keep"]), alone.flip(1), atol=1e-6)


def test_frozen_bodies_and_given_vectors():
    vectors = torch.randn(11, 5)
    body = LstmBody(CONFIG, vectors=vectors)
    assert torch.equal(body.embed.weight, vectors)
    model = body.for_task("single", 2, frozen=True, dropout=0.0)
    assert not any(weight.requires_grad for weight in model.body.parameters()) and model.out.weight.requires_grad
    assert model.dropout.p == model.body.lstm.dropout == 0.0 and body.dropout.p == 0.3


def test_wrong_input_is_one_sentence():
    with pytest.raises(CourseError, match=r"not \[11, 5\]"):
        LstmBody(CONFIG, vectors=torch.zeros(11, 4))
    with pytest.raises(CourseError, match="luong"):
        LstmSeq2SeqConfig(5, attention="dot")
    with pytest.raises(CourseError, match="outside the vocabulary"):
        LstmSeq2SeqConfig(5, start=5)
    model, (ids, keep) = seq2seq("luong"), rows()
    with pytest.raises(CourseError, match="has a gap"):
        model.greedy(ids, keep=keep.flip(1), max_new_tokens=2)
    with pytest.raises(CourseError, match="no token at all"):
        model.greedy(ids, keep=keep & (torch.arange(3) > 0)[:, None], max_new_tokens=2)
    with pytest.raises(CourseError, match="at least one token"):
        model.greedy(ids, max_new_tokens=0)
    with pytest.raises(CourseError, match="has a gap"):
        LstmBody(CONFIG).read(ids, keep.flip(1))
