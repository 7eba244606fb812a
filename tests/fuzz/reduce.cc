#include "tests/fuzz/reduce.h"

#include <algorithm>
#include <sstream>

namespace ac2::test {

Program reduced(Program program, const std::function<bool(const Program&)>& fails) {
  size_t chunk = std::max<size_t>(program.steps.size() / 2, 1);
  while (true) {
    bool shrank = false;
    for (size_t from = 0; from < program.steps.size();) {
      Program candidate = program;
      const auto begin = candidate.steps.begin() + static_cast<std::ptrdiff_t>(from);
      candidate.steps.erase(begin, begin + static_cast<std::ptrdiff_t>(std::min(chunk, candidate.steps.size() - from)));
      if (fails(candidate)) {
        program = std::move(candidate);
        shrank = true;
      } else {
        from += chunk;
      }
    }
    if (chunk > 1) {
      chunk /= 2;
    } else if (!shrank) {
      return program;
    }
  }
}

std::string as_test(const Program& program, uint32_t input_seed, const Way& way, const std::string& fixture,
                    const std::string& judge) {
  std::ostringstream text;
  text << "TEST_F(" << fixture << ", Program" << input_seed << ") {\n"
       << "  const ProgramFn program = [](const Tensors& in, Regions& regions) -> Tensors {\n"
       << "    std::optional<at::NoGradGuard> no_grad;\n"
       << "    std::optional<Autocast> autocast;\n"
       << "    std::optional<DefaultDtype> default_dtype;\n";
  for (const std::string& line : program.source(inputs_of(input_seed, way.device))) text << "    " << line << "\n";
  text << "  };\n"
       << "  EXPECT_EQ(" << judge << "(program, " << input_seed << ", " << way.source() << ").difference, \"\");\n"
       << "}\n";
  return text.str();
}

}  // namespace ac2::test
