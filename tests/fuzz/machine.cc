#include "tests/fuzz/machine.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

namespace ac2::test {

namespace {

uint32_t mixed(uint32_t bits) {
  bits = (bits ^ (bits >> 16)) * 0x7feb352dU;
  bits = (bits ^ (bits >> 15)) * 0x846ca68bU;
  return bits ^ (bits >> 16);
}

std::shared_ptr<Frozen> frozen_by(bool saved, bool outside = false) {
  return std::make_shared<Frozen>(Frozen{.saved = saved, .outside = outside});
}

}  // namespace

Machine::Machine(const Tensors& inputs, Regions& regions, std::vector<std::string>* source, const Limits& limits)
    : regions_(regions),
      on_(inputs.at(0).device()),
      source_(source),
      limits_(limits),
      inputs_(limits.hooks_inputs ? Tensors() : inputs) {
  say("const c10::Device on = in[0].device();");
  say("Buffer buffer;");
  say("Grids grids;");
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::string name = next_name();
    say("at::Tensor " + name + " = in[" + std::to_string(i) + "];");
    add(inputs[i], std::move(name), frozen_by(false, /*outside=*/true));
  }
}

std::string Machine::next_name() {
  return "t" + std::to_string(names_++);
}

void Machine::say(const std::string& line) {
  if (source_ != nullptr) source_->push_back(line);
}

void Machine::add(at::Tensor tensor, std::string name, std::shared_ptr<Frozen> frozen) {
  variables_.push_back({mixed(step_ + made_by_step_++), std::move(name), std::move(tensor), std::move(frozen)});
}

void Machine::begin_step(uint32_t seed) {
  step_ = seed;
  made_by_step_ = 0;
  writing_ = false;
}

size_t Machine::pick_index(Dice& dice) const {
  const auto highest = [this](uint32_t draw) {
    size_t best = 0;
    for (size_t i = 1; i < variables_.size(); ++i) {
      if (mixed(variables_[i].id ^ draw) > mixed(variables_[best].id ^ draw)) best = i;
    }
    return best;
  };
  // Of two the one that a gradient flows through, or the younger: deep graphs are what it is about.
  const size_t first = highest(dice.any()), second = highest(dice.any());
  const auto rank = [this](size_t i) { return std::pair(variables_[i].tensor.requires_grad(), i); };
  return std::max(rank(first), rank(second)).second;
}

bool Machine::attempt(const std::string& text, const std::function<void()>& fn) {
  try {
    fn();
    return true;
  } catch (const c10::Error& error) {
    if (ends_program(error.what_without_backtrace())) throw;
    ++refused_;
    say("EXPECT_THROW(" + text + ", c10::Error);");
    return false;
  }
}

void Machine::let(const std::string& text, const std::function<at::Tensor()>& fn, bool frozen) {
  writing_ = text.starts_with("damp_(") || text.starts_with("at::batch_norm(");
  at::Tensor result;
  if (attempt(text, [&] { result = fn(); })) {
    std::string name = next_name();
    say("at::Tensor " + name + " = " + text + ";");
    add(std::move(result), std::move(name), frozen_by(frozen));
  }
}

void Machine::let_several(const std::string& text, const std::function<Tensors()>& fn, bool frozen) {
  Tensors results;
  if (!attempt(text, [&] { results = fn(); })) return;
  const std::string all = next_name();
  say("Tensors " + all + " = " + text + ";");
  // They may be views of one storage.
  const auto flag = frozen_by(frozen);
  for (size_t i = 0; i < results.size(); ++i) {
    add(results[i], all + "[" + std::to_string(i) + "]", flag);
  }
}

void Machine::let_view(const Variable& of, const std::string& text, const std::function<at::Tensor()>& fn) {
  const std::shared_ptr<Frozen> frozen = of.frozen;
  at::Tensor result;
  if (attempt(text, [&] { result = fn(); })) {
    std::string name = next_name();
    say("at::Tensor " + name + " = " + text + ";");
    add(std::move(result), std::move(name), frozen);
  }
}

