#include "ac2/internal/operators/row_ops.h"

#include <ATen/core/function_schema.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/WrapDimMinimal.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "ac2/internal/operators/op_facts.h"

namespace ac2::internal {

namespace {

// kByElement: each number from those at its place. kAlong: along the dimensions that an argument names, which must be
// others than that of the rows; kAlongLast: and the last one; kSum: and such that lie within a row in memory.
// kLayerNorm: along the last dimensions. The others are views.
enum class Kind : uint8_t {
  kByElement,
  kAlong,
  kAlongLast,
  kSum,
  kLayerNorm,
  kCat,
  kEmbedding,
  kReshape,
  kExpand,
  kTranspose,
  kPermute,
  kUnsqueeze,
  kSqueeze,
  kSelect,
  kSlice,
  kSplit,
};

// Ops without "aten::", without an overload, and without the underscore of an op that writes in place. A row too many
// makes bits differ that `exact` promises. To add one: a row here, and its function in a list of
// python/tests/test_exact_chunks.py, which compares bits of forward and backward for any sizes and types.
constexpr std::array<std::string_view, 64> kByElement = {
    "_to_copy",    "abs",        "add",       "alias",     "atan",        "bitwise_and", "bitwise_not", "bitwise_or",
    "ceil",        "clamp",      "clamp_max", "clamp_min", "clone",       "copy",        "cos",         "detach",
    "div",         "empty_like", "eq",        "erf",       "erfc",        "exp",         "expm1",       "fill",
    "floor",       "frac",       "full_like", "ge",        "gt",          "hardtanh",    "isnan",       "le",
    "log",         "log10",      "log1p",     "log2",      "logical_and", "logical_not", "logical_or",  "lt",
    "masked_fill", "maximum",    "minimum",   "mul",       "ne",          "neg",         "ones_like",   "pow",
    "reciprocal",  "relu",       "round",     "rsub",      "sgn",         "sign",        "sin",         "sqrt",
    "sub",         "tan",        "tanh",      "threshold", "trunc",       "where",       "zero",        "zeros_like"};

struct Row {
  std::string_view op;
  Kind kind;
};
constexpr std::array<Row, 28> kOthers = {{{"_log_softmax", Kind::kAlongLast},
                                          {"_reshape_alias", Kind::kReshape},
                                          {"_softmax", Kind::kAlongLast},
                                          {"_unsafe_view", Kind::kReshape},
                                          {"all", Kind::kAlong},
                                          {"amax", Kind::kAlong},
                                          {"amin", Kind::kAlong},
                                          {"any", Kind::kAlong},
                                          {"argmax", Kind::kAlong},
                                          {"argmin", Kind::kAlong},
                                          {"cat", Kind::kCat},
                                          {"cumsum", Kind::kAlong},
                                          {"embedding", Kind::kEmbedding},
                                          {"expand", Kind::kExpand},
                                          {"mean", Kind::kSum},
                                          {"native_layer_norm", Kind::kLayerNorm},
                                          {"permute", Kind::kPermute},
                                          {"select", Kind::kSelect},
                                          {"slice", Kind::kSlice},
                                          {"split", Kind::kSplit},
                                          {"split_with_sizes", Kind::kSplit},
                                          {"squeeze", Kind::kSqueeze},
                                          {"sum", Kind::kSum},
                                          {"t", Kind::kTranspose},
                                          {"transpose", Kind::kTranspose},
                                          {"unbind", Kind::kSelect},
                                          {"unsqueeze", Kind::kUnsqueeze},
                                          {"view", Kind::kReshape}}};

std::optional<Kind> kind_of(std::string_view name) {
  if (!name.starts_with("aten::")) {
    return std::nullopt;
  }
  name.remove_prefix(std::string_view("aten::").size());
  if (name.ends_with('_')) {
    name.remove_suffix(1);
  }
  if (std::find(kByElement.begin(), kByElement.end(), name) != kByElement.end()) {
    return Kind::kByElement;
  }
  const auto* const found =
      std::find_if(kOthers.begin(), kOthers.end(), [&](const Row& row) { return row.op == name; });
  return found == kOthers.end() ? std::nullopt : std::optional(found->kind);
}

RowRule refused(std::string why) {
  return {.refusal = std::move(why)};
}
RowRule from_left(int64_t dim) {
  return {.place = RowRule::Place::kFromLeft, .position = dim};
}

// A call whose first tensor is the one that has rows, unless its kind says otherwise.
class Judge {
 public:
  Judge(const c10::OperatorHandle& op, c10::ArrayRef<const c10::IValue> arguments, c10::ArrayRef<RowArgument> tensors)
      : op_(op), arguments_(arguments), tensors_(tensors) {}

