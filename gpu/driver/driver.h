// Opens CUDA's driver at run time.
#ifndef CAIRN_GPU_DRIVER_DRIVER_H_
#define CAIRN_GPU_DRIVER_DRIVER_H_

#include <string>

#include "gpu/driver/driver_api.h"

namespace cairn {

// The library "libcuda", opened and initialised. Stays open until the process ends: the trainer uses it too.
// Thread-safe.
class GpuDriver {
 public:
  static constexpr char kLibrary[] = "libcuda.so.1";

  // `path` is a name that the loader looks up, or an absolute path. Returns null, and the cause in `error`, if there is
  // no such library, if it lacks one of the functions, or if cuInit fails (because there is no device, or in a forked
  // child). A later call tries again.
  static const GpuDriver* Open(const std::string& path, std::string* error);
  // Does the same as Open, but waits at most `seconds` for a driver that hangs while it initialises. Then it returns
  // null and sets `stalled`; a later call waits for the same initialisation.
  static const GpuDriver* OpenWithin(const std::string& path, double seconds, std::string* error, bool* stalled);

  const cuda::Functions& call() const { return functions_; }
  // Returns whether the library has the functions of CAIRN_CUDA_SHARING_FUNCTIONS.
  bool shares_memory() const { return shares_memory_; }
  // A stand-in for tests exports the symbol `cairn_stand_in`.
  bool is_stand_in() const { return is_stand_in_; }

  // Returns a name for messages, such as "CUDA_ERROR_OUT_OF_MEMORY".
  std::string NameOf(cuda::Result result) const;

 private:
  GpuDriver() = default;

  cuda::Functions functions_;
  bool shares_memory_ = false;
  bool is_stand_in_ = false;
};

}  // namespace cairn

#endif  // CAIRN_GPU_DRIVER_DRIVER_H_
