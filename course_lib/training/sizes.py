"""The name of a model to pretrain, "bert-base", is a family and a size. "bert" is "bert-mini"."""

from course_lib import families
from course_lib.errors import CourseError
from course_lib.families.family import Family
from course_lib.training.pretrain_config import PretrainConfig

# The families that can be pretrained, for their tokenizer can be learned here: byte-level BPE for
# causal models, WordPiece for the others.
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
    """Width, layers, heads and length: the config's, or where it has none, those of the size.

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
