#include "ac2/internal/libtorch/foreign_memory.h"

#include <c10/core/impl/COW.h>

#include "ac2/internal/libtorch/cpu_deleters.h"
#include "ac2/internal/libtorch/file_mappings.h"

namespace ac2::internal {

namespace {

// A DataPtr that the owner of the memory made for it: from_blob(), from_numpy(), frombuffer(), from_dlpack().
bool is_made_by_program(const c10::DataPtr& data) {
  static const c10::DeleterFnPtr of_function = [] {
    char byte = 0;
    return c10::InefficientStdFunctionContext::makeDataPtr(
               &byte, [](void*) {}, c10::kCPU)
        .get_deleter();
  }();
  return data.get_context() == nullptr || data.get_deleter() == of_function;
}

// An allocator that names the deleter of all its memory did not allocate memory with another deleter: a part of another
// storage, memory sent to another process, or memory that from_blob() was given with an allocator. Memory that has no
// allocator may still come from one, as all tensors that torch::load() reads.
bool is_allocated(c10::StorageImpl& storage, const c10::DataPtr& data) {
  if (is_cpu_deleter(data.get_deleter())) {
    return true;
  }
  if (storage.allocator() == nullptr) {
    const c10::Allocator* usual = c10::GetAllocator(data.device().type());
    return usual != nullptr && usual->raw_deleter() != nullptr && usual->raw_deleter() == data.get_deleter();
  }
  const c10::DeleterFnPtr deleter = storage.allocator()->raw_deleter();
  return deleter == nullptr || deleter == data.get_deleter() || c10::impl::cow::is_cow_data_ptr(data);
}

}  // namespace

bool is_foreign_memory_slow(c10::StorageImpl& storage) {
  const c10::DataPtr& data = storage._mutable_data_ptr_no_checks();
  if (is_allocated(storage, data)) {
    return false;
  }
  return !data.device().is_cpu() || !is_file_that_stays(storage, /*may_be_written=*/is_made_by_program(data));
}

}  // namespace ac2::internal
