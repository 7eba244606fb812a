"""PyTorch Geometric in form: attention on one graph with masks, and graphs that are classified in batches."""

import sys

import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GATConv, GINConv, global_add_pool
from torch_geometric.utils import erdos_renyi_graph


class GAT(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = GATConv(32, 8, heads=8, dropout=0.6)
        self.conv2 = GATConv(64, 7, heads=1, concat=False, dropout=0.6)

    def forward(self, x, edge_index):
        x = F.dropout(x, p=0.6, training=self.training)
        x = F.elu(self.conv1(x, edge_index))
        x = F.dropout(x, p=0.6, training=self.training)
        return self.conv2(x, edge_index)


class GIN(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = torch.nn.ModuleList(GINConv(mlp(width, 32), train_eps=True) for width in (16, 32, 32))
        self.head = mlp(32, 2)

    def forward(self, x, edge_index, batch):
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        return self.head(global_add_pool(x, batch))


def mlp(width, out):
    return torch.nn.Sequential(torch.nn.Linear(width, 32), torch.nn.BatchNorm1d(32), torch.nn.ReLU(), torch.nn.Linear(32, out))


def main():
    times = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    count = 200 * times
    torch.manual_seed(0)
    graph = Data(x=torch.randn(count, 32), edge_index=erdos_renyi_graph(count, 0.05), y=torch.randint(7, (count,)))
    mask = torch.rand(count) < 0.5
    nodes = GAT()
    optimizer = torch.optim.Adam(nodes.parameters(), lr=0.005, weight_decay=5e-4)
    for epoch in range(5):
        nodes.train()
        optimizer.zero_grad()
        loss = F.cross_entropy(nodes(graph.x, graph.edge_index)[mask], graph.y[mask])
        loss.backward()
        optimizer.step()
        nodes.eval()
        with torch.no_grad():
            right = (nodes(graph.x, graph.edge_index).argmax(-1) == graph.y)[~mask].float().mean()
        print(f"epoch {epoch}: loss {loss.item()!r}, right {right.item():.4f}")

    def small(index):
        size = 10 + index % 7
        return Data(x=torch.randn(size, 16), edge_index=erdos_renyi_graph(size, 0.3), y=torch.tensor([index % 2]))

    loader = DataLoader([small(index) for index in range(32 * times)], batch_size=8 * times, shuffle=True)
    graphs = GIN()
    optimizer = torch.optim.Adam(graphs.parameters(), lr=0.01)
    for epoch in range(2):
        for batch in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(graphs(batch.x, batch.edge_index, batch.batch), batch.y)
            loss.backward()
            optimizer.step()
        print(f"graphs, epoch {epoch}: loss {loss.item()!r}")
    torch.save({"nodes": nodes.state_dict(), "graphs": graphs.state_dict()}, sys.argv[1])


if __name__ == "__main__":
    main()
