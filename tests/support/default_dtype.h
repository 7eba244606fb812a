// Another default dtype, while one lives. It is the process's, not a thread's.
#pragma once

#include <c10/core/DefaultDtype.h>
#include <c10/core/ScalarTypeToTypeMeta.h>

namespace ac2::test {

class DefaultDtype {
 public:
  explicit DefaultDtype(c10::ScalarType type) : before_(c10::get_default_dtype()) {
    c10::set_default_dtype(c10::scalarTypeToTypeMeta(type));
  }
  ~DefaultDtype() { c10::set_default_dtype(before_); }
  DefaultDtype(const DefaultDtype&) = delete;
  DefaultDtype& operator=(const DefaultDtype&) = delete;

 private:
  const caffe2::TypeMeta before_;
};

}  // namespace ac2::test
