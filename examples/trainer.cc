#include "examples/trainer.h"

#include <ATen/Context.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <mutex>
#include <numbers>

namespace gpt {
namespace {

namespace F = torch::nn::functional;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// While one lives, the device's default generator continues from `state`, which then takes over how far it came.
class GeneratorTurn {
 public:
  GeneratorTurn(c10::Device device, at::Tensor& state)
      : state_(state), generator_(at::globalContext().defaultGenerator(device)) {
    const std::lock_guard lock(generator_.mutex());
    generator_.set_state(state_);
  }
  ~GeneratorTurn() {
    const std::lock_guard lock(generator_.mutex());
    state_ = generator_.get_state();
  }
  GeneratorTurn(const GeneratorTurn&) = delete;
  GeneratorTurn& operator=(const GeneratorTurn&) = delete;

 private:
  at::Tensor& state_;
  at::Generator generator_;
};

uint64_t seed_of(const TrainOptions& options) {
  return options.seed + (options.group == nullptr ? 0 : static_cast<uint64_t>(options.group->getRank()));
}

// Fresh weights and the generator right after drawing them.
Gpt initial_model(const TextData& text, TrainOptions& options, at::Tensor& generator_state) {
  options.model.vocabulary = text.vocabulary();
  check_options(options);
  torch::manual_seed(options.seed);
  Gpt model(options.model);
  // Other dropout than the other processes have.
  if (options.group != nullptr) torch::manual_seed(seed_of(options));
  generator_state = at::globalContext().defaultGenerator(options.device).get_state();
  model->to(options.device);
  return model;
}

}  // namespace

void check_options(const TrainOptions& options) {
  check_options(options.model);
  TORCH_CHECK(options.batch > 0, "batch is ", options.batch, "; it must be at least 1.");
  TORCH_CHECK(options.steps > 0, "steps is ", options.steps, "; it must be at least 1.");
  TORCH_CHECK(options.learning_rate > 0 && std::isfinite(options.learning_rate), "lr is ", options.learning_rate,
              "; the learning rate must be a positive number, such as 0.001.");
}

Trainer::Trainer(const TextData& text, TrainOptions options, const std::string& checkpointing, RegionSpan span)
    : options_(options),
      checkpointing_(checkpointing_by_name(checkpointing, options.group != nullptr)),
      memory_(options.device),
      model_(initial_model(text, options_, generator_state_)),
      parallel_(options.group == nullptr ? nullptr
                                         : std::make_unique<DataParallel>(options.group, model_->parameters())),
      optimizer_(model_->parameters(), torch::optim::AdamWOptions(options.learning_rate).betas({0.9, 0.99})),
      sampler_(text, options.batch, options.model.context, seed_of(options)) {
  checkpointing_.span = span;
}

// A tenth of the steps up to the given rate, then half a cosine down to a tenth of it.
void Trainer::set_learning_rate() {
  const auto step = static_cast<double>(steps_done_);
  const double warmup = std::max(1.0, 0.1 * static_cast<double>(options_.steps));
  const double rest = std::max(1.0, static_cast<double>(options_.steps) - warmup);
  const double share = step < warmup ? (step + 1) / warmup
                                     : 0.55 + 0.45 * std::cos(std::numbers::pi * std::min(1.0, (step - warmup) / rest));
  for (auto& group : optimizer_.param_groups()) group.options().set_lr(options_.learning_rate * share);
}

StepResult Trainer::forward_backward(const Checkpointing& checkpointing) {
  const Reduced reduced_before = parallel_ != nullptr ? parallel_->reduced() : Reduced();
  if (parallel_ != nullptr) parallel_->before_forward();
  const int64_t before = memory_.current_bytes();
  memory_.reset_peak();
  at::Tensor loss =
      F::cross_entropy(model_->forward(batch_.tokens, checkpointing).flatten(0, 1), batch_.next_tokens.flatten());
  StepResult result;
  result.held_bytes = memory_.current_bytes() - before;
  if (parallel_ != nullptr) parallel_->before_backward();
  loss.backward();
  result.peak_bytes = memory_.peak_bytes() - before;
  result.loss = loss.item<float>();
  if (parallel_ != nullptr) {
    result.reduced = {.calls = parallel_->reduced().calls - reduced_before.calls,
                      .bytes = parallel_->reduced().bytes - reduced_before.bytes};
    result.loss = parallel_->mean(result.loss);
  }
  return result;
}

StepResult Trainer::step() {
  const GeneratorTurn turn(options_.device, generator_state_);
  batch_ = sampler_.next();
  batch_ = {.tokens = batch_.tokens.to(options_.device), .next_tokens = batch_.next_tokens.to(options_.device)};
  set_learning_rate();
  const auto start = Clock::now();
  std::unique_ptr<ac2::PolicyScope> step_region;
  if (checkpointing_.span == RegionSpan::kStep) step_region = open_region(checkpointing_);
  if (checkpointing_.span == RegionSpan::kLoop && loop_ == nullptr) loop_ = open_region(checkpointing_);
  StepResult result = forward_backward(checkpointing_);
  optimizer_.step();
  optimizer_.zero_grad();
  step_region.reset();
  memory_.synchronize();
  result.seconds = seconds_since(start);
  ++steps_done_;
  return result;
}

StepResult Trainer::measure(const Checkpointing& checkpointing) {
  at::Tensor draws_of_its_own = generator_state_.clone();
  const GeneratorTurn turn(options_.device, draws_of_its_own);
  const auto start = Clock::now();
  const std::unique_ptr<ac2::PolicyScope> region =
      checkpointing.span == RegionSpan::kBlock ? nullptr : open_region(checkpointing);
  StepResult result = forward_backward(checkpointing);
  optimizer_.zero_grad();
  memory_.synchronize();
  result.seconds = seconds_since(start);
  return result;
}

}  // namespace gpt
