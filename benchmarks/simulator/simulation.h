// One run of a recorded step, on numbers instead of tensors: what simulate() of step_simulator.h does. A device with
// another memory behind it is a Simulation of its own (offload_simulation.h).
//
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "ac2/internal/eviction/evictor.h"
#include "ac2/internal/eviction/form_costs.h"
#include "ac2/internal/eviction/host_copies.h"
#include "ac2/internal/eviction/step_memory.h"
#include "benchmarks/simulator/step_foresight.h"
#include "benchmarks/simulator/step_simulator.h"
#include "benchmarks/simulator/step_structure.h"

namespace ac2::internal {

class Simulation {
 public:
  // All three must outlive the simulation.
  Simulation(const RecordedStep& step, const StepStructure& structure, const SimulatorOptions& options);
  virtual ~Simulation() = default;
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  StepResult run();
  // Runs events as far as to the first that is not below `event`, or to the end of the simulation.
  void run_until(size_t event);
  // Goes on from where `other` stands, which has the same step and budget. `other` has no store and no copies, and its
  // options differ from those of this one at most in what has made no difference yet:
  // - the bias of values that it has not made;
  // - the constants of the rule and the bias of any value, if it has not chosen a victim.
  void go_on_from(const Simulation& other);
  // The next event, and whether the evictor has been asked for a victim.
  size_t event() const { return event_; }
  bool has_chosen() const { return has_chosen_; }
  // So far. run() takes it away.
  const StepResult& result() const { return result_; }

 protected:
  struct ValueState {
    ValueId id = kNoId;
    uint32_t epoch = 0;  // how often its bytes were computed
    uint32_t next_use = 0;
  };

  // --- what a device does in its own way ---

  // Drops values until `bytes` more fit into the budget.
  virtual void make_room(int64_t bytes, uint32_t op);
  // An op is about to take the value. Its bytes may be elsewhere and be given up, so that it is computed again.
  virtual void choose_way(uint32_t) {}
  // The value's bytes are held or elsewhere, and shall be held and ready to be read.
  virtual void come_here(uint32_t) {}
  // The op of the program has run.
  virtual void op_ended(uint32_t) {}
  // The value to drop next, or kNoId; by the evictor.
  virtual ValueId choose_victim();
  virtual void drop(ValueId victim);
  // The value's bytes have been computed, for the first time or again.
  virtual void came(ValueId) {}
  // An op of the program, or one that is replayed, is about to have its inputs brought back.
  virtual void gathers(uint32_t) {}
  // The program has one name less for the tensor.
  virtual void released(uint32_t) {}
  // Whether the value's bytes stay that its op has made again.
  virtual bool keeps(ValueId value) const { return evictor_.is_needed(value); }
  // Drops the values that nothing needs.
  virtual void drop_unneeded();

  // --- for those ---

  uint32_t value_of(uint32_t tensor) const { return step_.tensors[tensor].value; }
  ValueId id_of(uint32_t tensor) const { return values_[value_of(tensor)].id; }
  bool is_there(uint32_t value) const { return evictor_.place(values_[value].id) != Place::kNowhere; }
  // Of the op's results.
  int64_t made_bytes(uint32_t op) const { return structure_.op(op).made_bytes; }
  // The simulation's number of a value of the evictor's.
  uint32_t number_of(ValueId id) const { return numbers_[id]; }
  // Ends the simulation: `bytes` more do not fit.
  [[noreturn]] void fail(int64_t bytes, uint32_t op);
  void note_peak(int64_t more);
  // The time that an op takes, in the program or in a replay, or for which the device waits.
  void pass(double time);

  const RecordedStep& step_;
  const StepStructure& structure_;
  const SimulatorOptions& options_;
  StepForesight foresight_;
  Evictor evictor_;
  StepMemory memory_;
  FormCosts form_costs_;
  HostCopies copies_;  // of a HostCopiesSimulation
  std::vector<ValueState> values_;
  StepResult result_;

 private:
  struct TensorState {
    uint32_t epoch = 0;  // that of the bytes which it is a view of; 0: it is a view of none yet
  };
  // An op whose inputs are being brought back.
  struct Frame {
    uint32_t op = 0;
    size_t next = 0;                          // argument
    absl::InlinedVector<uint32_t, 6> pinned;  // values
  };

  void handle(const RecordedStep::Event& event);
  void appear(uint32_t tensor);
  void finish();
  void set_bias(uint32_t value);
  // The step costs no less than the ops that have run, the rest of the program, and each op that must run again by now,
  // counted once.
  double least_cost() const;
  [[noreturn]] void give_up();
  void spend(double cost);
  void run_first(uint32_t index);
  void make_results(uint32_t index, const absl::InlinedVector<ValueId, 4>& inputs);
  void note_number(ValueId id, uint32_t value);
  void pass_use(uint32_t value);
  void run_again(const Frame& frame);
  // Brings the op's inputs back, with the views that it takes, and pins them.
  void bring_inputs(uint32_t op) { bring(op, kNoId); }
  void bring_back(uint32_t tensor);
  void pin_those_there(Frame& frame);
  void pin(Frame& frame, uint32_t value);
  // Brings the inputs of `op` back, depth first, with a stack instead of recursion. Then replays `op` if there is a
  // `target`, which is one of its results; otherwise leaves its inputs pinned.
  void bring(uint32_t op, uint32_t target);
  // The bytes are there. Makes each view between them and the tensor again, with all views that its op returned.
  void view_again(uint32_t tensor);

  std::vector<TensorState> tensors_;
  std::vector<uint32_t> numbers_;  // of the step's values, by the evictor's id
  size_t event_ = 0;
  bool has_chosen_ = false;
  bool has_stopped_ = false;
};

}  // namespace ac2::internal
