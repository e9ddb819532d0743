"""Beam search: follow the most probable beginnings of a text side by side.

Letters: P prompts, K beams of each, V vocabulary.
"""

from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from course_lib.generation.config import GenerationConfig
from course_lib.generation.state import State

NEVER = -1e9  # the score of a beam that must not win; unlike -inf it can still be compared


@dataclass
class Ended:
    """The best texts of a prompt that have ended, best first: (score, tokens)."""

    beams: int
    texts: list[tuple[float, Tensor]] = field(default_factory=list)

    def add(self, score: float, text: Tensor) -> None:
        """Keep a text, if it is among the best."""
        self.texts = sorted([*self.texts, (score, text)], key=lambda pair: -pair[0])[: self.beams]

    @property
    def is_full(self) -> bool:
        """Whether as many texts have ended as there are beams."""
        return len(self.texts) == self.beams

    def can_be_beaten(self, score: float) -> bool:
        """Whether there is room, or the worst text is worse than this score."""
        return not self.is_full or score > self.texts[-1][0]


def beam_search(
    state: State, config: GenerationConfig, returned: int
) -> tuple[Int[Tensor, "PR T+new"], Float[Tensor, " PR"]]:
    """The best texts of each prompt, best first, and their scores.

    Rows p * K ... (p + 1) * K - 1 of the state are the beams of prompt p, best first. A prompt is
    open until K of its texts have ended and, unless `early_stopping` is True, no beam can have a
    better score than the worst of them.

    Args:
        state: K rows for each prompt.
        config: how many beams, how long, and the length penalty.
        returned: R, how many texts of each prompt are returned.
    """
    beams = config.num_beams
    prompts = state.rows // beams
    device = state.text.device
    first_row = torch.arange(prompts, device=device)[:, None] * beams
    ended = [Ended(beams) for _ in range(prompts)]
    is_open = [True] * prompts

    # All beams of a prompt begin equal. If every one spoke, all would say the same.
    scores = torch.full((prompts, beams), NEVER, device=device)
    scores[:, 0] = 0.0

    for step in range(1, config.max_new_tokens + 1):
        is_last = step == config.max_new_tokens
        log_probs = state.logits().log_softmax(dim=-1)  # PK V
        log_probs = config.without_early_end(log_probs, step - 1)
        totals = scores[..., None] + log_probs.view(prompts, beams, -1)  # P K V
        vocab = totals.shape[-1]

        # Twice as many as beams: if every beam's best token is the end, as many are left to go on.
        best, index = totals.flatten(1).topk(2 * beams)  # P 2K
        row = first_row + index // vocab  # the beam that a candidate goes on with
        token = index % vocab
        ends = torch.full_like(token, is_last, dtype=torch.bool)
        if config.eos is not None:
            ends = ends | (token == config.eos)

        # Only what is among the K best may end a text.
        length_norm = step**config.length_penalty
        final = best / length_norm
        for prompt, place in ends[:, :beams].nonzero().tolist():
            if is_open[prompt]:
                last_token = token[prompt, place][None]
                text = torch.cat((state.so_far[row[prompt, place]], last_token))
                ended[prompt].add(final[prompt, place].item(), text)

        # The others go on as the next beams.
        scores, chosen = (best + ends * NEVER).topk(beams)  # P K
        best_length = step
        if config.early_stopping == "never" and config.length_penalty > 0:
            best_length = config.max_new_tokens  # at which a sum of log probabilities counts least
        best_scores = (scores[:, 0] / best_length**config.length_penalty).tolist()
        for prompt, score in enumerate(best_scores):
            goes_on = ended[prompt].can_be_beaten(score)
            if config.early_stopping is True:
                goes_on = not ended[prompt].is_full
            is_open[prompt] = is_open[prompt] and goes_on
        if is_last or not any(is_open):
            break
        state.reorder(row.gather(1, chosen).flatten())
        state.append(token.gather(1, chosen).flatten())

    texts = []
    final_scores = []
    for of_prompt in ended:
        for score, text in of_prompt.texts[:returned]:
            texts.append(text)
            final_scores.append(score)
    padded = nn.utils.rnn.pad_sequence(texts, batch_first=True, padding_value=config.filler)
    return padded, torch.tensor(final_scores, device=device)
