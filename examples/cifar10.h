// Pictures in CIFAR-10's binary format: https://www.cs.toronto.edu/~kriz/cifar.html, "Binary version".
//
//   example::Cifar10 data = example::Cifar10::load("cifar-10-batches-bin");
//   example::Pictures batch = data.batch(/*size=*/32, /*seed=*/1);
//
// A record is 3073 bytes: the label, 0 to 9, then 1024 bytes of red, of green and of blue, each row by row from the top
// left. A file is records and nothing else.
// Threads: immutable once loaded.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace example {

inline constexpr int64_t kCifar10Classes = 10;
inline constexpr int64_t kCifar10RecordBytes = 1 + 3 * 32 * 32;

struct Pictures {
  at::Tensor pixels;  // float [batch, 3, 32, 32], about -2 to 2: normalised by the real set's mean and deviation
  at::Tensor labels;  // int64 [batch], 0 to 9
};

class Cifar10 {
 public:
  // A file, or a directory whose data_batch_*.bin are read, as they are in the archive of the real set. Throws
  // c10::Error for what does not exist or cannot be read, for a file that does not end with a whole record, and for a
  // label above 9.
  static Cifar10 load(const std::string& path);

  int64_t size() const { return labels_.numel(); }
  // Drawn at random, with repetition. The same seed gives the same batch on every machine.
  // Throws c10::Error if `size` is less than 1.
  Pictures batch(int64_t size, uint64_t seed) const;

 private:
  Cifar10(at::Tensor pixels, at::Tensor labels);

  at::Tensor pixels_;  // uint8 [size, 3, 32, 32]
  at::Tensor labels_;  // int64 [size]
};

// Writes a file of `pictures` records: stripes, whose direction, width and colour are the class's, in noise. Labels
// take turns. Throws c10::Error if the file cannot be written, or `pictures` is less than 1.
void write_striped_cifar10(const std::string& path, int64_t pictures, uint64_t seed);

}  // namespace example
