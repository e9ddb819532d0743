"""The unfinished texts of one call of `generate`, and the cache of their keys and values.

    state = State(model, ids, None, max_new_tokens=2)
    state.append(state.logits().argmax(dim=-1))       greedy decoding of the first new token
    state.append(state.logits().argmax(dim=-1))       of the second
    state.so_far                                      the prompts with two new tokens

At the first call of `logits` the model reads the prompts. Later it reads only the newest token of
each row, because the cache has the keys and values of the others. The cache is here and not in the
model, so two generations with one model do not disturb each other.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.generation.graphed import GraphedStep, can_be_graphed
from course_lib.model.cache import KVCache
from course_lib.model.config import StackConfig
from course_lib.model.modes import evaluating
from course_lib.model.seq2seq import Seq2SeqLM
from course_lib.objectives.collate import pad_to_longest


def left_pad(
    rows: Sequence[Sequence[int]], pad: int = 0
) -> tuple[Int[Tensor, "B T"], Bool[Tensor, "B T"]]:
    """Make a batch of prompts, padded on the left so that all end in the same column.

    The new tokens can then be appended to all rows at once.

    Args:
        rows: the token ids of each prompt.
        pad: the padding token.

    Returns:
        The token ids, and the attention mask: True at the real tokens.

    Raises:
        CourseError: a prompt is empty.

    >>> ids, mask = left_pad([[5, 6, 7], [8]])
    >>> ids.tolist()
    [[5, 6, 7], [0, 0, 8]]
    >>> mask.tolist()
    [[True, True, True], [False, False, True]]
    """
    if not rows or not all(len(row) for row in rows):
        raise CourseError(
            "Every prompt needs at least one token; give the start token if there is no text."
        )
    batch = pad_to_longest(rows, pad, left=True)
    return batch["ids"], batch["attention_mask"]


class State:
    """The tokens of all texts so far, their attention mask, and the cache.

    Every prompt has `copies` adjacent rows, one for each beam or each sampled text. For an
    encoder-decoder the prompts are the sources. The encoder reads them once, when the state is
    made. Then each text begins with the decoder's start token alone.

    Args:
        model: a causal language model, or an encoder-decoder.
        ids: the prompts, padded on the left.
        attention_mask: True at the real tokens; by default all are.
        max_new_tokens: the largest number of tokens to add.
        copies: the number of rows for each prompt.
        cache: False lets the model read all tokens again at every step.
        graph: on a GPU, record one step as a CUDA graph and replay it for each token. Rows can
            then not be reordered.

    Raises:
        CourseError: the prompts are not [B T] token ids, they end in padding, or the model has too
            few positions for the new tokens.
    """

    def __init__(
        self,
        model: nn.Module,
        ids: Int[Tensor, "B T"],
        attention_mask: Bool[Tensor, "B T"] | None,
        *,
        max_new_tokens: int,
        copies: int = 1,
        cache: bool = True,
        graph: bool = False,
    ) -> None:
        if ids.dim() != 2 or 0 in ids.shape or ids.is_floating_point():
            raise CourseError(
                "ids must be token numbers [B, T] with at least one row and one column, not"
                f" {list(ids.shape)}."
            )
        self.modules = list(model.modules())
        if isinstance(model, Seq2SeqLM):
            start = ids.new_full((len(ids), 1), model.stack.start)
            with evaluating(self.modules), torch.no_grad():
                model = model.given(ids, attention_mask)
            ids = start
            attention_mask = None
        config = causal_config(model)
        self.prompt = ids.shape[1]
        needed = self.prompt + max_new_tokens - 1  # the model does not read the last new token
        check_positions(
            config, needed, f"The prompt's {self.prompt} tokens and {max_new_tokens} new"
        )
        _check_mask(ids, attention_mask)

        self.model = model
        self.rows = len(ids) * copies
        self.copies = copies
        self.length = self.prompt
        self.max_length = self.prompt + max_new_tokens
        self.cached = 0  # the number of columns of `text` whose keys and values are in the cache
        self.cache = KVCache(config.layers, self.max_length) if cache else None
        self.uses_graph = (
            graph and cache and can_be_graphed(self.modules, ids.device, max_new_tokens)
        )
        self.graphed: GraphedStep | None = None

        # Allocated once, with the columns of the new tokens, which are still 0.
        self.text = nn.functional.pad(ids.repeat_interleave(copies, dim=0), (0, max_new_tokens))
        self.attention_mask: Tensor | None = None
        if attention_mask is not None and not attention_mask.all():
            mask = attention_mask.bool().repeat_interleave(copies, dim=0)
            self.attention_mask = nn.functional.pad(mask, (0, max_new_tokens), value=True)

    @property
    def so_far(self) -> Int[Tensor, "B T"]:
        """The prompts with their new tokens."""
        return self.text[:, : self.length]

    @property
    def new_tokens(self) -> int:
        """The number of tokens added to each prompt."""
        return self.length - self.prompt

    def logits(self) -> Float[Tensor, "B V"]:
        """The next token's logits for every row, in float32."""
        if self.uses_graph and self.length > self.prompt:
            return self._graphed_logits()

        # At the first step all copies of a prompt are equal, so the model reads only one of them.
        are_equal = self.cache is not None and self.length == self.prompt
        stride = self.copies if are_equal else 1

        ids = self.text[::stride, self.cached : self.length]
        if self.cache is not None:
            self.cached = self.length
        mask = self.attention_mask
        if mask is not None:
            mask = mask[::stride, : self.length]
        with evaluating(self.modules), torch.no_grad():
            logits: Tensor = self.model(
                ids, attention_mask=mask, cache=self.cache, loss_mask=_at_last(ids)
            )
        logits = logits.view(len(ids), -1).float()
        if stride == 1:
            return logits

        # From the next token on the copies differ, so each gets its own keys and values.
        rows = torch.arange(len(ids), device=ids.device).repeat_interleave(stride)
        self._reorder_cache(rows)
        return logits.index_select(0, rows)

    def _graphed_logits(self) -> Float[Tensor, "B V"]:
        """The same for one new token in each row, by a recorded step."""
        with evaluating(self.modules), torch.no_grad():
            if self.graphed is None and self.cache is not None:
                self.graphed = GraphedStep(
                    self.model, self.cache, self.attention_mask, self.max_length
                )
                self.cache = None  # its tensors have been copied
            assert self.graphed is not None
            return self.graphed(self.text[:, self.length - 1]).float()

    def append(self, token: Int[Tensor, " B"]) -> None:
        """Add one token to every row."""
        self.text[:, self.length] = token
        self.length += 1

    def reorder(self, rows: Int[Tensor, " B"]) -> None:
        """Replace row i by row rows[i], for all i. Both must belong to the same prompt."""
        self.text = self.text.index_select(0, rows)
        # The keys and values of the prompt itself are equal in all of its rows and need no copying.
        self._reorder_cache(rows, since=self.prompt)

    def _reorder_cache(self, rows: Int[Tensor, " B"], since: int = 0) -> None:
        """Reorder the self-attention's keys and values, from the column `since` on.

        Those of cross-attention stay: they have one row for each source, not one for each copy.
        """
        if self.cache is not None:
            for layer in self.cache.attn:
                layer.reorder(rows, since=since)


