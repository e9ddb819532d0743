"""Folders of the library `peft`, in and out.

The rules of `families` translate the names of the base's weights. A method's `Layout` says what its
own tensors mean. A new method is an entry in `LAYOUTS`.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.families import MODEL_TYPES
from course_lib.families.weight_tables import Converted, written_out
from course_lib.files import atomic_folder, read_json, write_json
from course_lib.known_fields import Config, KnownFields
from course_lib.model.heads import is_tied
from course_lib.peft.front_layout import PREFIX, PROMPT
from course_lib.peft.inject import Model, freeze
from course_lib.peft.layout import Layout, Places, Stored
from course_lib.peft.lora_layout import LAYOUT as LORA
from course_lib.peft.weights import read_tensors, write_tensors

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
PICKLE = "adapter_model.bin"  # what `peft` wrote until 2023
KNOWN = KnownFields(Path(__file__).with_name("adapter_config.toml"))
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
    "ForQuestionAnswering": "QUESTION_ANS",
    "Model": "FEATURE_EXTRACTION",
}
# By task, what the library wants in the file, trained or not: modules whose names end so.
TASK_HEADS = {
    "SEQ_CLS": ("classifier", "score"),
    "TOKEN_CLS": ("classifier", "score"),
    "QUESTION_ANS": ("qa_outputs",),
}
TOKENS = "embed.tokens.weight"


def load_pretrained(
    model: Model, folder: str | Path, *, model_type: str, architecture: str
) -> Model:
    """Put what `peft` has trained into the model of ours that equals its base.

    Args:
        model: changed in place or not at all; all but what was trained is then frozen.
        folder: with LoRA or DoRA, a prompt or a prefix, perhaps a head or biases beside it.
        model_type: the base's, as `zoo.save_pretrained` takes it: "gpt2".
        architecture: the base's: "GPT2LMHeadModel".

    Raises:
        CourseError: if the folder does not fit the model, or says what the course has not; or if
            the model has an adapter already.
    """
    folder = Path(folder)
    if any(layout.is_in(model) for layout in LAYOUTS.values()):
        raise CourseError(
            "The model has an adapter already. Merge the first one (peft.merge) if it is LoRA or"
            " DoRA; otherwise load the base again."
        )
    config = Config(read_json(folder / CONFIG))
    public = _public(model, model_type, architecture)
    method = str(config.get("peft_type"))
    layout = LAYOUTS.get(method)
    if layout is None:
        raise CourseError(f"{folder} holds {method}; the course reads {', '.join(LAYOUTS)}.")
    stored = Stored(model, config, _public_weights(folder, layout, public), public.places)
    install = layout.read(stored)
    whole = _whole_weights(model, stored.weights, public.places)
    _check_tokens(model, public, whole)
    KNOWN.check(config, method, subject=f"an adapter of the kind {method}")

    # Everything fits: now the model is changed.
    freeze(model)
    install()
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
        CourseError: if the library has no form for what was trained; then nothing is written.
    """
    folder = Path(folder)
    public = _public(model, model_type, architecture)
    layout = next((layout for layout in LAYOUTS.values() if layout.is_in(model)), None)
    if layout is None:
        raise CourseError(
            "Only a model with LoRA updates, or one behind a prompt or prefix, has a form in"
            " `peft`."
        )
    config, weights = layout.write(model, public.places)
    targets = config.get("target_modules", [])
    trained = _trained(model, layout, public.places)
    for name in trained:
        _check_tokens(model, public, public.places[name].ours)

    tasks = [task for ending, task in TASKS.items() if architecture.endswith(ending)]
    task = tasks[0] if tasks else None
    modules = _modules_to_save(public, trained, TASK_HEADS.get(task or "", ()))
    _check_modules(modules, targets)
    biases = {name for name in trained if not _is_inside(name, modules)}
    config |= {
        "task_type": task,
        "inference_mode": True,
        "modules_to_save": modules or None,
    }
    if layout is LORA:
        config["bias"] = _bias(biases, modules, targets, public.places)
    elif biases:
        raise CourseError(f"{min(biases)} is trained; with `peft` only LoRA trains biases alone.")

    parameters = _parameters(model)
    for name, place in public.places.items():
        if name in biases or _is_inside(name, modules):
            ours = [parameters[own].detach() for own in place.ours]
            written = _in_file(name, targets)
            weights[layout.prefix + written] = place.to_public(torch.cat(ours))
    with atomic_folder(folder) as new:
        write_tensors(weights, new / WEIGHTS)
        write_json(new / CONFIG, config)


class _Public(NamedTuple):
    """The names of a public class's weights.

    Attributes:
        places: those that are weights of ours.
        copies: further names of them, and names that are dropped on purpose.
        has_output: whether an output matrix is among them.
    """

    places: dict[str, Converted]
    copies: set[str]
    has_output: bool


