"""Loads the files that ELMo's authors published: options.json and weights.hdf5."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from course_lib.errors import CourseError
from course_lib.families.elmo.network import Elmo, ElmoConfig
from course_lib.families.weight_tables import Converted, Table, convert
from course_lib.files import read_json


def load_published(folder: str | Path) -> Elmo:
    """Load the ELMo in a folder with the published options.json and weights.hdf5.

    The authors did not publish the softmax, so the model has none.

    Raises:
        CourseError: the files cannot be read, or do not fit each other.
    """
    import h5py  # imported here, because nothing else in the course needs it

    config = read_options(read_json(Path(folder) / "options.json"))
    path = Path(folder) / "weights.hdf5"
    weights: dict[str, Tensor] = {}

    def take(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            weights[name] = torch.from_numpy(item[...]).float()

    model = Elmo(config)
    try:
        with h5py.File(path, "r") as file:
            file.visititems(take)
        model.load_state_dict(convert(weights, weight_table(config), model))
    except (OSError, TypeError, RuntimeError) as error:
        raise CourseError(
            f"The weights {path} cannot be read, or are not those of options.json ({error})."
        ) from error
    return model.eval()


def read_options(values: Mapping[str, Any]) -> ElmoConfig:
    """Turn the contents of options.json into our configuration.

    Raises:
        CourseError: an entry is missing.
    """
    try:
        lstm = values["lstm"]
        cnn = values["char_cnn"]
        return ElmoConfig(
            vocab=0,
            width=lstm["projection_dim"],
            hidden=lstm["dim"],
            layers=lstm["n_layers"],
            residual=lstm.get("use_skip_connections", False),
            cell_clip=lstm.get("cell_clip"),
            projection_clip=lstm.get("proj_clip"),
            filters=tuple((wide, many) for wide, many in cnn["filters"]),
            length=cnn["max_characters_per_token"],
            character=cnn["embedding"]["dim"],
            highways=cnn.get("n_highway", 0),
            activation=cnn["activation"],
            dropout=values.get("dropout", 0.1),
        )
    except (KeyError, TypeError) as error:
        raise CourseError(
            f"These are not the options of an ELMo: {error} is missing or out of place."
        ) from None


def weight_table(config: ElmoConfig) -> Table:
    """The rules of names for weights.hdf5: published name -> our name.

    The published matrices are [in, out] and ours [out, in], so most of them are transposed.
    """
    table: Table = {
        # The file has no vector for id 0, which is our padding for "no word": we add a zero row.
        "char_embed": Converted(("tokens.characters.weight",), lambda x: F.pad(x, (0, 0, 1, 0))),
    }
    for i in range(len(config.filters)):
        filters = f"tokens.filters.{i}"
        # [1, width, E, filters] -> [filters, E, width]
        table[f"CNN/W_cnn_{i}"] = Converted((f"{filters}.weight",), lambda x: x[0].permute(2, 1, 0))
        table[f"CNN/b_cnn_{i}"] = f"{filters}.bias"
    for i in range(config.highways):
        highway = f"tokens.highways.{i}"
        table[f"CNN_high_{i}/W_carry"] = Converted((f"{highway}.carry.weight",), Tensor.t)
        table[f"CNN_high_{i}/b_carry"] = f"{highway}.carry.bias"
        table[f"CNN_high_{i}/W_transform"] = Converted((f"{highway}.transform.weight",), Tensor.t)
        table[f"CNN_high_{i}/b_transform"] = f"{highway}.transform.bias"
    if sum(many for _, many in config.filters) != config.width:
        table["CNN_proj/W_proj"] = Converted(("tokens.project.weight",), Tensor.t)
        table["CNN_proj/b_proj"] = "tokens.project.bias"
    for number, direction in enumerate(("forwards", "backwards")):
        for i in range(config.layers):
            cell = f"RNN_{number}/RNN/MultiRNNCell/Cell{i}/LSTMCell"
            lstm = f"{direction}.{i}"
            matrices = (f"{lstm}.inputs.weight", f"{lstm}.recurrent")
            table[f"{cell}/W_0"] = Converted(matrices, _kernel)
            table[f"{cell}/B"] = Converted((f"{lstm}.inputs.bias",), _gates)
            table[f"{cell}/W_P_0"] = Converted((f"{lstm}.project",), Tensor.t)
    return table


def _gates(x: Tensor) -> Tensor:
    """Reorder an LSTM's gates from the published order i, j, f, o to ours, i, f, o, j.

    The published bias of the forget gate lacks the 1 that both programs add when they run.
    """
    i, j, f, o = x.chunk(4, dim=-1)
    return torch.cat([i, f, o, j], dim=-1)


def _kernel(x: Tensor) -> Tensor:
    """Turn the published matrix, for the input and the previous output together, into our two.

    [P + P, 4H] becomes [8H, P]: the matrix of the input above that of the previous output.
    """
    inputs, recurrent = _gates(x).t().chunk(2, dim=1)
    return torch.cat((inputs, recurrent))
