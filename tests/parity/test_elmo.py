"""ELMo, from files as published, against a plain NumPy reference: layers, both directions, loss,
gradients.
"""

import json
import math
from dataclasses import replace

import h5py
import numpy as np
import pytest
import torch

from course_lib.data.word_batches import language_model_batch
from course_lib.errors import CourseError
from course_lib.families import elmo
from course_lib.families.elmo import Vocabulary, characters
from course_lib.families.weight_tables import convert
from tests.parity import elmo_reference as reference
from tests.parity.public import close

TEXTS = [
    ["The", "bank", "by", "the", "river", "closed", "."],
    ["Naïve", "ü", "?"],
    ["electroencephalographically", "play"],  # longer than a word may be
    [],
]
OPTIONS = {
    "relu, clips, skip": ("relu", [[1, 4], [2, 5], [4, 6]], 2, 2, True, 0.4, 0.25),
    "tanh, no clips, no skip": ("tanh", [[1, 3], [3, 9]], 1, 3, False, None, None),
    "no highway, no projection": ("relu", [[2, 7]], 0, 1, True, 0.5, None),
}


def options(name: str) -> dict:
    activation, filters, highways, layers, skip, cells, outputs = OPTIONS[name]
    return {
        "lstm": {
            "use_skip_connections": skip,
            "projection_dim": 7,
            "dim": 12,
            "n_layers": layers,
            "cell_clip": cells,
            "proj_clip": outputs,
        },
        "char_cnn": {
            "activation": activation,
            "filters": filters,
            "n_highway": highways,
            "embedding": {"dim": 5},
            "n_characters": 262,
            "max_characters_per_token": 12,
        },
    }


def random_weights(options: dict, words: int = 0, seed: int = 0) -> dict[str, np.ndarray]:
    """As published: names, shapes, [in, out]."""
    rng = np.random.default_rng(seed)
    cnn, lstm = options["char_cnn"], options["lstm"]
    width, hidden, total = lstm["projection_dim"], lstm["dim"], sum(n for _, n in cnn["filters"])
    shapes = {"char_embed": (261, cnn["embedding"]["dim"])}
    for i, (wide, many) in enumerate(cnn["filters"]):
        shapes |= {
            f"CNN/W_cnn_{i}": (1, wide, cnn["embedding"]["dim"], many),
            f"CNN/b_cnn_{i}": (many,),
        }
    for i in range(cnn["n_highway"]):
        for part in ("carry", "transform"):
            shapes |= {f"CNN_high_{i}/W_{part}": (total, total), f"CNN_high_{i}/b_{part}": (total,)}
    if total != width:
        shapes |= {"CNN_proj/W_proj": (total, width), "CNN_proj/b_proj": (width,)}
    for side in (0, 1):
        for i in range(lstm["n_layers"]):
            cell = f"RNN_{side}/RNN/MultiRNNCell/Cell{i}/LSTMCell"
            shapes |= {f"{cell}/W_0": (2 * width, 4 * hidden), f"{cell}/B": (4 * hidden,)}
            shapes |= {f"{cell}/W_P_0": (hidden, width)}
    if words:
        shapes |= {"softmax/W": (width, words), "softmax/b": (words,)}
    return {name: rng.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}


def publish(folder, options: dict, weights: dict[str, np.ndarray]) -> None:
    (folder / "options.json").write_text(json.dumps(options))
    with h5py.File(folder / "weights.hdf5", "w") as file:
        for name, value in weights.items():
            if not name.startswith("softmax"):
                file[name] = value


def spelled(texts, length=12):
    return [
        np.stack([reference.spell(word, length) for word in ["<S>", *text, "</S>"]])
        for text in texts
    ]


@pytest.mark.parametrize("name", OPTIONS)
def test_every_layer_and_both_directions(name, tmp_path):
    weights = random_weights(options(name))
    publish(tmp_path, options(name), weights)
    ours = elmo.load_published(tmp_path)
    batch = characters(TEXTS, 12)
    with torch.no_grad():
        layers = ours(batch["ids"], attention_mask=batch["attention_mask"])
    assert len(layers) == OPTIONS[name][3] + 1
    bitten = []
    for b, ids in enumerate(spelled(TEXTS)):
        assert np.array_equal(batch["ids"][b, : len(ids)], ids)
        expected = reference.row(weights, options(name), ids)
        bitten += reference.row.inner
        for layer, sides in zip(layers, expected, strict=True):
            assert close(layer[b, : len(ids)], torch.from_numpy(np.concatenate(sides, axis=1)))
    # outputs, cells
    for bound, values in zip(OPTIONS[name][:4:-1], zip(*bitten, strict=True), strict=True):
        inner = np.abs(np.concatenate(values))
        # the clips are at work
        assert bound is None or 0.02 < (inner >= 0.999 * bound).mean() < 0.98


