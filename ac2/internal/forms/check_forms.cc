#include "ac2/internal/forms/check_forms.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <vector>

namespace ac2::internal {

void check_forms(const Forms& forms, const std::string& option) {
  std::vector<std::string> names;
  for (size_t i = 0; i < forms.size(); ++i) {
    TORCH_CHECK(forms[i] != nullptr, option, " has a null pointer as its form ", i,
                "; expected a form (forms::one_bit()).");
    names.push_back(forms[i]->name());
    TORCH_CHECK(std::find(names.begin(), names.end() - 1, names.back()) == names.end() - 1, option, " has the form \"",
                names.back(), "\" twice. Give each form once; what it costs is learned for both together.");
  }
}

}  // namespace ac2::internal
