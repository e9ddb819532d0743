"""ELMo in plain NumPy, written from the papers, one word and one number at a time where that is
clearest.

Peters et al. 2018 (sections 3.1 to 3.4); the character CNN and the LSTMs as in Jozefowicz et al.
2016, Kim et al. 2016 (highway layers) and Sak et al. 2014 (projection). Weights come as a dict of
arrays named and laid out as in the published HDF5 file; `softmax/W` [P V] and `softmax/b`, which
are not in that file, stand beside them for the loss."""

import numpy as np


def spell(word: str, length: int) -> np.ndarray:
    """Bytes 0 to 255, then begin sentence, end sentence, begin word, end word, padding; all shifted
    by one.
    """
    ids = np.full(length, 260)
    inner = {"<S>": [256], "</S>": [257]}.get(word, list(word.encode("utf-8"))[: length - 2])
    for i, character in enumerate([258, *inner, 259]):
        ids[i] = character
    return ids + 1


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def clip(x, bound):
    return x if bound is None else np.minimum(np.maximum(x, -bound), bound)


def token(w, options, ids):
    """A word's vector from its character ids [C]."""
    cnn = options["char_cnn"]
    embed = w["char_embed"]
    # C E
    x = np.stack([np.zeros(embed.shape[1], embed.dtype) if i == 0 else embed[i - 1] for i in ids])
    features = []
    for n, (width, many) in enumerate(cnn["filters"]):
        kernel, bias = w[f"CNN/W_cnn_{n}"][0], w[f"CNN/b_cnn_{n}"]  # width E many
        values = np.stack(
            [np.einsum("we,wem->m", x[s : s + width], kernel) for s in range(len(ids) - width + 1)]
        )
        assert values.shape[1] == many
        features.append(values.max(0) + bias)
    x = np.concatenate(features)
    x = np.maximum(x, 0) if cnn["activation"] == "relu" else np.tanh(x)
    for n in range(cnn.get("n_highway") or 0):
        gate = sigmoid(x @ w[f"CNN_high_{n}/W_carry"] + w[f"CNN_high_{n}/b_carry"])
        new = np.maximum(x @ w[f"CNN_high_{n}/W_transform"] + w[f"CNN_high_{n}/b_transform"], 0)
        x = gate * new + (1 - gate) * x
    if "CNN_proj/W_proj" in w:
        x = x @ w["CNN_proj/W_proj"] + w["CNN_proj/b_proj"]
    return x


def lstm(w, options, side, layer, inputs):
    """One direction of one layer over the vectors `inputs`, from zeros: outputs, and (h, c) of
    every step.
    """
    cell = f"RNN_{side}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
    settings, outputs, cells = options["lstm"], [], []
    h, c = (np.zeros(settings[name], inputs[0].dtype) for name in ("projection_dim", "dim"))
    for x in inputs:
        i, j, f, o = np.split(np.concatenate([x, h]) @ w[f"{cell}/W_0"] + w[f"{cell}/B"], 4)
        c = clip(sigmoid(f + 1.0) * c + sigmoid(i) * np.tanh(j), settings.get("cell_clip"))
        h = clip((sigmoid(o) * np.tanh(c)) @ w[f"{cell}/W_P_0"], settings.get("proj_clip"))
        outputs.append(h + x if layer and settings["use_skip_connections"] else h)
        cells.append((h, c))
    return outputs, cells


def row(w, options, ids):
    """All layers of one row of words, ids [T C]: a list of (forward [T P], backward [T P]), the
    token layer first.
    """
    tokens = [token(w, options, word) for word in ids]
    sides, inner = [], []
    for side in (0, 1):
        x = tokens if side == 0 else tokens[::-1]
        layers = [x]
        for layer in range(options["lstm"]["n_layers"]):
            x, cells = lstm(w, options, side, layer, x)
            inner += cells
            layers.append(x)
        sides.append([np.stack(x if side == 0 else x[::-1]) for x in layers])
    row.inner = inner  # (h, c) of every step, for tests that ask whether a clip has bitten
    return list(zip(*sides, strict=True))


def loss(w, options, rows, numbers):
    """Mean negative log-likelihood over both directions: rows of ids [T C], and of the words'
    numbers [T].
    """
    terms = []
    for ids, words in zip(rows, numbers, strict=True):
        forward, backward = row(w, options, ids)[-1]
        for t in range(len(words)):
            for h, target in ((forward[t], t + 1), (backward[t], t - 1)):
                if 0 <= target < len(words):
                    logits = h @ w["softmax/W"] + w["softmax/b"]
                    top = logits.max()
                    terms.append(top + np.log(np.exp(logits - top).sum()) - logits[words[target]])
    return np.mean(terms)
