"""A batch of texts being continued, and the prompts that they begin with."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.attention import KVCache
from course_lib.config import Learned, StackConfig
from course_lib.errors import CourseError
from course_lib.few_rows import FewRows
from course_lib.seq2seq import Seq2SeqLM


def left_pad(rows: Sequence[Sequence[int]], pad: int = 0) -> tuple[Int[Tensor, "B T"], Bool[Tensor, "B T"]]:
    """Prompts of different lengths as one batch: (ids, keep), padding on the left so that all continue at one column.

    >>> left_pad([[7, 8, 9], [5]])[0].tolist()
    [[7, 8, 9], [0, 0, 5]]
    """
    if not rows or not all(len(row) for row in rows):
        raise CourseError("Every prompt needs at least one token; give the start token if there is no text.")
    width = max(len(row) for row in rows)
    ids = torch.tensor([[pad] * (width - len(row)) + list(row) for row in rows])
    keep = torch.tensor([[False] * (width - len(row)) + [True] * len(row) for row in rows])
    return ids, keep


class State:
    """The tokens so far, which of them are real, and the cache.

    Args:
        ids, keep: prompts; of an encoder-decoder the sources, read here once. decoder_ids: how its targets begin, by
            default with its start token.
        cache: as `generate` takes it. max_new_tokens: room to make. copies: rows for each prompt, next to each other.

    Raises:
        CourseError: as `generate` does.
    """

    def __init__(
        self,
        model: nn.Module,
        ids: Int[Tensor, "B T"],
        keep: Bool[Tensor, "B T"] | None,
        decoder_ids: Int[Tensor, "B U"] | None,
        cache: bool | KVCache,
        max_new_tokens: int,
        copies: int = 1,
    ) -> None:
        self.whole = model
        if isinstance(model, Seq2SeqLM):
            _check_ids(ids)
            if decoder_ids is None:
                decoder_ids = ids.new_full((len(ids), 1), model.stack.start)
            with _reading(model):
                model, ids, keep = model.given(ids, keep, copies), decoder_ids, None
        elif decoder_ids is not None:
            raise CourseError("decoder_ids are for encoder-decoders; a decoder alone continues `ids`.")
        config = _config(model)
        past = cache.length if isinstance(cache, KVCache) else 0
        _check_prompt(config, ids, keep, past, max_new_tokens)
        ids = ids.repeat_interleave(copies, dim=0)
        self.model, self.past = model, past
        self.rows, self.length = ids.shape
        self.prompt = ids.shape[1]
        self.seen = 0  # columns whose keys and values the cache holds
        self.max_length = self.prompt + max_new_tokens
        self.text = nn.functional.pad(ids, (0, max_new_tokens))
        self.keep: Tensor | None = None
        if keep is not None and not keep.all():
            keep = keep.bool().repeat_interleave(copies, dim=0)
            self.keep = nn.functional.pad(keep, (0, max_new_tokens), value=True)
        self.cache: KVCache | None = None
        if isinstance(cache, KVCache):
            self.cache = cache.copy()
            held = 0 if cache.own[0].k is None else len(cache.own[0].k)
            if held not in (0, 1, self.rows // copies):
                raise CourseError(f"The cache holds {held} rows, the prompt {self.rows // copies}.")
            if held and held != self.rows:
                rows = torch.arange(self.rows, device=ids.device) // copies
                self.cache.reorder(rows if held > 1 else torch.zeros_like(rows))
        elif cache:
            self.cache = KVCache(config.layers)

    @property
    def so_far(self) -> Int[Tensor, "B T"]:
        """Prompts and what has been added."""
        return self.text[:, : self.length]

    @property
    def real(self) -> Bool[Tensor, "B T"] | None:
        """Which of `so_far` are no padding; None: all."""
        return None if self.keep is None else self.keep[:, self.past : self.past + self.length]

    @property
    def step(self) -> int:
        """How many tokens have been added."""
        return self.length - self.prompt

    def logits(self) -> Float[Tensor, "B V"]:
        """Next-token logits of every row, in float32. With a cache only what it lacks is computed."""
        new = self.text[:, self.seen : self.length]
        if self.cache is not None:
            self.seen = self.length
        keep = None if self.keep is None else self.keep[:, : self.past + self.length]
        at = None
        if new.shape[1] > 1:  # the output matrix only for the last position
            at = torch.zeros_like(new, dtype=torch.bool)
            at[:, -1] = True
        with _reading(self.whole):
            logits: Tensor = self.model(new, keep=keep, cache=self.cache, at=at)
        return logits.view(self.rows, -1).float()

    def append(self, token: Int[Tensor, " B"]) -> None:
        """Add one token to every row."""
        self.text[:, self.length] = token
        self.length += 1

    def reorder(self, rows: Int[Tensor, " B"]) -> None:
        """Continue with these rows instead, each of the same prompt: what beams share (`keep`, the memory) stays."""
        self.text = self.text[rows]
        if self.cache is not None:
            for layer in self.cache.own:
                layer.reorder(rows)


@contextmanager
def _reading(model: nn.Module) -> Iterator[None]:
    """Inside the block no gradients, no dropout, products made for few rows; after it the model's mode is as before."""
    was_training = model.training
    if was_training:
        model.eval()
    try:
        with torch.no_grad(), FewRows():
            yield
    finally:
        if was_training:
            model.train()


def _config(model: nn.Module) -> StackConfig:
    config = getattr(getattr(model, "stack", None), "config", None)
    if not isinstance(config, StackConfig):
        raise CourseError(f"{type(model).__name__} is no language model of the course; use heads.LM over a Stack.")
    if not config.causal:
        raise CourseError("Only a causal model continues text; this one reads both sides (StackConfig.causal).")
    return config


def _check_ids(ids: Tensor) -> None:
    if ids.dim() != 2 or ids.shape[1] == 0 or ids.is_floating_point():
        raise CourseError(f"ids must be token numbers [B, T] with at least one column, not {list(ids.shape)}.")


def _check_prompt(config: StackConfig, ids: Tensor, keep: Tensor | None, past: int, new: int) -> None:
    _check_ids(ids)
    if new < 1:
        raise CourseError(f"max_new_tokens is {new}; it must be at least 1.")
    longest = past + ids.shape[1]
    if keep is not None:
        if keep.shape != (len(ids), longest):
            raise CourseError(f"keep is {list(keep.shape)}, but cache and prompt together are {[len(ids), longest]}.")
        if not keep[:, -1].all():
            raise CourseError(
                "A prompt ends in padding; pad on the left (generate.left_pad) so that text follows text."
            )
    # The last new token is never fed back, hence the - 1.
    if isinstance(config.position, Learned) and longest + new - 1 > (length := config.position.length):
        raise CourseError(
            f"The prompt's {longest} tokens and {new} new ones go beyond the {length} positions that this model has "
            f"learned; ask for at most {max(0, length - longest + 1)} or shorten the prompt."
        )
