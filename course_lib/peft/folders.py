"""Load and save adapters in folders of the library `peft`, so that others can use them.

An adapter is what parameter-efficient fine-tuning has trained while the base model was frozen. Say
we trained LoRA of rank 8 on GPT-2, and a classifier on top. `save_pretrained` writes

    adapter_config.json          {"peft_type": "LORA", "target_modules": [...], ...}
    adapter_model.safetensors    "base_model.model.transformer.h.0.attn.c_attn.lora_A.weight", ...
                                 "base_model.model.score.weight"

and the library puts that folder onto the public GPT-2. The first tensor is an update: the method's
own, and its `Layout` (layout.py) says what it means. The second is a whole weight: one of the base
that was trained itself. The table of the base's family gives the names of both.

A new method is an entry in `LAYOUTS`.
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
from course_lib.peft.layout import AdapterFiles, Layout, Rows
from course_lib.peft.lora_layout import LAYOUT as LORA
from course_lib.peft.weights import read_tensors, write_tensors

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
PICKLE = "adapter_model.bin"  # what the library wrote until 2023
# A field of adapter_config.json that no code has read is refused, unless this file lists it as
# harmless.
KNOWN = KnownFields(Path(__file__).with_name("adapter_config.toml"))
# the library's name of a method -> how its folders are read and written
LAYOUTS: dict[str, Layout] = {
    "LORA": LORA,
    "PROMPT_TUNING": PROMPT,
    "PREFIX_TUNING": PREFIX,
}
# the end of a public class's name -> the library's name of its task
TASKS = {
    "LMHeadModel": "CAUSAL_LM",
    "ForConditionalGeneration": "SEQ_2_SEQ_LM",
    "ForSequenceClassification": "SEQ_CLS",
    "ForTokenClassification": "TOKEN_CLS",
    "ForQuestionAnswering": "QUESTION_ANS",
    "Model": "FEATURE_EXTRACTION",
}
# task -> the endings of the modules that the library always expects in the file as whole weights
TASK_HEADS = {
    "SEQ_CLS": ("classifier", "score"),
    "TOKEN_CLS": ("classifier", "score"),
    "QUESTION_ANS": ("qa_outputs",),
}
EMBEDDING = "embed.tokens.weight"  # the end of our name


def load_pretrained(
    model: Model, folder: str | Path, *, model_type: str, architecture: str
) -> Model:
    """Put an adapter that `peft` has written into our model of the same base.

    Everything in the folder is checked first, so an error leaves the model unchanged. Then the
    model is frozen, except for what the folder has.

    Args:
        model: our base model, changed in place.
        folder: an adapter of LoRA, DoRA, prompt tuning or prefix tuning, perhaps with whole weights
            such as a head or biases.
        model_type: the base's family, `model_type` in its config.json, such as "gpt2".
        architecture: the base's public class, such as "GPT2LMHeadModel".

    Raises:
        CourseError: the folder does not fit the model or has a setting that the course does not
            know, or the model has an adapter already.
    """
    folder = Path(folder)
    if any(layout.is_in(model) for layout in LAYOUTS.values()):
        raise CourseError(
            "The model has an adapter already. Merge the first one (peft.merge) if it is LoRA or"
            " DoRA; otherwise load the base again."
        )
    config = Config(read_json(folder / CONFIG))
    base = _public_names(model, model_type, architecture)
    method = str(config.get("peft_type"))
    layout = LAYOUTS.get(method)
    if layout is None:
        raise CourseError(f"{folder} holds {method}; the course reads {', '.join(LAYOUTS)}.")
    files = AdapterFiles(model, config, _read_weights(folder, layout, base), base.rows)
    install = layout.read(files)  # removes the updates from files.weights
    whole_weights = _our_whole_weights(model, files.weights, base.rows)
    _check_token_embedding(model, base, whole_weights)
    KNOWN.check(config, method, subject=f"an adapter of the kind {method}")

    # Everything fits: now the model is changed.
    freeze(model)
    install()
    parameters = _parameters(model)
    for name, tensor in whole_weights.items():
        parameters[name].data.copy_(tensor)
        parameters[name].requires_grad_(True)
    return model


def save_pretrained(
    model: nn.Module, folder: str | Path, *, model_type: str, architecture: str
) -> None:
    """Write an adapter that `peft.PeftModel.from_pretrained` puts onto the public base model.

    Args:
        model: a model after one call of `lora` or `dora`, or of `prompt` or `prefix`. Weights of
            the base that were trained too, such as a new head, are also written.
        folder: the folder to write; it need not exist.
        model_type: the base's family, such as "gpt2".
        architecture: the base's public class, such as "GPT2LMHeadModel".

    Raises:
        CourseError: the library cannot express what was trained. Nothing is written then.
    """
    folder = Path(folder)
    base = _public_names(model, model_type, architecture)
    layout = next((layout for layout in LAYOUTS.values() if layout.is_in(model)), None)
    if layout is None:
        raise CourseError(
            "Only a model with LoRA updates, or one behind a prompt or prefix, has a form in"
            " `peft`."
        )

    # 1. The updates.
    config, weights = layout.write(model, base.rows)
    targets = config.get("target_modules", [])

    # 2. The whole weights: all weights of the modules in `modules_to_save`, and single biases.
    trained = _trained_whole(model, layout, base.rows)
    for name in trained:
        _check_token_embedding(model, base, base.rows[name].ours)
    tasks = [task for ending, task in TASKS.items() if architecture.endswith(ending)]
    task = tasks[0] if tasks else None
    modules = _modules_to_save(base, trained, TASK_HEADS.get(task or "", ()))
    _check_targets(targets, modules)
    biases = {name for name in trained if not _is_inside(name, modules)}
    config |= {
        "task_type": task,
        "inference_mode": True,
        "modules_to_save": modules or None,
    }
    if layout is LORA:
        config["bias"] = _bias_option(biases, modules, targets, base.rows)
    elif biases:
        raise CourseError(f"{min(biases)} is trained; with `peft` only LoRA trains biases alone.")
    parameters = _parameters(model)
    for name, row in base.rows.items():
        if name in biases or _is_inside(name, modules):
            ours = torch.cat([parameters[our_name].detach() for our_name in row.ours])
            weights[layout.prefix + _name_in_file(name, targets)] = row.to_public(ours)

    with atomic_folder(folder) as new:
        write_tensors(weights, new / WEIGHTS)
        write_json(new / CONFIG, config)


class _PublicNames(NamedTuple):
    """The public names of a base model's weights.

    Attributes:
        rows: public name -> our weights. Each weight of ours is in one row.
        unused: second names of these weights, and public weights that our model does not have.
        has_output: whether the class predicts tokens, so that it has an output matrix.
    """

    rows: dict[str, Converted]
    unused: set[str]
    has_output: bool


def _public_names(model: nn.Module, model_type: str, architecture: str) -> _PublicNames:
    family = MODEL_TYPES.get(model_type)
    if family is None or architecture not in family.architectures:
        raise CourseError(f"Nothing is known of {architecture!r} in the family {model_type!r}.")
    rows: dict[str, Converted] = {}
    unused: set[str] = set()
    seen: set[tuple[str, ...]] = set()
    table = written_out(family.whole_table(architecture, model), model)
    for name, row in family.add_prefix(table, architecture, model).items():
        if not row.ours or row.ours in seen:
            unused.add(name)
        else:
            rows[name] = row
            seen.add(row.ours)
    return _PublicNames(rows, unused, has_output=bool(family.architectures[architecture].output))


def _read_weights(folder: Path, layout: Layout, base: _PublicNames) -> dict[str, Tensor]:
    """Read a folder's tensors, and give them their public names without the library's additions.

    "base_model.model.transformer.h.0.attn.c_attn.base_layer.bias" becomes
    "transformer.h.0.attn.c_attn.bias".

    Raises:
        CourseError: the file cannot be read, or is a pickle.
    """
    if (folder / PICKLE).is_file() and not (folder / WEIGHTS).is_file():
        raise CourseError(
            f"{folder} has its weights in {PICKLE} only. That is a pickle, which may run code when"
            " it is read, so the course does not read it. If you trust it, load the adapter once"
            " in `peft` (PeftModel.from_pretrained), and save it (save_pretrained)."
        )
    weights: dict[str, Tensor] = {}
    for name, tensor in read_tensors(folder / WEIGHTS).items():
        # With bias="all" the library writes the biases of a module that is saved whole three times:
        # before the training, after it, and as a part of the whole module. The last one is read.
        if ".original_module." in name or ".modules_to_save." in name:
            continue
        public = name.removeprefix(layout.prefix).replace(".base_layer.", ".")
        weights[public] = tensor.float()
    # A second name of a weight is not needed, if the file also has the weight itself.
    for name in base.unused & weights.keys():
        others = [weights[other] for other in base.rows if other in weights]
        if any(torch.equal(weights[name], other) for other in others):
            del weights[name]
    return weights


def _our_whole_weights(
    model: nn.Module, weights: Mapping[str, Tensor], rows: Rows
) -> dict[str, Tensor]:
    """Whole weights under our names: one public q, k and v matrix becomes three of ours.

    Raises:
        CourseError: the model has no such weight, or it has another shape.
    """
    parameters = _parameters(model)
    whole: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        row = rows.get(name)
        parts: dict[str, Tensor] = {}
        if row is not None:
            chunks = row.to_ours(tensor).chunk(len(row.ours))
            parts = dict(zip(row.ours, chunks, strict=True))
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


def _check_token_embedding(model: nn.Module, base: _PublicNames, names: Iterable[str]) -> None:
    """Refuse a trained token embedding that is also the output matrix or the other side's.

    `peft` copies the embedding before it trains it. The output matrix, or the embedding of the
    encoder or decoder, then keeps the old numbers. In our model they are one tensor, so both would
    change.

    Args:
        model: our model.
        base: the public names of its weights.
        names: our names of the whole weights.

    Raises:
        CourseError: it is among the names, and shared.
    """
    stack: Any = model.stack
    are_shared = hasattr(stack, "encoder")
    if base.has_output:
        are_shared = are_shared or is_tied(model)
    if are_shared and any(name.endswith(EMBEDDING) for name in names):
        raise CourseError(
            "With `peft` new token vectors leave the output matrix, or the encoder's, as it was;"
            " here both are one. Keep such a model by peft.save."
        )


def _parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """A model's weights by the names that they have without a method.

    LoRA makes "blocks.0.attn.q.base.weight" of "blocks.0.attn.q.weight".
    """
    named = model.named_parameters(remove_duplicate=False)
    return {name.replace(".base.", "."): weight for name, weight in named}


def _trained_whole(model: nn.Module, layout: Layout, rows: Rows) -> set[str]:
    """The public names of the base's own weights that were trained.

    Raises:
        CourseError: a trained weight has no public name.
    """
    # By id(), because == compares the numbers of tensors.
    added: set[int] = set()  # the method's own weights
    for module in model.modules():
        if isinstance(module, layout.added):
            added |= {id(weight) for weight in module.parameters()}
    trained = {
        name
        for name, weight in _parameters(model).items()
        if weight.requires_grad and id(weight) not in added
    }
    named: set[str] = set()
    for row in rows.values():
        named |= set(row.ours)
    without_name = trained - named
    if without_name:
        raise CourseError(
            f"{min(without_name)} is trained, but `peft` has no place for it; keep this model by"
            " peft.save."
        )
    return {public for public, row in rows.items() if trained & set(row.ours)}


def _modules_to_save(base: _PublicNames, trained: set[str], heads: tuple[str, ...]) -> list[str]:
    """The modules that the library saves whole: the task's heads, and those with a trained matrix.

    Args:
        base: the public names of the base.
        trained: the public names of the trained whole weights.
        heads: the endings of the task's heads, such as ("classifier", "score"); () if the library
            expects none.
    """
    modules = set()
    for name in base.rows:
        parts = name.split(".")[:-1]  # without "weight" or "bias"
        for length in range(1, len(parts) + 1):
            if parts[length - 1].endswith(heads):  # never, if `heads` is ()
                modules.add(".".join(parts[:length]))
    for name in trained:
        module, _, kind = name.rpartition(".")
        if kind != "bias":
            modules.add(module)
    # A module inside another one is saved with it.
    return sorted(name for name in modules if not _is_inside(name, modules - {name}))


def _check_targets(targets: list[str], modules: list[str]) -> None:
    """Refuse a LoRA update inside a module that is saved whole: the library would not save it."""
    for target in targets:
        if target in modules or _is_inside(target, modules):
            raise CourseError(
                f"`peft` writes {target} whole, so it cannot have an update; leave it out of the"
                " pattern."
            )


def _bias_option(biases: set[str], modules: list[str], targets: list[str], rows: Rows) -> str:
    """The entry `bias` of a LoRA's adapter_config.json: which biases were trained.

    Args:
        biases: the public names of the trained biases outside of `modules`.
        modules: the modules that are saved whole.
        targets: the modules with a LoRA update.
        rows: the table of the base's weights.

    Returns:
        "none", "all", or "lora_only" for the biases of the targets.

    Raises:
        CourseError: other biases were trained.
    """
    all_biases = {name for name in rows if name.endswith(".bias") and not _is_inside(name, modules)}
    of_targets = {f"{target}.bias" for target in targets} & all_biases
    if not biases:
        return "none"
    if biases == of_targets:
        return "lora_only"
    if biases == all_biases:
        return "all"
    raise CourseError(
        f"{min(biases)} is trained alone. `peft` trains all biases, or those of the updated"
        " matrices; do the same, or keep this model by peft.save."
    )


def _is_inside(name: str, modules: Iterable[str]) -> bool:
    """Whether a weight or module is inside one of the modules: "score.weight" is in "score"."""
    return any(name.startswith(f"{module}.") for module in modules)


def _name_in_file(name: str, targets: Iterable[str]) -> str:
    """The library's name of a weight: "c_attn.base_layer.bias" if "c_attn" has an update."""
    module, _, kind = name.rpartition(".")
    return f"{module}.base_layer.{kind}" if module in targets else name
