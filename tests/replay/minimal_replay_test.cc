// No op is replayed that backward does not need: replays are held against the ancestors of what autograd saves, which
// are found here from the ops' arguments alone.
#include <ATen/core/dispatch/Dispatcher.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ac2/report.h"
#include "benchmarks/networks/networks.h"
#include "examples/gpt_model.h"
#include "policies/policies.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The bytes of a storage after so many writes.
using ValueId = std::pair<const c10::StorageImpl*, int64_t>;

struct Op {
  std::string name;
  std::vector<ValueId> inputs, outputs;  // of tensors, in the order of the schema
};

// The ops of one region, and what autograd saves of their results.
class Recording {
 public:
  const Op& add(const OpContext& op) {
    Op& added = ops_[op.index()];
    added.name = op.name();
    for (const c10::IValue& input : op.inputs()) {
      for (const at::Tensor& tensor : tensors_in(input)) added.inputs.push_back(current(tensor));
    }
    const auto& returns = op.op().schema().returns();
    for (size_t i = 0; i < returns.size(); ++i) {
      for (const at::Tensor& tensor : tensors_in(op.outputs()[i])) {
        const auto* alias = returns[i].alias_info();
        const bool is_new = !versions_.contains(storage(tensor));
        if (!is_new && alias != nullptr && alias->isWrite()) ++versions_[storage(tensor)];
        added.outputs.push_back(current(tensor));
        if (is_new || (alias != nullptr && alias->isWrite())) producers_[current(tensor)] = op.index();
      }
    }
    return added;
  }

  void save(const at::Tensor& tensor) { save(current(tensor)); }
  void save(const ValueId& value) { saved_.insert(value); }

  // The indices of the ops that compute what is saved, from what is alive.
  std::vector<int64_t> needed_ops(const Tensors& alive, const std::vector<std::string>& ops_that_save) {
    std::set<ValueId> there;
    for (const at::Tensor& tensor : alive) there.insert(current(tensor));
    for (const auto& [index, op] : ops_) {
      if (std::find(ops_that_save.begin(), ops_that_save.end(), op.name) == ops_that_save.end()) continue;
      there.insert(op.outputs.begin(), op.outputs.end());
    }
    std::set<int64_t> needed;
    std::vector<ValueId> open(saved_.begin(), saved_.end());
    while (!open.empty()) {
      const ValueId value = open.back();
      open.pop_back();
      const auto producer = producers_.find(value);
      if (there.contains(value) || producer == producers_.end()) continue;
      if (!needed.insert(producer->second).second) continue;
      const std::vector<ValueId>& inputs = ops_.at(producer->second).inputs;
      open.insert(open.end(), inputs.begin(), inputs.end());
    }
    return {needed.begin(), needed.end()};
  }

  std::vector<std::string> names_of(const std::vector<int64_t>& ops) const {
    std::vector<std::string> names;
    for (const int64_t op : ops) names.push_back(ops_.at(op).name);
    return names;
  }

 private:
  static const c10::StorageImpl* storage(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }

  static Tensors tensors_in(const c10::IValue& value) {
    if (value.isTensor()) return value.toTensor().defined() ? Tensors{value.toTensor()} : Tensors{};
    if (value.isTensorList()) return value.toTensorVector();
    return {};
  }

  ValueId current(const at::Tensor& tensor) {
    // Weak: no other storage gets the address, and the tape sees that nobody else has a handle on a result.
    if (versions_.emplace(storage(tensor), 0).second) kept_.push_back(tensor.storage().getWeakStorageImpl());
    return {storage(tensor), versions_[storage(tensor)]};
  }

  std::map<int64_t, Op> ops_;
  std::map<const c10::StorageImpl*, int64_t> versions_;
  std::map<ValueId, int64_t> producers_;
  std::set<ValueId> saved_;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> kept_;
};

// Replays of one region by its timeline: the ops' indices, in their order.
std::vector<int64_t> replayed_ops(const Trace& trace) {
  std::vector<int64_t> ops;
  const nlohmann::json log = nlohmann::json::parse(to_chrome_trace(trace));
  for (const auto& event : log.at("traceEvents")) {
    if (event.value("cat", "") == "replay") ops.push_back(event.at("args").at("op"));
  }
  std::sort(ops.begin(), ops.end());
  return ops;
}

// Runs each part in a region of its own that packs everything: pack is called for what autograd saves, and for that
// alone, since nothing there is recomputed.
struct Recorder {
  std::vector<std::unique_ptr<Recording>> regions;
  std::vector<Tensors> results;

  Tensors run(const std::function<Tensors()>& part) {
    Recording& recording = *regions.emplace_back(std::make_unique<Recording>());
    const SaveWithHooks hooks{.pack = [&](const at::Tensor& tensor) -> c10::IValue {
                                recording.save(tensor);
                                return tensor;
                              },
                              .unpack = [](const c10::IValue& packed) { return packed.toTensor(); }};
    const PolicyScope scope([&, hooks](const OpContext& op) -> PolicyDecision {
      recording.add(op);
      return hooks;
    });
    return results.emplace_back(part());
  }
};

// The replays of each region in a step, all parts' results being alive; and those that must be.
struct Replays {
  std::vector<std::vector<int64_t>> actual, needed;
};

