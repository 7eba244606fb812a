#include "examples/cifar10.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numbers>
#include <random>
#include <system_error>
#include <utility>
#include <vector>

namespace example {
namespace fs = std::filesystem;

namespace {

constexpr int64_t kSide = 32;

// The files' bytes, one after the other.
void append_file(std::vector<char>& bytes, const fs::path& path) {
  std::error_code error;
  const auto size = static_cast<int64_t>(fs::file_size(path, error));
  TORCH_CHECK(!error, "Cannot read \"", path.string(), "\": ", error.message(),
              ". Pass a file of CIFAR-10's binary version, or a directory with its data_batch_*.bin, as --data.");
  TORCH_CHECK(size > 0 && size % kCifar10RecordBytes == 0, "\"", path.string(), "\" has ", size,
              " bytes, which is not a whole number of records of ", kCifar10RecordBytes, " bytes (",
              size / kCifar10RecordBytes, " records and ", size % kCifar10RecordBytes,
              " bytes): it is truncated, or not of CIFAR-10's binary version (data_batch_1.bin has 30730000 bytes). "
              "Fetch it anew.");
  const size_t before = bytes.size();
  bytes.resize(before + static_cast<size_t>(size));
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  file.read(bytes.data() + before, size);
  TORCH_CHECK(file.gcount() == size, "Read only ", file.gcount(), " of ", size, " bytes of \"", path.string(),
              "\": ", std::strerror(errno), ".");
  for (size_t at = before; at < bytes.size(); at += kCifar10RecordBytes) {
    const int label = static_cast<uint8_t>(bytes[at]);
    TORCH_CHECK(label < kCifar10Classes, "Record ", (at - before) / kCifar10RecordBytes, " of \"", path.string(),
                "\" has the label ", label,
                "; labels are 0 to 9. Is it a file of CIFAR-10's binary version? CIFAR-100's has two labels a record.");
  }
}

std::vector<fs::path> files_of(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  TORCH_CHECK(fs::exists(status), "The data \"", path, "\" does not exist (seen from the directory \"",
              fs::current_path(error).string(),
              "\"). Pass a file of CIFAR-10's binary version, or a directory with its data_batch_*.bin, as --data.");
  if (!fs::is_directory(status)) return {path};
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(path)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("data_batch_") && name.ends_with(".bin")) files.push_back(entry.path());
  }
  TORCH_CHECK(!files.empty(), "The directory \"", path,
              "\" has no data_batch_*.bin. Pass the directory cifar-10-batches-bin of cifar-10-binary.tar.gz as --data "
              "(not the Python version's).");
  // The order of a directory listing differs from machine to machine.
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

Cifar10::Cifar10(at::Tensor pixels, at::Tensor labels) : pixels_(std::move(pixels)), labels_(std::move(labels)) {}

Cifar10 Cifar10::load(const std::string& path) {
  std::vector<char> bytes;
  for (const fs::path& file : files_of(path)) append_file(bytes, file);
  const auto records = static_cast<int64_t>(bytes.size()) / kCifar10RecordBytes;
  const at::Tensor all = at::from_blob(bytes.data(), {records, kCifar10RecordBytes}, at::kByte);
  return Cifar10(all.slice(1, 1).reshape({records, 3, kSide, kSide}).clone(), all.select(1, 0).to(at::kLong));
}

Pictures Cifar10::batch(int64_t size, uint64_t seed) const {
  TORCH_CHECK(size >= 1, "A batch of ", size, " pictures was asked for; it must have 1 or more.");
  std::mt19937_64 random(seed);
  at::Tensor chosen = at::empty({size}, at::kLong);
  int64_t* positions = chosen.mutable_data_ptr<int64_t>();
  // Not std::uniform_int_distribution, whose results differ between standard libraries.
  for (int64_t i = 0; i < size; ++i)
    positions[i] = static_cast<int64_t>(random() % static_cast<uint64_t>(this->size()));
  const at::Tensor mean = at::tensor({0.4914F, 0.4822F, 0.4465F}).view({1, 3, 1, 1});
  const at::Tensor deviation = at::tensor({0.2470F, 0.2435F, 0.2616F}).view({1, 3, 1, 1});
  return {pixels_.index_select(0, chosen).to(at::kFloat).div_(255).sub_(mean).div_(deviation),
          labels_.index_select(0, chosen)};
}

void write_striped_cifar10(const std::string& path, int64_t pictures, uint64_t seed) {
  TORCH_CHECK(pictures >= 1, "A set of ", pictures, " pictures was asked for; it must have 1 or more.");
  std::mt19937_64 random(seed);
  const auto uniform = [&random] { return static_cast<double>(random() >> 11U) * 0x1p-53; };  // 0 to 1
  errno = 0;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  std::array<char, kCifar10RecordBytes> record{};
  for (int64_t i = 0; i < pictures; ++i) {
    const int64_t label = i % kCifar10Classes;
    const double angle = std::numbers::pi * static_cast<double>(label) / kCifar10Classes;
    const double waves = 2 + static_cast<double>(label % 3);
    const double phase = uniform();
    size_t at = 0;
    record[at++] = static_cast<char>(label);
    for (int64_t channel = 0; channel < 3; ++channel) {
      const double height = label % 3 == channel ? 80 : 40;
      for (int64_t y = 0; y < kSide; ++y) {
        for (int64_t x = 0; x < kSide; ++x) {
          const double along =
              (std::cos(angle) * static_cast<double>(x) + std::sin(angle) * static_cast<double>(y)) / kSide;
          const double value =
              128 + height * std::sin(2 * std::numbers::pi * (waves * along + phase)) + 40 * (uniform() - 0.5);
          record[at++] = static_cast<char>(static_cast<uint8_t>(value));
        }
      }
    }
    file.write(record.data(), record.size());
  }
  file.close();
  TORCH_CHECK(file, "Cannot write \"", path, "\": ", std::strerror(errno), ".");
}

}  // namespace example
