"""Folders of the library `peft`, in and out.

The rules of `families` translate the names of the base's weights. A method's `Layout` says what its
own tensors mean. A new method is an entry in `LAYOUTS`.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.families import MODEL_TYPES
from course_lib.families.weight_tables import written_out
from course_lib.files import read_json, write_json
from course_lib.peft.inject import Model, freeze
from course_lib.peft.layout import Layout, Places, Stored
from course_lib.peft.lora_layout import LAYOUT as LORA
from course_lib.peft.prefix import LAYOUT as PREFIX
from course_lib.peft.prompt import LAYOUT as PROMPT
from course_lib.peft.weights import read_tensors, write_tensors

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
LAYOUTS: dict[str, Layout] = {  # by the library's name for the method
    "LORA": LORA,
    "PROMPT_TUNING": PROMPT,
    "PREFIX_TUNING": PREFIX,
}
TASKS = {  # the library's name for a task, by the end of an architecture's name
    "LMHeadModel": "CAUSAL_LM",
    "ForConditionalGeneration": "SEQ_2_SEQ_LM",
    "ForSequenceClassification": "SEQ_CLS",
    "ForTokenClassification": "TOKEN_CLS",
    "Model": "FEATURE_EXTRACTION",
}
HEADS = ("classifier", "classification_head", "score", "qa_outputs")


def load_pretrained(
    model: Model, folder: str | Path, *, model_type: str, architecture: str
) -> Model:
    """Put what `peft` has trained into the model of ours that equals its base.

    Args:
        model: changed in place or not at all; all but what was trained is then frozen.
        folder: with LoRA or DoRA, a prompt or a prefix, perhaps a head beside it.
        model_type: the base's, as `zoo.save_pretrained` takes it: "gpt2".
        architecture: the base's: "GPT2LMHeadModel".

    Raises:
        CourseError: if the folder does not fit the model, or holds another method.
    """
    folder = Path(folder)
    config = read_json(folder / CONFIG)
    places = _places(model, model_type, architecture)
    layout = LAYOUTS.get(str(config.get("peft_type")))
    if layout is None:
        raise CourseError(
            f"{folder} holds {config.get('peft_type')}; the course reads {', '.join(LAYOUTS)}."
        )
    weights = {
        name.removeprefix(layout.prefix).replace(".base_layer.", "."): tensor.float()
        for name, tensor in read_tensors(folder / WEIGHTS).items()
    }
    stored = Stored(model, config, weights, places)
    install = layout.read(stored)
    whole = _whole_weights(model, stored.weights, places)

    # Everything fits: now the model is changed.
    install()
    freeze(model)
    parameters = _parameters(model)
    for name, tensor in whole.items():
        parameters[name].data.copy_(tensor)
        parameters[name].requires_grad_(True)
    return model


def save_pretrained(
    model: nn.Module, folder: str | Path, *, model_type: str, architecture: str
) -> None:
    """Write a folder that `peft.PeftModel.from_pretrained` loads onto the public base.

    Args:
        model: with updates of one call of `lora` or `dora`, or behind a `prompt` or `prefix`.
            Whatever else was trained is written, too.
        folder: made, if it is not there.
        model_type: as in `load_pretrained`.
        architecture: as in `load_pretrained`.

    Raises:
        CourseError: if the library has no form for what was trained.
    """
    folder = Path(folder)
    places = _places(model, model_type, architecture)
    layout = next((layout for layout in LAYOUTS.values() if layout.is_in(model)), None)
    if layout is None:
        raise CourseError(
            "Only a model with LoRA updates, or one behind a prompt or prefix, has a form in"
            " `peft`."
        )
    config, weights = layout.write(model, places)
    whole = _trained_whole(model, layout, places)
    weights |= {layout.prefix + name: tensor for name, tensor in whole.items()}
    tasks = [task for ending, task in TASKS.items() if architecture.endswith(ending)]
    config |= {
        "task_type": tasks[0] if tasks else None,
        "inference_mode": True,
        "modules_to_save": sorted({name.rpartition(".")[0] for name in whole}) or None,
    }
    write_tensors(weights, folder / WEIGHTS)
    write_json(folder / CONFIG, config)


def _places(model: nn.Module, model_type: str, architecture: str) -> Places:
    """Public name -> place, for every weight that has one."""
    family = MODEL_TYPES.get(model_type)
    if family is None or architecture not in family.architectures:
        raise CourseError(f"Nothing is known of {architecture!r} in the family {model_type!r}.")
    with_prefix = family.prefixed(architecture, model)
    weights = written_out(family.whole_table(architecture, model), model)
    return {with_prefix(public): place for public, place in weights.items() if place.ours}


def _parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """By the names that they have without a method."""
    return {name.replace(".base.", "."): weight for name, weight in model.named_parameters()}


def _whole_weights(
    model: nn.Module, weights: Mapping[str, Tensor], places: Places
) -> dict[str, Tensor]:
    """Whole weights of a folder, by our names."""
    parameters = _parameters(model)
    whole: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        place = places.get(name)
        parts: dict[str, Tensor] = {}
        if place is not None:
            chunks = place.to_ours(tensor).chunk(len(place.ours))
            parts = dict(zip(place.ours, chunks, strict=True))
        fits = [
            ours in parameters and parameters[ours].shape == part.shape
            for ours, part in parts.items()
        ]
        if not parts or not all(fits):
            raise CourseError(
                f"The folder's {name} has no place in this model; is it of another base?"
            )
        whole |= parts
    return whole


def _trained_whole(model: nn.Module, layout: Layout, places: Places) -> dict[str, Tensor]:
    """What was trained beside the method, by its public names; and the head, trained or not.

    The library wants the head of a classifier in the file even where it is frozen.
    """
    parameters = _parameters(model)
    added: set[int] = set()  # the method's own weights
    for module in model.modules():
        if isinstance(module, layout.added):
            added |= {id(weight) for weight in module.parameters()}
    trained = {
        name
        for name, weight in parameters.items()
        if weight.requires_grad and id(weight) not in added
    }
    with_place: set[str] = set()
    for place in places.values():
        with_place |= set(place.ours)
    without_place = trained - with_place
    if without_place:
        raise CourseError(
            f"{min(without_place)} is trained, but `peft` has no place for it; keep this model by"
            " peft.save."
        )
    whole = {}
    for public, place in places.items():
        is_head = public.startswith(HEADS) and place.ours[0] in parameters
        if is_head or trained & set(place.ours):
            ours = [parameters[name].detach() for name in place.ours]
            whole[public] = place.to_public(torch.cat(ours))
    return whole
