// Errors of Python's that say that memory ran out, told to the library.
#pragma once

namespace ac2::python {

// From now on internal::is_out_of_memory() knows MemoryError, torch.OutOfMemoryError and what LibTorch's CPU allocator
// raises, where a function of the program's has raised it. To be called once. Needs the GIL.
void recognise_memory_errors();

}  // namespace ac2::python
