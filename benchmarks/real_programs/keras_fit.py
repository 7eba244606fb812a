"""Keras on torch: fit() with callbacks, a layer of the program's own, a step that is written by hand, and saving."""

import os
import sys

os.environ["KERAS_BACKEND"] = "torch"
import keras  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402


class Gate(keras.layers.Layer):
    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones")

    def call(self, x):
        return x * keras.ops.sigmoid(x * self.scale)


def main():
    times = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Conv2D(16, 3, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.MaxPooling2D(2),
            Gate(),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    images, labels = np.random.rand(64 * times, 28, 28, 1).astype("float32"), np.random.randint(0, 10, 64 * times)
    history = model.fit(
        images,
        labels,
        batch_size=16 * times,
        epochs=2,
        validation_split=0.25,
        verbose=0,
        callbacks=[keras.callbacks.ReduceLROnPlateau(patience=1), keras.callbacks.TerminateOnNaN()],
    )
    print(history.history)
    optimizer, loss_fn = torch.optim.Adam(model.parameters()), keras.losses.SparseCategoricalCrossentropy()
    for step in range(2):
        loss = loss_fn(labels[: 16 * times], model(images[: 16 * times], training=True))
        model.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: {float(loss)!r}")
    print(model.predict(images[:4], verbose=0).sum(axis=1).tolist())
    torch.save([weight.value.detach().clone() for weight in model.weights], sys.argv[1])


if __name__ == "__main__":
    main()