Replays replays_of(peers::Network& network, const Policy& policy, const std::vector<std::string>& ops_that_save) {
  Replays replays;
  {
    Recorder recorder;
    network.forward(network.input().requires_grad_(), [&](const auto& part) { return recorder.run(part); }).sum();
    for (size_t i = 0; i < recorder.regions.size(); ++i) {
      replays.needed.push_back(recorder.regions[i]->needed_ops(recorder.results[i], ops_that_save));
    }
  }
  std::vector<std::shared_ptr<const Trace>> traces;
  std::vector<Tensors> results;
  network
      .forward(network.input().requires_grad_(),
               [&](const auto& part) {
                 const PolicyScope scope(policy, {.timeline = true});
                 traces.push_back(scope.trace());
                 return results.emplace_back(part());
               })
      .sum()
      .backward();
  for (const auto& trace : traces) replays.actual.push_back(replayed_ops(*trace));
  network.zero_grad(true);
  return replays;
}

using MinimalReplayTest = CleanTest;

class EveryPeerReplayTest : public CleanTest, public ::testing::WithParamInterface<std::string> {
 protected:
  const std::shared_ptr<peers::Network> network_ = peers::make_network(GetParam(), peers::Size::kTiny);
};

class PeersWithoutWritesReplayTest : public EveryPeerReplayTest {};

TEST_P(EveryPeerReplayTest, RecomputingAllReplaysEachAncestorOfWhatAutogradSavesOnceAndNothingElse) {
  const Replays replays = replays_of(*network_, policies::recompute_all(), {});
  EXPECT_EQ(replays.actual, replays.needed);
  EXPECT_FALSE(replays.needed.at(0).empty());
}

// A write into what is saved is kept by reference and cannot be replayed, which is more than a graph of values tells.
TEST_P(PeersWithoutWritesReplayTest, SavingProductsReplaysEachAncestorUpToThemOnceAndNothingElse) {
  const Replays replays = replays_of(*network_, policies::save_compute_intensive(), policies::compute_intensive_ops());
  EXPECT_EQ(replays.actual, replays.needed);
}

std::string name_of(const ::testing::TestParamInfo<std::string>& info) {
  return info.param;
}

INSTANTIATE_TEST_SUITE_P(Of, EveryPeerReplayTest, ::testing::ValuesIn(peers::network_names()), name_of);
INSTANTIATE_TEST_SUITE_P(Of, PeersWithoutWritesReplayTest, ::testing::Values("chain", "gpt", "lstm", "tree"), name_of);

// The needs of an op's derivatives, from tools/autograd/derivatives.yaml of PyTorch 2.11: the places of its tensor
// arguments, and of its results.
struct Saves {
  std::vector<size_t> inputs, outputs;
};
const std::map<std::string, Saves>& derivatives() {
  static const std::map<std::string, Saves> table = {
      {"aten::native_layer_norm", {.inputs = {0, 1}, .outputs = {1, 2}}},
      {"aten::mm", {.inputs = {0, 1}, .outputs = {}}},
      {"aten::addmm", {.inputs = {1, 2}, .outputs = {}}},
      {"aten::add", {}},
      {"aten::add_", {}},
      {"aten::_unsafe_view", {}},
      {"aten::gelu", {.inputs = {0}, .outputs = {}}},
      {"aten::_scaled_dot_product_flash_attention_for_cpu", {.inputs = {0, 1, 2}, .outputs = {0, 1}}},
  };
  return table;
}

TEST_F(MinimalReplayTest, AGptBlockReplaysWhatItsDerivativesNeedAndNothingElse) {
  gpt::Block block(gpt::GptOptions{.context = 8, .layers = 1, .dim = 16, .heads = 2, .dropout = 0});
  const at::Tensor x = sample({2, 8, 16});
  at::Tensor y;

  Recording recording;
  std::vector<std::string> unknown;
  {
    const PolicyScope scope([&](const OpContext& context) {
      const Op& op = recording.add(context);
      const auto saves = derivatives().find(op.name);
      if (saves == derivatives().end()) {
        unknown.push_back(op.name);
      } else {
        for (const size_t i : saves->second.inputs) recording.save(op.inputs.at(i));
        for (const size_t i : saves->second.outputs) recording.save(op.outputs.at(i));
      }
      return true;
    });
    y = block->forward(x);
  }
  ASSERT_THAT(unknown, IsEmpty());
  const std::vector<int64_t> needed = recording.needed_ops({y}, {});
  // All of the block but its last product, the bias of it, and the sum, which no derivative needs.
  EXPECT_THAT(recording.names_of(needed),
              ElementsAre("aten::native_layer_norm", "aten::mm", "aten::add_",
                          "aten::_scaled_dot_product_flash_attention_for_cpu", "aten::mm", "aten::add_", "aten::add",
                          "aten::native_layer_norm", "aten::mm", "aten::add_", "aten::gelu"));

  std::shared_ptr<const Trace> trace;
  {
    const PolicyScope scope("recompute_all", {.timeline = true});
    trace = scope.trace();
    y = block->forward(x);
  }
  y.sum().backward();
  EXPECT_EQ(replayed_ops(*trace), needed);
}

}  // namespace
}  // namespace ac2::test