  RowRule by(Kind kind) const {
    switch (kind) {
      case Kind::kByElement:
        return by_element();
      case Kind::kCat:
        return cat();
      case Kind::kEmbedding:
        return tensors_[0].dim == kNoRows ? from_left(tensors_[1].dim) : refused("looks up in a table that is cut");
      default:
        break;
    }
    if (tensors_[0].dim == kNoRows) {
      return refused("is not known to compute each row by itself with these arguments");
    }
    switch (kind) {
      case Kind::kAlong:
      case Kind::kAlongLast:
        return along(kind == Kind::kAlongLast);
      case Kind::kSum:
        return rows_are_outermost() ? along(/*only_last=*/false)
                                    : refused(
                                          "adds up over numbers that do not lie row by row in memory, in an order "
                                          "that may depend on the number of rows");
      case Kind::kLayerNorm:
        return first() < first_sizes() - static_cast<int64_t>(ints("normalized_shape").value().size())
                   ? from_left(first())
                   : mixes_rows();
      default:
        return view(kind);
    }
  }

 private:
  int64_t first() const { return tensors_[0].dim; }
  int64_t first_sizes() const { return tensors_[0].tensor.dim(); }
  static RowRule mixes_rows() { return refused("computes along the dimension that is cut"); }

  const c10::IValue* argument(const char* name) const {
    const std::optional<int> index = op_.schema().argumentIndexWithName(name);
    return index && static_cast<size_t>(*index) < arguments_.size() ? &arguments_[*index] : nullptr;
  }
  // An int or a list of them; unset if the op has no such argument, or is given none.
  std::optional<std::vector<int64_t>> ints(const char* name) const {
    const c10::IValue* const value = argument(name);
    if (value == nullptr || !(value->isInt() || value->isIntList())) {
      return std::nullopt;
    }
    return value->isInt() ? std::vector<int64_t>{value->toInt()} : value->toIntVector();
  }
  bool is_number(const char* name, std::initializer_list<double> numbers) const {
    const c10::IValue* const value = argument(name);
    if (value == nullptr || !value->isScalar()) {
      return value == nullptr;
    }
    const at::Scalar scalar = value->toScalar();
    return !scalar.isComplex() && std::find(numbers.begin(), numbers.end(), scalar.toDouble()) != numbers.end();
  }

  RowRule by_element() const {
    // Products of `alpha` are added in the same step by some code of a kernel, and in two by other.
    if (!is_number("alpha", {1})) {
      return refused("with another alpha than 1 is not known to compute each row by itself");
    }
    if (op_.schema().name().starts_with("aten::pow") && !is_number("exponent", {1, 2, 3})) {
      return refused("with another exponent than 1, 2 or 3 is not known to compute each row by itself");
    }
    std::optional<int64_t> place;  // counted from the right
    std::optional<int64_t> size;
    for (const RowArgument& each : tensors_) {
      if (each.dim == kNoRows) continue;
      const int64_t from_right = each.dim - each.tensor.dim();
      if ((place && *place != from_right) || (size && *size != each.tensor.size(each.dim))) {
        return refused("is given tensors whose rows lie along different dimensions");
      }
      place = from_right;
      size = each.tensor.size(each.dim);
    }
    for (const RowArgument& each : tensors_) {
      if (each.dim != kNoRows && is_broadcast(each.tensor)) {
        return broadcasts();
      }
      const int64_t dim = each.tensor.dim() + *place;
      if (each.dim == kNoRows && dim >= 0 && each.tensor.size(dim) != 1) {
        return refused(c10::str("is given a tensor of ", each.tensor.sizes(),
                                " that is not cut, with numbers of its own for each row"));
      }
    }
    return {.place = RowRule::Place::kFromRight, .position = *place};
  }

