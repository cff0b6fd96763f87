import numpy as np

CONTEXT = 2
rng = np.random.default_rng(0)

# Each letter with those before it; 0 stands before a name and ends it
windows, letters = [], []
with open("input/names.txt") as file:
    for name in file.read().split():
        window = [0] * CONTEXT
        for letter in [*(ord(character) - 64 for character in name), 0]:
            windows.append(window)
            letters.append(letter)
            window = [*window[1:], letter]
windows, letters = np.array(windows), np.array(letters)

weights = {
    "embedding": rng.normal(0, 1, (27, 8)),
    "hidden": rng.normal(0, 1, (8 * CONTEXT, 64)) / np.sqrt(8 * CONTEXT),
    "hidden_bias": np.zeros(64),
    "output": rng.normal(0, 1, (64, 27)) / np.sqrt(64),
    "output_bias": np.zeros(27),
}

def gradients(x, y):
    inputs = weights["embedding"][x].reshape(len(x), -1)
    hidden = np.tanh(inputs @ weights["hidden"] + weights["hidden_bias"])
    logits = hidden @ weights["output"] + weights["output_bias"]
    error = np.exp(logits - logits.max(axis=1, keepdims=True))
    error /= error.sum(axis=1, keepdims=True)
    error[np.arange(len(y)), y] -= 1
    error /= len(y)
    back = (error @ weights["output"].T) * (1 - hidden**2)
    embedding = np.zeros_like(weights["embedding"])
    np.add.at(embedding, x.ravel(), (back @ weights["hidden"].T).reshape(-1, 8))
    return {
        "embedding": embedding,
        "hidden": inputs.T @ back,
        "hidden_bias": back.sum(axis=0),
        "output": hidden.T @ error,
        "output_bias": error.sum(axis=0),
    }

steps = 2 * (len(letters) // 64)
for step in range(steps):
    batch = rng.integers(0, len(letters), 64)
    gradient = gradients(windows[batch], letters[batch])
    rate = 0.06
    for name in weights:
        weights[name] -= rate * gradient[name]

np.savez("weights.npz", **weights)
