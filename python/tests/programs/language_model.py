"""The word language model of PyTorch's examples in form: an LSTM, states that go on from batch to batch, updates through `.data`."""

import math
import sys

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, tokens, width, layers):
        super().__init__()
        self.drop = nn.Dropout(0.2)
        self.encoder = nn.Embedding(tokens, width)
        self.rnn = nn.LSTM(width, width, layers, dropout=0.2)
        self.decoder = nn.Linear(width, tokens)
        self.decoder.weight = self.encoder.weight
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)

    def forward(self, tokens, hidden):
        output, hidden = self.rnn(self.drop(self.encoder(tokens)), hidden)
        return nn.functional.log_softmax(self.decoder(self.drop(output)).view(-1, self.decoder.out_features), dim=1), hidden

    def first_state(self, batch):
        weight = next(self.parameters())
        return weight.new_zeros(2, batch, 32), weight.new_zeros(2, batch, 32)


def detached(hidden):
    return hidden.detach() if isinstance(hidden, torch.Tensor) else tuple(detached(part) for part in hidden)


def main():
    torch.manual_seed(0)
    text = torch.randint(0, 100, (61, 8))
    model, criterion, rate = Model(100, 32, 2), nn.NLLLoss(), 5.0
    for epoch in range(2):
        model.train()
        total, hidden = 0.0, model.first_state(8)
        for i in range(0, len(text) - 1, 12):
            data, targets = text[i : i + 12], text[i + 1 : i + 13].reshape(-1)
            model.zero_grad()
            hidden = detached(hidden)
            output, hidden = model(data, hidden)
            loss = criterion(output, targets)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            for parameter in model.parameters():
                parameter.data.add_(parameter.grad, alpha=-rate)
            total += loss.item()
        model.eval()
        with torch.no_grad():
            valid = criterion(model(text[:-1], model.first_state(8))[0], text[1:].reshape(-1)).item()
        print(f"| epoch {epoch} | loss {total / 5!r} | ppl {math.exp(total / 5):.4f} | valid {valid!r}")
        rate /= 4.0
    torch.save(model.state_dict(), sys.argv[1])


if __name__ == "__main__":
    main()