  // The gradient of a tensor that is broadcast is a sum, which adds in an order that depends on where the rows lie in
  // the gradient that comes in.
  static RowRule broadcasts() {
    return refused("broadcasts a tensor that has a gradient: a sum, in an order that may depend on the number of rows");
  }
  bool is_broadcast(const at::Tensor& tensor) const {
    return has_gradient(tensor) && std::any_of(tensors_.begin(), tensors_.end(), [&](const RowArgument& other) {
             return exceeds(other.tensor.sizes(), tensor.sizes());
           });
  }
  static bool has_gradient(const at::Tensor& tensor) { return tensor.requires_grad() && at::GradMode::is_enabled(); }
  // Whether what is broadcast to `sizes` becomes larger. -1 stands for a size that stays.
  static bool exceeds(c10::IntArrayRef sizes, c10::IntArrayRef own) {
    for (size_t i = 1; i <= sizes.size(); ++i) {
      const int64_t size = sizes[sizes.size() - i], of_own = i <= own.size() ? own[own.size() - i] : 1;
      if (size > of_own && of_own == 1) return true;
    }
    return false;
  }

  bool rows_are_outermost() const {
    const at::Tensor& tensor = tensors_[0].tensor;
    for (int64_t i = 0; i < tensor.dim(); ++i) {
      if (tensor.size(i) > 1 && tensor.stride(i) > tensor.stride(first())) return false;
    }
    return true;
  }

  RowRule cat() const {
    const int64_t dim = at::maybe_wrap_dim(ints("dim").value().at(0), first_sizes());
    for (const RowArgument& each : tensors_) {
      if (each.dim == kNoRows || each.dim == dim || each.dim != first()) {
        return refused("concatenates along the dimension that is cut, or tensors that are not cut");
      }
    }
    return from_left(first());
  }

  RowRule along(bool only_last) const {
    const auto dims = ints("dim");
    if (!dims || dims->empty()) {
      return mixes_rows();
    }
    int64_t before = 0;
    for (const int64_t given : *dims) {
      const int64_t dim = at::maybe_wrap_dim(given, first_sizes());
      if (dim == first()) return mixes_rows();
      if (only_last && dim != first_sizes() - 1) {
        return refused("along another dimension than the last is not known to compute each row by itself");
      }
      before += dim < first() ? 1 : 0;
    }
    const c10::IValue* const keeps = argument("keepdim");
    return from_left(keeps == nullptr || (keeps->isBool() && keeps->toBool()) ? first() : first() - before);
  }

