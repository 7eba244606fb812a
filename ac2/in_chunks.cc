#include "ac2/in_chunks.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "ac2/internal/libtorch/sums_in_float.h"
#include "ac2/internal/libtorch/tensor_bytes.h"
#include "ac2/internal/operators/op_callbacks.h"
#include "ac2/internal/operators/row_watch.h"
#include "ac2/policy.h"
#include "ac2/scope.h"

namespace ac2::internal {

namespace {

using Tensors = std::vector<at::Tensor>;

// Of a first chunk, on which is measured how much a row takes: this part of the rows, and so many at most.
constexpr int64_t kMeasuredShare = 64;
constexpr int64_t kMostMeasured = 16;

bool has_dimension(const at::Tensor& tensor, int64_t dim) {
  return tensor.dim() > 0 && dim >= -tensor.dim() && dim < tensor.dim();
}

void check_options(const Tensors& tensors, const ChunkOptions& options) {
  TORCH_CHECK(!tensors.empty(), "in_chunks was given no tensor to cut. What all chunks share need not be given.");
  TORCH_CHECK(options.chunks.has_value() != options.bytes.has_value(),
              "in_chunks needs either the number of chunks or the bytes of one, and was given ",
              options.chunks ? "both." : "neither.");
  TORCH_CHECK(!options.chunks || *options.chunks > 0, "in_chunks: chunks must be a positive number, but is ",
              *options.chunks, ".");
  TORCH_CHECK(!options.bytes || options.bytes->count() > 0, "in_chunks: bytes must be a positive number, but is ",
              options.bytes->count(), ".");
  TORCH_CHECK(options.reduce.empty() || options.reduce == "sum" || options.reduce == "mean", "in_chunks: reduce is \"",
              options.reduce, "\"; expected \"sum\", \"mean\", or nothing, for results that are concatenated.");
}

int64_t rows_of(const at::Tensor& tensor, size_t position, int64_t dim) {
  TORCH_CHECK(tensor.defined(), "in_chunks: tensor ", position, " is undefined.");
  TORCH_CHECK(has_dimension(tensor, dim), "in_chunks: tensor ", position, " has ", tensor.dim(),
              " dimensions, and cannot be cut along dimension ", dim, ".");
  return tensor.size(dim);
}

void check_rows(const Tensors& tensors, int64_t dim) {
  const int64_t rows = rows_of(tensors[0], 0, dim);
  for (size_t i = 1; i < tensors.size(); ++i) {
    TORCH_CHECK(rows_of(tensors[i], i, dim) == rows, "in_chunks: tensor ", i, " has ", tensors[i].size(dim),
                " rows along dimension ", dim, ", and tensor 0 has ", rows,
                ". Give tensors of the same size there; what all chunks share need not be given.");
  }
}

// Of all chunks but a single one.
int64_t least_rows(const ChunkOptions& options) {
  return options.exact ? 2 : 1;
}

void check_exact(const Tensors& tensors, const ChunkOptions& options) {
  if (!options.exact || options.chunks.value_or(2) == 1 || tensors[0].size(options.dim) < 2 * least_rows(options)) {
    return;
  }
  TORCH_CHECK(options.reduce.empty(), "in_chunks with exact: reduce is \"", options.reduce,
              "\", and a sum over chunks is added up in another order than that of one call. Concatenate the results, "
              "and add them up after the call, or leave out exact.");
  for (size_t i = 0; i < tensors.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      TORCH_CHECK(!tensors[i].requires_grad() || !tensors[i].is_same(tensors[j]), "in_chunks with exact: tensors ", j,
                  " and ", i,
                  " are the same, whose gradient may be added up in another order than that of one call. "
                  "Give it once.");
    }
  }
}

// Finds, among the ops that its thread calls while it lives, norms that take statistics of all rows: BatchNorm in
// training, and InstanceNorm that keeps running statistics.
class RowStatisticsWatch {
 public:
  RowStatisticsWatch() : callbacks_(*this, at::RecordFunctionCallback(&look).needsInputs(true)) {}

  void check() const {
    TORCH_CHECK(found_.empty(), "in_chunks: the function runs ", found_,
                " in training, which takes statistics of all rows of its call, and each chunk has its own. "
                "Call eval() on the module, or keep it out of the function. The first chunk has updated the running "
                "statistics, if there are any.");
  }

 private:
  static std::unique_ptr<at::ObserverContext> look(const at::RecordFunction& call) {
    RowStatisticsWatch* const watch = OpCallbacks<RowStatisticsWatch>::innermost();
    if (watch == nullptr || watch->instance_norms_ > 0) {
      return nullptr;
    }
    const std::string_view name = call.name();
    if (name == "aten::instance_norm") {
      watch->found_if(is_given(call, "use_input_stats") && is_given(call, "running_mean"), name);
      return std::make_unique<InInstanceNorm>(*watch);
    }
    if (name.find("batch_norm") != std::string_view::npos) {
      watch->found_if(is_given(call, "training"), name);
    }
    return nullptr;
  }

