"""Numbers in a page: nearly what they were, and in short lines."""

import base64

import torch

from course_lib.view import packed


def test_rounding_uses_the_whole_byte_and_errs_by_half_a_step():
    matrix = torch.randn(5, 40, generator=torch.Generator().manual_seed(0)) * torch.tensor(
        [[1e-3], [1], [9], [80], [0]]
    )
    whole, scale = packed.rounded(matrix)
    assert whole.dtype == torch.int8 and whole.abs().amax(dim=1).tolist() == [127, 127, 127, 127, 0]
    assert ((whole * scale[:, None] - matrix).abs() <= 0.501 * scale[:, None]).all()


def test_lines_are_short_and_hold_every_byte():
    raw = bytes(range(256)) * 3
    lines = packed.lines(raw, width=50)
    assert {len(line) for line in lines[:-1]} == {50} and 0 < len(lines[-1]) <= 50
    assert base64.b64decode("".join(lines)) == raw
