// Declares the functions of CUDA's driver that Cairn calls. Cairn does not include cuda.h, because the driver is opened
// at run time and most machines that build Cairn have no CUDA. driver_api_test.cc compares these declarations with
// cuda.h if there is one.
#ifndef CAIRN_GPU_DRIVER_DRIVER_API_H_
#define CAIRN_GPU_DRIVER_DRIVER_API_H_

#include <cstddef>
#include <cstdint>

#include "gpu/driver/call_watch.h"

namespace cairn::cuda {

// CUresult. Only the values that Cairn or its stand-in uses are listed.
using Result = int;
inline constexpr Result kSuccess = 0;
inline constexpr Result kInvalidValue = 1;
inline constexpr Result kOutOfMemory = 2;
inline constexpr Result kNotInitialized = 3;
inline constexpr Result kNoDevice = 100;
inline constexpr Result kInvalidDevice = 101;
inline constexpr Result kInvalidImage = 200;
inline constexpr Result kInvalidContext = 201;
inline constexpr Result kMapFailed = 205;
inline constexpr Result kInvalidPtx = 218;
inline constexpr Result kInvalidHandle = 400;
inline constexpr Result kIllegalState = 401;
inline constexpr Result kNotFound = 500;
inline constexpr Result kNotReady = 600;
inline constexpr Result kIllegalAddress = 700;
inline constexpr Result kHostMemoryAlreadyRegistered = 712;
inline constexpr Result kHostMemoryNotRegistered = 713;
inline constexpr Result kNotPermitted = 800;
inline constexpr Result kNotSupported = 801;
inline constexpr Result kStreamCaptureUnsupported = 900;  // the call is not allowed while a stream captures a graph
inline constexpr Result kStreamCaptureInvalidated = 901;
inline constexpr Result kStreamCaptureIsolation = 905;  // a capturing stream would wait for work that is not captured
inline constexpr Result kStreamCaptureImplicit = 906;   // a call on the default stream while another stream captures
inline constexpr Result kCapturedEvent = 907;
inline constexpr Result kStreamCaptureWrongThread = 908;
inline constexpr Result kUnknown = 999;

using Device = int;
using DevicePointer = unsigned long long;  // CUdeviceptr
using Context = struct ContextHandle*;
using Stream = struct StreamHandle*;
using Event = struct EventHandle*;
using Module = struct ModuleHandle*;
using Function = struct FunctionHandle*;
using Graph = struct GraphHandle*;
using AllocationHandle = unsigned long long;  // CUmemGenericAllocationHandle

// Flags of streams, events and host memory.
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventBlockingSync = 1;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kMemHostAllocPortable = 1;
inline constexpr unsigned kMemHostRegisterPortable = 1;
// Required for memory that the process may only read. The device can then only read it, too.
inline constexpr unsigned kMemHostRegisterReadOnly = 8;

// CUstreamCaptureStatus.
inline constexpr int kCaptureNone = 0;
inline constexpr int kCaptureActive = 1;
inline constexpr int kCaptureInvalidated = 2;

// CUstreamCaptureMode. All threads begin in the global mode. While one thread captures in the global mode, a call such
// as cuEventQuery in another thread of the global mode makes the capture fail. A call in a relaxed thread does not.
inline constexpr int kCaptureGlobal = 0;
inline constexpr int kCaptureRelaxed = 2;

// CUmemorytype.
inline constexpr int kMemoryTypeHost = 1;
inline constexpr int kMemoryTypeDevice = 2;

// The ordinal of a pointer that is no device memory.
inline constexpr int kDeviceInvalid = -2;

// CUpointer_attribute.
inline constexpr int kPointerMemoryType = 2;
inline constexpr int kPointerDeviceOrdinal = 9;
inline constexpr int kPointerLegacyIpcCapable = 10;
inline constexpr int kPointerAllowedHandleTypes = 14;

// CUmemAllocationHandleType; the values are bits.
inline constexpr unsigned long long kHandlePosix = 1;
inline constexpr unsigned long long kHandleFabric = 8;

// For memory that is made and mapped by handles: CUmemAllocationType, CUmemLocationType, CUmemAccess_flags and
// CUmemAllocationGranularity_flags.
inline constexpr int kAllocationPinned = 1;
inline constexpr int kLocationDevice = 1;
inline constexpr int kAccessNone = 0;
inline constexpr int kAccessRead = 1;
inline constexpr int kAccessReadWrite = 3;
inline constexpr int kGranularityMinimum = 0;

// CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, which cuIpcOpenMemHandle requires.
inline constexpr unsigned kIpcLazyPeerAccess = 1;

// CUdevice_attribute.
inline constexpr int kDeviceComputeMajor = 75;
inline constexpr int kDeviceComputeMinor = 76;
inline constexpr int kDeviceHandleTypePosix = 103;
inline constexpr int kDeviceHandleTypeFabric = 128;

// The handle of the legacy default stream.
inline constexpr uint64_t kStreamLegacy = 1;

// Has the fields of CUDA_MEMCPY2D.
struct Copy2D {
  size_t source_x;
  size_t source_y;
  int source_type;
  const void* source_host;
  DevicePointer source_device;
  void* source_array;
  size_t source_pitch;
  size_t target_x;
  size_t target_y;
  int target_type;
  void* target_host;
  DevicePointer target_device;
  void* target_array;
  size_t target_pitch;
  size_t width;
  size_t height;
};

// Has the fields of CUmemLocation.
struct MemoryLocation {
  int type = kLocationDevice;
  int device = 0;
};

// Has the fields of CUmemAllocationProp.
struct AllocationProperties {
  int type = kAllocationPinned;
  int handle_types = 0;
  MemoryLocation location;
  void* windows = nullptr;
  unsigned char compression = 0;
  unsigned char rdma = 0;
  unsigned short usage = 0;
  unsigned char reserved[4] = {};
};

// Has the fields of CUmemAccessDesc.
struct MemoryAccess {
  MemoryLocation location;
  int flags = kAccessNone;
};

// Has the fields of CUipcMemHandle.
struct IpcMemoryHandle {
  char bytes[64] = {};
};

// Has the field of CUmemFabricHandle.
struct FabricHandle {
  char bytes[64] = {};
};

// Has the fields of CUuuid.
struct Uuid {
  char bytes[16] = {};
};

// Calls F(member of Functions, symbol of the library, signature) for each function. Symbols include their version
// suffix ("_v2"), which cuda.h hides. Only tests capture graphs.
#define CAIRN_CUDA_FUNCTIONS(F)                                                              \
  F(get_error_name, cuGetErrorName, (Result, const char**))                                  \
  F(init, cuInit, (unsigned))                                                                \
  F(driver_get_version, cuDriverGetVersion, (int*))                                          \
  F(device_get_count, cuDeviceGetCount, (int*))                                              \
  F(device_get, cuDeviceGet, (Device*, int))                                                 \
  F(device_get_name, cuDeviceGetName, (char*, int, Device))                                  \
  F(device_get_attribute, cuDeviceGetAttribute, (int*, int, Device))                         \
  F(primary_context_retain, cuDevicePrimaryCtxRetain, (Context*, Device))                    \
  F(primary_context_release, cuDevicePrimaryCtxRelease_v2, (Device))                         \
  F(context_push, cuCtxPushCurrent_v2, (Context))                                            \
  F(context_pop, cuCtxPopCurrent_v2, (Context*))                                             \
  F(memory_get_info, cuMemGetInfo_v2, (size_t*, size_t*))                                    \
  F(memory_allocate, cuMemAlloc_v2, (DevicePointer*, size_t))                                \
  F(memory_free, cuMemFree_v2, (DevicePointer))                                              \
  F(host_allocate, cuMemHostAlloc, (void**, size_t, unsigned))                               \
  F(host_free, cuMemFreeHost, (void*))                                                       \
  F(host_register, cuMemHostRegister_v2, (void*, size_t, unsigned))                          \
  F(host_unregister, cuMemHostUnregister, (void*))                                           \
  F(pointer_get_attribute, cuPointerGetAttribute, (void*, int, DevicePointer))               \
  F(pointer_get_attributes, cuPointerGetAttributes, (unsigned, int*, void**, DevicePointer)) \
  F(memory_get_range, cuMemGetAddressRange_v2, (DevicePointer*, size_t*, DevicePointer))     \
  F(copy_to_host, cuMemcpyDtoHAsync_v2, (void*, DevicePointer, size_t, Stream))              \
  F(copy_to_device, cuMemcpyHtoDAsync_v2, (DevicePointer, const void*, size_t, Stream))      \
  F(copy_2d, cuMemcpy2DAsync_v2, (const Copy2D*, Stream))                                    \
  F(stream_create, cuStreamCreate, (Stream*, unsigned))                                      \
  F(stream_destroy, cuStreamDestroy_v2, (Stream))                                            \
  F(stream_wait_event, cuStreamWaitEvent, (Stream, Event, unsigned))                         \
  F(stream_query, cuStreamQuery, (Stream))                                                   \
  F(stream_is_capturing, cuStreamIsCapturing, (Stream, int*))                                \
  F(thread_exchange_capture_mode, cuThreadExchangeStreamCaptureMode, (int*))                 \
  F(stream_begin_capture, cuStreamBeginCapture_v2, (Stream, int))                            \
  F(stream_end_capture, cuStreamEndCapture, (Stream, Graph*))                                \
  F(graph_destroy, cuGraphDestroy, (Graph))                                                  \
  F(stream_synchronize, cuStreamSynchronize, (Stream))                                       \
  F(event_create, cuEventCreate, (Event*, unsigned))                                         \
  F(event_destroy, cuEventDestroy_v2, (Event))                                               \
  F(event_record, cuEventRecord, (Event, Stream))                                            \
  F(event_query, cuEventQuery, (Event))                                                      \
  F(event_synchronize, cuEventSynchronize, (Event))                                          \
  F(module_load, cuModuleLoadData, (Module*, const void*))                                   \
  F(module_unload, cuModuleUnload, (Module))                                                 \
  F(module_get_function, cuModuleGetFunction, (Function*, Module, const char*))              \
  F(launch_kernel, cuLaunchKernel,                                                           \
    (Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream, void**, void**))

// Functions for memory by handles, and for sharing memory between processes. If the driver lacks one of them (before
// 11.4), all of them are null.
#define CAIRN_CUDA_SHARING_FUNCTIONS(F)                                                                        \
  F(device_get_uuid, cuDeviceGetUuid_v2, (Uuid*, Device))                                                      \
  F(memory_create, cuMemCreate, (AllocationHandle*, size_t, const AllocationProperties*, unsigned long long))  \
  F(memory_release, cuMemRelease, (AllocationHandle))                                                          \
  F(memory_retain, cuMemRetainAllocationHandle, (AllocationHandle*, void*))                                    \
  F(memory_get_properties, cuMemGetAllocationPropertiesFromHandle, (AllocationProperties*, AllocationHandle))  \
  F(memory_get_granularity, cuMemGetAllocationGranularity, (size_t*, const AllocationProperties*, int))        \
  F(memory_export, cuMemExportToShareableHandle, (void*, AllocationHandle, int, unsigned long long))           \
  F(memory_import, cuMemImportFromShareableHandle, (AllocationHandle*, void*, int))                            \
  F(address_reserve, cuMemAddressReserve, (DevicePointer*, size_t, size_t, DevicePointer, unsigned long long)) \
  F(address_free, cuMemAddressFree, (DevicePointer, size_t))                                                   \
  F(memory_map, cuMemMap, (DevicePointer, size_t, size_t, AllocationHandle, unsigned long long))               \
  F(memory_unmap, cuMemUnmap, (DevicePointer, size_t))                                                         \
  F(memory_set_access, cuMemSetAccess, (DevicePointer, size_t, const MemoryAccess*, size_t))                   \
  F(ipc_get_memory, cuIpcGetMemHandle, (IpcMemoryHandle*, DevicePointer))                                      \
  F(ipc_open_memory, cuIpcOpenMemHandle_v2, (DevicePointer*, IpcMemoryHandle, unsigned))                       \
  F(ipc_close_memory, cuIpcCloseMemHandle, (DevicePointer))

struct Functions {
#define CAIRN_CUDA_MEMBER(member, symbol, parameters) WatchedFunction<Result parameters> member;
  CAIRN_CUDA_FUNCTIONS(CAIRN_CUDA_MEMBER)
  CAIRN_CUDA_SHARING_FUNCTIONS(CAIRN_CUDA_MEMBER)
#undef CAIRN_CUDA_MEMBER
};

}  // namespace cairn::cuda

#endif  // CAIRN_GPU_DRIVER_DRIVER_API_H_
