#include "gpu/driver/library.h"

#include <dlfcn.h>

#include <array>
#include <type_traits>

namespace cairn {
namespace {

constexpr std::array<const char*, 8> kNames = {"ncclSuccess",       "ncclUnhandledCudaError", "ncclSystemError",
                                               "ncclInternalError", "ncclInvalidArgument",    "ncclInvalidUsage",
                                               "ncclRemoteError",   "ncclInProgress"};

}  // namespace

std::unique_ptr<const NcclLibrary> NcclLibrary::Open(const std::string& path, std::string* error) {
  void* opened = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) {
    *error = dlerror();
    return nullptr;
  }
  std::unique_ptr<NcclLibrary> library(new NcclLibrary);
  const char* missing = nullptr;
  const auto resolve = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(opened, symbol));
    if (function == nullptr && missing == nullptr) missing = symbol;
  };
#define CAIRN_NCCL_RESOLVE(member, symbol, result, parameters) resolve(library->functions_.member, #symbol);
  CAIRN_NCCL_FUNCTIONS(CAIRN_NCCL_RESOLVE)
#undef CAIRN_NCCL_RESOLVE
  library->is_stand_in_ = dlsym(opened, "cairn_stand_in") != nullptr;
  if (missing != nullptr) {
    *error = path + " has no " + missing + "; it is not NCCL, or too old";
    return nullptr;
  }
  return library;
}

int NcclLibrary::version() const {
  int version = 0;
  return functions_.get_version(&version) == nccl::kSuccess ? version : 0;
}

std::string NcclLibrary::Describe(nccl::Result result, nccl::Comm comm) const {
  std::string text = result >= 0 && static_cast<size_t>(result) < kNames.size()
                         ? kNames[static_cast<size_t>(result)]
                         : "NCCL error " + std::to_string(result);
  const char* last = functions_.get_last_error(comm);
  if (last != nullptr && *last != '\0') text += std::string(": ") + last;
  return text;
}

}  // namespace cairn
