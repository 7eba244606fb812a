// The ready-made forms that pack, by their names: those of ac2::forms, which //policies defines.
//
// Threads: any.
#pragma once

#include <string>
#include <string_view>

#include "ac2/form.h"

namespace ac2::internal {

// The form of this name (Form::name()), such as "quantized 8 bits, seed 0"; null if there is none, or if the program
// does not link //policies.
FormPtr ready_made_form(const std::string& name);

// The forms of a list as a command line has it: "one_bit,file:/scratch,quantized:8,narrow:bfloat16,host_memory". Throws
// c10::Error for a form that is none, which names `option`, and what making one throws.
Forms forms_of_list(std::string_view list, const std::string& option);

}  // namespace ac2::internal
