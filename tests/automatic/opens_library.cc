// A program without LibTorch that opens a library and calls its run_plugin(). ac2_run_test starts it:
//
//   opens_library libplugin.so               // in the folder that the program's RUNPATH names
//   opens_library other/libtorch_cpu.so      // by its path
#include <dlfcn.h>

#include <cstdio>

int main(int count, char** arguments) {
  for (int i = 1; i < count; ++i) {
    void* const library = dlopen(arguments[i], RTLD_NOW);
    if (library == nullptr) {
      std::puts("not found");
      return 4;
    }
    if (const char* const error = dlerror()) {
      std::printf("an error after a success: %s\n", error);
      return 5;
    }
    reinterpret_cast<void (*)()>(dlsym(library, "run_plugin"))();
  }
  std::puts("done");
  return 6;
}
