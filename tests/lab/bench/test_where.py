"""What a training step moves on a GPU is counted without one."""

from course_lib.analysis.cost import forward_flops
from lab.bench import where
from lab.bench.contenders import SIZES, batches_of, config_of


def test_the_operations_of_a_step_are_three_forward_passes():
    size = SIZES["S"]
    kinds = where.step("bert", size, in_parts=False)
    counted = sum(kind.flops for kind in kinds.values())
    masked = int(batches_of("bert", size)[0]["loss_mask"].sum())
    forward = forward_flops(config_of("bert", size), size.tokens, outputs=0) * size.batch
    forward += 2 * masked * size.width * size.vocab
    # Attention's backward pass computes the scores again, so it takes 2.5 forward passes, not 2.
    assert 0.98 < counted / (3 * forward) < 1.1


def test_the_loss_in_parts_moves_less():
    plain, parts = (where.step("gpt", SIZES["S"], in_parts=each) for each in (False, True))
    assert parts["loss"].bytes < plain["loss"].bytes
    assert parts["other products"].bytes == plain["other products"].bytes
