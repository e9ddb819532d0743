"""The published weights of ELMo: options.json and weights.hdf5, in and out.

The file holds matrices as [in, out], the LSTMs' gates in the order i, j, f, o, the forget gate's bias without the 1
that is added when it runs, and no vector for character 0, which means that there is no word. The softmax is not in it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from course_lib.errors import CourseError
from course_lib.files import atomic_write, read_json, write_json
from course_lib.models.elmo.config import CHARACTERS, ElmoConfig
from course_lib.models.elmo.model import Elmo

OPTIONS, WEIGHTS = "options.json", "weights.hdf5"
SIDES = ("forwards", "backwards")
TO_THEIRS, TO_OURS = (0, 3, 1, 2), (0, 2, 3, 1)  # gates: ours are i, f, o, j, theirs i, j, f, o


def load(folder: str | Path, weights: str | Path | None = None) -> Elmo:
    """An ELMo from published files.

    Args:
        folder: holds options.json and weights.hdf5; or the options' file, and `weights` the weights'.

    Raises:
        CourseError: a file is missing or damaged, options that this model has not, a weight that is missing, left
            over or of another shape. No model is returned then.
    """
    folder = Path(folder)
    options = folder / OPTIONS if weights is None else folder
    path = folder / WEIGHTS if weights is None else Path(weights)
    model = Elmo(read_options(read_json(options)))
    found = _read(path)
    expected = _theirs(model)
    if odd := sorted(expected.keys() ^ found.keys()):
        what = "has no" if odd[0] in expected else "has, and the options do not speak of,"
        raise CourseError(f"{path} {what} {odd[0]} ({len(odd)} such in all).")
    for name, value in expected.items():
        if found[name].shape != value.shape:
            raise CourseError(f"{path}: {name} is {list(found[name].shape)} where {list(value.shape)} is expected.")
    model.load_state_dict(_ours(found, model.config))
    return model.eval()


def save(model: Elmo, folder: str | Path) -> Path:
    """Write options.json and weights.hdf5 as they are published; `load` gives the same model back, to the bit.

    Returns: the folder.
    """
    folder = Path(folder)
    h5py = _h5py()
    write_json(folder / OPTIONS, write_options(model.config))
    with atomic_write(folder / WEIGHTS, "w+b") as handle, h5py.File(handle, "w") as file:
        for name, value in _theirs(model).items():
            file.create_dataset(name, data=value.numpy())
    return folder


def read_options(values: Mapping[str, Any]) -> ElmoConfig:
    """options.json to our configuration.

    Raises:
        CourseError: a part is missing, or is another than this model has.
    """
    try:
        lstm, cnn = values["lstm"], values["char_cnn"]
        if lstm["projection_dim"] >= lstm["dim"]:
            raise CourseError("Only LSTMs that project to fewer than their cells are read (projection_dim < dim).")
        if cnn.get("n_characters", CHARACTERS) not in (CHARACTERS - 1, CHARACTERS):
            raise CourseError(f"Only characters that are bytes are read: {CHARACTERS}, not {cnn['n_characters']}.")
        if cnn["activation"] not in ("relu", "tanh"):
            raise CourseError(f"The activation {cnn['activation']!r} is neither relu nor tanh.")
        return ElmoConfig(
            vocab=0,
            width=lstm["projection_dim"],
            hidden=lstm["dim"],
            layers=lstm["n_layers"],
            filters=tuple((wide, many) for wide, many in cnn["filters"]),
            length=cnn["max_characters_per_token"],
            character=cnn["embedding"]["dim"],
            highways=cnn.get("n_highway") or 0,
            activation=cnn["activation"],
            residual=bool(lstm.get("use_skip_connections")),
            cell_clip=lstm.get("cell_clip"),
            projection_clip=lstm.get("proj_clip"),
            dropout=values.get("dropout", 0.1),
        )
    except (KeyError, TypeError) as error:
        raise CourseError(f"These are not the options of an ELMo: {error} is missing or out of place.") from None


def write_options(config: ElmoConfig) -> dict[str, Any]:
    """The reverse of `read_options`."""
    return {
        "lstm": {
            "use_skip_connections": config.residual,
            "projection_dim": config.width,
            "cell_clip": config.cell_clip,
            "proj_clip": config.projection_clip,
            "dim": config.hidden,
            "n_layers": config.layers,
        },
        "char_cnn": {
            "activation": config.activation,
            "filters": [list(pair) for pair in config.filters],
            "n_highway": config.highways,
            "embedding": {"dim": config.character},
            "n_characters": CHARACTERS,
            "max_characters_per_token": config.length,
        },
        "dropout": config.dropout,
    }


def _theirs(model: Elmo) -> dict[str, Tensor]:
    """All weights under the file's names, in its layout."""
    ours = {name: value.detach().cpu().float() for name, value in model.state_dict().items()}
    theirs = {"char_embed": ours["tokens.characters.weight"][1:]}
    for i in range(len(model.config.filters)):
        theirs[f"CNN/W_cnn_{i}"] = ours[f"tokens.filters.{i}.weight"].permute(2, 1, 0)[None]  # 1 wide in many
        theirs[f"CNN/b_cnn_{i}"] = ours[f"tokens.filters.{i}.bias"]
    for a, b in _linears(model.config).items():
        theirs[b.format("W")], theirs[b.format("b")] = ours[f"{a}.weight"].t(), ours[f"{a}.bias"]
    for a, b in _cells(model.config).items():
        kernel = torch.cat([ours[f"{a}.inputs.weight"], ours[f"{a}.recurrent"]], dim=1)
        theirs[f"{b}/W_0"] = _gates(kernel, TO_THEIRS).t()
        theirs[f"{b}/B"] = _gates(ours[f"{a}.inputs.bias"], TO_THEIRS)
        theirs[f"{b}/W_P_0"] = ours[f"{a}.project"].t()
    return theirs