  void found_if(bool of_all_rows, std::string_view name) {
    if (of_all_rows && found_.empty()) {
      found_ = name;
    }
  }

  // Whether the argument is true, or a tensor.
  static bool is_given(const at::RecordFunction& call, const char* argument) {
    const auto schema = call.operator_schema();
    const auto index = schema ? schema->argumentIndexWithName(argument) : std::nullopt;
    const auto inputs = call.inputs();
    if (!index || static_cast<size_t>(*index) >= inputs.size()) {
      return false;
    }
    const c10::IValue& input = inputs[*index];
    return (input.isBool() && input.toBool()) || (input.isTensor() && input.toTensor().defined());
  }

  // A call of instance_norm, which has batch_norm normalise each row by itself. Lives as long as the call.
  struct InInstanceNorm final : at::ObserverContext {
    explicit InInstanceNorm(RowStatisticsWatch& watch) : watch(watch) { ++watch.instance_norms_; }
    ~InInstanceNorm() override { --watch.instance_norms_; }
    RowStatisticsWatch& watch;
  };

  int instance_norms_ = 0;
  std::string found_;
  const OpCallbacks<RowStatisticsWatch> callbacks_;
};

// Sizes that differ by one at most.
std::vector<int64_t> even_sizes(int64_t rows, int64_t chunks, int64_t least) {
  std::vector<int64_t> sizes(std::clamp<int64_t>(chunks, 1, std::max<int64_t>(rows / least, 1)));
  const auto count = static_cast<int64_t>(sizes.size());
  for (int64_t i = 0; i < count; ++i) {
    sizes[i] = rows / count + (i < rows % count ? 1 : 0);
  }
  return sizes;
}

// By chunk, the slices of all tensors.
std::vector<Tensors> cut(const Tensors& tensors, const std::vector<int64_t>& sizes, int64_t dim) {
  if (sizes.size() == 1) {
    return {tensors};  // which the function may write to, as in a plain call
  }
  std::vector<Tensors> chunks(sizes.size());
  for (const at::Tensor& tensor : tensors) {
    const Tensors slices = tensor.split_with_sizes(sizes, dim);
    for (size_t i = 0; i < slices.size(); ++i) {
      chunks[i].push_back(slices[i]);
    }
  }
  return chunks;
}

// The chunks, each cut into parts of no more rows than that. A part of a part: if what is left were cut anew, gradients
// of its rows would be added to those of the rows before, which are 0, and -0 would become 0.
std::vector<Tensors> cut_further(const std::vector<Tensors>& chunks, double rows, int64_t least, int64_t dim) {
  std::vector<Tensors> cut_chunks;
  for (const Tensors& chunk : chunks) {
    const int64_t has = chunk[0].size(dim);
    const auto size =
        static_cast<int64_t>(std::clamp(rows, static_cast<double>(least), static_cast<double>(std::max(has, least))));
    std::vector<Tensors> parts = cut(chunk, even_sizes(has, (has + size - 1) / size, least), dim);
    std::move(parts.rbegin(), parts.rend(), std::back_inserter(cut_chunks));
  }
  return cut_chunks;
}

// The results of an op that lie in memory of their own.
int64_t made_by(const OpContext& op) {
  const auto& returns = op.op().schema().returns();
  int64_t bytes = 0;
  for (size_t i = 0; i < returns.size(); ++i) {
    if (returns[i].alias_info() == nullptr) {
      bytes += bytes_of(op.outputs().slice(i, 1));
    }
  }
  return bytes;
}

// Results of the chunks so far.
class Results {
 public:
  Results(const ChunkOptions& options, int64_t rows) : options_(options), rows_(rows) {}

  void add(Tensors results, int64_t rows) {
    check_results(results, rows);
    for (size_t i = 0; i < results.size(); ++i) {
      if (options_.reduce.empty()) {
        by_result_[i].push_back(std::move(results[i]));
      } else {
        add_up(i, results[i], static_cast<double>(rows) / static_cast<double>(rows_));
      }
    }
    ++chunks_;
  }

  Tensors take() {
    Tensors all;
    for (Tensors& results : by_result_) {
      all.push_back(options_.reduce.empty() ? at::cat(results, options_.dim) : std::move(results[0]));
    }
    if (options_.reduce == "mean" && all.size() == 2) {
      all = {all[0] / all[1]};
    }
    for (size_t i = 0; i < types_.size() && i < all.size(); ++i) {
      all[i] = type_of_sums(types_[i]) == types_[i] ? all[i] : all[i].to(types_[i]);
    }
    return all;
  }

 private:
  void add_up(size_t index, const at::Tensor& result, double share) {
    const at::ScalarType type = result.scalar_type();
    at::Tensor part = result.to(type_of_sums(type));
    if (options_.reduce == "mean" && by_result_.size() == 1) {
      part = part * share;
    }
    Tensors& sum = by_result_[index];
    if (sum.empty()) {
      types_.push_back(type);
      sum.push_back(std::move(part));
    } else {
      types_[index] = at::promote_types(types_[index], type);
      sum[0] = sum[0] + part;
    }
  }

