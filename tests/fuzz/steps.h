// The kinds of steps of a random program. A family of steps a file.
#pragma once

#include "tests/fuzz/dice.h"
#include "tests/fuzz/machine.h"

namespace ac2::test {

// steps_compute.cc: new tensors.
void unary_step(Machine& machine, Dice& dice);
void binary_step(Machine& machine, Dice& dice);
void several_results_step(Machine& machine, Dice& dice);
void reduction_step(Machine& machine, Dice& dice);
void indexing_step(Machine& machine, Dice& dice);
void constant_step(Machine& machine, Dice& dice);
void draw_step(Machine& machine, Dice& dice);

// steps_layers.cc: what networks are made of.
void layer_step(Machine& machine, Dice& dice);

// steps_alias.cc: other ways to see the same bytes.
void view_step(Machine& machine, Dice& dice);
void alias_step(Machine& machine, Dice& dice);

// steps_write.cc: changes to what is there.
void write_step(Machine& machine, Dice& dice);
void write_part_step(Machine& machine, Dice& dice);
void out_step(Machine& machine, Dice& dice);
void metadata_step(Machine& machine, Dice& dice);
// After the last region: any of these, or a write that a version counter of its own counts.
void write_until_backward_step(Machine& machine, Dice& dice);

// steps_foreign.cc: memory that LibTorch did not allocate, and memory that no op writes to.
void foreign_step(Machine& machine, Dice& dice);
// To tensors that a region holds whole.
void write_grid_step(Machine& machine, Dice& dice);

// steps_move.cc: tensors that the program lets go of, or lays over other storages.
void last_use_step(Machine& machine, Dice& dice);
void set_step(Machine& machine, Dice& dice);
void set_data_step(Machine& machine, Dice& dice);

// steps_dtype.cc: the default dtype, and ops that depend on it.
void default_dtype_step(Machine& machine, Dice& dice);
void by_default_dtype_step(Machine& machine, Dice& dice);

// steps_autograd.cc: gradients in the middle of forward, and the user's own functions.
void backward_step(Machine& machine, Dice& dice);
void custom_function_step(Machine& machine, Dice& dice);
void gradient_hook_step(Machine& machine, Dice& dice);

// steps_scope.cc: regions, policies, tags, modes.
void scope_step(Machine& machine, Dice& dice);
void tag_step(Machine& machine, Dice& dice);
void mode_step(Machine& machine, Dice& dice);

// Any of them, or a variable is forgotten.
void any_step(Machine& machine, Dice& dice);

}  // namespace ac2::test
