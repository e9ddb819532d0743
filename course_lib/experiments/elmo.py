"""The claims of lesson 06: what each half of a biLM can see."""

import torch
from torch import Tensor

from course_lib import trace
from course_lib.claims.experiment import experiment
from course_lib.claims.lab import Lab
from course_lib.claims.record import Figures
from course_lib.models import elmo

WORDS = 16
CONFIG = elmo.ElmoConfig(0, width=16, hidden=40, filters=((1, 8), (2, 16), (3, 16)), length=12, dropout=0.0)
SIDES = ("forward", "backward")


def influence(model: elmo.Elmo, sentence: list[str]) -> Tensor:
    """Norms of the derivatives of each word's vector by each word's token vector, [layers, 2 halves, T, T]."""
    with trace.record(model, "tokens", detach=False) as seen:
        layers = model(**elmo.characters([sentence], model.config.length))[1:]
    tokens = seen["tokens"]
    found = [
        torch.autograd.grad(vector.sum(), tokens, retain_graph=True)[0][0].norm(dim=-1)
        for layer in layers
        for half in layer[0].chunk(2, dim=-1)
        for vector in half
    ]
    steps = tokens.shape[1]
    return torch.stack(found).view(len(layers), 2, steps, steps)


def _shallow(f: Figures) -> tuple[str, str]:
    other = max(max(f[f"{side}, other side"].seeds) for side in SIDES)
    own = min(min(f[f"{side}, own side"].seeds) for side in SIDES)
    return "reproduced" if other == 0 < own else "not at this scale", (
        f"In both layers, the largest derivative by a word of the other side is {other:g}, the smallest by a word of "
        f"the own side {own:.0e}."
    )


@experiment(
    "elmo-shallow-bidirectional",
    rule="""A biLM of two layers with random weights, a sentence of 16 words, in double precision. Reproduced if in
    every LSTM layer the derivative of the forward half by every later word and of the backward half by every earlier
    word is exactly 0, and by every word of its own side is not. Anything else contradicts it.""",
    judge=_shallow,
    config={"words": WORDS, "width": CONFIG.width, "layers": CONFIG.layers},
)
def shallow_bidirectional(lab: Lab, seed: int) -> dict[str, float]:
    """The largest derivative by a word of the other side, the smallest by one of the own side, for each half."""
    torch.manual_seed(seed)
    model = elmo.Elmo(CONFIG).double().eval()
    found = influence(model, [f"{chr(97 + i)}{i}" for i in range(WORDS)])
    own = torch.ones(found.shape[-2:]).tril().bool()
    values = {}
    for half, mine in enumerate((own, own.T)):
        values[f"{SIDES[half]}, other side"] = float(found[:, half][:, ~mine].max())
        values[f"{SIDES[half]}, own side"] = float(found[:, half][:, mine].min())
    return values
