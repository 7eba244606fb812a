#include <c10/util/Exception.h>

#include <memory>

#include "ac2/form.h"
#include "policies/internal/quantize/quantized.h"

namespace ac2::forms {

FormPtr quantized(int bits, uint64_t seed) {
  TORCH_CHECK(bits == 8 || bits == 4, "forms::quantized was given ", bits,
              " bits; expected 8 or 4. For one bit a number see forms::one_bit, for 16 forms::narrow.");
  return std::make_shared<const policies::internal::Quantized>(bits, policies::internal::mix_64(seed),
                                                               c10::str("quantized ", bits, " bits, seed ", seed));
}

}  // namespace ac2::forms
