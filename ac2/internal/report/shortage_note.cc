#include "ac2/internal/report/shortage_note.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ac2/internal/libtorch/for_each_tensor.h"
#include "ac2/internal/libtorch/program_holdings.h"
#include "ac2/internal/libtorch/storage_names.h"
#include "ac2/internal/libtorch/tensor_meta.h"
#include "ac2/internal/libtorch/told_shortage.h"
#include "ac2/internal/observe/held_values.h"
#include "ac2/internal/observe/live_graphs.h"
#include "ac2/internal/observe/trace_log.h"
#include "ac2/internal/report/chunk_advice.h"
#include "ac2/internal/report/held_text.h"
#include "ac2/internal/report/units.h"

namespace ac2::internal {

namespace {

// So many graphs at once are no step's.
constexpr int64_t kManyGraphs = 8;
constexpr const char* kAskedForBy = "The memory was asked for by ";

// ", of layers.3.mlp" if an argument is a parameter of that; else ", after layers.3.mlp" if one was computed there.
std::string place_of(const FailedCall& call, const StorageNames& names, const std::vector<HeldValue>& held) {
  std::string of;
  std::string after;
  for_each_tensor(call.arguments, [&](const at::Tensor& tensor) {
    if (!has_plain_storage(tensor)) {
      return;
    }
    const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
    for (const auto& [named, name] : names) {
      if (named == storage && of.empty()) {
        const size_t dot = name.rfind('.');
        of = absl::StrCat(", of ", name.substr(0, dot == std::string::npos ? name.size() : dot));
      }
    }
    for (const HeldValue& value : held) {
      if (value.storage == storage && after.empty() && !value.where.empty() && !value.where.starts_with("taken by ")) {
        after = absl::StrCat(", ", value.where.starts_with("after ") ? "" : "after ", value.where);
      }
    }
  });
  return of.empty() ? after : of;
}

std::string text_of(const FailedCall& call, const StorageNames& names, const std::vector<HeldValue>& held) {
  std::vector<std::string> arguments;
  for_each_tensor(call.arguments, [&](const at::Tensor& tensor) {
    if (has_plain_storage(tensor)) {
      arguments.push_back(shape_text(tensor.sizes(), tensor.scalar_type()));
    }
  });
  return absl::StrCat(kAskedForBy, std::string(call.op), arguments.empty() ? "" : " of ",
                      absl::StrJoin(arguments, ", "), place_of(call, names, held), ".");
}

std::string text_of(const LiveGraphs& graphs) {
  std::string text = absl::StrCat("Regions hold ", bytes_text(graphs.bytes), " of results for ",
                                  count_text(graphs.count, "graph"), " that a backward may still walk");
  if (graphs.count > 1) {
    absl::StrAppend(&text, " (", bytes_text(graphs.most_bytes), " for the largest)");
  }
  absl::StrAppend(&text, ", with ", count_text(graphs.leaves, "tensor"), " from outside, of ",
                  bytes_text(graphs.leaf_bytes), ".");
  if (graphs.count >= kManyGraphs) {
    absl::StrAppend(&text,
                    " A result that is kept, such as a loss in a list, keeps its graph: keep its item() or detach() "
                    "instead.");
  }
  return text;
}

void add_what_nobody_may_drop(std::vector<std::string>& texts) {
  if (const LiveGraphs graphs = live_graphs(); graphs.count > 0) {
    texts.push_back(text_of(graphs));
  }
  for (std::string& sentence : program_holdings()) {
    texts.push_back(std::move(sentence));
  }
}

std::optional<int64_t> bytes_in(std::string_view error) {
  const std::optional<ToldShortage> told = told_shortage(error);
  return told ? told->bytes : std::nullopt;
}

// "64.00 KiB were asked for by aten::mm of [8, 8] float, at train.py, line 3."
std::string who_asked(std::string_view error, std::string_view where) {
  const std::optional<int64_t> bytes = bytes_in(error);
  std::string_view op;
  if (const size_t found = error.find(kAskedForBy); found != std::string_view::npos) {
    op = error.substr(found + std::string_view(kAskedForBy).size());
    op = op.substr(0, op.find(".\n"));
    op.remove_suffix(op.ends_with('.') ? 1 : 0);
  }
  if (!bytes && op.empty() && where.empty()) {
    return "";
  }
  return absl::StrCat(bytes ? bytes_text(*bytes) : "Memory", bytes ? " were asked for" : " was asked for",
                      op.empty() ? "" : " by ", std::string(op), where.empty() ? "" : ", at ", std::string(where), ".");
}

}  // namespace

std::string shortage_note(std::string_view error, const FailedCall* call) {
  const StorageNames names = storage_names();
  const std::vector<HeldValue> held = held_values(names);
  std::string there = held_where_short(held, error);
  if (there.empty() && call == nullptr) {
    return "";
  }
  std::vector<std::string> texts;
  if (call != nullptr) {
    texts.push_back(text_of(*call, names, held));
    if (std::string advice = chunk_advice(*call, bytes_in(error).value_or(0)); !advice.empty()) {
      texts.push_back(std::move(advice));
    }
  }
  if (!there.empty()) {
    texts.push_back(std::move(there));
  }
  add_what_nobody_may_drop(texts);
  return absl::StrJoin(texts, "\n");
}

std::vector<std::string> reasons_for_shortage(std::string_view error, std::string_view where) {
  std::vector<std::string> texts;
  if (std::string asked = who_asked(error, where); !asked.empty()) {
    texts.push_back(std::move(asked));
  }
  add_what_nobody_may_drop(texts);
  return texts;
}

}  // namespace ac2::internal
