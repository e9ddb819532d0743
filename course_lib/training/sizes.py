"""The names of models to pretrain: a family and a size, such as "bert-base" or "gpt-mini".

    family_and_size("bert-base")    BERT's family, {"width": 768, "layers": 12, ...}

A family alone, "bert", means its smallest size, "bert-mini".
"""

from course_lib import families
from course_lib.errors import CourseError
from course_lib.families.family import Family
from course_lib.training.pretrain_config import PretrainConfig

# The families that can be pretrained here: those whose kind of tokenizer we can train, byte-level
# BPE for causal models and WordPiece for the others.
FAMILIES = [
    name
    for name, family in families.FAMILIES.items()
    if family.tokenizer == "wordpiece" or family.objective == "causal"
]
SIZES: dict[str, dict[str, int]] = {
    "mini": {"width": 128, "layers": 4, "heads": 4, "length": 160},
    "base": {"width": 768, "layers": 12, "heads": 12, "length": 512},
    "large": {"width": 1024, "layers": 24, "heads": 16, "length": 512},
}


def family_and_size(model: str) -> tuple[Family, dict[str, int]]:
    """The family and the size of a name.

    "bert-base" is BERT's family and {"width": 768, "layers": 12, "heads": 12, "length": 512}.

    Raises:
        CourseError: there is no such model.
    """
    name, _, size = model.rpartition("-")
    if size not in SIZES:  # the name of a family alone
        name = model
        size = "mini"
    if name not in FAMILIES:
        raise CourseError(
            f"There is no model {model!r} to pretrain; say one of {', '.join(FAMILIES)}, "
            f"with a size if you like ({', '.join(f'bert-{s}' for s in SIZES)})."
        )
    return families.family(name), dict(SIZES[size])


def model_shape(config: PretrainConfig) -> dict[str, int]:
    """Width, layers, heads and length. Those that the config does not give are the size's.

    Raises:
        CourseError: the heads cannot share the width.
    """
    _, shape = family_and_size(config.model)
    for name in shape:
        value = getattr(config, name)
        if value is not None:
            shape[name] = value
    if shape["width"] % shape["heads"]:
        raise CourseError(
            f"A width of {shape['width']} cannot be shared by {shape['heads']} heads."
        )
    return shape