  void check_results(const Tensors& results, int64_t rows) {
    if (chunks_ == 0) {
      TORCH_CHECK(!results.empty(), "in_chunks: the function returned no tensor.");
      TORCH_CHECK(options_.reduce != "mean" || results.size() <= 2, "in_chunks: the function returned ", results.size(),
                  " results for reduce=\"mean\"; expected a mean, or a sum and a count.");
      by_result_.resize(results.size());
    }
    TORCH_CHECK(results.size() == by_result_.size(), "in_chunks: the function returned ", results.size(),
                " results for chunk ", chunks_, " and ", by_result_.size(), " for those before.");
    for (size_t i = 0; i < results.size(); ++i) {
      TORCH_CHECK(results[i].defined(), "in_chunks: result ", i, " of the function is undefined for chunk ", chunks_,
                  ".");
      TORCH_CHECK(!options_.reduce.empty() || has_dimension(results[i], options_.dim), "in_chunks: result ", i,
                  " of the function has ", results[i].dim(), " dimensions, and cannot be concatenated along dimension ",
                  options_.dim, ". Results without rows are added up with reduce = \"sum\" or \"mean\".");
      // One chunk is one call, whose results may have any rows.
      const bool must_have_rows = options_.reduce.empty() && rows < rows_;
      TORCH_CHECK(!must_have_rows || results[i].size(options_.dim) == rows, "in_chunks: result ", i,
                  " of the function has ", results[i].size(options_.dim), " rows along dimension ", options_.dim,
                  " for a chunk of ", rows,
                  ". Return a row for each row, or add results up with reduce = \"sum\" or \"mean\".");
    }
  }

  const ChunkOptions& options_;
  const int64_t rows_;
  int64_t chunks_ = 0;
  std::vector<Tensors> by_result_;
  std::vector<at::ScalarType> types_;  // of the results that are added up
};

Policy recomputing() {
  return Policy::constant(CheckpointPolicy::PREFER_RECOMPUTE).named("in_chunks");
}

}  // namespace

void check_chunks(const Tensors& tensors, const ChunkOptions& options) {
  check_options(tensors, options);
  check_rows(tensors, options.dim);
  check_exact(tensors, options);
}

int64_t chunks_for(int64_t rows, int64_t features, int64_t least_rows) {
  const int64_t in_chunk = std::max(features, least_rows);
  return std::max<int64_t>((rows + in_chunk - 1) / in_chunk, 1);
}

Tensors in_chunks(const ChunkFunction& fn, const Tensors& tensors, const ChunkOptions& options) {
  check_chunks(tensors, options);
  const int64_t rows = tensors[0].size(options.dim), least = least_rows(options);
  Results results(options, rows);
  SumsInFloat sums;
  bool is_first = true;
  const auto run = [&](const Tensors& slices, Policy policy) {
    const bool is_a_part = slices[0].size(options.dim) < rows;
    const uint64_t begin = SumsInFloat::now();
    Tensors of_chunk;
    {
      const PolicyScope scope(std::move(policy));
      std::optional<RowWatch> watch;
      std::optional<RowStatisticsWatch> statistics;
      if (options.exact && is_a_part) {
        watch.emplace(slices, options.dim);
      } else if (is_a_part && std::exchange(is_first, false)) {
        statistics.emplace();
      }
      of_chunk = fn(slices);
      if (watch) {
        watch->check(of_chunk, options.dim);
      }
      if (statistics) {
        statistics->check();
      }
    }
    if (is_a_part) {
      sums.add_part(of_chunk, begin, slices);
    }
    results.add(std::move(of_chunk), slices[0].size(options.dim));
  };
  if (!options.bytes) {
    for (const Tensors& slices : cut(tensors, even_sizes(rows, *options.chunks, least), options.dim)) {
      run(slices, recomputing());
    }
    return results.take();
  }

  const auto made_in = [&](const Tensors& slices) {
    int64_t made = 0;
    run(slices, Policy([&made](const OpContext& op) {
                  made += made_by(op);
                  return CheckpointPolicy::PREFER_RECOMPUTE;
                }).named("in_chunks"));
    return made;
  };
  const int64_t bytes = options.bytes->count();
  const int64_t measured = std::max(std::min(rows / kMeasuredShare, kMostMeasured), least);
  std::vector<int64_t> sizes = {measured, rows - measured};
  if (rows - measured < least) {
    sizes = {rows};
  }
  std::vector<Tensors> left = cut(tensors, sizes, options.dim);
  std::reverse(left.begin(), left.end());  // the next chunk is the last
  for (bool is_measuring = true; !left.empty(); is_measuring = false) {
    const Tensors slices = std::move(left.back());
    left.pop_back();
    const int64_t made = made_in(slices);
    if (is_measuring || made > bytes) {
      // Rows differ, or nothing is known of them yet.
      const double rows_that_fit = static_cast<double>(bytes) / static_cast<double>(std::max<int64_t>(made, 1)) *
                                   static_cast<double>(slices[0].size(options.dim));
      left = cut_further(left, rows_that_fit, least, options.dim);
    }
  }
  return results.take();
}

}  // namespace ac2::internal
