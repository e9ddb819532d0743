"""Beam search: the continuation with the best score among the so many best beginnings followed at each step."""

from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.generate.constraints import Constraints
from course_lib.generate.state import State

EarlyStopping = bool | Literal["never"]
NEVER = -1e9  # the score of a beam that must not win; unlike -inf it can still be compared


def beam_search(
    state: State,
    beams: int,
    *,
    length_penalty: float,
    early_stopping: EarlyStopping,
    constraints: Constraints,
    eos: int | None,
    pad: int | None,
) -> Int[Tensor, "B T+new"]:
    """The best text of each prompt.

    Rows b * beams ... (b + 1) * beams - 1 of the state are the beams of prompt b, best first. A text's score is the sum
    of its log probabilities divided by (number of new tokens) ** length_penalty. A prompt is open until `beams` of its
    texts have ended and, unless early_stopping is True, no beam can hope to be better than the worst of them: by its
    score at today's length (False), or at the longest length where a positive penalty favours long texts ("never").
    """
    prompts, device = state.rows // beams, state.text.device
    scores = torch.full((prompts, beams), NEVER, device=device)
    scores[:, 0] = 0.0  # all beams begin equal: let one speak
    done: list[list[tuple[float, Tensor]]] = [[] for _ in range(prompts)]  # (score, text), best first
    is_open = [True] * prompts
    first_row = torch.arange(prompts, device=device)[:, None] * beams
    longest = state.max_length - state.prompt

    for step in range(1, longest + 1):
        last = step == longest
        log_probs = constraints(
            state.logits().log_softmax(dim=-1), state.so_far, step=step - 1, last=last, eos=eos, keep=state.real
        )
        total = log_probs.view(prompts, beams, -1) + scores[..., None]
        size = total.shape[-1]
        if 2 * beams > size:
            raise CourseError(f"{beams} beams are too many for a vocabulary of {size}; use at most {size // 2}.")
        # Twice as many as needed: if every beam's best token is eos, as many are left to go on with.
        best, flat = total.flatten(1).topk(2 * beams)
        row, token = first_row + flat // size, flat % size
        ended = torch.full_like(token, last, dtype=torch.bool)
        if eos is not None:
            ended = ended | (token == eos)

        final = best / step**length_penalty
        for prompt, place in ended[:, :beams].nonzero().tolist():
            if is_open[prompt]:
                text = torch.cat((state.so_far[row[prompt, place]], token[prompt, place][None]))
                done[prompt].append((final[prompt, place].item(), text))
        for prompt in range(prompts):
            done[prompt] = sorted(done[prompt], key=lambda pair: -pair[0])[:beams]

        scores, chosen = (best + ended * NEVER).topk(beams)
        at_length = longest if early_stopping == "never" and length_penalty > 0 else step
        hope = (scores[:, 0] / at_length**length_penalty).tolist()
        is_open = [
            was and (len(d) < beams or (early_stopping is not True and h > d[-1][0]))
            for was, d, h in zip(is_open, done, hope, strict=True)
        ]
        if last or not any(is_open):
            break
        state.reorder(row.gather(1, chosen).flatten())
        state.append(token.gather(1, chosen).flatten())

    texts = [found[0][1] for found in done]
    return nn.utils.rnn.pad_sequence(texts, batch_first=True, padding_value=pad or 0)