def _ours(theirs: Mapping[str, Tensor], config: ElmoConfig) -> dict[str, Tensor]:
    """The reverse of `_theirs`."""
    table = theirs["char_embed"]
    ours = {"tokens.characters.weight": torch.cat([torch.zeros_like(table[:1]), table])}
    for i in range(len(config.filters)):
        ours[f"tokens.filters.{i}.weight"] = theirs[f"CNN/W_cnn_{i}"][0].permute(2, 1, 0)
        ours[f"tokens.filters.{i}.bias"] = theirs[f"CNN/b_cnn_{i}"]
    for a, b in _linears(config).items():
        ours[f"{a}.weight"], ours[f"{a}.bias"] = theirs[b.format("W")].t(), theirs[b.format("b")]
    for a, b in _cells(config).items():
        kernel = _gates(theirs[f"{b}/W_0"].t(), TO_OURS)
        ours[f"{a}.inputs.weight"], ours[f"{a}.recurrent"] = kernel[:, : config.width], kernel[:, config.width :]
        ours[f"{a}.inputs.bias"] = _gates(theirs[f"{b}/B"], TO_OURS)
        ours[f"{a}.project"] = theirs[f"{b}/W_P_0"].t()
    return ours


def _linears(config: ElmoConfig) -> dict[str, str]:
    """Our name of each linear layer -> the file's, with a place for W or b."""
    parts = ("carry", "transform")
    names = {f"tokens.highways.{i}.{p}": f"CNN_high_{i}/{{}}_{p}" for i in range(config.highways) for p in parts}
    needed = sum(many for _, many in config.filters) != config.width
    return names | ({"tokens.project": "CNN_proj/{}_proj"} if needed else {})


def _cells(config: ElmoConfig) -> dict[str, str]:
    """Our name of each LSTM -> the file's folder."""
    return {
        f"{name}.{i}": f"RNN_{side}/RNN/MultiRNNCell/Cell{i}/LSTMCell"
        for side, name in enumerate(SIDES)
        for i in range(config.layers)
    }


def _gates(rows: Tensor, order: tuple[int, ...]) -> Tensor:
    """The four blocks of rows in another order."""
    blocks = rows.chunk(4)
    return torch.cat([blocks[i] for i in order])


def _read(path: Path) -> dict[str, Tensor]:
    h5py = _h5py()
    found: dict[str, Tensor] = {}

    def take(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            found[name] = torch.from_numpy(item[...]).float()

    try:
        with h5py.File(path, "r") as file:
            file.visititems(take)
    except (OSError, TypeError) as error:
        raise CourseError(f"The weights {path} cannot be read ({error}).") from error
    return found


def _h5py() -> Any:
    """The library that reads HDF5; only published ELMo files need it."""
    try:
        import h5py
    except ImportError:
        raise CourseError("Published ELMo weights are HDF5 files; install h5py to read or write them.") from None
    return h5py