def _public(model: nn.Module, model_type: str, architecture: str) -> _Public:
    """The public names for a model of ours."""
    family = MODEL_TYPES.get(model_type)
    if family is None or architecture not in family.architectures:
        raise CourseError(f"Nothing is known of {architecture!r} in the family {model_type!r}.")
    places: dict[str, Converted] = {}
    copies: set[str] = set()
    seen: set[tuple[str, ...]] = set()
    rows = written_out(family.whole_table(architecture, model), model)
    for name, place in family.add_prefix(rows, architecture, model).items():
        if not place.ours or place.ours in seen:
            copies.add(name)
        else:
            places[name] = place
            seen.add(place.ours)
    return _Public(places, copies, has_output=bool(family.architectures[architecture].output))


def _public_weights(folder: Path, layout: Layout, public: _Public) -> dict[str, Tensor]:
    """A folder's tensors by their public names, each weight once.

    Raises:
        CourseError: if the file cannot be read, or is a pickle.
    """
    if (folder / PICKLE).is_file() and not (folder / WEIGHTS).is_file():
        raise CourseError(
            f"{folder} has its weights in {PICKLE} only. That is a pickle, which may run code when"
            " it is read, so the course does not read it. If you trust it, load the adapter once"
            " in `peft` (PeftModel.from_pretrained), and save it (save_pretrained)."
        )
    weights: dict[str, Tensor] = {}
    for name, tensor in read_tensors(folder / WEIGHTS).items():
        # The biases of a module that is written whole stand here again: the base's and its own.
        if ".original_module." in name or ".modules_to_save." in name:
            continue
        bare = name.removeprefix(layout.prefix).replace(".base_layer.", ".")
        weights[bare] = tensor.float()
    for name in public.copies & weights.keys():
        others = [weights[other] for other in public.places if other in weights]
        if any(torch.equal(weights[name], other) for other in others):
            del weights[name]
    return weights


def _check_tokens(model: nn.Module, public: _Public, names: Iterable[str]) -> None:
    """Refuse new token vectors where they stand in two places.

    Args:
        model: ours.
        public: the names of its weights.
        names: ours, of what was trained whole.

    Raises:
        CourseError: `peft` leaves them as they were in the second place: the output matrix, or the
            other side of an encoder-decoder. Here both are one.
    """
    stack: Any = model.stack
    are_shared = hasattr(stack, "encoder")
    if public.has_output:
        are_shared = are_shared or is_tied(model)
    if are_shared and any(name.endswith(TOKENS) for name in names):
        raise CourseError(
            "With `peft` new token vectors leave the output matrix, or the encoder's, as it was;"
            " here both are one. Keep such a model by peft.save."
        )


def _parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """By the names that they have without a method."""
    named = model.named_parameters(remove_duplicate=False)
    return {name.replace(".base.", "."): weight for name, weight in named}


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


def _trained(model: nn.Module, layout: Layout, places: Places) -> set[str]:
    """The public names of what was trained beside the method."""
    added: set[int] = set()  # the method's own weights
    for module in model.modules():
        if isinstance(module, layout.added):
            added |= {id(weight) for weight in module.parameters()}
    trained = {
        name
        for name, weight in _parameters(model).items()
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
    return {public for public, place in places.items() if trained & set(place.ours)}


def _modules_to_save(public: _Public, trained: set[str], heads: tuple[str, ...]) -> list[str]:
    """The modules that are written whole: the task's heads, and what has a trained matrix."""
    modules = set()
    for name in public.places:
        parts = name.split(".")[:-1]
        for length in range(1, len(parts) + 1):
            if parts[length - 1].endswith(heads):
                modules.add(".".join(parts[:length]))
    for name in trained:
        module, _, kind = name.rpartition(".")
        if kind != "bias":
            modules.add(module)
    # A module inside another one is written with it.
    return sorted(name for name in modules if not _is_inside(name, modules - {name}))


def _check_modules(modules: list[str], targets: list[str]) -> None:
    """Refuse an update inside of a module that is written whole.

    Raises:
        CourseError: the library would leave the update out.
    """
    for target in targets:
        if target in modules or _is_inside(target, modules):
            raise CourseError(
                f"`peft` writes {target} whole, so it cannot have an update; leave it out of the"
                " pattern."
            )


def _bias(biases: set[str], modules: list[str], targets: list[str], places: Places) -> str:
    """What the library calls the set of biases that were trained.

    Raises:
        CourseError: it is neither all biases nor those of the updated matrices.
    """
    alone = {name for name in places if name.endswith(".bias") and not _is_inside(name, modules)}
    of_targets = {f"{target}.bias" for target in targets} & alone
    if not biases:
        return "none"
    if biases == of_targets:
        return "lora_only"
    if biases == alone:
        return "all"
    raise CourseError(
        f"{min(biases)} is trained alone. `peft` trains all biases, or those of the updated"
        " matrices; do the same, or keep this model by peft.save."
    )


def _is_inside(name: str, modules: Iterable[str]) -> bool:
    """Whether one of the modules holds this weight or module."""
    return any(name.startswith(f"{module}.") for module in modules)


def _in_file(name: str, targets: Iterable[str]) -> str:
    """The library's name of a weight. An updated Linear stands inside of its update."""
    module, _, kind = name.rpartition(".")
    return f"{module}.base_layer.{kind}" if module in targets else name
