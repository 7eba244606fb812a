// The bytes in which quantize_ops keeps results are the same on every kind of machine, whatever vector instructions it
// has.
//
// Their checksums stand here, from x86-64. Besides,
//
//   packed_bytes_test --write=FILE    writes the bytes, and what they are unpacked to
//   packed_bytes_test --read=FILE     reads those that another machine wrote: they are the bytes that this one makes,
//   and are
//                                     unpacked to the same bits
//
// tools/aarch64_check.sh does that in both directions. Without --read a file is read that was written here.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "policies/internal/quantize/bit_mask.h"
#include "policies/internal/quantize/quantize.h"
#include "policies/internal/quantize/quantize_block.h"

ABSL_FLAG(std::string, write, "", "where to write what is packed");
ABSL_FLAG(std::string, read, "", "what another machine has written");

namespace ac2::policies::internal {
namespace {

constexpr uint64_t kKey = 0x1234567890abcdefU;
constexpr at::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16};
constexpr int64_t kLengths[] = {1, 255, 256, 1001, 5000};
constexpr int kKinds = 6;

using Bytes = std::vector<uint8_t>;

uint64_t fnv1a(const Bytes& bytes, uint64_t sum = 0xcbf29ce484222325U) {
  for (const uint8_t byte : bytes) sum = (sum ^ byte) * 0x100000001b3U;
  return sum;
}

Bytes bytes_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  const at::Tensor dense = tensor.contiguous();
  const auto* begin = static_cast<const uint8_t*>(dense.const_data_ptr());
  return {begin, begin + dense.nbytes()};
}

// Without a sum of a product, which a compiler might fuse, and without a function of libm: the same on every machine.
double number(int kind, int64_t i) {
  const uint64_t random = mix_64(static_cast<uint64_t>(i) + (static_cast<uint64_t>(kind) << 32U));
  const auto plain = static_cast<double>(static_cast<int64_t>(random >> 40U) - (int64_t{1} << 23)) * 0x1p-21;
  switch (kind) {
    case 0:
      return plain;
    case 1:
      return plain < 0 ? 0 : plain;
    case 2:
      return plain * 0x1p-135;  // of floats, denormal ones among them
    case 3:
      return i % 256 == 100 ? 60000 : plain * 0.1;
    case 4:
      return i == 300 ? std::numeric_limits<double>::infinity() : plain;  // a block that has no codes
    default:
      return 0.3;
  }
}

at::Tensor numbers(int kind, int64_t length, at::ScalarType type) {
  const at::Tensor all = at::empty({length}, at::kDouble);
  for (int64_t i = 0; i < length; ++i) all.mutable_data_ptr<double>()[i] = number(kind, i);
  return all.to(type);
}

// One tensor that is packed in one way.
struct Case {
  std::string name;
  c10::IValue packed;
  bool as_codes;
  std::vector<size_t> stored;  // which parts of `packed` are tensors of bytes

  at::Tensor unpack(const c10::IValue& form) const { return as_codes ? dequantize(form) : unpack_bits(form); }
  at::Tensor part(size_t i) const { return packed.toTupleRef().elements()[i].toTensor(); }
  // The same with other tensors in the place of those.
  c10::IValue with(const std::vector<at::Tensor>& parts) const {
    std::vector<c10::IValue> elements = packed.toTupleRef().elements().vec();
    for (size_t i = 0; i < stored.size(); ++i) elements[stored[i]] = parts[i];
    return c10::ivalue::Tuple::create(std::move(elements));
  }
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (int kind = 0; kind < kKinds; ++kind) {
    for (const int64_t length : kLengths) {
      for (const at::ScalarType type : kTypes) {
        const at::Tensor tensor = numbers(kind, length, type);
        const std::string name = c10::str("kind ", kind, ", ", length, " of ", type);
        for (const int bits : {8, 4}) {
          cases.push_back({c10::str(name, ", ", bits, " bits"), quantize(tensor, bits, kKey), true, {2, 3, 4}});
        }
        cases.push_back({name + ", which are positive", pack_positive(tensor), false, {1}});
        cases.push_back({name + ", of two values", pack_two_valued(tensor.gt(0.5)), false, {1}});
      }
    }
  }
  return cases;
}

uint64_t sum_of_codes(int64_t bits) {
  uint64_t sum = fnv1a({});
  for (const Case& one : all_cases()) {
    if (one.as_codes && one.packed.toTupleRef().elements()[1].toInt() == bits) {
      for (const size_t i : one.stored) sum = fnv1a(bytes_of(one.part(i)), sum);
      sum = fnv1a(bytes_of(one.unpack(one.packed)), sum);
    }
  }
  return sum;
}

uint64_t sum_of_masks() {
  uint64_t sum = fnv1a({});
  for (const Case& one : all_cases()) {
    if (!one.as_codes) sum = fnv1a(bytes_of(one.part(1)), sum);
  }
  return sum;
}

void write(const std::string& path) {
  std::ofstream file(path, std::ios::binary);
  const auto put = [&](const Bytes& bytes) {
    const uint64_t size = bytes.size();
    file.write(reinterpret_cast<const char*>(&size), sizeof size);
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(size));
  };
  for (const Case& one : all_cases()) {
    for (const size_t i : one.stored) put(bytes_of(one.part(i)));
    put(bytes_of(one.unpack(one.packed)));
  }
  file.flush();
  TORCH_CHECK(file.good(), "cannot write ", path);
}

class Reader {
 public:
  explicit Reader(const std::string& path) : file_(path, std::ios::binary) {
    TORCH_CHECK(file_.good(), "cannot read ", path);
  }

  Bytes next() {
    uint64_t size = 0;
    file_.read(reinterpret_cast<char*>(&size), sizeof size);
    TORCH_CHECK(file_.good() && size < (uint64_t{1} << 20), "the file ends early, or was not written by this program");
    Bytes bytes(size);
    file_.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
    TORCH_CHECK(file_.good(), "the file ends early");
    return bytes;
  }

 private:
  std::ifstream file_;
};

void expect_same_as_in(const std::string& path) {
  Reader file(path);
  for (const Case& one : all_cases()) {
    std::vector<at::Tensor> theirs;
    for (const size_t i : one.stored) {
      const Bytes bytes = file.next();
      ASSERT_EQ(bytes_of(one.part(i)), bytes) << one.name << ", part " << i;
      at::Tensor tensor = one.part(i).defined() ? at::empty_like(one.part(i)) : at::Tensor();
      if (!bytes.empty()) std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
      theirs.push_back(tensor);
    }
    ASSERT_EQ(bytes_of(one.unpack(one.with(theirs))), file.next()) << one.name;
  }
}

TEST(PackedBytesTest, CodesAreThoseOfEveryMachine) {
  EXPECT_EQ(sum_of_codes(8), 7305250345169250839U);
  EXPECT_EQ(sum_of_codes(4), 9670248725218592231U);
}

TEST(PackedBytesTest, MasksAreThoseOfEveryMachine) {
  EXPECT_EQ(sum_of_masks(), 14240913998798897024U);
}

TEST(PackedBytesTest, AFileOfThemIsReadToTheSameBits) {
  std::string path = absl::GetFlag(FLAGS_read);
  if (path.empty()) {
    path = ::testing::TempDir() + "packed_bytes_test";
    write(path);
  }
  expect_same_as_in(path);
  if (const std::string to = absl::GetFlag(FLAGS_write); !to.empty()) {
    write(to);
  }
}

}  // namespace
}  // namespace ac2::policies::internal

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  absl::ParseCommandLine(argc, argv);
  return RUN_ALL_TESTS();
}
