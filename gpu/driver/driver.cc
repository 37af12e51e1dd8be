#include "gpu/driver/driver.h"

#include <dlfcn.h>

#include <map>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "common/base/mutex.h"
#include "gpu/driver/deadline.h"

namespace cairn {
namespace {

struct OpenDrivers {
  Mutex mutex;
  std::map<std::string, std::unique_ptr<const GpuDriver>> by_path ABSL_GUARDED_BY(mutex);
};

// Never destroyed, because copies may run while the process ends.
OpenDrivers& Drivers() {
  static OpenDrivers& drivers = *new OpenDrivers;
  return drivers;
}

// A call of GpuDriver::Open, which may hang.
struct Opening {
  Mutex mutex;
  CondVar changed;
  bool ended ABSL_GUARDED_BY(mutex) = false;
  const GpuDriver* driver ABSL_GUARDED_BY(mutex) = nullptr;
  std::string error ABSL_GUARDED_BY(mutex);
  cuda::CallWatch watch;
};

struct Openings {
  Mutex mutex;
  std::map<std::string, std::shared_ptr<Opening>> by_path ABSL_GUARDED_BY(mutex);
};

// Never destroyed, like Drivers().
Openings& Starts() {
  static Openings& starts = *new Openings;
  return starts;
}

// Returns the running Open of this driver, or begins one; null if the system refuses a thread.
std::shared_ptr<Opening> StartOf(const std::string& path) {
  Openings& starts = Starts();
  MutexLock lock(starts.mutex);
  std::shared_ptr<Opening>& opening = starts.by_path[path];
  if (opening != nullptr) return opening;
  auto fresh = std::make_shared<Opening>();
  try {
    std::thread([fresh, path] {
      const cuda::CallWatch::Here here(fresh->watch);
      std::string error;
      const GpuDriver* driver = GpuDriver::Open(path, &error);
      {
        MutexLock forget(Starts().mutex);
        Starts().by_path.erase(path);
      }
      MutexLock ending(fresh->mutex);
      fresh->driver = driver;
      fresh->error = std::move(error);
      fresh->ended = true;
      fresh->changed.NotifyAll();
    }).detach();
  } catch (const std::system_error&) {
    starts.by_path.erase(path);
    return nullptr;
  }
  return opening = fresh;
}

}  // namespace

const GpuDriver* GpuDriver::OpenWithin(const std::string& path, double seconds, std::string* error, bool* stalled) {
  *stalled = false;
  const Deadline deadline(seconds);
  const std::shared_ptr<Opening> opening = StartOf(path);
  if (opening == nullptr) {
    *error = "the system refuses a thread";
    return nullptr;
  }
  MutexLock lock(opening->mutex);
  while (!opening->ended) {
    if (deadline.passed()) {
      const std::string hanging = opening->watch.Hanging();
      *error = path + ": " + (hanging.empty() ? "the library has not been loaded" : hanging);
      *stalled = true;
      return nullptr;
    }
    opening->changed.WaitFor(opening->mutex, deadline.left());
  }
  *error = opening->error;
  return opening->driver;
}

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
    function.Set(dlsym(library, symbol), symbol);
    if (!function && missing == nullptr) missing = symbol;
  };
#define CAIRN_CUDA_RESOLVE(member, symbol, parameters) resolve(driver->functions_.member, #symbol);
  CAIRN_CUDA_FUNCTIONS(CAIRN_CUDA_RESOLVE)
  const char* refused = std::exchange(missing, nullptr);
  CAIRN_CUDA_SHARING_FUNCTIONS(CAIRN_CUDA_RESOLVE)
  driver->shares_memory_ = missing == nullptr;
  missing = refused;
  if (!driver->shares_memory_) {
#define CAIRN_CUDA_CLEAR(member, symbol, parameters) driver->functions_.member = {};
    CAIRN_CUDA_SHARING_FUNCTIONS(CAIRN_CUDA_CLEAR)
#undef CAIRN_CUDA_CLEAR
  }
#undef CAIRN_CUDA_RESOLVE
  driver->is_stand_in_ = dlsym(library, "cairn_stand_in") != nullptr;
  if (missing != nullptr) {
    *error = path + " has no " + missing + "; it is not CUDA's driver, or too old";
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
