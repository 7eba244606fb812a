// What libstdc++'s headers and GCC's static libstdc++ ask for and older libraries do not have. Hidden: each library has its own.
#define HIDDEN __attribute__((visibility("hidden")))

// glibc has it from 2.32 on. libstdc++ asks it whether a counter may do without atomic instructions; zero says no, which is
// always right.
HIDDEN char __libc_single_threaded = 0;

// std::exception_ptr's counter, by the functions that GCC 8 had: its copy constructor and its destructor, which leaves a null
// pointer. Rejected: GCC's own (eh_ptr.o), which bring a terminate handler that nobody calls.
extern void _ZNSt15__exception_ptr13exception_ptrC1ERKS0_(void* to, const void* from);
extern void _ZNSt15__exception_ptr13exception_ptrD1Ev(void* pointer);
HIDDEN void _ZNSt15__exception_ptr13exception_ptr9_M_addrefEv(void* pointer) {
  void* copy;  // never destroyed
  _ZNSt15__exception_ptr13exception_ptrC1ERKS0_(&copy, pointer);
}
HIDDEN void _ZNSt15__exception_ptr13exception_ptr10_M_releaseEv(void* pointer) {
  _ZNSt15__exception_ptr13exception_ptrD1Ev(pointer);
}