def bilm(tmp_path, name: str, words: int, seed: int):
    """Ours and the reference's weights of one random language model."""
    weights = random_weights(options(name), words=words, seed=seed)
    publish(tmp_path, options(name), weights)
    body = elmo.load_published(tmp_path)
    ours = elmo.model(replace(body.config, vocab=words)).eval()
    ours.elmo.load_state_dict(body.state_dict())
    with torch.no_grad():
        ours.softmax.weight.copy_(torch.from_numpy(weights["softmax/W"].T))
        ours.softmax.bias.copy_(torch.from_numpy(weights["softmax/b"]))
    return ours, weights


@pytest.mark.parametrize("name", OPTIONS)
def test_the_loss_is_the_reference_s_and_gradients_its_differences(name, tmp_path):
    """Along a random direction in each weight, float64: what the loss changes by is what our
    gradient says.
    """
    vocabulary, rng = Vocabulary.count(TEXTS[:2]), np.random.default_rng(3)
    ours, weights = bilm(tmp_path, name, len(vocabulary), seed=3)
    rows = [["<S>", *text, "</S>"] for text in TEXTS[1:]]
    loss = elmo.loss(ours.double(), language_model_batch(rows, vocabulary, 12))
    loss.backward()
    gradients = {name: weight.grad for name, weight in ours.elmo.named_parameters()}
    softmax = {"softmax/W": ours.softmax.weight.grad.t(), "softmax/b": ours.softmax.bias.grad}
    exact = {key: value.astype(np.float64) for key, value in weights.items()}
    numbers = [vocabulary.ids(row) for row in rows]
    stated = reference.loss(exact, options(name), spelled(TEXTS[1:]), numbers)
    assert math.isclose(loss.item(), stated, rel_tol=1e-5)
    for key in exact:
        step = rng.normal(size=exact[key].shape)
        sides = [
            reference.loss(
                {**exact, key: exact[key] + e * step}, options(name), spelled(TEXTS[1:]), numbers
            )
            for e in (1e-6, -1e-6)
        ]
        along = {
            name: torch.zeros(value.shape, dtype=torch.double) for name, value in exact.items()
        }
        along = along | {key: torch.from_numpy(step)}
        outside = [along.pop(name) for name in softmax]
        # as loading is linear, by the same rules
        moved = convert(along, elmo.weight_table(ours.elmo.config), ours.elmo)
        assert moved.keys() == gradients.keys()
        found = sum(float((gradients[name] * value).sum()) for name, value in moved.items())
        found += sum(
            float((grad * value).sum())
            for grad, value in zip(softmax.values(), outside, strict=True)
        )
        assert math.isclose((sides[0] - sides[1]) / 2e-6, found, rel_tol=1e-4, abs_tol=1e-6), key


def damaged(folder, change: str) -> None:
    publish(folder, options("relu, clips, skip"), random_weights(options("relu, clips, skip")))
    if change == "options":
        (folder / "options.json").write_text('{"lstm": {}, "char_cnn": {}}')
        return
    if change == "bytes":
        (folder / "weights.hdf5").write_bytes(b"nothing of the kind")
        return
    with h5py.File(folder / "weights.hdf5", "a") as file:
        if change == "more":
            file["RNN_0/more"] = np.zeros(2)
            return
        del file["CNN_proj/b_proj"]
        if change == "shape":
            file["CNN_proj/b_proj"] = np.zeros(2)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("missing", "lacks 1 weights .* CNN_proj/b_proj"),
        ("more", "holds RNN_0/more"),
        ("shape", "not those of options.json"),
        ("bytes", "cannot be read"),
        ("options", "not the options of an ELMo: 'projection_dim' is missing"),
    ],
)
def test_damaged_files_are_one_sentence(change, sentence, tmp_path):
    damaged(tmp_path, change)
    with pytest.raises(CourseError, match=sentence):
        elmo.load_published(tmp_path)
