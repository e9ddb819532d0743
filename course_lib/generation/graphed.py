"""One step of generation, recorded as a CUDA graph and replayed for every new token.

A small model's step on a GPU takes less time than Python needs to start its few hundred kernels. A
CUDA graph starts all of them with one call. It repeats exactly the recorded kernels on the same
memory, so no tensor may change its shape or its address from one step to the next:

    columns       0 .. past-1    past .. max_length-1    max_length
    keys, values  of the text    free                    of the newest token
    mask          True           False                   True

A step writes the newest token's keys into the last column, where the model looks for them, and into
the first free column, where they stay. Afterwards that column becomes True in the mask.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.model import kernels
from course_lib.model.cache import KVCache, LayerCache

WARM_UP = 3  # steps before the recording, in which libraries choose their kernels and allocate
FEWEST_TOKENS = 16  # for fewer new tokens, recording takes longer than it saves


def can_be_graphed(modules: list[nn.Module], device: torch.device, new_tokens: int) -> bool:
    """Whether to record the steps of a generation.

    Args:
        modules: the modules of the model. A hook would be called once, when the step is recorded.
        device: the model's device.
        new_tokens: number of tokens to generate.
    """
    is_worth_it = kernels.ENABLED and device.type == "cuda" and new_tokens >= FEWEST_TOKENS
    if not is_worth_it or torch.is_autocast_enabled("cuda"):
        return False
    return not any(module._forward_hooks or module._forward_pre_hooks for module in modules)


class GraphedStep:
    """The newest token of each row -> the logits of the next one.

    On a CPU the same step runs without a recording, which is how it is tested.

    Args:
        model: a causal language model in evaluation mode.
        cache: the keys and values of the text so far.
        attention_mask: True at its real tokens, Bool[B, at least past]; None: all are real.
        max_length: number of tokens of the whole text.
    """

    def __init__(
        self,
        model: nn.Module,
        cache: KVCache,
        attention_mask: Bool[Tensor, "B T"] | None,
        max_length: int,
    ) -> None:
        past = cache.length
        first: Any = cache.attn[0].k
        rows = len(first)
        columns = max_length + 1
        self.model = model
        self.token = torch.zeros(rows, 1, dtype=torch.long, device=first.device)
        self.free = torch.full((1,), past, device=first.device)  # the first free column
        self.mask = torch.zeros(rows, columns, dtype=torch.bool, device=first.device)
        self.mask[:, :past] = True if attention_mask is None else attention_mask[:, :past]
        self.mask[:, -1] = True
        self.cache = _StaticCache(cache, columns, self.free)
        self.logits: Tensor  # made by the first step
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, token: Int[Tensor, " B"]) -> Float[Tensor, "B V"]:
        """Read one token of each row."""
        self.token.copy_(token[:, None])
        if not self.token.is_cuda:
            self._step()
        else:
            if self.graph is None:
                self.graph = self._record()
            self.graph.replay()
        return self.logits.clone()  # the next step writes into the same memory

    def _step(self) -> None:
        self._read_token()
        self.mask.index_fill_(1, self.free, True)
        self.free += 1

    def _read_token(self) -> None:
        """This may be repeated: it writes the same keys into the same columns."""
        logits = self.model(self.token, cache=self.cache, attention_mask=self.mask)
        self.logits = logits[:, -1]

    def _record(self) -> torch.cuda.CUDAGraph:
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                self._read_token()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step()
        return graph


class _StaticCache(KVCache):
    """A copy of a cache. It has all its columns from the start, and its tensors do not move."""

    def __init__(self, cache: KVCache, columns: int, free: Int[Tensor, "1"]) -> None:
        super().__init__(layers=0)  # the layers are set below
        self.columns = columns
        self.attn = [_StaticLayer(layer, columns, free) for layer in cache.attn]
        self.cross = cache.cross

    @property
    def length(self) -> int:
        """All columns but the newest token's. The mask says which of them hold a token."""
        return self.columns - 1


class _StaticLayer(LayerCache):
    def __init__(self, layer: LayerCache, columns: int, free: Int[Tensor, "1"]) -> None:
        super().__init__()
        self.free = free
        held: tuple[Any, Any] = (layer.k, layer.v)
        self.k, self.v = (F.pad(x, (0, 0, 0, columns - x.shape[2])) for x in held)

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write the newest token's key and value [B, H, 1, Dh] into their two columns."""
        held: tuple[Any, Any] = (self.k, self.v)
        for all_columns, new in zip(held, (k, v), strict=True):
            all_columns[:, :, -1:] = new
            all_columns.index_copy_(2, self.free, new)
        return held
