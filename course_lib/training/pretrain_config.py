"""What a pretraining run is asked for: data and its tokenizer, the model, the training.

Each `setting` is also an option of the command `pretrain`, or `tokenize`.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from course_lib.training.settings import OptimizerName, Precision, ScheduleName, setting

# Fields that may change when a run goes on: they do not decide what it learns, but for the number
# of steps, of which more may be asked.
FREE = ("out", "steps", "accumulate", "save_every", "resume", "compile", "device")


@dataclass(frozen=True, kw_only=True)
class TokenizeConfig:
    """Text to token files, for one kind of model.

    Attributes:
        model: a family and a size: "bert-mini", "gpt-base"; "bert" is "bert-mini". The family
            decides the kind of tokenizer.
        out: the folder for the tokenizer and the token files.
        data: what `data.corpus` takes, or a folder that `tokenize` wrote.
        resume: keep what stands in the folder.
    """

    model: str
    out: Path
    data: str

    column: str | None = setting(None, "Where the text stands, if not in `text`.")
    documents: int | None = setting(None, "How many documents; all if not given.", at_least=1)
    held_out: int = setting(
        0, "Documents to keep aside, if there is no validation split.", at_least=0, at_most=2**31
    )
    vocab: int = setting(
        3072, "Size of the vocabulary to learn, unless the folder has a tokenizer."
    )
    cased: bool = setting(False, "WordPiece keeps capitals.")
    seed: int = setting(
        0,
        "Of the documents' order, the first weights and all draws; equal seeds give equal results.",
        at_least=0,
        at_most=2**63 - 1,
    )
    resume: bool = True


@dataclass(frozen=True, kw_only=True)
class PretrainConfig(TokenizeConfig):
    """One pretraining run.

    Attributes:
        precision, device: as `TrainConfig` has them.
    """

    # Where the model begins
    init_from: str | None = setting(
        None, "Begin with a checkpoint: its weights, size and tokenizer."
    )
    teacher: str | None = setting(
        None, "Distil this masked model; begin as every second layer of it."
    )

    # The model
    layers: int | None = setting(
        None, "In place of the size's; so for the next three.", at_least=1, at_most=1000
    )
    width: int | None = setting(None, "Of the hidden states.", at_least=1)
    heads: int | None = setting(None, "Of the attention.", at_least=1)
    length: int | None = setting(None, "Longest row in tokens.", at_least=1)
    dropout: float | None = setting(None, "In place of the family's.", at_least=0, at_most=1)
    init_std: float | None = setting(
        None, "Standard deviation of the first weights, in place of the family's."
    )

    # The batches
    mask_rate: float | None = setting(
        None,
        "Share of the tokens that a masked model hides; 0.15 if not given.",
        at_least=0,
        at_most=1,
    )
    mask_unit: str = setting(
        "tokens", "What a masked model hides together: tokens, words, spans or ngrams."
    )
    tokens: int = setting(4096, "Tokens in a batch, all processes together.", at_least=1)
    # Devlin et al. 2019, appendix A.2, had 128.
    short: int | None = setting(None, "Tokens a row in the first 90% of the steps.", at_least=8)

    # The updates
    steps: int = setting(1000, "Updates in all, those before a resume included.", at_least=1)
    lr: float = setting(1e-3, "Peak learning rate.")
    schedule: ScheduleName = setting(
        "cosine",
        "Of the learning rate. wsd: constant, falling over the last fifth; may be prolonged.",
    )
    warmup: int | None = setting(None, "Steps; by default a tenth, at most 300.", at_least=0)
    optimizer: OptimizerName = setting("adamw", "Muon moves the blocks' matrices.")
    weight_decay: float = setting(0.01, "Of matrices.", at_least=0)
    beta2: float = setting(
        0.999, "AdamW's; 0.98 for large learning rates.", at_least=0, at_most=0.999999
    )
    precision: Precision | None = None

    # The machine and the folder
    device: str = "cpu"
    accumulate: int = setting(1, "Cut each batch in so many parts, to save memory.", at_least=1)
    compile: bool | None = setting(None, "torch.compile; by default for long runs on a GPU.")
    save_every: int = setting(500, "Steps between two checkpoints.", at_least=1, flag="--every")
    resume: bool = setting(True, "Go on with the run in the folder?", flag="--resume/--afresh")

    def to_json(self) -> dict[str, Any]:
        """Every field, ready for JSON."""
        return {
            name: str(value) if isinstance(value, Path) else value
            for name, value in asdict(self).items()
        }

    def recipe(self) -> dict[str, Any]:
        """The fields that decide the result; a run is resumed only with equal ones."""
        return {name: value for name, value in self.to_json().items() if name not in FREE}
