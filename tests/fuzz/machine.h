// The state of a random program: variables, and where to write down in C++ what was done.
#pragma once

#include <ATen/core/grad_mode.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/fuzz/dice.h"
#include "tests/fuzz/functions.h"
#include "tests/fuzz/regions_switch.h"
#include "tests/support/autocast.h"
#include "tests/support/default_dtype.h"

namespace ac2::test {

// Why a storage must not be written any more. Views share that.
struct Frozen {
  bool saved = false;    // plain autograd has saved it
  bool outside = false;  // a region that is over, or one that is disabled, may have taken it
};

struct Variable {
  uint32_t id;  // drawn from the seed of the step that made it
  std::string name;
  at::Tensor tensor;
  std::shared_ptr<Frozen> frozen;

  void freeze() const { frozen->saved = true; }
};

// The steps that a program must not take: some of them because others run beside it.
struct Limits {
  bool draws = true;         // from the default generator
  bool hooks_inputs = true;  // with hooks on their gradients
  bool slopes = true;        // gradients in the middle of forward
  bool last_uses = true;     // of tensors that the program has no more afterwards, even if the step fails
  bool moves = true;         // tensors to other storages, by set_() and set_data()
  bool dtypes = true;        // another default dtype in forward, which is the process's
  bool kernels = true;       // that are no ops and write to results
  bool grids = true;         // sparse and quantised tensors
  bool functions = true;     // of the program's that are ops
  // To what an earlier region may have taken, while checkpointing is disabled, and between the last region and
  // backward.
  bool writes_outside = false;
};

class Machine {
 public:
  // `source` may be null. The inputs are frozen.
  Machine(const Tensors& inputs, Regions& regions, std::vector<std::string>* source, const Limits& limits = {});

  // That of the inputs; `on` in the source.
  c10::Device on() const { return on_; }
  // `regions` in the source.
  const Regions& regions() const { return regions_; }
  // `buffer` in the source.
  Buffer& buffer() { return buffer_; }
  // `grids` in the source.
  Grids& grids() { return grids_ ? *grids_ : grids_.emplace(); }

  // Variables that are made from here on are made by the step with this seed.
  void begin_step(uint32_t seed);

  // Other variables that come or go seldom change what is picked, so that a program can lose steps and keep its
  // meaning. (Rendezvous hashing: the one with the highest hash of its id and the draw.)
  Variable pick(Dice& dice) const { return variables_[pick_index(dice)]; }

  // Each runs `fn`, which is what `text` says. Steps that PyTorch refuses, for sizes that do not fit or memory that
  // overlaps, are refused in a region too.
  void let(const std::string& text, const std::function<at::Tensor()>& fn, bool frozen = false);
  void let_several(const std::string& text, const std::function<Tensors()>& fn, bool frozen = false);
  void let_view(const Variable& of, const std::string& text, const std::function<at::Tensor()>& fn);
  // What `fn` makes of `v`, which the program has no more afterwards: its last reference is last_use(), where user code
  // that an op calls drops it. `text` goes before and behind that.
  void let_last(Variable v, const std::string& before, const std::string& behind,
                const std::function<at::Tensor(const at::Tensor& last)>& fn);
  // `fn` lays `v` over another storage, from where on it is frozen as `there` says.
  void move(const Variable& v, const std::string& text, const std::function<void()>& fn,
            const std::shared_ptr<Frozen>& there);
  void run(const std::string& text, const std::function<void()>& fn);

  void forget(Dice& dice);
  void freeze_all();
  bool may_write() const { return limits_.writes_outside || !disabled_; }
  bool may_write(const Variable& v) const;
  bool may_draw() const { return limits_.draws; }
  // The step is one that writes to what is there: had it failed, nobody could say how far it came.
  bool is_writing() const { return writing_; }
  bool may_take_gradients() const { return limits_.slopes; }
  bool may_run_kernels() const { return limits_.kernels; }
  bool may_have_grids() const { return limits_.grids; }
  bool may_call_functions() const { return limits_.functions; }
  bool may_use_last() const { return limits_.last_uses; }
  bool is_input(const Variable& v) const;
  // To another storage: neither what plain autograd has saved nor a view, which would no longer be one.
  bool may_move(const Variable& v) const;
  // No earlier region can have taken it. To such a region set_() is a change from outside.
  bool is_of_this_region(const Variable& v) const { return !v.frozen->outside || regions_begun_ == 1; }

  void begin_region();
  void open_scope(Dice& dice);
  void close_scope();
  void disable();
  void enable();
  void tag(const Variable& v, uint32_t decision);
  void begin_no_grad();
  void end_no_grad();
  void set_default_dtype(at::ScalarType type);
  bool may_set_default_dtype() const { return limits_.dtypes; }
  void begin_autocast();
  void end_autocast();

  void end_region();
  // Some of the variables, and how many steps were refused. Modes end here.
  Tensors results();
  // The program returns its results.
  void finish();

 private:
  void say(const std::string& line);
  void add(at::Tensor tensor, std::string name, std::shared_ptr<Frozen> frozen);
  std::string next_name();
  size_t pick_index(Dice& dice) const;
  bool attempt(const std::string& text, const std::function<void()>& fn);

  Regions& regions_;
  const c10::Device on_;
  std::vector<std::string>* source_;
  const Limits limits_;
  Buffer buffer_;
  std::optional<Grids> grids_;  // most programs have no use for them
  const Tensors inputs_;        // if they must not be hooked
  std::vector<Variable> variables_;
  int names_ = 0;
  int regions_begun_ = 0;
  uint32_t step_ = 0;
  uint32_t made_by_step_ = 0;
  int64_t refused_ = 0;
  bool disabled_ = false;
  bool writing_ = false;
  std::optional<at::NoGradGuard> no_grad_;
  std::optional<Autocast> autocast_;
  std::optional<DefaultDtype> default_dtype_;
};

}  // namespace ac2::test
