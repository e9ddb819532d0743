"""What a pretraining run is asked for: data and its tokenizer, the model, the training.

These are plain records, without torch, so that the command line shows their defaults at once.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

# The names of `optim.SCHEDULES` and of `optim.OPTIMIZERS`.
ScheduleName = Literal["constant", "linear", "cosine", "wsd"]
OptimizerName = Literal["adamw", "muon"]

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
        column: where the data's text stands, where that is not known.
        documents: how many; all if None.
        held_out: documents to keep aside where the data has no validation split.
        vocab: size of the vocabulary to learn, unless the folder has a tokenizer.
        cased: whether WordPiece keeps capitals.
        seed: of the documents' order, of the first weights and of all draws.
        resume: keep what stands in the folder.
    """

    model: str
    out: Path
    data: str
    column: str | None = None
    documents: int | None = None
    held_out: int = 0
    vocab: int = 3072
    cased: bool = False
    seed: int = 0
    resume: bool = True


@dataclass(frozen=True, kw_only=True)
class PretrainConfig(TokenizeConfig):
    """One pretraining run.

    Attributes:
        layers, width, heads, length: in place of the size's; length is the longest row in tokens.
        dropout: in place of the family's.
        init_std: standard deviation of the first weights, in place of the family's.
        init_from: a checkpoint to begin with: its weights, size and tokenizer.
        teacher: a masked model to learn from beside the text; the student begins as some of its
            layers.
        mask_rate: share of the tokens to hide; the objective's if None.
        mask_unit: what is hidden together, a name of `objectives.SPAN_SAMPLERS`.
        tokens: tokens in a batch, of all processes together.
        short: tokens a row in the first 90% of the steps (Devlin et al. 2019, appendix A.2, had
            128); None: rows are long from the start.
        steps: updates in all, those before a resume included.
        lr: the peak of the learning rate.
        schedule: of the learning rate, after its warm-up; "wsd" is constant and falls over the
            last fifth.
        warmup: steps; a tenth of all, at most 300, if None.
        optimizer: "muon" moves the blocks' matrices.
        weight_decay: of matrices.
        beta2: AdamW's; 0.98 suits large learning rates.
        precision, accumulate, compile, device, save_every: as `TrainConfig` has them.
    """

    layers: int | None = None
    width: int | None = None
    heads: int | None = None
    length: int | None = None
    dropout: float | None = None
    init_std: float | None = None
    init_from: str | Path | None = None
    teacher: str | Path | None = None

    mask_rate: float | None = None
    mask_unit: str = "tokens"
    tokens: int = 4096
    short: int | None = None

    steps: int = 1000
    lr: float = 1e-3
    schedule: ScheduleName = "cosine"
    warmup: int | None = None
    optimizer: OptimizerName = "adamw"
    weight_decay: float = 0.01
    beta2: float = 0.999
    precision: Literal["fp32", "bf16", "auto"] | None = None

    accumulate: int = 1
    save_every: int = 500
    compile: bool | None = None
    device: str = "cpu"

    def to_json(self) -> dict[str, Any]:
        """Every field, ready for JSON."""
        return {
            name: str(value) if isinstance(value, Path) else value
            for name, value in asdict(self).items()
        }

    def recipe(self) -> dict[str, Any]:
        """The fields that decide the result; a run is resumed only with equal ones."""
        return {name: value for name, value in self.to_json().items() if name not in FREE}
