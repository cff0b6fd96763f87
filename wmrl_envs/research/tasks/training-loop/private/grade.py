"""Bits per letter of what a solution trained, on surnames that it has not seen."""

import json
import os
import zipfile

import numpy as np

PATH = "submission/weights.npz"
NAMES = ("embedding", "hidden", "hidden_bias", "output", "output_bias")
MOST_NUMBERS = 100_000
BATCH = 256  # letters at once: wide models of much context take megabytes for each


class Refused(Exception):
    """Weights that are none, in words for the solution's author."""


def read_weights():
    """Return the five arrays as float64, each checked."""
    if os.path.getsize(PATH) > 100 * MOST_NUMBERS:
        raise Refused("weights.npz is too large")
    try:
        # What an archive says of its own size bounds what is unpacked of it.
        with zipfile.ZipFile(PATH) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > 8 * MOST_NUMBERS + 10_000:
                raise Refused(f"the weights hold more than {MOST_NUMBERS} numbers")
        with np.load(PATH, allow_pickle=False) as file:
            if sorted(file.files) != sorted(NAMES):
                found = ", ".join(name[:40] for name in file.files[:8])
                raise Refused(f"weights.npz holds the arrays {found}; expected {', '.join(NAMES)}")
            weights = {name: file[name] for name in NAMES}
    except Refused:
        raise
    except Exception as error:  # a forged archive makes zipfile, zlib and numpy raise almost anything
        raise Refused("weights.npz is no archive of numpy arrays without pickle") from error
    for name, values in weights.items():
        if not isinstance(values, np.ndarray) or values.dtype.kind not in "fiu":
            raise Refused(f"{name} holds no real numbers")
        weights[name] = values.astype(np.float64)
        if not np.isfinite(weights[name]).all():
            raise Refused(f"{name} holds numbers that are not finite")
    return weights


def check_shapes(weights):
    """Return how many letters the model reads before each letter."""
    shapes = {name: values.shape for name, values in weights.items()}
    if len(shapes["embedding"]) != 2 or len(shapes["hidden"]) != 2 or 0 in shapes["embedding"]:
        raise Refused("embedding must be [27, size] and hidden [context * size, width]")
    size, width = shapes["embedding"][1], shapes["hidden"][1]
    context = shapes["hidden"][0] // size
    expected = {
        "embedding": (27, size),
        "hidden": (context * size, width),
        "hidden_bias": (width,),
        "output": (width, 27),
        "output_bias": (27,),
    }
    for name in NAMES:
        if shapes[name] != expected[name]:
            raise Refused(f"{name} has the shape {list(shapes[name])}, expected {list(expected[name])}")
    if not 1 <= context <= 20 or width < 1:
        raise Refused(f"the model reads {context} letters; it must be from 1 to 20")
    return context


def bits_per_letter(weights, context, names):
    """Return the mean of -log2 p over all letters and ends of the names."""
    windows, letters = [], []
    for name in names:
        window = [0] * context
        for letter in [*(ord(character) - 64 for character in name), 0]:
            windows.append(window)
            letters.append(letter)
            window = [*window[1:], letter]
    windows, letters = np.array(windows), np.array(letters)
    total = 0.0
    for start in range(0, len(letters), BATCH):
        total += log_likelihood(weights, windows[start : start + BATCH], letters[start : start + BATCH])
    return -total / len(letters) / np.log(2)


def log_likelihood(weights, windows, letters):
    """Return the sum of log p over letters, each after its window."""
    inputs = weights["embedding"][windows].reshape(len(windows), -1)
    hidden = np.tanh(inputs @ weights["hidden"] + weights["hidden_bias"])
    logits = hidden @ weights["output"] + weights["output_bias"]
    logits -= logits.max(axis=1, keepdims=True)
    chosen = logits[np.arange(len(letters)), letters] - np.log(np.exp(logits).sum(axis=1))
    return float(chosen.sum())


def main():
    with open("private/held_out.json") as file:
        held_out = json.load(file)
    try:
        weights = read_weights()
        context = check_shapes(weights)
        with np.errstate(all="ignore"):
            scores = {half: bits_per_letter(weights, context, held_out[half]) for half in ("train", "report")}
        if not np.isfinite(list(scores.values())).all():
            raise Refused("the weights are so large that the loss is not finite")
    except Refused as refused:
        print(json.dumps({"invalid": str(refused)}))
        return
    print(json.dumps({"score": scores["train"], "report_score": scores["report"]}))


main()
