// Trains one GPT and measures every step: time, bytes held for backward, peak.
//
//   gpt::Trainer trainer(text, options, "recompute_all");
//   for (int64_t i = 0; i < options.steps; ++i) std::cout << trainer.step().loss << '\n';
//
// Given the processes of a job, it trains data-parallel: then all of them make the same calls in the same order.
//
// Trainers with equal options and text train equally, bit by bit, whatever their policies are and however their steps
// are interleaved: each has its own model, batches, and state of the default generator.
//
// Threads: one thread, for all trainers of the process: they share the device's default generator and byte counter.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "ac2/scope.h"
#include "examples/data_parallel.h"
#include "examples/device_meter.h"
#include "examples/gpt_model.h"
#include "examples/text_data.h"

namespace gpt {

struct TrainOptions {
  GptOptions model;  // its vocabulary is set from the text
  int64_t batch = 16;
  int64_t steps = 500;
  double learning_rate = 1e-3;
  uint64_t seed = 1;
  // Of a job of several processes, or null. Each process has batches and dropout of its own, the parameters of rank 0,
  // and the mean of all gradients.
  c10::intrusive_ptr<c10d::ProcessGroup> group = {};
  // The device of parameters and batches, which are made on the CPU: they are the same on every device.
  c10::Device device = c10::kCPU;
};

// Throws c10::Error for options that cannot be trained with.
void check_options(const TrainOptions& options);

struct StepResult {
  float loss = 0;  // in a job, the mean over its processes
  double seconds = 0;
  int64_t held_bytes = 0;  // allocated by forward and still held when it has ended, the loss included
  int64_t peak_bytes = 0;  // the most that forward and backward held on top of parameters and optimizer state
  Reduced reduced = {};    // given to all-reduces of gradients
};

class Trainer {
 public:
  // `checkpointing` as checkpointing_by_name() takes it; `text` must outlive the trainer. With RegionSpan::kLoop one
  // region is open from the first step to end_loop(), or the trainer's end, on the thread of that step.
  // Throws c10::Error for an unknown policy or options that do not fit the text.
  Trainer(const TextData& text, TrainOptions options, const std::string& checkpointing,
          RegionSpan span = RegionSpan::kBlock);
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // One batch: forward, backward, update.
  StepResult step();
  // The last batch again (one must have been) under another policy, without an update: leaves no trace in the training.
  StepResult measure(const Checkpointing& checkpointing);
  // Closes the region around all steps, if there is one. A step after it opens another.
  void end_loop() { loop_.reset(); }

  Gpt model() const { return model_; }

 private:
  StepResult forward_backward(const Checkpointing& checkpointing);
  void set_learning_rate();

  TrainOptions options_;
  Checkpointing checkpointing_;
  DeviceMeter memory_;
  at::Tensor generator_state_;
  Gpt model_;
  std::unique_ptr<DataParallel> parallel_;  // in a job
  torch::optim::AdamW optimizer_;
  BatchSampler sampler_;
  Batch batch_;
  int64_t steps_done_ = 0;
  std::unique_ptr<ac2::PolicyScope> loop_;  // with RegionSpan::kLoop
};

}  // namespace gpt
