"""A DCGAN in the form of PyTorch's example: two optimizers, a detached fake, inplace activations, images that stay from step to step."""

import sys

import torch
from torch import nn


def initialise(module):
    name = type(module).__name__
    if "Conv" in name:
        nn.init.normal_(module.weight, 0.0, 0.02)
    elif "BatchNorm" in name:
        nn.init.normal_(module.weight, 1.0, 0.02)
        nn.init.zeros_(module.bias)


def main():
    torch.manual_seed(0)
    generator = nn.Sequential(
        nn.ConvTranspose2d(16, 32, 4, 1, 0, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(True),
        nn.ConvTranspose2d(32, 16, 4, 2, 1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(True),
        nn.ConvTranspose2d(16, 1, 4, 2, 1, bias=False),
        nn.Tanh(),
    ).apply(initialise)
    critic = nn.Sequential(
        nn.Conv2d(1, 16, 4, 2, 1, bias=False),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(16, 32, 4, 2, 1, bias=False),
        nn.BatchNorm2d(32),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(32, 1, 4, 1, 0, bias=False),
        nn.Sigmoid(),
    ).apply(initialise)
    criterion, fixed = nn.BCELoss(), torch.randn(8, 16, 1, 1)
    optimizer_c = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999))
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    pictures, losses = [], []
    for step in range(6):
        critic.zero_grad()
        real = torch.rand(8, 1, 16, 16) * 2 - 1
        label = torch.full((8,), 1.0)
        output = critic(real).view(-1)
        error_real = criterion(output, label)
        error_real.backward()
        fake = generator(torch.randn(8, 16, 1, 1))
        label.fill_(0.0)
        error_fake = criterion(critic(fake.detach()).view(-1), label)
        error_fake.backward()
        optimizer_c.step()
        generator.zero_grad()
        label.fill_(1.0)
        error_generator = criterion(critic(fake).view(-1), label)
        error_generator.backward()
        optimizer_g.step()
        losses.append((error_real + error_fake).item())
        print(f"[{step}] critic {losses[-1]!r}, generator {error_generator.item()!r}, D(x) {output.mean().item()!r}")
        if step % 3 == 0:
            with torch.no_grad():
                pictures.append(generator(fixed).detach().cpu())
    torch.save({"generator": generator.state_dict(), "critic": critic.state_dict(), "pictures": pictures}, sys.argv[1])


if __name__ == "__main__":
    main()
