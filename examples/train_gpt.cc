// Trains a small GPT, character by character, on a text, with activation checkpointing.
//
//   train_gpt                                  120 steps on the C++ headers of LibTorch
//   train_gpt --steps=1200                     more of them
//   train_gpt --text=book.txt --layers=8       on your own text
//   train_gpt --policy=save_compute_intensive  saves matrix products and attention, recomputes the rest
//   train_gpt --memory_budget=2MiB             keeps what fits into so many bytes, recomputes the rest
//   train_gpt --memory_budget=auto             keeps what fits into the machine's memory
//   train_gpt --policy=quantize8               saves everything in 8 bits a number, and trains without beside it
//   train_gpt --policy=spill:/scratch          saves everything in files
//   train_gpt --compare                        every policy side by side: time, memory, the same losses
//   train_gpt --region=loop                    one region around all steps instead of one around each block
//   train_gpt --processes=2                    data-parallel: each process has its own batches, gradients are means
//   train_gpt --device=cuda                    on a GPU, in a build for CUDA; a GPU a process with --processes
//   train_gpt --report=out.html                a page about what the regions of one step held and recomputed
//
// On several machines torchrun starts the processes: torchrun --no-python --nnodes=2 --nproc-per-node=8 … train_gpt.
// Bytes are counted exactly: on the CPU by an allocator beneath LibTorch's tensors, on a GPU by LibTorch's own.
#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <absl/flags/flag.h>
#include <absl/flags/parse.h>
#include <absl/flags/usage.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ac2/ac2.h"
#include "ac2/testing/run_ranks.h"
#include "examples/checkpointing.h"
#include "examples/compare.h"
#include "examples/device_meter.h"
#include "examples/generate.h"
#include "examples/job.h"
#include "examples/loss_curve.h"
#include "examples/passive_threads.h"
#include "examples/progress.h"
#include "examples/table.h"
#include "examples/text_data.h"
#include "examples/trainer.h"

ABSL_FLAG(std::string, text, "",
          "what to train on: a file, or a directory with .h files; default: LibTorch's C++ headers");
ABSL_FLAG(std::string, policy, "recompute_all",
          "none, or the name of a policy without parameters: recompute_all, save_compute_intensive, memory, speed …; "
          "quantize8, quantize4, bfloat16 or float8, beside which the same steps are trained without; spill:DIRECTORY; "
          "offload or offload_inputs, on an accelerator");
ABSL_FLAG(std::vector<std::string>, memory_budget, {},
          "bytes that may be held for backward, such as 2MiB, or auto for whatever fits into the machine's memory, in "
          "place of a policy; with --compare, a list of them");
ABSL_FLAG(std::string, region, "block", "what one region lies around: block, step or loop (all steps)");
ABSL_FLAG(bool, compare, false, "train the same steps under every policy and print one table");
ABSL_FLAG(std::string, device, "cpu", "where to train: cpu, or cuda in a build for it (bazel run --config=cuda)");
ABSL_FLAG(std::string, report, "", "write a page about one step's regions to this file");
ABSL_FLAG(std::optional<int64_t>, steps, std::nullopt, "training steps; default: 120, or 30 with --compare");
ABSL_FLAG(int64_t, layers, 4, "Transformer blocks");
ABSL_FLAG(int64_t, dim, 128, "channels");
ABSL_FLAG(int64_t, heads, 4, "attention heads; must divide dim");
ABSL_FLAG(int64_t, context, 128, "characters seen at once");
ABSL_FLAG(int64_t, batch, 8, "excerpts per step");
ABSL_FLAG(double, dropout, 0.05, "share of values set to zero, 0 to 1");
ABSL_FLAG(double, lr, 3e-3, "learning rate after warm-up");
ABSL_FLAG(int64_t, threads, 0, "threads of LibTorch; 0: its own choice, one per core, shared by --processes");
ABSL_FLAG(std::optional<int32_t>, processes, std::nullopt,
          "processes that train together on this machine, data-parallel; default: 1, or the job that torchrun started");
