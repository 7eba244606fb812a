#include "policies/internal/quantize/quantize.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/masked_select.h>
#include <ATen/ops/repeat_interleave.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <type_traits>
#include <vector>

#include "policies/internal/common/dense_layout.h"
#include "policies/internal/quantize/device_kernels.h"
#include "policies/internal/quantize/quantize_block.h"

namespace ac2::policies::internal {

namespace {

constexpr int64_t kBlocksPerTask = 128;

// Inlined into each version below, and compiled for its instructions.
#define AC2_INLINE inline __attribute__((always_inline))

template <class T>
using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;

// The blocks of a tensor: of `const T` to pack it, of T to unpack it.
template <class Number>
struct Blocks {
  using T = std::remove_const_t<Number>;
  using C = Compute<T>;
  template <class X>
  using Packed = std::conditional_t<std::is_const_v<Number>, X, const X>;

  int64_t count() const { return (numel + kQuantizeBlock - 1) / kQuantizeBlock; }
  int64_t length(int64_t block) const { return std::min(kQuantizeBlock, numel - block * kQuantizeBlock); }
  Number* numbers_of(int64_t block) const { return numbers + block * kQuantizeBlock; }
  Packed<uint8_t>* codes_of(int64_t block) const { return codes + block * (kQuantizeBlock * bits / 8); }
  bool is_exact(int64_t block) const { return ranges[2 * block] != ranges[2 * block]; }

