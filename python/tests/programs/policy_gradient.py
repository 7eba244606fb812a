"""PPO on buffers of NumPy that are written again in each round, while tensors are views of them; the game is a pole of its own."""

import sys

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

STEPS, GAMES = 32, 4


class Poles:
    """Poles on carts, all at once; one that falls begins again."""

    def __init__(self):
        self.random = np.random.default_rng(0)
        self.state = self.random.uniform(-0.05, 0.05, (GAMES, 4)).astype(np.float32)

    def step(self, actions):
        position, speed, angle, turn = self.state.T
        force = (10.0 * (2 * actions - 1) + 0.05 * turn**2 * np.sin(angle)) / 1.1
        twist = (9.8 * np.sin(angle) - np.cos(angle) * force) / (0.5 * (4 / 3 - 0.1 * np.cos(angle) ** 2 / 1.1))
        push = force - 0.05 * twist * np.cos(angle) / 1.1
        self.state = (self.state + 0.02 * np.stack([speed, push, turn, twist], 1)).astype(np.float32)
        over = (abs(self.state[:, 0]) > 2.4) | (abs(self.state[:, 2]) > 0.21)
        self.state[over] = self.random.uniform(-0.05, 0.05, (over.sum(), 4))
        return self.state.copy(), np.ones(GAMES, np.float32), over.astype(np.float32)


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
        self.actor = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))

    def forward(self, x, action=None):
        choices = Categorical(logits=self.actor(x))
        action = choices.sample() if action is None else action
        return action, choices.log_prob(action), choices.entropy(), self.critic(x).squeeze(-1)


def main():
    np.random.seed(0)
    torch.manual_seed(0)
    games, agent = Poles(), Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=1e-3, eps=1e-5)
    seen = np.zeros((STEPS, GAMES, 4), np.float32)
    actions = np.zeros((STEPS, GAMES), np.int64)
    logs, rewards, ends, values, gains = (np.zeros((STEPS, GAMES), np.float32) for _ in range(5))
    # Views of the buffers for the whole of the program: what a batch takes from them has to be what it was then.
    all_seen, all_actions, all_logs, all_gains, all_values = (
        torch.from_numpy(part.reshape(STEPS * GAMES, -1)).squeeze(-1) for part in (seen, actions, logs, gains, values)
    )
    now, end = games.state.copy(), np.zeros(GAMES, np.float32)
    for update in range(3):
        for step in range(STEPS):
            seen[step], ends[step] = now, end
            with torch.no_grad():
                action, log, _, value = agent(torch.from_numpy(now))
            actions[step], logs[step], values[step] = action.numpy(), log.numpy(), value.numpy()
            now, rewards[step], end = games.step(actions[step])
        with torch.no_grad():
            ahead = agent(torch.from_numpy(now))[3].numpy()
        last = np.zeros(GAMES, np.float32)
        for step in reversed(range(STEPS)):
            alive = 1.0 - (end if step == STEPS - 1 else ends[step + 1])
            last = rewards[step] + 0.99 * ahead * alive - values[step] + 0.99 * 0.95 * alive * last
            gains[step], ahead = last, values[step]
        order = np.arange(STEPS * GAMES)
        for _ in range(2):
            np.random.shuffle(order)
            for rows in np.split(order, 4):
                _, log, entropy, value = agent(all_seen[rows], all_actions[rows])
                ratio = (log - all_logs[rows]).exp()
                gain = all_gains[rows]
                returns = gain + all_values[rows]
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                loss = torch.max(-gain * ratio, -gain * ratio.clamp(0.8, 1.2)).mean() - 0.01 * entropy.mean() + ((value - returns) ** 2).mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
        print(f"update {update}: loss {loss.item()!r}, ends {int(ends.sum())}")
    torch.save(agent.state_dict(), sys.argv[1])


if __name__ == "__main__":
    main()
