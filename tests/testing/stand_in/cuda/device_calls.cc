// The calls of CUDA's driver about devices, contexts and errors, as the stand-in makes them. tests/README.md says how
// it differs from a driver.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <mutex>
#include <utility>

#include "gpu/driver/driver_api.h"
#include "tests/testing/stand_in/cuda/controls.h"
#include "tests/testing/stand_in/cuda/entry.h"
#include "tests/testing/stand_in/cuda/state.h"

// NOLINTBEGIN(readability-identifier-naming): the names are the driver's.
using namespace cairn::stand_in;
using namespace cairn::cuda;

extern "C" {

Result cuGetErrorName(Result result, const char** name) {
  static constexpr std::pair<Result, const char*> kNames[] = {
      {kSuccess, "CUDA_SUCCESS"},
      {kInvalidValue, "CUDA_ERROR_INVALID_VALUE"},
      {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY"},
      {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED"},
      {kNoDevice, "CUDA_ERROR_NO_DEVICE"},
      {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE"},
      {kInvalidImage, "CUDA_ERROR_INVALID_IMAGE"},
      {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT"},
      {kMapFailed, "CUDA_ERROR_MAP_FAILED"},
      {kInvalidPtx, "CUDA_ERROR_INVALID_PTX"},
      {kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE"},
      {kNotFound, "CUDA_ERROR_NOT_FOUND"},
      {kNotReady, "CUDA_ERROR_NOT_READY"},
      {kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS"},
      {kHostMemoryAlreadyRegistered, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"},
      {kHostMemoryNotRegistered, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED"},
      {kNotSupported, "CUDA_ERROR_NOT_SUPPORTED"},
      {kIllegalState, "CUDA_ERROR_ILLEGAL_STATE"},
      {kStreamCaptureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
      {kStreamCaptureInvalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
      {kStreamCaptureIsolation, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION"},
      {kStreamCaptureImplicit, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"},
      {kCapturedEvent, "CUDA_ERROR_CAPTURED_EVENT"},
      {kStreamCaptureWrongThread, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD"},
      {kUnknown, "CUDA_ERROR_UNKNOWN"},
  };
  for (const auto& [code, text] : kNames) {
    if (code == result) {
      *name = text;
      return kSuccess;
    }
  }
  *name = nullptr;
  return kInvalidValue;
}

Result cuInit(unsigned flags) {
  State& state = TheState();
  std::unique_lock lock(state.mutex);
  Result result = kSuccess;
  if (Meet(state, lock, "cuInit", &result)) return result;
  if (flags != 0) return kInvalidValue;
  if (state.process == 0) {
    state.process = getpid();
    ReadSettings();
  }
  return state.process == getpid() ? kSuccess : kNotInitialized;
}

Result cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}

Result cuDeviceGetCount(int* count) {
  CAIRN_ENTER(false);
  const std::lock_guard lock(TheState().mutex);
  *count = static_cast<int>(TheState().settings.devices);
  return kSuccess;
}

Result cuDeviceGet(Device* device, int ordinal) {
  CAIRN_ENTER(false);
  const std::lock_guard lock(TheState().mutex);
  if (ordinal < 0 || ordinal >= TheState().settings.devices) return kInvalidDevice;
  *device = ordinal;
  return kSuccess;
}

Result cuDeviceGetName(char* name, int length, Device device) {
  CAIRN_ENTER(false);
  std::snprintf(name, static_cast<size_t>(length), "stand-in %d", device);
  return kSuccess;
}

Result cuDeviceGetUuid_v2(Uuid* uuid, Device device) {
  CAIRN_ENTER(false);
  const std::lock_guard lock(TheState().mutex);
  if (device < 0 || device >= TheState().settings.devices) return kInvalidDevice;
  *uuid = {};
  std::snprintf(uuid->bytes, sizeof uuid->bytes, "stand-in %d",
                static_cast<int>(device + TheState().settings.first_device));
  return kSuccess;
}

Result cuDeviceGetAttribute(int* value, int attribute, Device device) {
  CAIRN_ENTER(false);
  const std::lock_guard lock(TheState().mutex);
  if (device < 0 || device >= TheState().settings.devices) return kInvalidDevice;
  switch (attribute) {
    case kDeviceComputeMajor:
      *value = 9;
      return kSuccess;
    case kDeviceComputeMinor:
      *value = 0;
      return kSuccess;
    case kDeviceHandleTypePosix:
      *value = 1;
      return kSuccess;
    case kDeviceHandleTypeFabric:
      *value = static_cast<int>(TheState().settings.fabric);
      return kSuccess;
    default:
      return kInvalidValue;
  }
}

Result cuDevicePrimaryCtxRetain(Context* context, Device device) {
  CAIRN_ENTER(false);
  const std::lock_guard lock(TheState().mutex);
  if (device < 0 || device >= TheState().settings.devices) return kInvalidDevice;
  ++TheState().contexts[device];
  *context = ContextOf(device);
  return kSuccess;
}

Result cuDevicePrimaryCtxRelease_v2(Device device) {
  CAIRN_ENTER(false);
  const std::lock_guard lock(TheState().mutex);
  int64_t& retained = TheState().contexts[device];
  if (retained == 0) return kInvalidContext;
  --retained;
  return kSuccess;
}

Result cuCtxPushCurrent_v2(Context context) {
  CAIRN_ENTER(false);
  const std::lock_guard lock(TheState().mutex);
  const auto found = TheState().contexts.find(DeviceOf(context));
  if (found == TheState().contexts.end() || found->second == 0) return kInvalidContext;
  Current().push_back(context);
  return kSuccess;
}

Result cuCtxPopCurrent_v2(Context* context) {
  CAIRN_ENTER(true);
  *context = Current().back();
  Current().pop_back();
  return kSuccess;
}

int64_t cairn_stand_in_current_device() { return Current().empty() ? -1 : DeviceOf(Current().back()); }

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
