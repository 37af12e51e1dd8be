// Compares our declarations of the driver's calls with the toolkit's. The comparison is done by the compiler.
#include "gpu/driver/driver_api.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <type_traits>

#if __has_include(<cuda.h>)
#include <cuda.h>

namespace cairn::cuda {
namespace {

// Two types are passed alike if both are pointers, or both are integers (or enums) of one size and sign.
template <typename T>
constexpr int KindOf() {
  if constexpr (std::is_pointer_v<T>) {
    return 0;
  } else if constexpr (std::is_class_v<T>) {
    return 1000 + static_cast<int>(sizeof(T));
  } else if constexpr (std::is_enum_v<T>) {
    return sizeof(T) == sizeof(int) ? 4 : -1;  // the sign of an enum's type does not show in how it is passed
  } else if constexpr (std::is_same_v<T, int>) {
    return 4;
  } else {
    static_assert(std::is_integral_v<T>);
    return static_cast<int>(sizeof(T)) + (std::is_signed_v<T> ? 100 : 200);
  }
}

template <typename Ours, typename Theirs>
struct Same : std::false_type {};
template <typename R, typename... Ours, typename S, typename... Theirs>
struct Same<R (*)(Ours...), S (*)(Theirs...)> {
  static constexpr bool Check() {
    if constexpr (sizeof...(Ours) != sizeof...(Theirs)) {
      return false;
    } else {
      return KindOf<R>() == KindOf<S>() && (... && (KindOf<Ours>() == KindOf<Theirs>()));
    }
  }
  static constexpr bool value = Check();
};

// An int flag of ours against an unsigned one of theirs would not show otherwise.
static_assert(!Same<int (*)(int), CUresult (*)(unsigned)>::value);
static_assert(!Same<int (*)(int), CUresult (*)(long)>::value);
static_assert(!Same<int (*)(int), CUresult (*)(void*)>::value);

#define CAIRN_COMPARE(member, symbol, parameters) \
  static_assert(Same<decltype(Functions::member)::Pointer, decltype(&::symbol)>::value, #symbol);
CAIRN_CUDA_FUNCTIONS(CAIRN_COMPARE)
CAIRN_CUDA_SHARING_FUNCTIONS(CAIRN_COMPARE)
#undef CAIRN_COMPARE

static_assert(kSuccess == CUDA_SUCCESS);
static_assert(kInvalidValue == CUDA_ERROR_INVALID_VALUE);
static_assert(kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(kNotInitialized == CUDA_ERROR_NOT_INITIALIZED);
static_assert(kNoDevice == CUDA_ERROR_NO_DEVICE);
static_assert(kInvalidDevice == CUDA_ERROR_INVALID_DEVICE);
static_assert(kInvalidContext == CUDA_ERROR_INVALID_CONTEXT);
static_assert(kMapFailed == CUDA_ERROR_MAP_FAILED);
static_assert(kInvalidHandle == CUDA_ERROR_INVALID_HANDLE);
static_assert(kInvalidPtx == CUDA_ERROR_INVALID_PTX);
static_assert(kIllegalState == CUDA_ERROR_ILLEGAL_STATE);
static_assert(kNotFound == CUDA_ERROR_NOT_FOUND);
static_assert(kStreamCaptureImplicit == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
static_assert(kStreamCaptureUnsupported == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
static_assert(kStreamCaptureInvalidated == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
static_assert(kStreamCaptureIsolation == CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
static_assert(kCapturedEvent == CUDA_ERROR_CAPTURED_EVENT);
static_assert(kStreamCaptureWrongThread == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
static_assert(kCaptureNone == CU_STREAM_CAPTURE_STATUS_NONE);
static_assert(kCaptureActive == CU_STREAM_CAPTURE_STATUS_ACTIVE);
static_assert(kCaptureInvalidated == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
static_assert(kCaptureGlobal == CU_STREAM_CAPTURE_MODE_GLOBAL);
static_assert(kCaptureRelaxed == CU_STREAM_CAPTURE_MODE_RELAXED);
static_assert(kDeviceComputeMajor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(kDeviceComputeMinor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(kDeviceHandleTypePosix == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
static_assert(kDeviceHandleTypeFabric == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED);
static_assert(kNotReady == CUDA_ERROR_NOT_READY);
static_assert(kIllegalAddress == CUDA_ERROR_ILLEGAL_ADDRESS);
static_assert(kHostMemoryAlreadyRegistered == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
static_assert(kHostMemoryNotRegistered == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
static_assert(kNotSupported == CUDA_ERROR_NOT_SUPPORTED);
static_assert(kUnknown == CUDA_ERROR_UNKNOWN);
static_assert(kStreamNonBlocking == CU_STREAM_NON_BLOCKING);
static_assert(kEventBlockingSync == CU_EVENT_BLOCKING_SYNC);
static_assert(kEventDisableTiming == CU_EVENT_DISABLE_TIMING);
static_assert(kMemHostAllocPortable == CU_MEMHOSTALLOC_PORTABLE);
static_assert(kMemHostRegisterPortable == CU_MEMHOSTREGISTER_PORTABLE);
static_assert(kMemoryTypeHost == CU_MEMORYTYPE_HOST);
static_assert(kMemoryTypeDevice == CU_MEMORYTYPE_DEVICE);
static_assert(kDeviceInvalid == CU_DEVICE_INVALID);
static_assert(kPointerMemoryType == CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
static_assert(kPointerDeviceOrdinal == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
static_assert(kPointerLegacyIpcCapable == CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE);
static_assert(kPointerAllowedHandleTypes == CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES);
static_assert(kHandlePosix == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
static_assert(kHandleFabric == CU_MEM_HANDLE_TYPE_FABRIC);
static_assert(kAllocationPinned == CU_MEM_ALLOCATION_TYPE_PINNED);
static_assert(kLocationDevice == CU_MEM_LOCATION_TYPE_DEVICE);
static_assert(kAccessNone == CU_MEM_ACCESS_FLAGS_PROT_NONE);
static_assert(kAccessRead == CU_MEM_ACCESS_FLAGS_PROT_READ);
static_assert(kAccessReadWrite == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
static_assert(kGranularityMinimum == CU_MEM_ALLOC_GRANULARITY_MINIMUM);
static_assert(kIpcLazyPeerAccess == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);

static_assert(sizeof(AllocationProperties) == sizeof(CUmemAllocationProp));
static_assert(offsetof(AllocationProperties, handle_types) == offsetof(CUmemAllocationProp, requestedHandleTypes));
static_assert(offsetof(AllocationProperties, location) == offsetof(CUmemAllocationProp, location));
static_assert(sizeof(MemoryLocation) == sizeof(CUmemLocation));
static_assert(sizeof(MemoryAccess) == sizeof(CUmemAccessDesc));
static_assert(offsetof(MemoryAccess, flags) == offsetof(CUmemAccessDesc, flags));
static_assert(sizeof(IpcMemoryHandle) == sizeof(CUipcMemHandle));
static_assert(sizeof(FabricHandle) == sizeof(CUmemFabricHandle));
static_assert(sizeof(Uuid) == sizeof(CUuuid));

static_assert(sizeof(Copy2D) == sizeof(CUDA_MEMCPY2D));
static_assert(offsetof(Copy2D, source_type) == offsetof(CUDA_MEMCPY2D, srcMemoryType));
static_assert(offsetof(Copy2D, source_host) == offsetof(CUDA_MEMCPY2D, srcHost));
static_assert(offsetof(Copy2D, source_device) == offsetof(CUDA_MEMCPY2D, srcDevice));
static_assert(offsetof(Copy2D, source_pitch) == offsetof(CUDA_MEMCPY2D, srcPitch));
static_assert(offsetof(Copy2D, target_x) == offsetof(CUDA_MEMCPY2D, dstXInBytes));
static_assert(offsetof(Copy2D, target_type) == offsetof(CUDA_MEMCPY2D, dstMemoryType));
static_assert(offsetof(Copy2D, target_host) == offsetof(CUDA_MEMCPY2D, dstHost));
static_assert(offsetof(Copy2D, target_device) == offsetof(CUDA_MEMCPY2D, dstDevice));
static_assert(offsetof(Copy2D, target_pitch) == offsetof(CUDA_MEMCPY2D, dstPitch));
static_assert(offsetof(Copy2D, width) == offsetof(CUDA_MEMCPY2D, WidthInBytes));
static_assert(offsetof(Copy2D, height) == offsetof(CUDA_MEMCPY2D, Height));

TEST(DriverApiTest, SpecialStreams_AsInTheHeader_HaveOurNumbers) {
  EXPECT_EQ(reinterpret_cast<uint64_t>(CU_STREAM_LEGACY), kStreamLegacy);
}

}  // namespace
}  // namespace cairn::cuda

#else

TEST(DriverApiTest, Declarations_WithoutTheToolkitsHeader_AreNotCompared) {
  GTEST_SKIP() << "this machine has no cuda.h (CUDA_HOME, /usr/local/cuda)";
}

#endif
