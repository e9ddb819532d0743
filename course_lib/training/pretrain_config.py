"""The settings of a pretraining run: data and tokenizer, model, training.

Each field made by `setting` is also an option of the command `pretrain` or `tokenize`, and `--help`
shows its text: `steps: int = setting(1000, "Updates in all.")` is `--steps 1000`.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from course_lib.training.settings import (
    MaskUnit,
    OptimizerName,
    Precision,
    ScheduleName,
    setting,
)

# A resumed run may change these fields, and no others. Except for `steps` they do not change the
# result, up to rounding. With more `steps` the schedule is computed again for the new total: a
# cosine that had fallen to 0 jumps up again; "wsd" is made to be continued.
MAY_CHANGE_ON_RESUME = ("out", "steps", "accumulate", "save_every", "resume", "compile", "device")


@dataclass(frozen=True, kw_only=True)
class TokenizeConfig:
    """How a text becomes token files, for one kind of model.

    Attributes:
        model: a family and a size: "bert-mini", "gpt-base"; "bert" is "bert-mini". The family
            decides the kind of tokenizer.
        out: the folder for the tokenizer and the token files.
        data: a corpus, as `data.corpus` takes it, or a folder that `tokenize` wrote.
        resume: use the tokenizer and the token files that are in `out` already, if they were made
            in the same way. False makes them again.
    """

    model: str
    out: Path
    data: str

    column: str | None = setting(
        None, "The column or field that holds the text. By default `text`."
    )
    documents: int | None = setting(
        None, "Use only so many documents, drawn by the seed. By default all.", at_least=1
    )
    held_out: int = setting(
        0,
        "How many documents to keep from training and to measure the loss on. Not needed where the"
        " data has a validation split.",
        at_least=0,
        at_most=2**31,
    )
    vocab: int = setting(
        3072, "Size of the vocabulary to learn. Ignored if the folder has a tokenizer already."
    )
    cased: bool = setting(False, "Keep capital letters. WordPiece lowercases text otherwise.")
    seed: int = setting(
        0,
        "Seed of the documents' order, the first weights and all random draws. Equal seeds give"
        " equal results.",
        at_least=0,
        at_most=2**63 - 1,
    )
    resume: bool = True


@dataclass(frozen=True, kw_only=True)
class PretrainConfig(TokenizeConfig):
    """One pretraining run.

    Attributes:
        precision: "bf16" computes matrix products in bfloat16, "auto" does so where that is fast.
            None is "auto" on a GPU and "fp32" on a CPU.
        device: "cpu", "cuda", "cuda:1" or "mps".
    """

    # Where the model begins
    init_from: str | None = setting(
        None, "Begin with the weights, the size and the tokenizer of this checkpoint."
    )
    teacher: str | None = setting(
        None,
        "Distil this masked language model: begin with every second layer of it (or --layers of"
        " them), and learn from its predictions.",
    )

    # The model
    layers: int | None = setting(
        None, "Number of layers. By default that of the model's size.", at_least=1, at_most=1000
    )
    width: int | None = setting(
        None,
        "Width of the hidden states. By default that of the model's size.",
        at_least=1,
    )
    heads: int | None = setting(
        None,
        "Attention heads in each layer. By default those of the model's size.",
        at_least=1,
    )
    length: int | None = setting(
        None,
        "Tokens in the longest training sequence. By default that of the model's size.",
        at_least=1,
    )
    dropout: float | None = setting(
        None, "Dropout rate. By default the family's.", at_least=0, at_most=1
    )
    init_std: float | None = setting(
        None, "Standard deviation of the random first weights. By default the family's."
    )

    # The batches
    mask_rate: float | None = setting(
        None,
        "Share of the tokens that pretraining hides. By default the family's: 0.15, for BART 0.3.",
        at_least=0,
        at_most=1,
    )
    mask_unit: MaskUnit = setting(
        "tokens", "What is masked as a whole: single tokens, words, spans of words or n-grams."
    )
    tokens: int = setting(
        4096,
        "Size of a batch in tokens, padding and all processes included. The default suits a CPU; a"
        " large GPU needs 32768 or more to be busy.",
        at_least=1,
    )
    short: int | None = setting(
        None,
        "Tokens in a sequence during the first 90% of the steps; the rest has --length. By default"
        " --length from the first step on.",
        at_least=8,
    )

    # The updates
    steps: int = setting(
        1000, "Updates in all, those of a resumed run before it stopped included.", at_least=1
    )
    lr: float = setting(1e-3, "Peak learning rate.")
    schedule: ScheduleName = setting(
        "cosine",
        "How the learning rate changes after the warm-up. wsd: constant, falling over the last"
        " fifth of the steps, so that a run can be prolonged.",
    )
    warmup: int | None = setting(
        None,
        "Steps in which the learning rate rises. By default a tenth of all, and at most 300.",
        at_least=0,
    )
    optimizer: OptimizerName = setting(
        "adamw", "muon: Muon for the matrices in the layers, AdamW for all other weights."
    )
    weight_decay: float = setting(
        0.01, "Weight decay of matrices. Biases, norms and embeddings have none.", at_least=0
    )
    beta2: float = setting(
        0.999,
        "AdamW's decay of the second moment. 0.98 helps with large learning rates.",
        at_least=0,
        at_most=0.999999,
    )
    precision: Precision | None = None

    # The machine and the folder
    device: str = "cpu"
    accumulate: int = setting(
        1,
        "Compute each batch in so many parts, one after the other, to save memory.",
        at_least=1,
    )
    compile: bool | None = setting(
        None, "Use torch.compile. By default only on a GPU, for runs of 500 steps or more."
    )
    save_every: int = setting(
        500, "Steps between two saved states of the run.", at_least=1, flag="--every"
    )
    # Beside the token files (TokenizeConfig), this keeps the state of the training.
    resume: bool = setting(
        True,
        "Continue the run in the folder, or start it again from its first step.",
        flag="--resume/--afresh",
    )

    def to_json(self) -> dict[str, Any]:
        """Every field, ready for JSON."""
        return {
            name: str(value) if isinstance(value, Path) else value
            for name, value in asdict(self).items()
        }

    def recipe(self) -> dict[str, Any]:
        """The fields that decide the result. A run is resumed only if they are equal."""
        return {
            name: value
            for name, value in self.to_json().items()
            if name not in MAY_CHANGE_ON_RESUME
        }
