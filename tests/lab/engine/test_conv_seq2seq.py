"""The convolutional translator: no future word, no padding, and greedy text of what it predicts."""

import torch

from lab.engine.conv_seq2seq import ConvEncoderDecoder, ConvSeq2Seq
from lab.lessons.transformer import counted


def model() -> ConvSeq2Seq:
    torch.manual_seed(0)
    return ConvSeq2Seq(ConvEncoderDecoder(11, 8, 2, 16, start=1, dropout=0.1)).eval()


def test_a_later_target_word_changes_no_earlier_prediction() -> None:
    net = model()
    source = torch.tensor([[3, 4, 5]])
    target = torch.tensor([[1, 6, 7, 8, 9]])
    other = target.clone()
    other[0, 3] = 2
    before, after = net(source, target), net(source, other)
    assert torch.equal(before[:, :3], after[:, :3])
    assert not torch.allclose(before[:, 3], after[:, 3])


def test_padding_of_the_source_changes_nothing() -> None:
    net = model()
    target = torch.tensor([[1, 6, 7]])
    padded = torch.tensor([[3, 4, 5, 0, 0]])
    mask = torch.tensor([[True, True, True, False, False]])
    plain = net(torch.tensor([[3, 4, 5]]), target)
    torch.testing.assert_close(net(padded, target, attention_mask=mask), plain)


def test_greedy_takes_the_most_probable_token_of_the_text_so_far() -> None:
    net = model()
    source = torch.tensor([[3, 4, 5], [6, 7, 8]])
    text = net.greedy(source, max_new_tokens=4)
    for length in range(1, 5):
        expected = net(source, text[:, :length])[:, -1].argmax(-1)
        assert torch.equal(text[:, length], expected)


def test_multiplications_are_counted_by_layer() -> None:
    layers = torch.nn.ModuleDict(
        {
            "linear": torch.nn.Linear(3, 5),
            "conv": torch.nn.Conv1d(3, 4, 2),
            "lstm": torch.nn.LSTM(3, 2),
        }
    )
    with counted(layers) as counts:
        layers["linear"](torch.zeros(2, 7, 3))
        layers["conv"](torch.zeros(2, 3, 7))
        layers["lstm"](torch.zeros(7, 2, 3))
    assert counts == [2 * 7 * 3 * 5, 2 * 6 * 3 * 4 * 2, 7 * 2 * (8 * 3 + 8 * 2)]
