#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