  int64_t numel;
  int bits;
  Number* numbers;
  Packed<uint8_t>* codes;
  Packed<C>* ranges;  // two a block; NaN: the block has no codes
};

// Loads all of a block, so that loops have a constant length. Past the end stands the first number again.
template <class T, class C>
AC2_INLINE void load(const T* numbers, int64_t length, C* out) {
  if (length == kQuantizeBlock) {
    for (int64_t i = 0; i < kQuantizeBlock; ++i) out[i] = static_cast<C>(numbers[i]);
    return;
  }
  for (int64_t i = 0; i < kQuantizeBlock; ++i) out[i] = static_cast<C>(numbers[i < length ? i : 0]);
}

// The least and the greatest, or NaN and NaN if not all are finite. By halves, so that no number waits for its
// neighbour.
template <class C>
AC2_INLINE void range_of(const C* x, C* range) {
  constexpr int64_t kHalf = kQuantizeBlock / 2;
  alignas(64) C low[kHalf], high[kHalf], not_finite[kHalf];
  for (int64_t i = 0; i < kHalf; ++i) {
    low[i] = x[i + kHalf] < x[i] ? x[i + kHalf] : x[i];
    high[i] = x[i + kHalf] > x[i] ? x[i + kHalf] : x[i];
    not_finite[i] = x[i] * C(0) + x[i + kHalf] * C(0);
  }
  for (int64_t width = kHalf / 2; width >= 1; width /= 2) {
    for (int64_t i = 0; i < width; ++i) {
      low[i] = low[i + width] < low[i] ? low[i + width] : low[i];
      high[i] = high[i + width] > high[i] ? high[i + width] : high[i];
      not_finite[i] += not_finite[i + width];
    }
  }
  range[0] = low[0] + not_finite[0];
  range[1] = high[0] + not_finite[0];
}

template <int bits>
AC2_INLINE void store_codes(const uint8_t* codes, int64_t length, uint8_t* out) {
  if constexpr (bits == 8) {
    std::memcpy(out, codes, static_cast<size_t>(length));
  } else {
    uint8_t pairs[kQuantizeBlock / 2];
    for (int64_t i = 0; i < kQuantizeBlock / 2; ++i) {
      pairs[i] = static_cast<uint8_t>(codes[2 * i] | (codes[2 * i + 1] << 4));
    }
    std::memcpy(out, pairs, static_cast<size_t>((length + 1) / 2));
  }
}

template <int bits>
AC2_INLINE void load_codes(const uint8_t* in, int64_t length, uint8_t* codes) {
  if constexpr (bits == 8) {
    std::memcpy(codes, in, static_cast<size_t>(length));
  } else {
    uint8_t pairs[kQuantizeBlock / 2] = {};
    std::memcpy(pairs, in, static_cast<size_t>((length + 1) / 2));
    for (int64_t i = 0; i < kQuantizeBlock / 2; ++i) {
      codes[2 * i] = pairs[i] & 15;
      codes[2 * i + 1] = pairs[i] >> 4;
    }
  }
}

// Returns how many blocks have no codes.
template <class T, int bits>
AC2_INLINE int64_t quantize_range(const Blocks<const T>& blocks, uint64_t key, int64_t begin, int64_t end) {
  using C = Compute<T>;
  constexpr int32_t levels = levels_of(bits);
  alignas(64) C x[kQuantizeBlock];
  alignas(64) uint8_t codes[kQuantizeBlock];
  int64_t exact = 0;
  for (int64_t block = begin; block < end; ++block) {
    const int64_t length = blocks.length(block);
    C* range = blocks.ranges + 2 * block;
    load(blocks.numbers_of(block), length, x);
    range_of(x, range);
    if (is_quantizable(range[0], range[1], levels)) {
      const BlockScale<C> scale = block_scale(range[0], range[1], levels);
      const uint64_t random = block_key(key, block);
      for (int64_t i = 0; i < kQuantizeBlock; ++i) {
        codes[i] = static_cast<uint8_t>(quantize(x[i], scale, levels, random_24(random, static_cast<uint32_t>(i))));
      }
    } else {
      range[0] = range[1] = std::numeric_limits<C>::quiet_NaN();
      std::memset(codes, 0, sizeof codes);
      ++exact;
    }
    store_codes<bits>(codes, length, blocks.codes_of(block));
  }
  return exact;
}

template <class T, int bits>
AC2_INLINE void dequantize_range(const Blocks<T>& blocks, int64_t begin, int64_t end) {
  using C = Compute<T>;
  constexpr int32_t levels = levels_of(bits);
  alignas(64) uint8_t codes[kQuantizeBlock] = {};
  alignas(64) T numbers[kQuantizeBlock];
  for (int64_t block = begin; block < end; ++block) {
    const int64_t length = blocks.length(block);
    load_codes<bits>(blocks.codes_of(block), length, codes);
    const BlockScale<C> scale = block_scale(blocks.ranges[2 * block], blocks.ranges[2 * block + 1], levels);
    for (int64_t i = 0; i < kQuantizeBlock; ++i) {
      numbers[i] = static_cast<T>(dequantize(static_cast<int32_t>(codes[i]), scale, levels));
    }
    std::memcpy(blocks.numbers_of(block), numbers, static_cast<size_t>(length) * sizeof(T));
  }
}

template <class T, int bits>
int64_t quantize_portable(const Blocks<const T>& blocks, uint64_t key, int64_t begin, int64_t end) {
  return quantize_range<T, bits>(blocks, key, begin, end);
}

template <class T, int bits>
void dequantize_portable(const Blocks<T>& blocks, int64_t begin, int64_t end) {
  dequantize_range<T, bits>(blocks, begin, end);
}

#if defined(__x86_64__)
// Without FMA, so that every machine rounds alike.
template <class T, int bits>
__attribute__((target("avx2"))) int64_t quantize_avx2(const Blocks<const T>& blocks, uint64_t key, int64_t begin,
                                                      int64_t end) {
  return quantize_range<T, bits>(blocks, key, begin, end);
}

template <class T, int bits>
__attribute__((target("avx2"))) void dequantize_avx2(const Blocks<T>& blocks, int64_t begin, int64_t end) {
  dequantize_range<T, bits>(blocks, begin, end);
}

bool has_avx2() {
  static const bool has = __builtin_cpu_supports("avx2");
  return has;
}
#endif

// Returns how many blocks have no codes.
template <class T, int bits>
int64_t quantize_blocks(const Blocks<const T>& blocks, uint64_t key) {
  auto quantize = quantize_portable<T, bits>;
#if defined(__x86_64__)
  if (has_avx2()) quantize = quantize_avx2<T, bits>;
#endif
  std::atomic<int64_t> exact{0};
  at::parallel_for(0, blocks.count(), kBlocksPerTask,
                   [&](int64_t begin, int64_t end) { exact += quantize(blocks, key, begin, end); });
  return exact;
}

template <class T, int bits>
void dequantize_blocks(const Blocks<T>& blocks) {
  auto dequantize = dequantize_portable<T, bits>;
#if defined(__x86_64__)
  if (has_avx2()) dequantize = dequantize_avx2<T, bits>;
#endif
  at::parallel_for(0, blocks.count(), kBlocksPerTask,
                   [&](int64_t begin, int64_t end) { dequantize(blocks, begin, end); });
}

// fn(number of the block, what comes before it in the tensor of blocks without codes) for each of these.
template <class Number, class Fn>
void for_each_exact(const Blocks<Number>& blocks, Fn&& fn) {
  int64_t before = 0;
  for (int64_t block = 0; block < blocks.count(); ++block) {
    if (blocks.is_exact(block)) {
      fn(block, before);
      before += blocks.length(block);
    }
  }
}

template <class T>
at::Tensor copy_exact(const Blocks<const T>& blocks, const at::TensorOptions& options) {
  int64_t numel = 0;
  for_each_exact(blocks, [&](int64_t block, int64_t) { numel += blocks.length(block); });
  const at::Tensor exact = at::empty({numel}, options);
  for_each_exact(blocks, [&](int64_t block, int64_t before) {
    std::copy_n(blocks.numbers_of(block), blocks.length(block), exact.mutable_data_ptr<T>() + before);
  });
  return exact;
}

// The numbers in the order of memory.
at::Tensor flat(const at::Tensor& dense) {
  return dense.as_strided({dense.numel()}, {1}, dense.storage_offset());
}

// On a device: which numbers are in blocks without codes. Such blocks are rare, so LibTorch's ops will do.
at::Tensor in_exact_blocks(const at::Tensor& ranges, int64_t numel) {
  return ranges.select(1, 0).isnan().repeat_interleave(kQuantizeBlock).narrow(0, 0, numel);
}

}  // namespace

bool can_quantize(at::ScalarType type) {
  return type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16;
}

bool can_quantize_on(at::DeviceType type) {
  return type == at::kCPU || type == at::kMeta || device_kernels(type) != nullptr;
}

c10::IValue quantize(const at::Tensor& tensor, int bits, uint64_t key) {
  TORCH_INTERNAL_ASSERT((bits == 8 || bits == 4) && can_quantize(tensor.scalar_type()) &&
                        can_quantize_on(tensor.device().type()));
  const at::Tensor dense = densely(tensor);
  const int64_t numel = dense.numel();
  const int64_t blocks = (numel + kQuantizeBlock - 1) / kQuantizeBlock;
  const auto compute = dense.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor codes = at::empty({(numel * bits + 7) / 8}, dense.options().dtype(at::kByte));
  const at::Tensor ranges = at::empty({blocks, 2}, dense.options().dtype(compute));
  at::Tensor exact;
  if (dense.is_cpu()) {
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, dense.scalar_type(), "quantize", [&] {
      const Blocks<const scalar_t> to{numel, bits, dense.const_data_ptr<scalar_t>(), codes.mutable_data_ptr<uint8_t>(),
                                      ranges.mutable_data_ptr<Compute<scalar_t>>()};
      const int64_t without_codes =
          bits == 8 ? quantize_blocks<scalar_t, 8>(to, key) : quantize_blocks<scalar_t, 4>(to, key);
      if (without_codes > 0) exact = copy_exact(to, dense.options());
    });
  } else if (const DeviceKernels* kernels = device_kernels(dense.device().type())) {
    if (kernels->quantize(dense, bits, key, codes, ranges) > 0) {
      exact = at::masked_select(flat(dense), in_exact_blocks(ranges, numel));
    }
  }
  return c10::ivalue::Tuple::create({layout_of(dense), bits, codes, ranges, exact});
}

