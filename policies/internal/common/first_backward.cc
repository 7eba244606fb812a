#include "policies/internal/common/first_backward.h"

#include <c10/util/Exception.h>

#include <set>

#include "ac2/internal/libtorch/after_backward.h"
#include "ac2/internal/libtorch/warn_in_op.h"

namespace ac2::policies::internal {

namespace {

// Whether nobody has said the text in this process.
bool is_news(const std::string& text) {
  static auto* mutex = new ac2::internal::Mutex;
  static auto* said ABSL_PT_GUARDED_BY(*mutex) = new std::set<std::string>;
  const ac2::internal::MutexLock lock(*mutex);
  return said->insert(text).second || c10::WarningUtils::get_warnAlways();
}

}  // namespace

void FirstBackward::region_begins() {
  const ac2::internal::MutexLock lock(mutex_);
  ++open_;
}

void FirstBackward::region_ends() {
  {
    const ac2::internal::MutexLock lock(mutex_);
    if (--open_ > 0 || waits_ || is_over()) {
      return;
    }
    waits_ = true;
  }
  ac2::internal::after_backward([self = shared_from_this()] { return self->tell(); });
}

bool FirstBackward::tell() {
  std::string text;
  {
    const ac2::internal::MutexLock lock(mutex_);
    if (open_ > 0) {
      return false;
    }
    if (is_over()) {
      return true;
    }
    end();
    text = complaint();
  }
  if (!text.empty() && is_news(text)) {
    ac2::internal::warn_in_op(text);
  }
  return true;
}

}  // namespace ac2::policies::internal
