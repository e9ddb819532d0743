"""The claims of lesson 08: GELU, GPT-1's size, its advantage over ReLU, and what pretraining a
decoder is worth.
"""

import math
from dataclasses import replace

import torch
import torch.nn.functional as F

from course_lib.analysis import cost, evaluation
from course_lib.families.gpt import gpt1
from course_lib.objectives import losses
from experiments.lessons import Lab, Plan, Tuning, experiment, probes, small_models, suite


@experiment("gelu")
def gelu(lab: Lab, seed: int) -> dict[str, float]:
    """Greatest deviations from the identities, and of the tanh approximation."""
    x = torch.linspace(-10, 10, 200_001, dtype=torch.float64, requires_grad=True)
    y = F.gelu(x)
    (slope,) = torch.autograd.grad(y.sum(), x)
    with torch.no_grad():
        phi, density = torch.special.ndtr(x), torch.exp(-x * x / 2) / math.sqrt(2 * math.pi)
        off = (F.gelu(x, approximate="tanh") - y).abs()
        values = {
            "x Phi(x)": (y - x * phi).abs().max(),
            "erf form": (y - x / 2 * (1 + torch.erf(x / math.sqrt(2)))).abs().max(),
            "derivative": (slope - phi - x * density).abs().max(),
            "at 0": F.gelu(torch.zeros(1, dtype=torch.float64)).abs().max(),
            "beyond 6": (y - x)[x > 6].abs().max(),
            "below -6": y[x < -6].abs().max(),
            "largest jump of the slope": slope.diff().abs().max(),
            "tanh form, greatest error": off.max(),
            "tanh form, at |x|": x[off.argmax()].abs(),
        }
    return {name: value.item() for name, value in values.items()}


@experiment("gpt1-size")
def gpt1_size(lab: Lab, seed: int) -> dict[str, float]:
    """Counted on the meta device, without memory for the weights."""
    from transformers import OpenAIGPTConfig, OpenAIGPTLMHeadModel

    config = gpt1()
    return {
        "layers": config.layers,
        "width": config.width,
        "heads": config.heads,
        "parameters": cost.parameters(config),
        "transformers": cost.parameters(lambda: OpenAIGPTLMHeadModel(OpenAIGPTConfig())),
    }


@experiment("gelu-converges")
def gelu_converges(lab: Lab, seed: int) -> dict[str, float]:
    """Held-out loss and training loss where the ReLU arm ends, after two fifths of the steps."""
    values: dict[str, float] = {}
    gelu, end = small_models.causal_arm(lab.plan, seed), small_models.after(lab.plan, 0.4)
    model = replace(small_models.body(lab.plan), causal=True, activation="relu")
    for name, arm in (("GELU", gelu), ("ReLU", replace(gelu, model=model, keep=(), stop=end))):
        source = lab.model(arm, at=end)
        held_out = probes.held_out(arm, source.tokenizer)
        values[f"held-out loss/{name}"] = evaluation.mean_loss(source.model, losses.clm, held_out)
        seen = [point["loss"] for point in source.card["curve"] if 0.8 * end < point["step"] <= end]
        values[f"training loss/{name}"] = sum(seen) / max(1, len(seen))
    return values | {"steps": end}


def _systems(plan: Plan, seed: int) -> dict[str, Tuning]:
    """The same decoder, pretrained and from scratch; an earlier system, a BiLSTM with attention on
    frozen ELMo.
    """
    tuning = Tuning(small_models.causal_arm(plan, seed), "", seed)
    earlier = Tuning(small_models.elmo_arm(plan, seed), "", seed, frozen=True)
    return {
        "pretrained": tuning,
        "from scratch": replace(tuning, pretrained=False),
        "BiLSTM+ELMo+Attn": earlier,
    }


suite("gpt1-table", _systems)
