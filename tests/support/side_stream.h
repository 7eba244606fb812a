// Work on another stream than the current one, ordered as programs with streams do it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>
#include <c10/util/ArrayRef.h>

#include <functional>

namespace ac2::test {

// Work queued on `second` from now on begins when the work queued on `first` by now is done.
void order(const c10::Stream& first, const c10::Stream& second);

// The tensor's memory is not free before what the current stream has been given when it is freed is done. Does nothing
// on the CPU.
void use_on_current_stream(const at::Tensor& tensor);

// fn() on `side`, after what the current stream has been given and before what that is given next. `reads` are the
// tensors that it reads.
at::Tensor on_side_stream(const c10::Stream& side, c10::ArrayRef<at::Tensor> reads,
                          const std::function<at::Tensor()>& fn);

}  // namespace ac2::test