  RowRule view(Kind kind) const {
    const int64_t dims = first_sizes();
    const auto dim = [&](const char* name, int64_t of) { return at::maybe_wrap_dim(ints(name).value().at(0), of); };
    switch (kind) {
      case Kind::kReshape: {
        int64_t before = 1;
        for (int64_t i = 0; i < first(); ++i) before *= tensors_[0].tensor.size(i);
        return {.place = RowRule::Place::kBefore, .position = before};
      }
      case Kind::kExpand:
        if (has_gradient(tensors_[0].tensor) && exceeds(ints("size").value(), tensors_[0].tensor.sizes())) {
          return broadcasts();
        }
        return {.place = RowRule::Place::kFromRight, .position = first() - dims};
      case Kind::kTranspose: {
        if (argument("dim0") == nullptr && dims < 2) return from_left(first());
        const int64_t a = argument("dim0") == nullptr ? 0 : dim("dim0", dims);
        const int64_t b = argument("dim1") == nullptr ? 1 : dim("dim1", dims);
        return from_left(first() == a ? b : first() == b ? a : first());
      }
      case Kind::kPermute: {
        const std::vector<int64_t> order = ints("dims").value();
        const auto found = std::find_if(order.begin(), order.end(),
                                        [&](int64_t from) { return at::maybe_wrap_dim(from, dims) == first(); });
        return from_left(found - order.begin());
      }
      case Kind::kUnsqueeze:
        return from_left(first() + (dim("dim", dims + 1) <= first() ? 1 : 0));
      case Kind::kSqueeze:
        return squeeze();
      case Kind::kSelect: {
        const int64_t at = dim("dim", dims);
        return at == first() ? mixes_rows() : from_left(first() - (at < first() ? 1 : 0));
      }
      case Kind::kSlice: {
        const auto start = ints("start"), end = ints("end"), step = ints("step");
        const bool takes_all = start.value_or(std::vector<int64_t>{0}).at(0) == 0 && step.value().at(0) == 1 &&
                               end.value_or(std::vector<int64_t>{std::numeric_limits<int64_t>::max()}).at(0) ==
                                   std::numeric_limits<int64_t>::max();
        return dim("dim", dims) != first() || takes_all ? from_left(first()) : mixes_rows();
      }
      default:  // kSplit
        return dim("dim", dims) != first() ? from_left(first()) : mixes_rows();
    }
  }

  // Rows are two or more, and so their dimension is none of those that go.
  RowRule squeeze() const {
    std::vector<int64_t> gone = ints("dim").value_or(std::vector<int64_t>());
    if (argument("dim") == nullptr) {
      for (int64_t i = 0; i < first_sizes(); ++i) gone.push_back(i);
    }
    int64_t before = 0;
    for (const int64_t given : gone) {
      const int64_t dim = at::maybe_wrap_dim(given, first_sizes());
      before += dim < first() && tensors_[0].tensor.size(dim) == 1 ? 1 : 0;
    }
    return from_left(first() - before);
  }

  const c10::OperatorHandle& op_;
  const c10::ArrayRef<const c10::IValue> arguments_;
  const c10::ArrayRef<RowArgument> tensors_;
};

}  // namespace

int64_t RowRule::dim_of(const at::Tensor& result, int64_t rows) const {
  const auto has_rows = [&](int64_t dim) {
    return dim >= 0 && dim < result.dim() && result.size(dim) != 0 && result.size(dim) % rows == 0;
  };
  if (place != Place::kBefore) {
    const int64_t dim = place == Place::kFromLeft ? position : result.dim() + position;
    return has_rows(dim) ? dim : kNoRows;
  }
  int64_t before = 1;
  for (int64_t dim = 0; dim < result.dim() && before <= position; before *= result.size(dim), ++dim) {
    if (before == position && has_rows(dim)) {
      return dim;
    }
  }
  return kNoRows;
}

RowRule row_rule(const c10::OperatorHandle& op, c10::ArrayRef<const c10::IValue> arguments,
                 c10::ArrayRef<RowArgument> tensors) {
  const OpFacts& facts = op_facts(op);
  if (facts.draws) {
    return refused("draws random numbers, chunk by chunk");
  }
  if (const std::optional<Kind> kind = kind_of(op.schema().name())) {
    return Judge(op, arguments, tensors).by(*kind);
  }
  return refused(!facts.is_pointwise && computes_products(op.schema().name())
                     ? "may add in another order for another number of rows"
                     : "is not known to compute each row by itself, with the same bits for any number of rows");
}

}  // namespace ac2::internal
