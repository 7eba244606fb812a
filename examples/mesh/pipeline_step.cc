#include "examples/mesh/pipeline_step.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "ac2/testing/counting_allocator.h"
#include "examples/mesh/backward_later.h"
#include "examples/mesh/meta_memory.h"
#include "examples/mesh/pipeline_schedule.h"

namespace gpt {

namespace {

using Neighbour = Communicator::Neighbour;

struct TensorBytes {
  explicit TensorBytes(c10::Device device) : meta(device.is_meta()) {}
  int64_t now() const { return meta ? MetaMemory::install().current_bytes() : cpu().current_bytes(); }
  int64_t peak() const { return meta ? MetaMemory::install().peak_bytes() : cpu().peak_bytes(); }
  void reset_peak() const { meta ? MetaMemory::install().reset_peak() : cpu().reset_peak(); }
  static ac2::testing::CountingAllocator& cpu() { return ac2::testing::CountingAllocator::install(); }

  bool meta;
};

// A micro-batch between its forward and its backward.
struct Waiting {
  at::Tensor input;
  std::optional<BackwardLater> backward;
  Traces traces;
};

class Step {
 public:
  Step(Stage& stage, const StepOptions& options)
      : stage_(stage), options_(options), pipeline_(stage.groups().pipeline), bytes_(stage.options().device) {}

  void run(StepFigures& figures) {
    const int64_t before = bytes_.now();
    bytes_.reset_peak();
    const MeshGroups& groups = stage_.groups();
    figures.in_flight = most_in_flight(groups.mesh.pipeline, groups.place.pipeline, options_.micro_batches);
    for (const MicroBatchTurn& turn :
         turns_of_stage(groups.mesh.pipeline, groups.place.pipeline, options_.micro_batches)) {
      if (!turn.is_forward) {
        backward(figures);
        continue;
      }
      const Traffic tensor = groups.tensor.traffic(), context = groups.context.traffic();
      forward(turn.micro_batch);
      figures.tensor_in_forward += groups.tensor.traffic() - tensor;
      figures.context_in_forward += groups.context.traffic() - context;
      if (turn.micro_batch + 1 == figures.in_flight) {
        figures.held_bytes = bytes_.now() - before;
        for (const Waiting& waiting : waiting_) {
          for (const auto& trace : waiting.traces) figures.saved_bytes += trace->stats().saved_bytes;
        }
      }
    }
    pipeline_.flush();
    figures.peak_bytes = bytes_.peak() - before;
    figures.loss = loss_;
  }

 private:
  // The part here of sequences that are the same in each process with the same place on the data axis.
  std::pair<at::Tensor, at::Tensor> words(int64_t micro_batch) const {
    const auto options = at::TensorOptions().device(stage_.options().device).dtype(at::kLong);
    const std::vector<int64_t> own = {stage_.own_tokens(), options_.batch};
    if (bytes_.meta) return {at::empty(own, options), at::empty(own, options)};
    const std::vector<int64_t> sizes = {stage_.model().context, options_.batch};
    const auto seed = static_cast<uint64_t>(stage_.groups().place.data * options_.micro_batches + micro_batch);
    const at::Generator generator = at::detail::createCPUGenerator(seed);
    const auto draw = [&] {
      const at::Tensor words = at::randint(stage_.model().vocabulary, sizes, generator, options);
      return own == sizes ? words : words.narrow(0, stage_.first_token(), own[0]).clone();
    };
    const at::Tensor tokens = draw();
    return {tokens, draw()};
  }

  void forward(int64_t micro_batch) {
    Waiting waiting;
    at::Tensor targets;
    {
      at::Tensor tokens;
      if (stage_.is_first() || stage_.is_last()) std::tie(tokens, targets) = words(micro_batch);
      if (!stage_.is_last()) targets.reset();
      waiting.input =
          stage_.is_first()
              ? tokens
              : pipeline_.receive(stage_.hidden_sizes(options_.batch), stage_.hidden_options(), Neighbour::kBefore)
                    .requires_grad_();
    }
    at::Tensor output = forward_in_regions(stage_, waiting.input, targets, options_.regions, &waiting.traces);
    if (stage_.is_last()) {
      output = output / static_cast<double>(options_.micro_batches);
      if (!bytes_.meta) loss_ += output.item<double>();
    } else {
      pipeline_.send(output, Neighbour::kAfter);
    }
    waiting.backward.emplace(output);
    waiting_.push_back(std::move(waiting));
  }

  void backward(StepFigures& figures) {
    Waiting waiting = std::move(waiting_.front());
    waiting_.pop_front();
    const BackwardLater& backward = *waiting.backward;
    backward.run(stage_.is_last() ? at::ones(backward.sizes(), backward.options())
                                  : pipeline_.receive(backward.sizes(), backward.options(), Neighbour::kAfter));
    if (!stage_.is_first()) pipeline_.send(waiting.input.grad(), Neighbour::kBefore);
    for (const auto& trace : waiting.traces) {
      figures.replayed_ops += trace->stats().recomputed_ops;
      figures.evicted_values += trace->stats().evicted_values;
    }
  }

  Stage& stage_;
  const StepOptions& options_;
  Communicator& pipeline_;
  TensorBytes bytes_;
  std::deque<Waiting> waiting_;
  double loss_ = 0;
};

}  // namespace

StepFigures run_step(Stage& stage, MeshOptimizer& optimizer, const StepOptions& options) {
  TORCH_CHECK(options.micro_batches > 0 && options.batch > 0, "A step has ", options.micro_batches,
              " micro-batches of ", options.batch, " sequences; expected 1 or more of each.");
  MeshGroups& groups = stage.groups();
  const Traffic tensor = groups.tensor.traffic(), context = groups.context.traffic(),
                pipeline = groups.pipeline.traffic(), replicas = groups.replicas.traffic();
  StepFigures figures;
  Step(stage, options).run(figures);
  const TensorBytes bytes(stage.options().device);
  const int64_t before = bytes.now();
  const Traffic until_optimizer = groups.tensor.traffic();
  bytes.reset_peak();
  optimizer.step();
  figures.optimizer_peak_bytes = bytes.peak() - before;
  figures.tensor_in_optimizer = groups.tensor.traffic() - until_optimizer;
  figures.tensor = groups.tensor.traffic() - tensor;
  figures.context = groups.context.traffic() - context;
  figures.pipeline = groups.pipeline.traffic() - pipeline;
  figures.replicas = groups.replicas.traffic() - replicas;
  return figures;
}

}  // namespace gpt
