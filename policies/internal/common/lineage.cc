#include "policies/internal/common/lineage.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <utility>

#include "ac2/internal/libtorch/for_each_tensor.h"
#include "ac2/internal/libtorch/tensor_bytes.h"

namespace ac2::policies::internal {

namespace {

using Bits = std::vector<uint64_t>;

constexpr size_t kBits = 64;

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

bool has_sizes_of_a_result(const at::Tensor& tensor, const OpContext& op) {
  // A nested tensor of the strided layout has no sizes.
  const auto has_sizes = [](const at::Tensor& any) { return any.defined() && !any.is_nested(); };
  bool found = false;
  ac2::internal::for_each_tensor(op.outputs(), [&](const at::Tensor& result) {
    found |= has_sizes(result) && has_sizes(tensor) && result.sizes() == tensor.sizes();
  });
  return found;
}

bool intersect(const Bits& a, const Bits& b) {
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if ((a[i] & b[i]) != 0) return true;
  }
  return false;
}

bool contains(const Bits& all, const Bits& some) {
  for (size_t i = 0; i < some.size(); ++i) {
    if ((some[i] & ~(i < all.size() ? all[i] : 0)) != 0) return false;
  }
  return true;
}

void unite(Bits& all, const Bits& more) {
  all.resize(std::max(all.size(), more.size()));
  for (size_t i = 0; i < more.size(); ++i) {
    all[i] |= more[i];
  }
}

}  // namespace

int64_t Lineage::add(const OpContext& op) {
  struct Input {
    const c10::StorageImpl* storage;
    Sources sources;
    int64_t bytes;
    bool is_branch;
  };
  c10::SmallVector<Input, 4> inputs;
  ac2::internal::for_each_tensor(op.inputs(), [&](const at::Tensor& tensor) {
    const c10::StorageImpl* storage = storage_of(tensor);
    if (storage == nullptr ||
        std::any_of(inputs.begin(), inputs.end(), [&](const Input& other) { return other.storage == storage; })) {
      return;
    }
    if (const Entry* entry = entry_of(tensor)) {
      inputs.push_back({storage, entry->sources, ac2::internal::bytes_of(tensor),
                        !entry->is_parameter || has_sizes_of_a_result(tensor, op)});
    }
  });

  int64_t joined = 0;
  Sources united;
  if (inputs.size() == 1) {
    united = inputs.front().sources;
  } else if (!inputs.empty()) {
    const auto widest = std::max_element(inputs.begin(), inputs.end(), [](const Input& a, const Input& b) {
      return a.sources->size() < b.sources->size();
    });
    Bits all;
    Bits once;
    Bits twice;
    for (const Input& input : inputs) {
      unite(all, *input.sources);
      if (!input.is_branch) {
        continue;
      }
      Bits common = *input.sources;
      common.resize(std::min(common.size(), once.size()));
      for (size_t i = 0; i < common.size(); ++i) {
        common[i] &= once[i];
      }
      unite(twice, common);
      unite(once, *input.sources);
    }
    for (const Input& input : inputs) {
      if (input.is_branch && intersect(*input.sources, twice)) joined += input.bytes;
    }
    united = contains(*widest->sources, all) ? widest->sources : std::make_shared<const Bits>(std::move(all));
  }
  if (united == nullptr) {
    return 0;
  }
  const auto descends = [&](const at::Tensor& tensor) {
    if (storage_of(tensor) != nullptr) set(tensor, united);
  };
  ac2::internal::for_each_tensor(op.outputs(), descends);
  const std::vector<c10::Argument>& arguments = op.op().schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].alias_info() != nullptr && arguments[i].alias_info()->isWrite()) {
      ac2::internal::for_each_tensor(op.inputs().slice(i, 1), descends);
    }
  }
  return joined;
}

const Lineage::Entry* Lineage::entry_of(const at::Tensor& tensor) {
  const auto found = entries_.find(storage_of(tensor));
  if (found != entries_.end()) {
    return &found->second;
  }
  if (!tensor.requires_grad()) {
    return nullptr;
  }
  const size_t source = next_source_++;
  auto bits = std::make_shared<Bits>(source / kBits + 1);
  (*bits)[source / kBits] |= uint64_t{1} << (source % kBits);
  Entry& entry = set(tensor, bits);
  entry.is_parameter = tensor.is_view() ? tensor._base().is_leaf() : tensor.is_leaf();
  return &entry;
}

Lineage::Entry& Lineage::set(const at::Tensor& tensor, const Sources& sources) {
  if (entries_.size() >= forget_at_) {
    forget_the_dead();
  }
  Entry& entry = entries_.try_emplace(storage_of(tensor), Entry{tensor.storage().getWeakStorageImpl()}).first->second;
  entry.sources = sources;
  entry.is_parameter = false;
  return entry;
}

void Lineage::forget_the_dead() {
  absl::erase_if(entries_, [](const auto& entry) { return entry.second.storage.expired(); });
  forget_at_ = std::max<size_t>(64, 2 * entries_.size());
}

}  // namespace ac2::policies::internal
