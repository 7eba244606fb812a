// Modules of torch::nn: recurrent layers, attention, embeddings, losses.
#include "tests/sweep/modules.h"

namespace ac2::test::sweep {

namespace {

namespace nn = torch::nn;

constexpr Case kCases[] = {
    {"nn::BCELoss",
     [] {
       return Tensors{leaf(constant({4, 6}).sigmoid()), constant({4, 6}).sigmoid()};
     },
     [](In t) -> Out { return call_two<nn::BCELoss>(t); }},
    {"nn::AdaptiveLogSoftmaxWithLoss",
     [] {
       return Tensors{sample({4, 32}), integers({0, 3, 7, 5})};
     },
     [](In t) -> Out {
       auto m = built<nn::AdaptiveLogSoftmaxWithLoss>(nn::AdaptiveLogSoftmaxWithLossOptions(32, 9, {3, 6}));
       return trained(*m, {m->forward(t[0], t[1]).output});
     },
     kHeldWithoutGradients},
    {"nn::BCEWithLogitsLoss",
     [] {
       return Tensors{sample({4, 6}), constant({4, 6}).sigmoid()};
     },
     [](In t) -> Out { return call_two<nn::BCEWithLogitsLoss>(t); }},
    {"nn::CTCLoss",
     [] {
       return Tensors{sample({12, 2, 5}), integers({1, 2, 3, 2, 4, 1}, {2, 3}), integers({12, 10}), integers({3, 2})};
     },
     [](In t) -> Out {
       auto m = built<nn::CTCLoss>();
       return m->forward(t[0].log_softmax(2), t[1], t[2], t[3]);
     },
     kNoSecondDerivative},
    {"nn::CosineEmbeddingLoss",
     [] {
       return Tensors{sample({4, 6}), sample({4, 6}), integers({1, -1, 1, -1})};
     },
     [](In t) -> Out {
       auto m = built<nn::CosineEmbeddingLoss>();
       return m->forward(t[0], t[1], t[2]);
     }},
    {"nn::CosineSimilarity", two, [](In t) -> Out { return call_two<nn::CosineSimilarity>(t); }},
    {"nn::CrossEntropyLoss",
     [] {
       return Tensors{sample({4, 6}), integers({1, 0, 5, 3})};
     },
     [](In t) -> Out { return call_two<nn::CrossEntropyLoss>(t, nn::CrossEntropyLossOptions().label_smoothing(0.1)); }},
    {"nn::Embedding",
     [] {
       return Tensors{integers({1, 4, 1, 0})};
     },
     [](In t) -> Out { return call<nn::Embedding>(t, nn::EmbeddingOptions(6, 3).padding_idx(0)); }},
    {"nn::Embedding/max_norm",
     [] {
       return Tensors{integers({1, 4, 1, 0})};
     },
     [](In t) -> Out { return call<nn::Embedding>(t, nn::EmbeddingOptions(6, 3).max_norm(1.0)); }},
    {"nn::EmbeddingBag",
     [] {
       return Tensors{integers({1, 4, 1, 0}), integers({0, 3})};
     },
     [](In t) -> Out { return call_two<nn::EmbeddingBag>(t, nn::EmbeddingBagOptions(6, 3).mode(torch::kMean)); },
     kNoSecondDerivative},
    {"nn::GRU",
     [] {
       return Tensors{sample({5, 2, 3}), sample({2, 2, 4})};
     },
     [](In t) -> Out {
       auto m = built<nn::GRU>(nn::GRUOptions(3, 4).num_layers(2).dropout(0.3));
       auto [y, state] = m->forward(t[0], t[1]);
       return trained(*m, {y, state});
     }},
    {"nn::GRUCell",
     [] {
       return Tensors{sample({2, 3}), sample({2, 4})};
     },
     [](In t) -> Out { return call_two<nn::GRUCell>(t, 3, 4); }},
    {"nn::HuberLoss", two, [](In t) -> Out { return call_two<nn::HuberLoss>(t); }},
    {"nn::KLDivLoss",
     [] {
       return Tensors{sample({4, 6}), constant({4, 6}).softmax(1)};
     },
     [](In t) -> Out {
       auto m = built<nn::KLDivLoss>(nn::KLDivLossOptions().reduction(torch::kBatchMean));
       return m->forward(t[0].log_softmax(1), t[1]);
     }},
    {"nn::L1Loss", two, [](In t) -> Out { return call_two<nn::L1Loss>(t); }},
    {"nn::LSTM",
     [] {
       return Tensors{sample({5, 2, 3})};
     },
     [](In t) -> Out {
       auto m = built<nn::LSTM>(nn::LSTMOptions(3, 4).num_layers(2).bidirectional(true).dropout(0.3));
       auto [y, state] = m->forward(t[0]);
       return trained(*m, {y, std::get<0>(state), std::get<1>(state)});
     }},
    {"nn::LSTM/projection",
     [] {
       return Tensors{sample({5, 2, 3})};
     },
     [](In t) -> Out {
       auto m = built<nn::LSTM>(nn::LSTMOptions(3, 4).proj_size(2));
       auto [y, state] = m->forward(t[0]);
       return trained(*m, {y, std::get<0>(state), std::get<1>(state)});
     }},
    {"nn::LSTMCell",
     [] {
       return Tensors{sample({2, 3})};
     },
     [](In t) -> Out {
       auto m = built<nn::LSTMCell>(3, 4);
       auto [h, c] = m->forward(t[0]);
       return trained(*m, {h, c});
     }},
    {"nn::MarginRankingLoss",
     [] {
       return Tensors{sample({4, 6}), sample({4, 6}), constant({4, 6}).sign()};
     },
     [](In t) -> Out {
       auto m = built<nn::MarginRankingLoss>();
       return m->forward(t[0], t[1], t[2]);
     }},
    {"nn::MSELoss", two, [](In t) -> Out { return call_two<nn::MSELoss>(t); }},
    {"nn::MultiLabelSoftMarginLoss",
     [] {
       return Tensors{sample({4, 6}), (constant({4, 6}) > 0).to(at::kFloat)};
     },
     [](In t) -> Out { return call_two<nn::MultiLabelSoftMarginLoss>(t); }},
    {"nn::MultiMarginLoss",
     [] {
       return Tensors{sample({4, 6}), integers({1, 0, 5, 3})};
     },
     [](In t) -> Out { return call_two<nn::MultiMarginLoss>(t); }, kNoSecondDerivative},
    {"nn::MultiheadAttention",
     [] {
       return Tensors{sample({4, 2, 8})};
     },
     [](In t) -> Out {
       auto m = built<nn::MultiheadAttention>(nn::MultiheadAttentionOptions(8, 2).dropout(0.2));
       auto [y, weights] = m->forward(t[0], t[0], t[0]);
       return trained(*m, {y, weights});
     }},
    {"nn::NLLLoss",
     [] {
       return Tensors{sample({4, 6}), integers({1, 0, 5, 3})};
     },
     [](In t) -> Out { return call_two<nn::NLLLoss>(t); }},
    {"nn::PairwiseDistance", two, [](In t) -> Out { return call_two<nn::PairwiseDistance>(t); }},
    {"nn::PoissonNLLLoss",
     [] {
       return Tensors{sample({4, 6}), constant({4, 6}).abs().round()};
     },
     [](In t) -> Out { return call_two<nn::PoissonNLLLoss>(t); }},
    {"nn::RNN",
     [] {
       return Tensors{sample({5, 2, 3}), sample({1, 2, 4})};
     },
     [](In t) -> Out {
       auto m = built<nn::RNN>(nn::RNNOptions(3, 4).nonlinearity(torch::kReLU));
       auto [y, state] = m->forward(t[0], t[1]);
       return trained(*m, {y, state});
     }},
    {"nn::RNNCell",
     [] {
       return Tensors{sample({2, 3}), sample({2, 4})};
     },
     [](In t) -> Out { return call_two<nn::RNNCell>(t, 3, 4); }},
    {"nn::SmoothL1Loss", two, [](In t) -> Out { return call_two<nn::SmoothL1Loss>(t); }},
    {"nn::SoftMarginLoss",
     [] {
       return Tensors{sample({4, 6}), constant({4, 6}).sign()};
     },
     [](In t) -> Out { return call_two<nn::SoftMarginLoss>(t); }},
    {"nn::TransformerDecoderLayer",
     [] {
       return Tensors{sample({4, 2, 8}), sample({5, 2, 8})};
     },
     [](In t) -> Out {
       auto m = built<nn::TransformerDecoderLayer>(
           nn::TransformerDecoderLayerOptions(8, 2).dim_feedforward(16).dropout(0.1));
       return trained(*m, {m->forward(t[0], t[1])});
     }},
    {"nn::TransformerEncoderLayer",
     [] {
       return Tensors{sample({4, 2, 8})};
     },
     [](In t) -> Out {
       auto m = built<nn::TransformerEncoderLayer>(
           nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16).dropout(0.1));
       return trained(*m, {m->forward(t[0])});
     }},
    {"nn::TripletMarginLoss", three,
     [](In t) -> Out {
       auto m = built<nn::TripletMarginLoss>();
       return m->forward(t[0], t[1], t[2]);
     }},
    {"nn::TripletMarginWithDistanceLoss", three,
     [](In t) -> Out {
       auto m = built<nn::TripletMarginWithDistanceLoss>();
       return m->forward(t[0], t[1], t[2]);
     }},
};

}  // namespace

std::span<const Case> layer_cases() {
  return kCases;
}

}  // namespace ac2::test::sweep