ABSL_FLAG(uint64_t, seed, 1, "of weights, batches, dropout and the sample");
ABSL_FLAG(std::string, prompt, "", "what the sample begins with; default: the text's first line");
ABSL_FLAG(int64_t, sample, 400, "characters to write at the end");

namespace gpt {
namespace {

constexpr int64_t kDefaultSteps = 120;
constexpr int64_t kDefaultCompareSteps = 30;
constexpr double kTemperature = 0.8;

TrainOptions options_from_flags() {
  const int64_t default_steps = absl::GetFlag(FLAGS_compare) ? kDefaultCompareSteps : kDefaultSteps;
  TrainOptions options{
      .model = {.context = absl::GetFlag(FLAGS_context),
                .layers = absl::GetFlag(FLAGS_layers),
                .dim = absl::GetFlag(FLAGS_dim),
                .heads = absl::GetFlag(FLAGS_heads),
                .dropout = absl::GetFlag(FLAGS_dropout)},
      .batch = absl::GetFlag(FLAGS_batch),
      .steps = absl::GetFlag(FLAGS_steps).value_or(default_steps),
      .learning_rate = absl::GetFlag(FLAGS_lr),
      .seed = absl::GetFlag(FLAGS_seed),
  };
  check_options(options);
  const int64_t sample = absl::GetFlag(FLAGS_sample);
  TORCH_CHECK(sample >= 0, "sample is ", sample, "; it must be 0 (no sample) or more.");
  const int64_t threads = absl::GetFlag(FLAGS_threads);
  TORCH_CHECK(threads >= 0, "threads is ", threads, "; it must be 0 (LibTorch's choice) or more.");
  return options;
}

// The one that is trained with.
std::string policy_from_flags() {
  const std::vector<std::string> budgets = absl::GetFlag(FLAGS_memory_budget);
  TORCH_CHECK(budgets.size() <= 1, "memory_budget is a list of ", budgets.size(),
              " budgets; one can be trained with. Add --compare to train with each of them.");
  return budgets.empty() ? absl::GetFlag(FLAGS_policy) : budgets[0];
}

TextData load_text() {
  std::string path = absl::GetFlag(FLAGS_text);
  if (path.empty()) path = AC2_LIBTORCH_INCLUDE "/torch/csrc/api/include";
  TextData text = TextData::load(path);
  std::cout << "Text: " << path << ", " << text.size() << " bytes, " << text.vocabulary() << " different characters\n";
  return text;
}

std::string first_line(const TextData& text, int64_t most) {
  return std::string(text.text().substr(0, std::min(text.text().find('\n'), static_cast<size_t>(most - 1)) + 1));
}

RegionSpan span_from_flags() {
  const RegionSpan span = span_by_name(absl::GetFlag(FLAGS_region));
  TORCH_CHECK(
      span == RegionSpan::kBlock || !absl::GetFlag(FLAGS_compare), "--region=", absl::GetFlag(FLAGS_region),
      " is about one policy, and --compare trains under all of them in turn. Give --policy instead of --compare.");
  return span;
}

Checkpointing checkpointing_of(const std::string& policy, RegionSpan span, const TrainOptions& options) {
  Checkpointing checkpointing = checkpointing_by_name(policy, options.group != nullptr);
  checkpointing.span = span;
  return checkpointing;
}

void print_memory(const std::string& policy, RegionSpan span, const TrainOptions& options, Trainer& trainer) {
  std::cout << "\nMeasured on the last batch, under this policy and without checkpointing:\n\n";
  std::vector<std::vector<std::string>> rows;
  for (const std::string& name : {policy, std::string("none")}) {
    const StepResult measured = trainer.measure(checkpointing_of(name, span, options));
    rows.push_back({name, mebibytes(measured.held_bytes), mebibytes(measured.peak_bytes), exact(measured.loss)});
    if (policy == "none") break;
  }
  print_table(std::cout, {"policy", "held for backward", "peak", "loss"}, rows);
}

void check_report() {
  const std::string path = absl::GetFlag(FLAGS_report);
  if (path.empty()) return;
  TORCH_CHECK(!absl::GetFlag(FLAGS_compare), "--report=", path,
              " is about one policy, and --compare runs all of them. Give --policy instead of --compare.");
  TORCH_CHECK(policy_from_flags() != "none", "--report=", path,
              " is about regions, and --policy=none opens none. Choose another policy.");
}

bool is_first(const TrainOptions& options) {
  return options.group == nullptr || options.group->getRank() == 0;
}

// All processes of a job measure, and the first one writes.
void write_report(const std::string& path, const std::string& policy, RegionSpan span, const TrainOptions& options,
                  Trainer& trainer) {
  Traces traces;
  Checkpointing checkpointing = checkpointing_of(policy, span, options);
  checkpointing.traces = &traces;
  trainer.measure(checkpointing);
  if (is_first(options)) ac2::write_report(traces, path);
}

void train(const TextData& text, const TrainOptions& options) {
  const std::string policy = policy_from_flags();
  const RegionSpan span = span_from_flags();
  Trainer trainer(text, options, policy, span);
  // Before two minutes of training, not after.
  std::string prompt = absl::GetFlag(FLAGS_prompt);
  if (prompt.empty()) prompt = first_line(text, options.model.context);
  text.encode(prompt);

  int64_t parameters = 0;
  for (const auto& parameter : trainer.model()->parameters()) parameters += parameter.numel();
  std::cout << "Model: " << options.model.layers << " layers, " << options.model.dim << " channels, " << parameters
            << " parameters; policy " << policy;
  if (!options.device.is_cpu()) std::cout << "; on " << options.device;
  if (options.group != nullptr) {
    std::cout << "; " << options.group->getSize() << " processes, which exchange gradients by "
              << options.group->getBackend(options.device.type())->getBackendName();
  }
  std::cout << '\n';

  // With other gradients than without the policy: the same steps without it, to see what that comes to.
  std::unique_ptr<Trainer> without;
  if (!checkpointing_by_name(policy).exact) without = std::make_unique<Trainer>(text, options, "none");
  std::vector<LossPair> losses;
  StepResult last;
  std::vector<double> seconds;
  Progress progress(std::cout, options.steps, isatty(STDOUT_FILENO) != 0);
  const std::string report = absl::GetFlag(FLAGS_report);
  const auto tokens = static_cast<double>(options.batch * options.model.context);
  for (int64_t done = 1; done <= options.steps; ++done) {
    const StepResult step = trainer.step();
    last = step;
    seconds.push_back(step.seconds);
    // Of the first, so that a file that cannot be written is known now.
    if (done == 1 && !report.empty()) {
      trainer.end_loop();
      write_report(report, policy, span, options, trainer);
    }
    std::string shown = "loss " + fixed(step.loss, 3);
    if (without != nullptr) {
      losses.push_back({step.loss, without->step().loss});
      shown += " (none: " + fixed(losses.back().none, 3) + ")";
    }
    progress.update(done, shown + "  " + fixed(tokens / step.seconds, 0) + " tokens/s");
  }
  if (without != nullptr) print_losses(std::cout, policy, losses);
  trainer.end_loop();
  print_memory(policy, span, options, trainer);
  std::cout << "\nThe last step, under this policy: " << mebibytes(last.held_bytes) << " held for backward, peak "
            << mebibytes(last.peak_bytes) << ". A step took " << fixed(1e3 * quantile(seconds, 0.5), 2)
            << " ms (median).\n";
  if (options.group != nullptr) {
    std::cout << "Gradients that each process gave to all-reduces in a step: " << mebibytes(last.reduced.bytes)
              << ", in " << last.reduced.calls << " buckets.\n";
  }
  if (!report.empty()) std::cout << "\nWhat the regions of the first step did: " << report << '\n';
  const int64_t length = absl::GetFlag(FLAGS_sample);
  if (length == 0 || !is_first(options)) return;
  std::cout << "\nWhat the model writes after its prompt:\n\n"
            << printable(generate(trainer.model(), text, prompt, length, kTemperature, options.seed)) << '\n';
}

bool compare(const TextData& text, const TrainOptions& options) {
  Progress progress(std::cout, options.steps, isatty(STDOUT_FILENO) != 0);
  std::vector<std::string> names = policy_names();
  const std::vector<std::string> budgets = absl::GetFlag(FLAGS_memory_budget);
  names.insert(names.end(), budgets.begin(), budgets.end());
  const auto compared =
      compare_policies(text, options, names, [&](int64_t done) { progress.update(done, "under every policy"); });
  std::cout << '\n';
  return print_comparison(std::cout, compared);
}

// Counts the bytes of every tensor from now on. Throws c10::Error if the program or the machine has no such device.
void use_device(c10::Device device) {
  const DeviceMeter there(device);
  if (device.is_cpu()) return;
  if (device.has_index()) at::accelerator::setDeviceIndex(device.index());
  // Kernels that add in no fixed order would make two equal trainings differ. CUDA's matrix products are among them
  // unless this variable is set.
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  at::globalContext().setDeterministicFillUninitializedMemory(false);
  // The first product of a thread allocates a workspace that stays. Without this one, which runs on autograd's thread
  // too, the first policy of a comparison would be said to hold it.
  const at::Tensor warm = at::ones({8, 8}, at::TensorOptions(device)).requires_grad_();
  at::mm(warm, warm).sum().backward();
}

// The processes of a job share the machine's cores.
void set_threads(const std::optional<Job>& job) {
  int64_t threads = absl::GetFlag(FLAGS_threads);
  if (threads == 0 && job && job->ranks_here > 1) {
    threads = std::max<int64_t>(1, std::thread::hardware_concurrency() / job->ranks_here);
  }
  if (threads > 0) at::set_num_threads(static_cast<int>(threads));
}

// True if the job was started, has ended, and there is nothing left to do.
bool ran_as_job(const std::vector<std::string>& command, const std::optional<Job>& job) {
  const int processes = absl::GetFlag(FLAGS_processes).value_or(job ? job->ranks : 1);
  TORCH_CHECK(processes > 0, "processes is ", processes, "; it must be at least 1.");
  TORCH_CHECK(!job || processes == job->ranks, "processes is ", processes, ", and the environment's WORLD_SIZE is ",
              job->ranks, ". Leave --processes out where torchrun starts the processes.");
  if (job || processes == 1) return false;
  ac2::testing::run_ranks(processes, command);
  return true;
}

bool run(const std::vector<std::string>& command) {
  TrainOptions options = options_from_flags();
  checkpointing_by_name(absl::GetFlag(FLAGS_policy));
  for (const std::string& budget : absl::GetFlag(FLAGS_memory_budget)) {
    if (budget != kWhateverFits) parse_bytes(budget);
  }
  check_report();
  span_from_flags();
  const c10::Device device(absl::GetFlag(FLAGS_device));
  const std::optional<Job> job = Job::of_environment();
  if (ran_as_job(command, job)) return true;
  // The first process of a job speaks for all.
  if (job && job->rank > 0) std::cout.rdbuf(nullptr);
  set_threads(job);
  // Before any tensor, so that every tensor is counted.
  options.device = job && !device.has_index() ? job->device(device.type()) : device;
  use_device(options.device);
  if (job) options.group = job->connect(options.device);
  const TextData text = load_text();
  if (absl::GetFlag(FLAGS_compare)) return compare(text, options);
  train(text, options);
  return true;
}

}  // namespace
}  // namespace gpt

int main(int argc, char** argv) {
  gpt::use_passive_threads(argv);
  absl::SetProgramUsageMessage("Trains a small GPT on a text, with activation checkpointing.");
  std::vector<std::string> command = {"/proc/self/exe"};
  command.insert(command.end(), argv + 1, argv + argc);
  const auto arguments = absl::ParseCommandLine(argc, argv);
  if (arguments.size() > 1) {
    std::cerr << "train_gpt: unexpected argument \"" << arguments[1] << "\"; flags are written --name=value.\n";
    return EXIT_FAILURE;
  }
  try {
    return gpt::run(command) ? EXIT_SUCCESS : EXIT_FAILURE;
  } catch (const c10::Error& error) {
    std::cerr << "train_gpt: " << error.what_without_backtrace() << '\n';
  } catch (const std::exception& error) {
    std::cerr << "train_gpt: " << error.what() << '\n';
  }
  return EXIT_FAILURE;
}
