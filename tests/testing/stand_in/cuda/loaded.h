// The stand-in for CUDA's driver, loaded into a test.
#ifndef CAIRN_TESTS_TESTING_STAND_IN_CUDA_LOADED_H_
#define CAIRN_TESTS_TESTING_STAND_IN_CUDA_LOADED_H_

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "gpu/driver/driver.h"
#include "tests/testing/stand_in/cuda/controls.h"

namespace cairn {

// There is one in a process. It ends the process if the library is not there.
struct LoadedStandIn {
  static const LoadedStandIn& Get() {
    static const LoadedStandIn loaded;
    return loaded;
  }

  std::string path;
  const GpuDriver* driver = nullptr;
  decltype(&cairn_stand_in_set) set = nullptr;
  decltype(&cairn_stand_in_fail) fail = nullptr;
  decltype(&cairn_stand_in_hang) hang = nullptr;
  decltype(&cairn_stand_in_count) count = nullptr;
  decltype(&cairn_stand_in_alias) alias = nullptr;
  decltype(&cairn_stand_in_reset) reset = nullptr;

 private:
  LoadedStandIn() {
    path = std::filesystem::absolute("tests/testing/stand_in/cuda/libcairn_stand_in_cuda.so").string();
    std::string error;
    driver = GpuDriver::Open(path, &error);
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (driver == nullptr || library == nullptr) std::abort();
    const auto get = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      if (function == nullptr) std::abort();
    };
    get(set, "cairn_stand_in_set");
    get(fail, "cairn_stand_in_fail");
    get(hang, "cairn_stand_in_hang");
    get(count, "cairn_stand_in_count");
    get(alias, "cairn_stand_in_alias");
    get(reset, "cairn_stand_in_reset");
  }
};

}  // namespace cairn

#endif  // CAIRN_TESTS_TESTING_STAND_IN_CUDA_LOADED_H_
