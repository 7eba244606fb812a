#include "python/binding/chunks.h"

#include <torch/csrc/autograd/python_variable.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ac2/in_chunks.h"
#include "ac2/linear_cross_entropy.h"
#include "ac2/query_chunked_attention.h"
#include "ac2/tiled_mlp.h"
#include "python/binding/errors.h"

namespace ac2::python {

namespace {

namespace py = pybind11;

using Tensors = std::vector<at::Tensor>;

// The tensors that a function of Python's has returned. `is_one`: it was a tensor by itself.
Tensors results_of(const py::object& returned, bool& is_one) {
  is_one = THPVariable_Check(returned.ptr());
  if (is_one) {
    return {THPVariable_Unpack(returned.ptr())};
  }
  Tensors results;
  if (PyTuple_Check(returned.ptr()) != 0 || PyList_Check(returned.ptr()) != 0) {
    for (const py::handle item : returned) {
      if (!THPVariable_Check(item.ptr())) {
        throw py::type_error("in_chunks: the function returned a sequence with " + py::repr(item).cast<std::string>() +
                             "; expected tensors.");
      }
      results.push_back(THPVariable_Unpack(item.ptr()));
    }
    return results;
  }
  throw py::type_error("in_chunks: the function returned " + py::repr(returned).cast<std::string>() +
                       "; expected a tensor, or a tuple or list of tensors.");
}

// One call of a function of Python's for a chunk.
py::object call_for_chunk(const py::function& fn, const Tensors& slices) {
  py::tuple arguments(slices.size());
  for (size_t i = 0; i < slices.size(); ++i) {
    arguments[i] = slices[i];
  }
  return fn(*arguments);
}

py::object in_chunks(const py::function& fn, const Tensors& tensors, int64_t dim, std::optional<int64_t> chunks,
                     std::optional<int64_t> bytes, std::string reduce, bool exact) {
  const ChunkOptions options{.dim = dim, .chunks = chunks, .bytes = bytes, .reduce = std::move(reduce), .exact = exact};
  with_value_errors([&] { internal::check_chunks(tensors, options); });
  bool is_one = true;
  Tensors results;
  {
    const py::gil_scoped_release no_gil;
    results = internal::in_chunks(
        [&](const Tensors& slices) {
          const py::gil_scoped_acquire gil;
          return calling_python([&] { return results_of(call_for_chunk(fn, slices), is_one); });
        },
        tensors, options);
  }
  return is_one || (options.reduce == "mean" && results.size() == 1) ? py::cast(results[0])
                                                                     : py::object(py::tuple(py::cast(results)));
}

at::Tensor loss_of_rows(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& target,
                        std::optional<at::Tensor> bias, std::optional<at::Tensor> class_weights, std::string reduction,
                        int64_t ignore_index, double label_smoothing, std::optional<int64_t> chunks) {
  const py::gil_scoped_release no_gil;
  return linear_cross_entropy(input, weight, target,
                              {.bias = bias.value_or(at::Tensor()),
                               .class_weights = class_weights.value_or(at::Tensor()),
                               .reduction = std::move(reduction),
                               .ignore_index = ignore_index,
                               .label_smoothing = label_smoothing,
                               .chunks = chunks});
}

at::Tensor of_tokens(const py::function& mlp, const at::Tensor& hidden, std::optional<int64_t> chunks) {
  const py::gil_scoped_release no_gil;
  return tiled_mlp(
      [&](const at::Tensor& tokens) {
        const py::gil_scoped_acquire gil;
        return calling_python([&] {
          const py::object returned = call_for_chunk(mlp, {tokens});
          if (!THPVariable_Check(returned.ptr())) {
            throw py::type_error("tiled_mlp: the function returned " + py::repr(returned).cast<std::string>() +
                                 "; expected a tensor.");
          }
          return THPVariable_Unpack(returned.ptr());
        });
      },
      hidden, chunks);
}

at::Tensor of_queries(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                      std::optional<at::Tensor> attn_mask, double dropout_p, bool is_causal,
                      std::optional<double> scale, bool enable_gqa, std::optional<int64_t> chunks) {
  const py::gil_scoped_release no_gil;
  return query_chunked_attention(query, key, value,
                                 {.attn_mask = attn_mask.value_or(at::Tensor()),
                                  .dropout_p = dropout_p,
                                  .is_causal = is_causal,
                                  .scale = scale,
                                  .enable_gqa = enable_gqa,
                                  .chunks = chunks});
}

}  // namespace

void add_chunks(py::module_& module) {
  module.def("in_chunks", &in_chunks, py::arg("fn"), py::arg("tensors"), py::arg("dim"), py::arg("chunks"),
             py::arg("bytes"), py::arg("reduce"), py::arg("exact"));
  module.def("linear_cross_entropy", &loss_of_rows, py::arg("input"), py::arg("weight"), py::arg("target"),
             py::arg("bias"), py::arg("class_weights"), py::arg("reduction"), py::arg("ignore_index"),
             py::arg("label_smoothing"), py::arg("chunks"));
  module.def("tiled_mlp", &of_tokens, py::arg("mlp"), py::arg("hidden"), py::arg("chunks"));
  module.def("query_chunked_attention", &of_queries, py::arg("query"), py::arg("key"), py::arg("value"),
             py::arg("attn_mask"), py::arg("dropout_p"), py::arg("is_causal"), py::arg("scale"), py::arg("enable_gqa"),
             py::arg("chunks"));
}

}  // namespace ac2::python
