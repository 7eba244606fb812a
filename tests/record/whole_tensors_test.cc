// Sparse, nested and quantised tensors, which a region holds whole, and what the program writes to them, or makes of
// them, until backward: gradients are those of plain autograd.
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/allocation_log.h"
#include "tests/support/plain_bits.h"
#include "tests/support/regions.h"
#include "tests/support/ways.h"

namespace ac2::test {
namespace {

class WholeTensorsTest : public CleanTest {
 protected:
  // Before whatever_fits() puts its allocator in front, which nothing would refer to if another one took its place.
  static void SetUpTestSuite() { AllocationLog::install(); }
};

constexpr const char* kModified = "has been modified by an inplace operation";

// A tensor that a region holds whole, made anew in each run, and the dense one that ops of the region compute of it.
struct WholeTensor {
  std::string name;
  std::function<at::Tensor()> make;
  std::function<at::Tensor(const at::Tensor&)> dense;
};

std::vector<WholeTensor> whole_tensors() {
  const auto numbers = [] { return at::linspace(-1, 1, 12).view({3, 4}); };
  const auto to_dense = [](const at::Tensor& t) { return t.to_dense(); };
  return {{"coordinates", [=] { return numbers().relu().to_sparse(); }, to_dense},
          {"compressed rows", [=] { return numbers().relu().to_sparse_csr(); }, to_dense},
          {"quantised", [=] { return at::quantize_per_tensor(numbers(), 0.01, 0, at::kQInt8); },
           [](const at::Tensor& t) { return t.dequantize(); }},
          {"nested",
           [=] {
             return at::_nested_tensor_from_tensor_list({numbers()[0], numbers()[1]});
           },
           [](const at::Tensor& t) { return at::nested_to_padded_tensor(t, 0.); }}};
}

void fill_anew(const WholeTensor& kind, const at::Tensor& tensor) {
  if (kind.name == "quantised") {
    tensor.copy_(at::linspace(1, -1, 12).view({3, 4}));
  } else {
    tensor.mul_(2);
  }
}

// A target of a write, given a tensor that the region has read: that tensor, or one over its bytes.
using Target = at::Tensor (*)(const WholeTensor&, const at::Tensor&);

at::Tensor itself(const WholeTensor& /*kind*/, const at::Tensor& tensor) {
  return tensor;
}
at::Tensor without_its_counter(const WholeTensor& /*kind*/, const at::Tensor& tensor) {
  return tensor.variable_data();
}
at::Tensor values_of(const WholeTensor& kind, const at::Tensor& tensor) {
  return kind.name == "quantised" || kind.name == "nested" ? tensor.detach() : tensor.values();
}

TEST_F(WholeTensorsTest, ASparseNestedOrQuantisedTensorMayBeWrittenToThroughWhateverHasItsBytes) {
  for (const WholeTensor& kind : whole_tensors()) {
    for (const Target target : {itself, without_its_counter, values_of}) {
      for (const bool inside : {false, true}) {
        SCOPED_TRACE(kind.name + (inside ? ", inside" : ", after"));
        expect_plain_bits([&](const Region& region) {
          const at::Tensor tensor = kind.make();
          const at::Tensor x = at::ones_like(kind.dense(tensor)).requires_grad_();
          at::Tensor y, later;
          region([&] {
            y = (x * kind.dense(tensor).sin()).cos();
            if (inside) {
              fill_anew(kind, target(kind, tensor));
              later = (x * kind.dense(tensor).cos()).sin();
            }
          });
          if (!inside) {
            fill_anew(kind, target(kind, tensor));
          }
          return gradients_of({inside ? y + later : y}, {x});
        });
      }
    }
  }
}

TEST_F(WholeTensorsTest, ASparseTensorMayBeWrittenToOnAnotherThreadWhileTwoRegionsHoldIt) {
  expect_plain_bits([](const Region& region) {
    const WholeTensor kind = whole_tensors()[0];
    const at::Tensor tensor = kind.make();
    const at::Tensor x = at::ones({3, 4}).requires_grad_();
    at::Tensor first, second;
    region([&] { first = (x * tensor.to_dense().sin()).cos(); });
    region([&] {
      second = (x * tensor.to_dense().cos()).sin();
      std::thread([&] { tensor.mul_(2); }).join();
    });
    tensor._values().zero_();
    return gradients_of({first, second}, {x});
  });
}

TEST_F(WholeTensorsTest, ASparseTensorIsCopiedOnceAndOnlyWhereAnOpMayStillBeComputedFromIt) {
  AllocationLog& log = AllocationLog::install();
  for (const auto& [policy, parts] : {std::pair<const char*, size_t>{"must_save_all", 0}, {"recompute_all", 3}}) {
    const at::Tensor tensor = at::eye(3).to_sparse_csr();
    const at::Tensor values = tensor.values();
    const at::Tensor x = at::ones({3, 3}).requires_grad_();
    at::Tensor y;
    {
      const PolicyScope scope(policy);
      y = (x * tensor.to_dense().sin()).cos();
    }
    EXPECT_EQ(log.during([&] { values.zero_(); }).size(), parts) << policy;
    EXPECT_EQ(log.during([&] { values.zero_(); }).size(), 0) << policy;
    gradients_of({y}, {x});
    EXPECT_EQ(log.during([&] { values.zero_(); }).size(), 0) << policy;
  }
}

TEST_F(WholeTensorsTest, ASparseTensorWhoseValuesLostTheirMemoryIsAnError) {
  const at::Tensor values = at::linspace(1, 4, 4), x = at::ones({4, 4}).requires_grad_();
  const at::Tensor places = at::arange(4, at::kLong);
  const at::Tensor tensor = at::sparse_coo_tensor(at::stack({places, places}), values, {4, 4});
  at::Tensor y;
  {
    const PolicyScope scope("recompute_all");
    y = x * tensor.to_dense().sin();
  }
  values.storage().unsafeGetStorageImpl()->set_data_ptr({});
  values.storage().set_nbytes(0);
  expect_error([&] { gradients_of({y}, {x}); }, {kModified});
}

TEST_F(WholeTensorsTest, AWriteToASparseTensorThatAutogradHasSavedIsAnErrorAsInPlainAutograd) {
  const at::Tensor tensor = whole_tensors()[0].make();
  const at::Tensor x = at::ones({4, 3}).requires_grad_();
  at::Tensor y;
  {
    const PolicyScope scope("recompute_all");
    y = at::_sparse_mm(tensor, x).cos();
  }
  tensor.mul_(2);
  expect_error([&] { gradients_of({y}, {x}); }, {kModified, "SparseCPUFloatType"});
}

// Each of these makes an op's result from a tensor that a region holds whole, of which autograd saves that tensor
// itself: a factor.
struct SavedWhole {
  std::string name;
  std::function<at::Tensor()> make;
  // For a backward that reads the factor; its result is dense.
  std::function<at::Tensor(const at::Tensor& factor, const at::Tensor& x)> product;
  // For a replay that reads the factor.
  std::function<at::Tensor(const at::Tensor& factor)> dense;
};

std::vector<SavedWhole> saved_wholes() {
  const auto numbers = [] { return at::linspace(-1, 1, 16).view({4, 4}); };
  const auto to_dense = [](const at::Tensor& t) { return t.to_dense(); };
  const auto product = [](const at::Tensor& s, const at::Tensor& x) { return at::_sparse_mm(s, x); };
  return {{"coordinates", [=] { return numbers().relu().to_sparse(); }, product, to_dense},
          {"compressed rows", [=] { return numbers().relu().to_sparse_csr(); }, product, to_dense},
          {"nested",
           [=] {
             return at::_nested_tensor_from_tensor_list({numbers()[0], numbers()[3]});
           },
           [](const at::Tensor& s, const at::Tensor& x) {
             const at::Tensor other = at::_nested_tensor_from_tensor_list({x[0], x[1]});
             return at::nested_to_padded_tensor(other * s, 0.);
           },
           [](const at::Tensor& t) { return at::nested_to_padded_tensor(t, 0.); }}};
}

// A use of the factor in the region: `x` has a gradient.
using Use = at::Tensor (*)(const SavedWhole&, const at::Tensor& factor, const at::Tensor& x);

at::Tensor read_by_autograd(const SavedWhole& kind, const at::Tensor& factor, const at::Tensor& x) {
  return kind.product(factor, x).sin();
}
at::Tensor read_by_replays(const SavedWhole& kind, const at::Tensor& factor, const at::Tensor& x) {
  return (x.flatten().narrow(0, 0, kind.dense(factor).numel()) * kind.dense(factor).flatten().sin()).cos();
}
at::Tensor read_by_both(const SavedWhole& kind, const at::Tensor& factor, const at::Tensor& x) {
  return read_by_autograd(kind, factor, x).sum() + read_by_replays(kind, factor, x).sum();
}

// `change` is called between the region and backward, and the program may drop the factor then.
void expect_plain_bits_after(const SavedWhole& kind, Use use, bool inside,
                             const std::function<void(at::Tensor& factor)>& change) {
  expect_plain_bits([&](const Region& region) {
    at::Tensor factor = kind.make();
    const at::Tensor x = at::linspace(0.5, 2, 16).view({4, 4}).requires_grad_();
    at::Tensor y, later;
    region([&] {
      y = use(kind, factor, x);
      if (inside) {
        change(factor);
        later = factor.defined() ? use(kind, factor, x) : at::Tensor();
      }
    });
    if (!inside) {
      change(factor);
    }
    return gradients_of(later.defined() ? Tensors{y, later} : Tensors{y}, {x});
  });
}

TEST_F(WholeTensorsTest, ALeafMayBeGivenOtherDataBeforeBackward) {
  for (const bool has_gradient : {false, true}) {
    for (SavedWhole kind : saved_wholes()) {
      const at::Tensor other = kind.make().mul(2);
      kind.make = [make = kind.make, has_gradient] { return make().requires_grad_(has_gradient); };
      for (const Use use : {read_by_autograd, read_by_replays, read_by_both}) {
        for (const bool inside : {false, true}) {
          SCOPED_TRACE(kind.name + (inside ? ", inside" : ", after"));
          expect_plain_bits_after(kind, use, inside, [&](at::Tensor& factor) { factor.set_data(other); });
          expect_plain_bits_after(kind, use, inside, [&](at::Tensor& factor) {
            factor.set_data(other);
            factor = at::Tensor();
          });
        }
      }
    }
  }
}

TEST_F(WholeTensorsTest, WhatAutogradAndReplaysBothReadMayBeWrittenToThroughData) {
  for (const SavedWhole& kind : saved_wholes()) {
    SCOPED_TRACE(kind.name);
    expect_plain_bits_after(kind, read_by_both, /*inside=*/false,
                            [](at::Tensor& factor) { factor.variable_data().mul_(2); });
  }
}

TEST_F(WholeTensorsTest, WhatAutogradHasSavedMayBeWrittenToIfThatGradientIsNotWanted) {
  for (const SavedWhole& kind : saved_wholes()) {
    SCOPED_TRACE(kind.name);
    expect_plain_bits([&](const Region& region) {
      const at::Tensor factor = kind.make();
      const at::Tensor x = at::linspace(0.5, 2, 16).view({4, 4}).requires_grad_();
      at::Tensor by_autograd, by_replays;
      region([&] {
        by_autograd = read_by_autograd(kind, factor, x);
        by_replays = read_by_replays(kind, factor, x);
      });
      factor.mul_(2);
      return gradients_of({by_replays}, {x});
    });
  }
}

TEST_F(WholeTensorsTest, ValuesThatWereReadByThemselvesAreReadAsTheyWereIfTheTensorIsWrittenTo) {
  for (const WholeTensor& kind : whole_tensors()) {
    if (kind.name == "quantised") {
      continue;
    }
    SCOPED_TRACE(kind.name);
    for (const bool inside : {false, true}) {
      expect_plain_bits([&](const Region& region) {
        const at::Tensor tensor = kind.name == "coordinates" ? kind.make().coalesce() : kind.make();
        const at::Tensor x = at::ones(tensor.values().sizes()).requires_grad_();
        at::Tensor y;
        region([&] {
          y = (x * tensor.values().sin()).cos();
          if (inside) {
            tensor.mul_(2);
          }
        });
        tensor.mul_(3);
        return gradients_of({y}, {x});
      });
    }
  }
}

}  // namespace
}  // namespace ac2::test
