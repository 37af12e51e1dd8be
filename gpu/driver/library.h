// Opens NCCL at run time.
#ifndef CAIRN_GPU_DRIVER_LIBRARY_H_
#define CAIRN_GPU_DRIVER_LIBRARY_H_

#include <memory>
#include <string>

#include "gpu/driver/nccl_api.h"

namespace cairn {

// The library "libnccl". It stays open until the process ends. Only cairn-gpu-worker and tests open it, because a call
// may hang, and then the process must be ended. Thread-safe.
class NcclLibrary {
 public:
  static constexpr char kLibrary[] = "libnccl.so.2";

  // `path` is a name that the loader looks up, or an absolute path. Returns null, and the cause in `error`, if there is
  // no such library or if it lacks one of the functions.
  static std::unique_ptr<const NcclLibrary> Open(const std::string& path, std::string* error);

  const nccl::Functions& call() const { return functions_; }
  // A stand-in for tests exports the symbol `cairn_stand_in`.
  bool is_stand_in() const { return is_stand_in_; }
  // Returns the version, for example 22809 for 2.28.9; 0 if the library does not tell it.
  int version() const;

  // Returns a text for messages, such as "ncclInvalidUsage: Duplicate GPU detected". `comm` may be null.
  std::string Describe(nccl::Result result, nccl::Comm comm) const;

 private:
  NcclLibrary() = default;

  nccl::Functions functions_;
  bool is_stand_in_ = false;
};

}  // namespace cairn

#endif  // CAIRN_GPU_DRIVER_LIBRARY_H_