void Machine::let_last(Variable v, const std::string& before, const std::string& behind,
                       const std::function<at::Tensor(const at::Tensor& last)>& fn) {
  if (variables_.size() == 1) return;
  const auto own = std::find_if(variables_.begin(), variables_.end(), [&](const Variable& other) {
    return other.id == v.id && other.tensor.is_same(v.tensor);
  });
  v.tensor.reset();
  say("last_use() = std::move(" + v.name + ");");
  last_use() = std::move(own->tensor);
  variables_.erase(own);
  try {
    let(
        before + "last_use()" + behind, [&] { return fn(last_use()); }, /*frozen=*/true);
  } catch (...) {
    last_use().reset();
    throw;
  }
  say("last_use().reset();");
  last_use().reset();
}

void Machine::move(const Variable& v, const std::string& text, const std::function<void()>& fn,
                   const std::shared_ptr<Frozen>& there) {
  if (!attempt(text, fn)) return;
  say(text + ";");
  for (Variable& variable : variables_) {
    if (variable.tensor.is_same(v.tensor)) variable.frozen = there;
  }
}

void Machine::run(const std::string& text, const std::function<void()>& fn) {
  writing_ = true;
  if (attempt(text, fn)) say(text + ";");
}

void Machine::forget(Dice& dice) {
  if (variables_.size() == 1) return;
  const auto victim = variables_.begin() + static_cast<std::ptrdiff_t>(pick_index(dice));
  say(victim->name + ".reset();");
  variables_.erase(victim);
}

void Machine::freeze_all() {
  for (Variable& v : variables_) v.frozen->outside = true;
  // A variable that is made from here on does not share the flag of those before, unless it is a view of it.
}

bool Machine::may_write(const Variable& v) const {
  return may_write() && !v.frozen->saved && (limits_.writes_outside || !v.frozen->outside) && v.tensor.numel() > 0;
}

bool Machine::is_input(const Variable& v) const {
  return std::any_of(inputs_.begin(), inputs_.end(), [&v](const at::Tensor& input) { return input.is_same(v.tensor); });
}

bool Machine::may_move(const Variable& v) const {
  return limits_.moves && may_write() && !v.tensor.is_view() && !v.tensor.is_inference();
}

void Machine::begin_region() {
  ++regions_begun_;
  freeze_all();
  disabled_ = false;
  say("regions.begin();");
  regions_.begin();
}

void Machine::open_scope(Dice& dice) {
  const int policy = dice.roll(1000);
  say("regions.open(" + std::to_string(policy) + ");");
  regions_.open(policy);
}

void Machine::close_scope() {
  say("regions.close();");
  regions_.close();
}

void Machine::disable() {
  if (disabled_) return;
  disabled_ = true;
  say("regions.disable();");
  regions_.disable();
}

void Machine::enable() {
  if (!disabled_) return;
  disabled_ = false;
  say("regions.enable();");
  regions_.enable();
}

void Machine::tag(const Variable& v, uint32_t decision) {
  say("regions.tag(" + v.name + ", " + std::to_string(decision) + ");");
  regions_.tag(v.tensor, decision);
}

void Machine::begin_no_grad() {
  if (no_grad_) return;
  say("no_grad.emplace();");
  no_grad_.emplace();
}

void Machine::end_no_grad() {
  if (!no_grad_) return;
  say("no_grad.reset();");
  no_grad_.reset();
}

void Machine::set_default_dtype(at::ScalarType type) {
  default_dtype_.reset();
  say("default_dtype.reset();");
  if (type == at::kFloat) return;
  say(std::string("default_dtype.emplace(at::k") + c10::toString(type) + ");");
  default_dtype_.emplace(type);
}

void Machine::begin_autocast() {
  if (autocast_) return;
  say("autocast.emplace();");
  autocast_.emplace();
}

void Machine::end_autocast() {
  if (!autocast_) return;
  say("autocast.reset();");
  autocast_.reset();
}

void Machine::end_region() {
  say("regions.end();");
  regions_.end();
}

Tensors Machine::results() {
  end_no_grad();
  end_autocast();
  if (default_dtype_) set_default_dtype(at::kFloat);
  enable();
  Tensors outputs = {at::scalar_tensor(refused_)};
  std::string text = "at::scalar_tensor(" + std::to_string(refused_) + ")";
  for (size_t i = 0; i < variables_.size(); ++i) {
    if (variables_[i].id % 6 == 0 || i + 1 == variables_.size()) {
      outputs.push_back(variables_[i].tensor * 1);
      text += ", " + variables_[i].name + " * 1";
    }
  }
  say("const Tensors results = {" + text + "};");
  return outputs;
}

void Machine::finish() {
  say("return results;");
  variables_.clear();
}

}  // namespace ac2::test
