"""Beam search: keep the K most probable unfinished texts of each prompt, and extend them all.

With K = 2 beams after the prompt "The", and log probabilities in brackets:

    step 1    The cat (-0.9)        The dog (-1.1)
    step 2    The cat sat (-1.6)    The cat ran (-2.0)     The dog sat (-2.4) is dropped
    step 3    ...

A text that gets the end token is finished. It leaves the beams, and waits for better texts with its
score, which is the sum of its log probabilities / length ** length_penalty.

Letters: P prompts, K beams of each, V vocabulary.
"""

from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from course_lib.generation.config import GenerationConfig
from course_lib.generation.state import State

# A sum of log probabilities so low that it never wins, as in transformers. It is multiplied by 0
# below, and 0 * -inf would be NaN.
NEVER = -1e9


@dataclass
class Finished:
    """The best finished texts of one prompt.

    Attributes:
        beams: how many are kept.
        texts: pairs of score and tokens, best first.
    """

    beams: int
    texts: list[tuple[float, Tensor]] = field(default_factory=list)

    def add(self, score: float, text: Tensor) -> None:
        """Add a text. If there are then too many, the worst is dropped."""
        self.texts = sorted([*self.texts, (score, text)], key=lambda pair: -pair[0])[: self.beams]

    @property
    def is_full(self) -> bool:
        """Whether there are as many finished texts as beams."""
        return len(self.texts) == self.beams

    def can_be_beaten(self, score: float) -> bool:
        """Whether a text with this score would be kept."""
        return not self.is_full or score > self.texts[-1][0]


def beam_search(
    state: State, config: GenerationConfig, returned: int
) -> tuple[Int[Tensor, "PR T+new"], Float[Tensor, " PR"]]:
    """The best texts of each prompt, best first, and their scores.

    Rows p * K ... (p + 1) * K - 1 of the state are the beams of prompt p, best first. The search
    for a prompt is open until K of its texts have ended. Unless `early_stopping` is True, it stays
    open as long as a beam can still beat the worst of these K.

    Args:
        state: a state with K rows for each prompt.
        config: the options. `num_beams` is K.
        returned: R, the number of texts to return for each prompt.
    """
    beams = config.num_beams
    prompts = state.rows // beams
    device = state.text.device
    first_row = torch.arange(prompts, device=device)[:, None] * beams
    finished = [Finished(beams) for _ in range(prompts)]
    is_open = [True] * prompts

    # At first all beams of a prompt are the same text. Only the first one counts, because otherwise
    # each would choose the same next token, and they would stay the same.
    scores = torch.full((prompts, beams), NEVER, device=device)
    scores[:, 0] = 0.0

    for step in range(1, config.max_new_tokens + 1):
        is_last = step == config.max_new_tokens
        log_probs = state.logits().log_softmax(dim=-1)  # PK V
        log_probs = config.allowed(log_probs, step - 1)
        totals = scores[..., None] + log_probs.view(prompts, beams, -1)  # P K V
        vocab = totals.shape[-1]

        # 2K candidates are enough: each beam has one end token, so at most K candidates end a text
        # and at least K continue.
        candidates, index = totals.flatten(1).topk(2 * beams)  # P 2K
        row = first_row + index // vocab  # the beam that a candidate extends
        token = index % vocab
        ends = torch.full_like(token, is_last, dtype=torch.bool)  # at the last step all texts end
        if config.eos is not None:
            ends = ends | (token == config.eos)

        # A finished text counts only if it is among the K best candidates.
        candidate_scores = candidates / step**config.length_penalty
        for prompt, rank in ends[:, :beams].nonzero().tolist():
            if is_open[prompt]:
                last_token = token[prompt, rank][None]
                text = torch.cat((state.so_far[row[prompt, rank]], last_token))
                finished[prompt].add(candidate_scores[prompt, rank].item(), text)

        # The best K candidates that do not end become the next beams.
        scores, chosen = (candidates + ends * NEVER).topk(beams)  # P K
        best_length = step
        if config.early_stopping == "never" and config.length_penalty > 0:
            # Sums are negative. Divided by the largest length, they give the best possible score.
            best_length = config.max_new_tokens
        best_scores = (scores[:, 0] / best_length**config.length_penalty).tolist()
        for prompt, score in enumerate(best_scores):
            stays_open = finished[prompt].can_be_beaten(score)
            if config.early_stopping is True:
                stays_open = not finished[prompt].is_full
            is_open[prompt] = is_open[prompt] and stays_open
        if is_last or not any(is_open):
            break
        state.reorder(row.gather(1, chosen).flatten())
        state.append(token.gather(1, chosen).flatten())

    texts = []
    final_scores = []
    for best_texts in finished:
        for score, text in best_texts.texts[:returned]:
            texts.append(text)
            final_scores.append(score)
    padded = nn.utils.rnn.pad_sequence(texts, batch_first=True, padding_value=config.filler)
    return padded, torch.tensor(final_scores, device=device)
