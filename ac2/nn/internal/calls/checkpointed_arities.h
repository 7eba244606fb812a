// The class Checkpointed<M>, for each number of parameters of M's forward.
//
// AnyModule wants one forward(), declared in the very class that it is given, with M's signature; a parameter pack
// cannot have default arguments. So there is a specialisation for each number, up to eight, which
// torch::nn::Transformer has. ac2/nn/checkpointed.h says what the class is for.
#pragma once

#include <tuple>
#include <utility>

#include "ac2/nn/internal/calls/checkpointed_calls.h"
#include "ac2/nn/internal/calls/default_arguments.h"
#include "ac2/nn/internal/calls/forward_of.h"

namespace ac2 {

// A forward of M's without a single signature (an overload set or a template) is called through Base's. The second
// parameter is there for the specialisations.
template <class M, class Forward = internal::ForwardOf<M>>
class Checkpointed : public internal::CheckpointedCalls<M> {
  using Base = internal::CheckpointedCalls<M>;

 public:
  using Base::Base;
  using Base::forward;
};

// More than eight parameters: no default arguments.
template <class M, class R, class... Args>
class Checkpointed<M, R(Args...)> : public internal::CheckpointedCalls<M> {
  using Base = internal::CheckpointedCalls<M>;

 public:
  using Base::Base;
  R forward(Args... args) { return this->template run_forward<R>(std::forward<Args>(args)...); }
};

template <class M, class R, class A>
class Checkpointed<M, R(A)> : public internal::CheckpointedCalls<M> {
  using Base = internal::CheckpointedCalls<M>;
  using Defaults = internal::DefaultArguments<M>;
  using Parameters = std::tuple<A>;

 public:
  using Base::Base;
  R forward(A a = Defaults::template get<0, Parameters>()) { return this->template run_forward<R>(std::forward<A>(a)); }
};

template <class M, class R, class A, class B>
class Checkpointed<M, R(A, B)> : public internal::CheckpointedCalls<M> {
  using Base = internal::CheckpointedCalls<M>;
  using Defaults = internal::DefaultArguments<M>;
  using Parameters = std::tuple<A, B>;

 public:
  using Base::Base;
  R forward(A a = Defaults::template get<0, Parameters>(), B b = Defaults::template get<1, Parameters>()) {
    return this->template run_forward<R>(std::forward<A>(a), std::forward<B>(b));
  }
};

template <class M, class R, class A, class B, class C>
class Checkpointed<M, R(A, B, C)> : public internal::CheckpointedCalls<M> {
  using Base = internal::CheckpointedCalls<M>;
  using Defaults = internal::DefaultArguments<M>;
  using Parameters = std::tuple<A, B, C>;

 public:
  using Base::Base;
  R forward(A a = Defaults::template get<0, Parameters>(), B b = Defaults::template get<1, Parameters>(),
            C c = Defaults::template get<2, Parameters>()) {
    return this->template run_forward<R>(std::forward<A>(a), std::forward<B>(b), std::forward<C>(c));
  }
};

template <class M, class R, class A, class B, class C, class D>
class Checkpointed<M, R(A, B, C, D)> : public internal::CheckpointedCalls<M> {
  using Base = internal::CheckpointedCalls<M>;
  using Defaults = internal::DefaultArguments<M>;
  using Parameters = std::tuple<A, B, C, D>;

 public:
  using Base::Base;
  R forward(A a = Defaults::template get<0, Parameters>(), B b = Defaults::template get<1, Parameters>(),
            C c = Defaults::template get<2, Parameters>(), D d = Defaults::template get<3, Parameters>()) {
    return this->template run_forward<R>(std::forward<A>(a), std::forward<B>(b), std::forward<C>(c),
                                         std::forward<D>(d));
  }
};

template <class M, class R, class A, class B, class C, class D, class E>
class Checkpointed<M, R(A, B, C, D, E)> : public internal::CheckpointedCalls<M> {
  using Base = internal::CheckpointedCalls<M>;
  using Defaults = internal::DefaultArguments<M>;
  using Parameters = std::tuple<A, B, C, D, E>;

 public:
  using Base::Base;
  R forward(A a = Defaults::template get<0, Parameters>(), B b = Defaults::template get<1, Parameters>(),
            C c = Defaults::template get<2, Parameters>(), D d = Defaults::template get<3, Parameters>(),
            E e = Defaults::template get<4, Parameters>()) {
    return this->template run_forward<R>(std::forward<A>(a), std::forward<B>(b), std::forward<C>(c), std::forward<D>(d),
                                         std::forward<E>(e));
  }
};

template <class M, class R, class A, class B, class C, class D, class E, class F>
class Checkpointed<M, R(A, B, C, D, E, F)> : public internal::CheckpointedCalls<M> {
  using Base = internal::CheckpointedCalls<M>;
  using Defaults = internal::DefaultArguments<M>;
  using Parameters = std::tuple<A, B, C, D, E, F>;

 public:
  using Base::Base;
  R forward(A a = Defaults::template get<0, Parameters>(), B b = Defaults::template get<1, Parameters>(),
            C c = Defaults::template get<2, Parameters>(), D d = Defaults::template get<3, Parameters>(),
            E e = Defaults::template get<4, Parameters>(), F f = Defaults::template get<5, Parameters>()) {
    return this->template run_forward<R>(std::forward<A>(a), std::forward<B>(b), std::forward<C>(c), std::forward<D>(d),
                                         std::forward<E>(e), std::forward<F>(f));
  }
};

template <class M, class R, class A, class B, class C, class D, class E, class F, class G>
class Checkpointed<M, R(A, B, C, D, E, F, G)> : public internal::CheckpointedCalls<M> {
  using Base = internal::CheckpointedCalls<M>;
  using Defaults = internal::DefaultArguments<M>;
  using Parameters = std::tuple<A, B, C, D, E, F, G>;

 public:
  using Base::Base;
  R forward(A a = Defaults::template get<0, Parameters>(), B b = Defaults::template get<1, Parameters>(),
            C c = Defaults::template get<2, Parameters>(), D d = Defaults::template get<3, Parameters>(),
            E e = Defaults::template get<4, Parameters>(), F f = Defaults::template get<5, Parameters>(),
            G g = Defaults::template get<6, Parameters>()) {
    return this->template run_forward<R>(std::forward<A>(a), std::forward<B>(b), std::forward<C>(c), std::forward<D>(d),
                                         std::forward<E>(e), std::forward<F>(f), std::forward<G>(g));
  }
};

template <class M, class R, class A, class B, class C, class D, class E, class F, class G, class H>
class Checkpointed<M, R(A, B, C, D, E, F, G, H)> : public internal::CheckpointedCalls<M> {
  using Base = internal::CheckpointedCalls<M>;
  using Defaults = internal::DefaultArguments<M>;
  using Parameters = std::tuple<A, B, C, D, E, F, G, H>;

 public:
  using Base::Base;
  R forward(A a = Defaults::template get<0, Parameters>(), B b = Defaults::template get<1, Parameters>(),
            C c = Defaults::template get<2, Parameters>(), D d = Defaults::template get<3, Parameters>(),
            E e = Defaults::template get<4, Parameters>(), F f = Defaults::template get<5, Parameters>(),
            G g = Defaults::template get<6, Parameters>(), H h = Defaults::template get<7, Parameters>()) {
    return this->template run_forward<R>(std::forward<A>(a), std::forward<B>(b), std::forward<C>(c), std::forward<D>(d),
                                         std::forward<E>(e), std::forward<F>(f), std::forward<G>(g),
                                         std::forward<H>(h));
  }
};

}  // namespace ac2
