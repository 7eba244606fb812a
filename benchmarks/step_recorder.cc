#include "benchmarks/step_recorder.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ac2/internal/libtorch/for_each_tensor.h"
#include "ac2/internal/libtorch/torch_compat.h"

namespace ac2::benchmarks {

namespace {

using internal::kRecordKey;

// A line of the trace, or several that follow one another. The time of an op stands between `head` and `tail`.
struct Lines {
  std::string head;
  std::optional<int64_t> time;
  std::string tail;
};

std::string quoted(const std::vector<std::string>& names) {
  return names.empty() ? "[]" : absl::StrCat("[\"", absl::StrJoin(names, "\",\""), "\"]");
}

std::string memory_of(const std::string& name, int64_t bytes) {
  return absl::StrCat(R"({"INSTRUCTION":"MEMORY","NAME":")", name, R"(","MEMORY":")", bytes, "\"}\n");
}

// One run of the step.
class Recording {
 public:
  // Storages that died since the last op are released before this one.
  void op_begins() {
    const auto dead = std::stable_partition(living_.begin(), living_.end(),
                                            [](const Living& living) { return !living.storage.expired(); });
    for (auto it = dead; it != living_.end(); ++it) {
      lines_.push_back({absl::StrCat(R"({"INSTRUCTION":"RELEASE","NAME":")", it->name, "\"}\n"), {}, ""});
      names_.erase(it->address);
    }
    living_.erase(dead, living_.end());
  }

  void op_ended(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments,
                c10::ArrayRef<c10::IValue> results, int64_t ns) {
    std::vector<std::string> taken;
    std::vector<std::string> written;  // places in `taken`
    for (size_t i = 0; i < arguments.size(); ++i) {
      const auto* alias = schema.arguments()[i].alias_info();
      internal::for_each_tensor(arguments.slice(i, 1), [&](const at::Tensor& tensor) {
        if (const std::optional<std::string> name = name_of_argument(tensor)) {
          if (alias != nullptr && alias->isWrite()) {
            written.push_back(absl::StrCat(taken.size()));
          }
          taken.push_back(*name);
        }
      });
    }
    std::vector<std::string> made;
    std::string tail = "\"}\n";
    internal::for_each_tensor(results, [&](const at::Tensor& tensor) {
      if (has_bytes(tensor) && names_.find(tensor.storage().unsafeGetStorageImpl()) == names_.end()) {
        made.push_back(begin_living(tensor));
        tail += memory_of(made.back(), static_cast<int64_t>(tensor.storage().nbytes()));
        tail += absl::StrCat(R"({"INSTRUCTION":"ALIAS","NAME":")", made.back(), "\",\"ALIAS\":\"-1\"}\n");
      }
    });
    const std::string begin = absl::StrCat("\"NAME\":\"", schema.name(), "\",\"ARGS\":", quoted(taken));
    if (!made.empty()) {
      lines_.push_back({absl::StrCat(R"({"INSTRUCTION":"CALL",)", begin, ",\"RESULT\":", quoted(made), R"(,"TIME":")"),
                        ns, std::move(tail)});
    } else if (!written.empty()) {
      lines_.push_back({absl::StrCat(R"({"INSTRUCTION":"MUTATE",)", begin, ",\"MUTATE\":[", absl::StrJoin(written, ","),
                                     R"(],"TIME":")"),
                        ns, std::move(tail)});
    }
  }

  // No op of another run is faster.
  void keep_least_times(const Recording& other) {
    const auto same = [](const Lines& a, const Lines& b) { return a.head == b.head && a.tail == b.tail; };
    if (!std::equal(lines_.begin(), lines_.end(), other.lines_.begin(), other.lines_.end(), same)) {
      throw std::runtime_error("the step runs other ops each time, or on other sizes");
    }
    for (size_t i = 0; i < lines_.size(); ++i) {
      if (lines_[i].time) {
        lines_[i].time = std::min(*lines_[i].time, *other.lines_[i].time);
      }
    }
  }

  std::string text() const {
    std::string text = "{\"INSTRUCTION\":\"ANNOTATE\",\"ANNOTATION\":\"START\"}\n" + constants_;
    for (const Lines& lines : lines_) {
      text += lines.head;
      if (lines.time) {
        absl::StrAppend(&text, *lines.time);
      }
      text += lines.tail;
    }
    return text;
  }

 private:
  struct Living {
    const c10::StorageImpl* address = nullptr;
    std::string name;
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // keeps the address from being that of another storage
  };

  static bool has_bytes(const at::Tensor& tensor) { return tensor.defined() && tensor.has_storage(); }

  std::string new_name(const at::Tensor& tensor) {
    std::string name = absl::StrCat("x", names_made_++);
    names_.emplace(tensor.storage().unsafeGetStorageImpl(), name);
    return name;
  }

  std::string begin_living(const at::Tensor& tensor) {
    std::string name = new_name(tensor);
    living_.push_back({tensor.storage().unsafeGetStorageImpl(), name, tensor.storage().getWeakStorageImpl()});
    return name;
  }

  // A storage that no op has made is a constant.
  std::optional<std::string> name_of_argument(const at::Tensor& tensor) {
    if (!has_bytes(tensor)) {
      return std::nullopt;
    }
    const auto it = names_.find(tensor.storage().unsafeGetStorageImpl());
    if (it != names_.end()) {
      return it->second;
    }
    const std::string name = new_name(tensor);
    constants_held_.push_back(tensor.storage());
    absl::StrAppend(&constants_, R"({"INSTRUCTION":"CONSTANT","NAME":")", name, "\"}\n",
                    memory_of(name, static_cast<int64_t>(tensor.storage().nbytes())));
    return name;
  }

  int64_t names_made_ = 0;
  std::unordered_map<const c10::StorageImpl*, std::string> names_;
  std::vector<Living> living_;                // what ops have made, the oldest first
  std::vector<c10::Storage> constants_held_;  // so that their addresses stay theirs
  std::string constants_;
  std::vector<Lines> lines_;
};

Recording* recording = nullptr;

void record_op(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::DispatchKeySet below = keys & internal::kBelowRecordKey;
  const size_t count = op.schema().arguments().size();
  const std::vector<c10::IValue> arguments(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  recording->op_begins();
  const auto begin = std::chrono::steady_clock::now();
  {
    // Ops that the kernel calls are part of it.
    const c10::impl::ExcludeDispatchKeyGuard guard(kRecordKey);
    op.redispatchBoxed(below, stack);
  }
  const auto time = std::chrono::steady_clock::now() - begin;
  const size_t returns = op.schema().returns().size();
  recording->op_ended(op.schema(), arguments, c10::ArrayRef<c10::IValue>(*stack).slice(stack->size() - returns),
                      std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
}

void register_fallback() {
  static torch::Library library(torch::Library::IMPL, "_", kRecordKey, __FILE__, __LINE__);
  static const bool once = (library.fallback(torch::CppFunction::makeFromBoxedFunction<&record_op>()), true);
  static_cast<void>(once);
}

Recording record(const std::function<void()>& step) {
  Recording run;
  recording = &run;
  {
    const c10::impl::IncludeDispatchKeyGuard guard(kRecordKey);
    step();
  }
  run.op_begins();
  recording = nullptr;
  return run;
}

}  // namespace

std::string record_step(const std::function<void()>& step, const std::function<void()>& clear, int runs) {
  register_fallback();
  Recording first = record(step);
  clear();
  for (int i = 1; i < runs; ++i) {
    first.keep_least_times(record(step));
    clear();
  }
  return first.text();
}

}  // namespace ac2::benchmarks
