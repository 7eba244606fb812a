// The one function of libac2_auto.so that libac2_preload.so calls, when LibTorch is there.
#include "ac2/internal/automatic/own_regions.h"

extern "C" __attribute__((visibility("default"))) void ac2_start_own_regions() {
  ac2::internal::start_own_regions();
}
