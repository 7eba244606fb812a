"""PPO of CleanRL's form on CartPole of gymnasium: buffers of NumPy, several passes over minibatches, clipped ratios."""

import sys

import gymnasium
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

TIMES = int(sys.argv[2]) if len(sys.argv) > 2 else 1
STEPS, ENVIRONMENTS = 64, 4 * TIMES


def layer(inputs, outputs, gain=np.sqrt(2)):
    linear = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(linear.weight, gain)
    nn.init.constant_(linear.bias, 0.0)
    return linear


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(layer(4, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, 1, 1.0))
        self.actor = nn.Sequential(layer(4, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, 2, 0.01))

    def forward(self, x, action=None):
        choices = Categorical(logits=self.actor(x))
        action = choices.sample() if action is None else action
        return action, choices.log_prob(action), choices.entropy(), self.critic(x).squeeze(-1)


def main():
    np.random.seed(0)
    torch.manual_seed(0)
    games = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make("CartPole-v1") for _ in range(ENVIRONMENTS)])
    agent = Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
    seen = np.zeros((STEPS, ENVIRONMENTS, 4), np.float32)
    actions, logs, rewards, ends, values = (np.zeros((STEPS, ENVIRONMENTS), np.float32) for _ in range(5))
    now, end = games.reset(seed=0)[0], np.zeros(ENVIRONMENTS, np.float32)
    for update in range(3):
        for step in range(STEPS):
            seen[step], ends[step] = now, end
            with torch.no_grad():
                action, log, _, value = agent(torch.from_numpy(now))
            actions[step], logs[step], values[step] = action.numpy(), log.numpy(), value.numpy()
            now, rewards[step], over, cut, _ = games.step(action.numpy())
            end = np.logical_or(over, cut).astype(np.float32)
        with torch.no_grad():
            following = agent(torch.from_numpy(now))[3].numpy()
        gains, last = np.zeros_like(rewards), 0.0
        for step in reversed(range(STEPS)):
            alive = 1.0 - (end if step == STEPS - 1 else ends[step + 1])
            ahead = following if step == STEPS - 1 else values[step + 1]
            last = rewards[step] + 0.99 * ahead * alive - values[step] + 0.99 * 0.95 * alive * last
            gains[step] = last
        b_seen, b_actions, b_logs = (torch.from_numpy(part.reshape(STEPS * ENVIRONMENTS, -1)) for part in (seen, actions, logs))
        b_gains, b_returns = (torch.from_numpy(part.reshape(-1)) for part in (gains, gains + values))
        order = np.arange(STEPS * ENVIRONMENTS)
        for _ in range(4):
            np.random.shuffle(order)
            for start in range(0, len(order), 64 * TIMES):
                rows = order[start : start + 64 * TIMES]
                _, log, entropy, value = agent(b_seen[rows], b_actions[rows, 0])
                ratio = (log - b_logs[rows, 0]).exp()
                gain = b_gains[rows]
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                policy_loss = torch.max(-gain * ratio, -gain * torch.clamp(ratio, 0.8, 1.2)).mean()
                loss = policy_loss - 0.01 * entropy.mean() + 0.5 * 0.5 * ((value - b_returns[rows]) ** 2).mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
        print(f"update {update}: loss {loss.item()!r}, games that ended {int(ends.sum())}")
    torch.save(agent.state_dict(), sys.argv[1])


if __name__ == "__main__":
    main()
