// Views, copies of views, joining, splitting and padding.
#include "tests/sweep/case.h"

namespace ac2::test::sweep {

namespace {

constexpr Case kCases[] = {
    {"alias", one, [](In t) -> Out { return at::alias(t[0]); }, kNothingToReplay},
    {"as_strided", one,
     [](In t) -> Out {
       return at::as_strided(t[0], {3, 2}, {6, 2}, 1);
     },
     kNothingToReplay},
    {"as_strided/overlapping", one,
     [](In t) -> Out {
       return at::as_strided(t[0], {3, 4}, {2, 1}, 0);
     },
     kNothingToReplay},
    {"atleast_3d", one, [](In t) -> Out { return at::atleast_3d(t[0]); }, kNothingToReplay},
    {"block_diag",
     [] {
       return Tensors{sample({2, 3}), sample({3, 2})};
     },
     [](In t) -> Out { return at::block_diag(t); }},
    {"broadcast_tensors",
     [] {
       return Tensors{sample({4, 6}), sample({6})};
     },
     [](In t) -> Out { return at::broadcast_tensors(t); }, kNothingToReplay},
    {"broadcast_to", vector,
     [](In t) -> Out {
       return at::broadcast_to(t[0], {4, 6});
     },
     kNothingToReplay},
    {"cartesian_prod", vectors, [](In t) -> Out { return at::cartesian_prod(t); }},
    {"cat", two, [](In t) -> Out { return at::cat(t, 1); }},
    {"cat/of_two_types",
     [] {
       return Tensors{sample({4, 6}), sample({4, 2}, at::kDouble)};
     },
     [](In t) -> Out { return at::cat(t, 1); }},
    {"channel_shuffle", image, [](In t) -> Out { return at::channel_shuffle(t[0], 2); }},
    {"chunk", one, [](In t) -> Out { return at::chunk(t[0], 3, 1); }, kNothingToReplay},
    {"clone", one, [](In t) -> Out { return at::clone(t[0]); }},
    {"clone/channels_last", image, [](In t) -> Out { return t[0].clone(at::MemoryFormat::ChannelsLast); }},
    {"column_stack", two, [](In t) -> Out { return at::column_stack(t); }},
    {"combinations", vector, [](In t) -> Out { return at::combinations(t[0]); }},
    {"constant_pad_nd", one,
     [](In t) -> Out {
       return at::constant_pad_nd(t[0], {1, 2}, 0.5);
     }},
    {"contiguous",
     [] {
       return Tensors{sample({6, 4})};
     },
     [](In t) -> Out { return t[0].t().contiguous(); }},
    {"diag", vector, [](In t) -> Out { return at::diag(t[0]); }},
    {"diag_embed", one, [](In t) -> Out { return at::diag_embed(t[0]); }},
    {"diagflat", vector, [](In t) -> Out { return at::diagflat(t[0]); }},
    {"diagonal", square, [](In t) -> Out { return at::diagonal(t[0]); }, kNothingToReplay},
    {"diagonal_copy", square, [](In t) -> Out { return at::diagonal_copy(t[0]); }},
    {"dsplit",
     [] {
       return Tensors{sample({2, 3, 4})};
     },
     [](In t) -> Out { return at::dsplit(t[0], 2); }, kNothingToReplay},
    {"dstack", two, [](In t) -> Out { return at::dstack(t); }},
    {"expand", vector,
     [](In t) -> Out {
       return t[0].expand({4, 6});
     },
     kNothingToReplay},
    {"expand_copy", vector,
     [](In t) -> Out {
       return at::expand_copy(t[0], {4, 6});
     }},
    {"flatten", batch, [](In t) -> Out { return at::flatten(t[0], 1); }, kNothingToReplay},
    {"flip", one,
     [](In t) -> Out {
       return at::flip(t[0], {0, 1});
     }},
    {"fliplr", one, [](In t) -> Out { return at::fliplr(t[0]); }},
    {"flipud", one, [](In t) -> Out { return at::flipud(t[0]); }},
    {"hsplit", one, [](In t) -> Out { return at::hsplit(t[0], 2); }, kNothingToReplay},
    {"hstack", two, [](In t) -> Out { return at::hstack(t); }},
    {"lift_fresh_copy", one, [](In t) -> Out { return t[0] * at::lift_fresh_copy(t[0]); }},
    {"meshgrid", vectors, [](In t) -> Out { return at::meshgrid(t, "ij"); }, kNothingToReplay},
    {"movedim", batch, [](In t) -> Out { return at::movedim(t[0], 0, 2); }, kNothingToReplay},
    {"narrow", one, [](In t) -> Out { return at::narrow(t[0], 1, 2, 3); }, kNothingToReplay},
    {"pad/circular", signal,
     [](In t) -> Out {
       return at::pad(t[0], {1, 2}, "circular");
     },
     kHeld},
    {"permute", batch,
     [](In t) -> Out {
       return at::permute(t[0], {2, 0, 1});
     },
     kNothingToReplay},
    {"permute_copy", batch,
     [](In t) -> Out {
       return at::permute_copy(t[0], {2, 0, 1});
     }},
    {"pixel_shuffle", image, [](In t) -> Out { return at::pixel_shuffle(t[0], 2); }},
    {"pixel_unshuffle", image, [](In t) -> Out { return at::pixel_unshuffle(t[0], 2); }},
    {"ravel", batch, [](In t) -> Out { return at::ravel(t[0].transpose(0, 1)); }},
    {"reflection_pad1d", signal,
     [](In t) -> Out {
       return at::reflection_pad1d(t[0], {1, 2});
     }},
    {"reflection_pad2d", image,
     [](In t) -> Out {
       return at::reflection_pad2d(t[0], {1, 2, 0, 1});
     }},
    {"reflection_pad3d", volume,
     [](In t) -> Out {
       return at::reflection_pad3d(t[0], {1, 2, 0, 1, 1, 1});
     }},
    {"repeat", one,
     [](In t) -> Out {
       return t[0].repeat({2, 1, 3});
     }},
    {"replication_pad1d", signal,
     [](In t) -> Out {
       return at::replication_pad1d(t[0], {1, 2});
     }},
    {"replication_pad2d", image,
     [](In t) -> Out {
       return at::replication_pad2d(t[0], {1, 2, 0, 1});
     }},
    {"replication_pad3d", volume,
     [](In t) -> Out {
       return at::replication_pad3d(t[0], {1, 2, 0, 1, 1, 1});
     }},
    {"reshape", batch,
     [](In t) -> Out {
       return at::reshape(t[0], {5, 8});
     },
     kNothingToReplay},
    {"reshape/copies", batch,
     [](In t) -> Out {
       return at::reshape(t[0].transpose(0, 2), {5, 8});
     }},
    {"resolve_neg", one, [](In t) -> Out { return at::resolve_neg(t[0]); }, kNothingToReplay},
    {"roll", one, [](In t) -> Out { return at::roll(t[0], 2, 1); }},
    {"rot90", one, [](In t) -> Out { return at::rot90(t[0]); }},
    {"select", one, [](In t) -> Out { return at::select(t[0], 1, 2); }, kNothingToReplay},
    {"select_copy", one, [](In t) -> Out { return at::select_copy(t[0], 1, 2); }},
    {"slice", one, [](In t) -> Out { return at::slice(t[0], 1, 1, 5, 2); }, kNothingToReplay},
    {"slice_copy", one, [](In t) -> Out { return at::slice_copy(t[0], 1, 1, 5, 2); }},
    {"split", one, [](In t) -> Out { return at::split(t[0], 4, 1); }, kNothingToReplay},
    {"split_copy", one, [](In t) -> Out { return at::split_copy(t[0], 4, 1); }},
    {"split_with_sizes", one,
     [](In t) -> Out {
       return at::split_with_sizes(t[0], {1, 3, 2}, 1);
     },
     kNothingToReplay},
    {"squeeze",
     [] {
       return Tensors{sample({4, 1, 3})};
     },
     [](In t) -> Out { return at::squeeze(t[0], 1); }, kNothingToReplay},
    {"squeeze_copy",
     [] {
       return Tensors{sample({4, 1, 3})};
     },
     [](In t) -> Out { return at::squeeze_copy(t[0], 1); }},
    {"stack", two, [](In t) -> Out { return at::stack(t, 1); }},
    {"swapaxes", batch, [](In t) -> Out { return at::swapaxes(t[0], 0, 2); }, kNothingToReplay},
    {"t", one, [](In t) -> Out { return at::t(t[0]); }, kNothingToReplay},
    {"t_copy", one, [](In t) -> Out { return at::t_copy(t[0]); }},
    {"tensor_split", one, [](In t) -> Out { return at::tensor_split(t[0], 4, 1); }, kNothingToReplay},
    {"tile", one,
     [](In t) -> Out {
       return at::tile(t[0], {2, 1});
     }},
    {"to/double", one, [](In t) -> Out { return t[0].to(at::kDouble); }},
    {"to/half_and_back", one, [](In t) -> Out { return t[0].to(at::kHalf).to(at::kFloat); }},
    {"transpose", batch, [](In t) -> Out { return at::transpose(t[0], 0, 2); }, kNothingToReplay},
    {"transpose_copy", batch, [](In t) -> Out { return at::transpose_copy(t[0], 0, 2); }},
    {"type_as",
     [] {
       return Tensors{sample({4, 6}), constant({1}, at::kDouble)};
     },
     [](In t) -> Out { return t[0].type_as(t[1]); }},
    {"unbind", one, [](In t) -> Out { return at::unbind(t[0], 1); }, kNothingToReplay},
    {"unbind_copy", one, [](In t) -> Out { return at::unbind_copy(t[0], 1); }},
    {"unflatten", one,
     [](In t) -> Out {
       return at::unflatten(t[0], 1, {2, 3});
     },
     kNothingToReplay},
    {"unfold", one, [](In t) -> Out { return t[0].unfold(1, 3, 2); }, kNothingToReplay},
    {"unfold_copy", one, [](In t) -> Out { return at::unfold_copy(t[0], 1, 3, 2); }},
    {"unsafe_chunk", one, [](In t) -> Out { return at::unsafe_chunk(t[0], 3, 1); }, kNothingToReplay},
    {"unsafe_split", one, [](In t) -> Out { return at::unsafe_split(t[0], 4, 1); }, kNothingToReplay},
    {"unsqueeze", one, [](In t) -> Out { return at::unsqueeze(t[0], 1); }, kNothingToReplay},
    {"unsqueeze_copy", one, [](In t) -> Out { return at::unsqueeze_copy(t[0], 1); }},
    {"view", batch,
     [](In t) -> Out {
       return t[0].view({5, 8});
     },
     kNothingToReplay},
    {"view_copy", batch,
     [](In t) -> Out {
       return at::view_copy(t[0], {5, 8});
     }},
    {"vsplit", one, [](In t) -> Out { return at::vsplit(t[0], 2); }, kNothingToReplay},
    {"vstack", two, [](In t) -> Out { return at::vstack(t); }},
};

}  // namespace

std::span<const Case> shape_cases() {
  return kCases;
}

}  // namespace ac2::test::sweep
