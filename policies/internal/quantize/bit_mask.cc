#include "policies/internal/quantize/bit_mask.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <type_traits>
#include <vector>

#include "policies/internal/common/dense_layout.h"
#include "policies/internal/quantize/device_kernels.h"

namespace ac2::policies::internal {

namespace {

constexpr int64_t kBytesPerTask = 4096;

// Eight bytes of 0 or 1 to one, the first in the lowest bit.
uint8_t gather_bits(const uint8_t* flags) {
  uint64_t word;
  std::memcpy(&word, flags, sizeof word);
  return static_cast<uint8_t>((word * 0x0102040810204080U) >> 56);
}

void scatter_bits(uint8_t byte, uint8_t* flags) {
  const uint64_t spread = (byte * 0x0101010101010101U) & 0x8040201008040201U;
  const uint64_t word = ((spread + 0x7f7f7f7f7f7f7f7fU) | spread) >> 7 & 0x0101010101010101U;
  std::memcpy(flags, &word, sizeof word);
}

// The bits of flag(i). flag(i) may also say in `valid` that it has none.
template <class Flags>
bool pack_bits(int64_t numel, uint8_t* bits, const Flags& flags) {
  std::atomic<bool> all_valid{true};
  at::parallel_for(0, (numel + 7) / 8, kBytesPerTask, [&](int64_t begin, int64_t end) {
    // Checked before each stretch and not before each byte: beside a stretch the check is cheap.
    for (int64_t stretch = begin; stretch < end && all_valid; stretch += 64) {
      uint8_t eight[8 * 64] = {};
      const int64_t last = std::min(end, stretch + 64);
      if (!flags(stretch * 8, std::min(numel, last * 8), eight)) {
        all_valid = false;
        return;
      }
      for (int64_t byte = stretch; byte < last; ++byte) bits[byte] = gather_bits(eight + 8 * (byte - stretch));
    }
  });
  return all_valid;
}

template <class T>
void unpack_bits_to(int64_t numel, const uint8_t* bits, T zero, T one, T* out) {
  at::parallel_for(0, (numel + 7) / 8, kBytesPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t byte = begin; byte < end; ++byte) {
      uint8_t flags[8];
      scatter_bits(bits[byte], flags);
      const int64_t length = std::min<int64_t>(8, numel - 8 * byte);
      for (int64_t i = 0; i < length; ++i) out[8 * byte + i] = flags[i] != 0 ? one : zero;
    }
  });
}

at::Tensor bits_of(const at::Tensor& dense) {
  return at::empty({(dense.numel() + 7) / 8}, dense.options().dtype(at::kByte));
}

// Elements as integers of their size, so that equal means equal bits.
template <class Fn>
bool with_bits_type(size_t element_size, Fn&& fn) {
  switch (element_size) {
    case 1:
      return fn(uint8_t{});
    case 2:
      return fn(uint16_t{});
    case 4:
      return fn(uint32_t{});
    case 8:
      return fn(uint64_t{});
    default:
      return false;
  }
}

c10::IValue packed_form(const at::Tensor& dense, const at::Tensor& bits, uint64_t zero, uint64_t one) {
  return c10::ivalue::Tuple::create({layout_of(dense), bits, static_cast<int64_t>(zero), static_cast<int64_t>(one)});
}

}  // namespace

c10::IValue pack_two_valued(const at::Tensor& tensor) {
  if (!tensor.is_cpu()) {
    const DeviceKernels* kernels = device_kernels(tensor.device().type());
    if (tensor.scalar_type() != at::kBool || (kernels == nullptr && !tensor.is_meta())) {
      return {};
    }
    const at::Tensor dense = densely(tensor);
    const at::Tensor bits = bits_of(dense);
    if (kernels != nullptr) kernels->pack_bools(dense, bits);
    return packed_form(dense, bits, 0, 1);
  }
  const at::Tensor dense = densely(tensor);
  const int64_t numel = dense.numel();
  c10::IValue packed;
  with_bits_type(dense.element_size(), [&](auto type) {
    using Bits = decltype(type);
    const auto* elements = static_cast<const Bits*>(dense.const_data_ptr());
    const Bits first = numel > 0 ? elements[0] : Bits{0};
    const auto* other = std::find_if(elements, elements + numel, [&](Bits x) { return x != first; });
    const Bits second = other != elements + numel ? *other : first;
    // Spares almost all others the allocation.
    if (std::any_of(other, std::min(other + 64, elements + numel), [&](Bits x) { return x != first && x != second; })) {
      return false;
    }
    const at::Tensor bits = bits_of(dense);
    const bool two_valued =
        pack_bits(numel, bits.mutable_data_ptr<uint8_t>(), [&](int64_t begin, int64_t end, uint8_t* flags) {
          Bits third = 0;  // no branches: the loops vectorise
          for (int64_t i = begin; i < end; ++i) {
            third |= static_cast<Bits>((elements[i] ^ first) & -static_cast<Bits>(elements[i] != second));
          }
          for (int64_t i = begin; i < end; ++i) flags[i - begin] = static_cast<uint8_t>(elements[i] != first);
          return third == 0;
        });
    if (two_valued) packed = packed_form(dense, bits, first, second);
    return two_valued;
  });
  return packed;
}

c10::IValue pack_positive(const at::Tensor& tensor) {
  const DeviceKernels* kernels = device_kernels(tensor.device().type());
  if ((!tensor.is_cpu() && kernels == nullptr) || !at::isFloatingType(tensor.scalar_type()) ||
      tensor.element_size() == 1) {
    return {};
  }
  const at::Tensor dense = densely(tensor);
  const at::Tensor bits = bits_of(dense);
  if (kernels != nullptr) {
    kernels->pack_positive(dense, bits);
  }
  c10::IValue packed;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, dense.scalar_type(), "pack_positive", [&] {
    using Compute = std::conditional_t<std::is_same_v<scalar_t, double>, double, float>;
    if (dense.is_cpu()) {
      const auto* numbers = dense.const_data_ptr<scalar_t>();
      pack_bits(dense.numel(), bits.mutable_data_ptr<uint8_t>(), [&](int64_t begin, int64_t end, uint8_t* flags) {
        for (int64_t i = begin; i < end; ++i) {
          flags[i - begin] = static_cast<uint8_t>(!(static_cast<Compute>(numbers[i]) <= 0));
        }
        return true;
      });
    }
    uint64_t one = 0;
    const auto value = scalar_t(1);
    std::memcpy(&one, &value, sizeof value);
    packed = packed_form(dense, bits, 0, one);
  });
  return packed;
}

at::Tensor unpack_bits(const c10::IValue& packed) {
  const std::vector<c10::IValue> parts = packed.toTupleRef().elements().vec();
  const at::Tensor tensor = empty_of(parts[0]);
  if (tensor.is_cpu()) {
    with_bits_type(tensor.element_size(), [&](auto type) {
      using Bits = decltype(type);
      unpack_bits_to(tensor.numel(), parts[1].toTensor().const_data_ptr<uint8_t>(), static_cast<Bits>(parts[2].toInt()),
                     static_cast<Bits>(parts[3].toInt()), static_cast<Bits*>(tensor.mutable_data_ptr()));
      return true;
    });
  } else if (const DeviceKernels* kernels = device_kernels(tensor.device().type())) {
    kernels->unpack_bits(parts[1].toTensor(), static_cast<uint64_t>(parts[2].toInt()),
                         static_cast<uint64_t>(parts[3].toInt()), tensor);
  }
  return tensor;
}

}  // namespace ac2::policies::internal
