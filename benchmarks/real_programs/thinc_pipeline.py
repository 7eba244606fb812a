"""A pipeline of thinc's, which spaCy is made of, around a torch network: NumPy arrays go in and out of each layer."""

import random
import sys

import numpy
import torch
from thinc.api import Adam, PyTorchWrapper, Relu, Softmax, chain, fix_random_seed


def main():
    times = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    fix_random_seed(0)
    random.seed(0)
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Linear(32, 256), torch.nn.LayerNorm(256), torch.nn.GELU(), torch.nn.Dropout(0.2), torch.nn.Linear(256, 32), torch.nn.ReLU()
    )
    model = chain(Relu(32, dropout=0.1), PyTorchWrapper(network), Softmax())
    X = numpy.random.uniform(-1, 1, (128 * times, 16)).astype("f")
    Y = numpy.eye(4, dtype="f")[numpy.random.randint(0, 4, 128 * times)]
    model.initialize(X=X[:8], Y=Y[:8])
    optimizer = Adam(0.001)
    for epoch in range(3):
        loss = 0.0
        for x, y in model.ops.multibatch(64 * times, X, Y, shuffle=True):
            guess, backward = model.begin_update(x)
            gradient = (guess - y) / len(x)
            loss += float((gradient**2).sum())
            backward(gradient)
            model.finish_update(optimizer)
        print(f"epoch {epoch}: {loss!r}, right {(model.predict(X).argmax(1) == Y.argmax(1)).mean():.4f}")
    weights = [layer.get_param(name) for layer in model.walk() for name in layer.param_names]
    torch.save([network.state_dict(), [torch.from_numpy(numpy.array(weight)) for weight in weights]], sys.argv[1])


if __name__ == "__main__":
    main()
