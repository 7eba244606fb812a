"""The ready-made policies.

| policy                                  | saves                               | recomputes         |
|-----------------------------------------|-------------------------------------|--------------------|
| recompute_all()                         | nothing                             | all                |
| must_save_all()                         | all that backward needs             | nothing            |
| save_ops([...])                         | the listed ops                      | all others         |
| recompute_ops([...])                    | whatever else backward needs        | the listed ops     |
| save_compute_intensive()                | products, convolutions, attention   | all others         |
| speed()                                 | the same, and all else that is slow | all others         |
| memory()                                | where branches join                 | all others         |
| by_size(min_bytes)                      | results of fewer bytes              | larger ones        |
| every_nth(n)                            | every nth result                    | those between      |
| everything_saveable()                   | all that backward needs             | nothing            |
| nothing_saveable()                      | nothing                             | all                |
| dots_saveable()                         | products, convolutions              | all others         |
| dots_with_no_batch_dims_saveable()      | products without a batch            | all others         |
| offload_dot_with_no_batch_dims()        | the same, offloaded                 | all others         |
| offload_ops([...])                      | the listed ops, offloaded           | all others         |
| save_only_these_names([...])            | values so named                     | all others         |
| save_any_names_but_these([...])         | values named otherwise              | all others         |
| save_anything_except_these_names([...]) | whatever else backward needs        | values so named    |
| recompute_these_names([...])            | whatever else backward needs        | values so named    |
| offload_these_names([...])              | values so named                     | all others         |
| by_module({pattern: decision, ...})     | what the rules say, by module       | all others         |
| quantize_ops([...], bits)               | the listed ops, in 8, 4 or 1 bit    | all others         |
| narrow_ops([...], torch.bfloat16)       | the listed ops, so, or in float8    | all others         |
| spill_to_file(directory, [...])         | the listed ops, in files            | all others         |
| save_from_both_policies(a, b)           | what either saves                   | what neither saves |
| first_of(a, b, ...)                     | as the first that insists           | so too             |
| per_op_override(a, {op: decision, ...}) | as a, but the listed ops            | so too             |

Those without parameters have names: ``PolicyScope("speed")``, and policy_names() lists them.
compute_intensive_ops() and slow_ops() list the ops that save_compute_intensive() and speed() save, as save_ops() takes
them. Ops are names and patterns ("aten::mm", "aten::*mm*"), ``torch.ops.aten.mm`` (every overload) or
``torch.ops.aten.mm.default`` (that one).
"""

from ac2 import _C
from ac2._policy import makes_a_policy
from ac2._signatures import with_readable_errors

# All of them are the runtime's; a policy that is new there is here too.
_policies = sorted(name for name in vars(_C.policies) if not name.startswith("_"))
globals().update({name: makes_a_policy(with_readable_errors("ac2.policies", getattr(_C.policies, name))) for name in _policies})
_lists = ["compute_intensive_ops", "policy_names", "slow_ops"]
globals().update({name: getattr(_C, name) for name in _lists})
__all__ = sorted(_policies + _lists)