at::Tensor dequantize(const c10::IValue& packed) {
  const std::vector<c10::IValue> parts = packed.toTupleRef().elements().vec();
  const at::Tensor tensor = empty_of(parts[0]);
  const int64_t bits = parts[1].toInt();
  const at::Tensor& codes = parts[2].toTensor();
  const at::Tensor& ranges = parts[3].toTensor();
  const at::Tensor& exact = parts[4].toTensor();
  if (!tensor.is_cpu()) {
    if (const DeviceKernels* kernels = device_kernels(tensor.device().type())) {
      kernels->dequantize(codes, ranges, static_cast<int>(bits), tensor);
      if (exact.defined()) flat(tensor).masked_scatter_(in_exact_blocks(ranges, tensor.numel()), exact);
    }
    return tensor;
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, tensor.scalar_type(), "dequantize", [&] {
    const Blocks<scalar_t> from{tensor.numel(), static_cast<int>(bits), tensor.mutable_data_ptr<scalar_t>(),
                                codes.const_data_ptr<uint8_t>(), ranges.const_data_ptr<Compute<scalar_t>>()};
    bits == 8 ? dequantize_blocks<scalar_t, 8>(from) : dequantize_blocks<scalar_t, 4>(from);
    if (exact.defined()) {
      for_each_exact(from, [&](int64_t block, int64_t before) {
        std::copy_n(exact.const_data_ptr<scalar_t>() + before, from.length(block), from.numbers_of(block));
      });
    }
  });
  return tensor;
}

}  // namespace ac2::policies::internal
