#include "common/gpu/driver.h"

#include <dlfcn.h>

#include <map>
#include <memory>
#include <utility>

#include "common/base/mutex.h"

namespace cairn {
namespace {

struct OpenDrivers {
  Mutex mutex;
  std::map<std::string, std::unique_ptr<const GpuDriver>> by_path ABSL_GUARDED_BY(mutex);
};

// It is never destroyed: copies may run while the process ends.
OpenDrivers& Drivers() {
  static OpenDrivers& drivers = *new OpenDrivers;
  return drivers;
}

}  // namespace

const GpuDriver* GpuDriver::Open(const std::string& path, std::string* error) {
  OpenDrivers& drivers = Drivers();
  MutexLock lock(drivers.mutex);
  const auto found = drivers.by_path.find(path);
  if (found != drivers.by_path.end()) return found->second.get();
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    *error = dlerror();
    return nullptr;
  }
  std::unique_ptr<GpuDriver> driver(new GpuDriver);
  const char* missing = nullptr;
  const auto resolve = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, symbol));
    if (function == nullptr && missing == nullptr) missing = symbol;
  };
#define CAIRN_CUDA_RESOLVE(member, symbol, parameters) resolve(driver->functions_.member, #symbol);
  CAIRN_CUDA_FUNCTIONS(CAIRN_CUDA_RESOLVE)
  const char* refused = std::exchange(missing, nullptr);
  CAIRN_CUDA_SHARING_FUNCTIONS(CAIRN_CUDA_RESOLVE)
  driver->shares_memory_ = missing == nullptr;
  missing = refused;
  if (!driver->shares_memory_) {
#define CAIRN_CUDA_CLEAR(member, symbol, parameters) driver->functions_.member = nullptr;
    CAIRN_CUDA_SHARING_FUNCTIONS(CAIRN_CUDA_CLEAR)
#undef CAIRN_CUDA_CLEAR
  }
#undef CAIRN_CUDA_RESOLVE
  driver->is_stand_in_ = dlsym(library, "cairn_stand_in") != nullptr;
  if (missing != nullptr) {
    *error = path + " has no " + missing + ": the driver is too old";
    return nullptr;
  }
  const cuda::Result started = driver->call().init(0);
  if (started != cuda::kSuccess) {
    *error = path + ": cuInit: " + driver->NameOf(started);
    return nullptr;
  }
  return (drivers.by_path[path] = std::move(driver)).get();
}

std::string GpuDriver::NameOf(cuda::Result result) const {
  const char* name = nullptr;
  if (functions_.get_error_name(result, &name) != cuda::kSuccess || name == nullptr) {
    return "CUDA error " + std::to_string(result);
  }
  return name;
}

}  // namespace cairn