def causal_config(model: nn.Module) -> StackConfig:
    """The configuration of a causal language model.

    Raises:
        CourseError: if the model is not causal.
    """
    config = getattr(getattr(model, "stack", None), "config", None)
    if not isinstance(config, StackConfig) or not config.causal:
        raise CourseError(
            f"{type(model).__name__} continues no text; give a causal model with heads.LM."
        )
    return config


def check_positions(config: StackConfig, needed: int, subject: str) -> None:
    """Refuse a text that is longer than the position embeddings reach.

    Args:
        config: the model's configuration.
        needed: the number of tokens that the model must read.
        subject: the subject of the error's sentence, such as "The prompt".

    Raises:
        CourseError: if the model has fewer positions.
    """
    if config.max_length is not None and needed > config.max_length:
        raise CourseError(
            f"{subject} take {needed} positions, and this model has learned {config.max_length}."
        )


def _check_mask(ids: Int[Tensor, "B T"], attention_mask: Tensor | None) -> None:
    """Refuse a mask of another shape, and padding after a prompt."""
    if attention_mask is None:
        return
    if attention_mask.shape != ids.shape:
        raise CourseError(
            f"attention_mask is {list(attention_mask.shape)}, the prompts are {list(ids.shape)}."
        )
    if not attention_mask[:, -1].all():
        raise CourseError(
            "A prompt ends in padding; pad on the left (left_pad) so that text follows text."
        )


def _at_last(ids: Int[Tensor, "B T"]) -> Bool[Tensor, "B T"] | None:
    """A loss mask that is True only at the last position.

    The model then computes logits only there. For a vocabulary of 50,000 tokens that saves most of
    the time. None if there is only one position.
    """
    if ids.shape[1] == 1:
        return None
    is_last = torch.zeros_like(ids, dtype=torch.bool)
    is_last[:, -1] = True
    return is_last
