// Recurrent layers and cells.
#include "tests/sweep/case.h"

namespace ac2::test::sweep {

namespace {

constexpr Case kCases[] = {
    {"gru",
     [] {
       return Tensors{sample({5, 2, 3}), sample({1, 2, 4}), sample({12, 3}),
                      sample({12, 4}),   sample({12}),      sample({12})};
     },
     [](In t) -> Out {
       return at::gru(t[0], t[1], {t[2], t[3], t[4], t[5]}, true, 1, 0.0, true, false, false);
     }},
    {"gru_cell",
     [] {
       return Tensors{sample({2, 3}), sample({2, 4}), sample({12, 3}), sample({12, 4}), sample({12}), sample({12})};
     },
     [](In t) -> Out { return at::gru_cell(t[0], t[1], t[2], t[3], t[4], t[5]); }},
    {"lstm",
     [] {
       return Tensors{sample({5, 2, 3}), sample({1, 2, 4}), sample({1, 2, 4}), sample({16, 3}),
                      sample({16, 4}),   sample({16}),      sample({16})};
     },
     [](In t) -> Out {
       return at::lstm(t[0], {t[1], t[2]}, {t[3], t[4], t[5], t[6]}, true, 1, 0.0, true, false, false);
     }},
    {"lstm/bidirectional",
     [] {
       return Tensors{sample({5, 2, 3}), sample({2, 2, 4}), sample({2, 2, 4}), sample({16, 3}),
                      sample({16, 4}),   sample({16, 3}),   sample({16, 4})};
     },
     [](In t) -> Out {
       return at::lstm(t[0], {t[1], t[2]}, {t[3], t[4], t[5], t[6]}, false, 1, 0.0, true, true, false);
     }},
    {"lstm/double",
     [] {
       return Tensors{sample({5, 2, 3}, at::kDouble), sample({1, 2, 4}, at::kDouble), sample({1, 2, 4}, at::kDouble),
                      sample({16, 3}, at::kDouble), sample({16, 4}, at::kDouble)};
     },
     [](In t) -> Out {
       return at::lstm(t[0], {t[1], t[2]}, {t[3], t[4]}, false, 1, 0.0, true, false, false);
     }},
    {"lstm/packed",
     [] {
       return Tensors{sample({7, 3}),    integers({3, 2, 2}), sample({1, 3, 4}),
                      sample({1, 3, 4}), sample({16, 3}),     sample({16, 4})};
     },
     [](In t) -> Out {
       return at::lstm(t[0], t[1], {t[2], t[3]}, {t[4], t[5]}, false, 1, 0.0, true, false);
     }},
    {"lstm_cell",
     [] {
       return Tensors{sample({2, 3}),  sample({2, 4}), sample({2, 4}), sample({16, 3}),
                      sample({16, 4}), sample({16}),   sample({16})};
     },
     [](In t) -> Out {
       return at::lstm_cell(t[0], {t[1], t[2]}, t[3], t[4], t[5], t[6]);
     }},
    {"rnn_relu",
     [] {
       return Tensors{sample({2, 5, 3}), sample({1, 2, 4}), sample({4, 3}), sample({4, 4})};
     },
     [](In t) -> Out {
       return at::rnn_relu(t[0], t[1], {t[2], t[3]}, false, 1, 0.0, true, false, true);
     }},
    {"rnn_relu_cell",
     [] {
       return Tensors{sample({2, 3}), sample({2, 4}), sample({4, 3}), sample({4, 4}), sample({4}), sample({4})};
     },
     [](In t) -> Out { return at::rnn_relu_cell(t[0], t[1], t[2], t[3], t[4], t[5]); }},
    {"rnn_tanh",
     [] {
       return Tensors{sample({5, 2, 3}), sample({1, 2, 4}), sample({4, 3}), sample({4, 4})};
     },
     [](In t) -> Out {
       return at::rnn_tanh(t[0], t[1], {t[2], t[3]}, false, 1, 0.0, true, false, false);
     }},
    {"rnn_tanh/two_layers",
     [] {
       return Tensors{sample({5, 2, 3}), sample({2, 2, 4}), sample({4, 3}),
                      sample({4, 4}),    sample({4, 4}),    sample({4, 4})};
     },
     [](In t) -> Out {
       return at::rnn_tanh(t[0], t[1], {t[2], t[3], t[4], t[5]}, false, 2, 0.3, true, false, false);
     }},
    {"rnn_tanh_cell",
     [] {
       return Tensors{sample({2, 3}), sample({2, 4}), sample({4, 3}), sample({4, 4}), sample({4}), sample({4})};
     },
     [](In t) -> Out { return at::rnn_tanh_cell(t[0], t[1], t[2], t[3], t[4], t[5]); }},
};

}  // namespace

std::span<const Case> recurrent_cases() {
  return kCases;
}

}  // namespace ac2::test::sweep
