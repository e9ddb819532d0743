"""The claims of lesson 08: GPT-1's size, the advantage of GELU over ReLU, and a decoder that is
fine-tuned.
"""

from dataclasses import replace

from course_lib.analysis import cost, evaluation
from course_lib.families.gpt import gpt1
from course_lib.objectives import losses
from lab.lessons import Lab, experiment, probes, small_models
from lab.real import few_rows


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


@experiment("decoder-finetuned", **few_rows.SETTINGS)
def decoder_finetuned(lab: Lab, seed: int) -> dict[str, float]:
    """Scores of gpt-english, of its network from random weights and of a linear model."""
    values: dict[str, float] = {}
    for task in few_rows.TASKS:
        values[f"{task}/pretrained"] = few_rows.score(lab, task, "decoder", seed)
        values[f"{task}/random weights"] = few_rows.score(lab, task, "random decoder", seed)
        values[f"{task}/linear"] = few_rows.linear_score(lab, task, seed)
    return values
