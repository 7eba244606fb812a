// This header makes GCC's headers of C++ use glibc 2.28 alone. The compiler is told to include it first
// (cmake/manylinux.cmake).
#pragma once
#include <bits/c++config.h>

// pthread_cond_clockwait and the two others came with glibc 2.30. Without them the headers take the calls that were
// there before, and a wait until a steady clock's time asks that clock again when it wakes.
#undef _GLIBCXX_USE_PTHREAD_COND_CLOCKWAIT
#undef _GLIBCXX_USE_PTHREAD_MUTEX_CLOCKLOCK
#undef _GLIBCXX_USE_PTHREAD_RWLOCK_CLOCKLOCK
