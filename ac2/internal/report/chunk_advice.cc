#include "ac2/internal/report/chunk_advice.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "ac2/internal/allocator/machine_memory.h"
#include "ac2/internal/libtorch/spelling.h"
#include "ac2/internal/report/units.h"

namespace ac2::internal {

namespace {

// An op that computes each row of its result from one row of an argument, and from what all rows share.
struct ByRows {
  std::string_view op;
  size_t argument;
  size_t mixes_along = kNothing;  // the argument with the dimension along which rows are mixed
  bool is_product = true;         // and no op by elements, whose argument takes as many bytes as its result

  static constexpr size_t kNothing = ~size_t{0};
};

constexpr ByRows by_elements(std::string_view op) {
  return {op, 0, ByRows::kNothing, /*is_product=*/false};
}

constexpr ByRows kByRows[] = {{"aten::mm", 0},
                              {"aten::addmm", 1},
                              {"aten::bmm", 0},
                              {"aten::baddbmm", 1},
                              {"aten::linear", 0},
                              {"aten::matmul", 0},
                              {"aten::convolution", 0},
                              {"aten::_softmax", 0, 1, /*is_product=*/false},
                              {"aten::_log_softmax", 0, 1, /*is_product=*/false},
                              by_elements("aten::_to_copy"),
                              by_elements("aten::add"),
                              by_elements("aten::div"),
                              by_elements("aten::gelu"),
                              by_elements("aten::mul"),
                              by_elements("aten::relu"),
                              by_elements("aten::silu"),
                              by_elements("aten::tanh")};

// `op` with or without its overload.
const ByRows* find_by_rows(std::string_view op) {
  const std::string_view name = op.substr(0, op.find('.'));
  const auto* const found =
      std::find_if(std::begin(kByRows), std::end(kByRows), [&](const ByRows& by_rows) { return by_rows.op == name; });
  return found == std::end(kByRows) ? nullptr : found;
}

// The logarithms of logits, and the gradients of both, are there at once in backward, and the gradient of the weight.
constexpr int64_t kAtOnce = 4;

// The tensor whose rows are computed apart; undefined if there is none, or rows may be mixed.
at::Tensor cut_by_rows(const FailedCall& call) {
  const ByRows* const found = find_by_rows(call.op);
  if (found == nullptr || found->argument >= call.arguments.size() || !call.arguments[found->argument].isTensor()) {
    return {};
  }
  at::Tensor tensor = call.arguments[found->argument].toTensor();
  if (!tensor.defined() || tensor.dim() < 2) {
    return {};
  }
  if (found->mixes_along != ByRows::kNothing) {
    const c10::IValue& dim = call.arguments[found->mixes_along];
    if (!dim.isInt() || dim.toInt() == 0 || dim.toInt() == -tensor.dim()) {
      return {};
    }
  }
  return tensor;
}

// The bytes that the machine has left, the reserve included; as many as there can be if it has no limit.
int64_t room_on_cpu() {
  const MemoryRoom room = MachineMemory().room();
  return room.limit == MemoryRoom::Limit::kNone ? room.bytes : room.bytes + room.reserve;
}

}  // namespace

std::string chunk_advice(const FailedCall& call, int64_t asked) {
  const at::Tensor tensor = cut_by_rows(call);
  const int64_t rows = tensor.defined() ? tensor.size(0) : 0;
  if (rows < 2 || asked <= 0) {
    return "";
  }
  // An op by elements, or a softmax, has its whole argument there, which would be in chunks too.
  const int64_t argument = is_product_by_rows(call.op) ? 0 : static_cast<int64_t>(tensor.nbytes());
  const int64_t needed = tensor.is_cpu() ? kAtOnce * asked / std::max<int64_t>(room_on_cpu() + argument, 1) + 1 : 2;
  const int64_t chunks = std::clamp<int64_t>(needed, 2, rows);
  return chunk_sentence(chunks, "it would ask for ", asked / chunks);
}

std::string chunk_sentence(int64_t chunks, const char* then, int64_t bytes) {
  return absl::StrCat("Each row of its result is computed by itself: in ", chunks, " chunks of rows, by ",
                      spelled("ac2::in_chunks", "ac2.in_chunks"), " around this op and those next to it, ", then,
                      bytes_text(bytes), " at a time.");
}

bool is_product_by_rows(std::string_view op) {
  const ByRows* const found = find_by_rows(op);
  return found != nullptr && found->is_product;
}

}  // namespace ac2::internal
