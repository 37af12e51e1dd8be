#include "gpu/copy/probe.h"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gpu/copy/crc_kernels.h"
#include "gpu/driver/driver.h"

namespace cairn {
namespace {

constexpr double kGb = 1e9;

double SecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Examines one driver. Each step stores the first failure as a text.
class Prober {
 public:
  Prober(const GpuDriver& driver, int64_t bytes) : driver_(driver), bytes_(static_cast<size_t>(bytes)) {}

  GpuProbe Run() {
    probe_.is_stand_in = driver_.is_stand_in();
    driver_.call().driver_get_version(&probe_.driver_version);
    int count = 0;
    if (Failed(driver_.call().device_get_count(&count), "cuDeviceGetCount", probe_.error)) return probe_;
    for (int ordinal = 0; ordinal < count; ++ordinal) probe_.devices.push_back(Look(ordinal));
    if (count > 0) InContext(0, probe_.fallback, [&] { Try(); });
    return probe_;
  }

 private:
  bool Failed(cuda::Result result, const char* call, std::string& text) const {
    if (result == cuda::kSuccess) return false;
    if (text.empty()) text = absl::StrCat(call, ": ", driver_.NameOf(result));
    return true;
  }

  template <typename Work>
  void InContext(int ordinal, std::string& error, Work work) {
    const auto& call = driver_.call();
    cuda::Context context = nullptr;
    cuda::Device device = 0;
    if (Failed(call.device_get(&device, ordinal), "cuDeviceGet", error)) return;
    if (Failed(call.primary_context_retain(&context, device), "cuDevicePrimaryCtxRetain", error)) return;
    if (!Failed(call.context_push(context), "cuCtxPushCurrent", error)) {
      work();
      call.context_pop(&context);
    }
    call.primary_context_release(device);
  }

  GpuDeviceProbe Look(int ordinal) {
    const auto& call = driver_.call();
    GpuDeviceProbe found = {.ordinal = ordinal};
    cuda::Device device = 0;
    if (Failed(call.device_get(&device, ordinal), "cuDeviceGet", found.error)) return found;
    std::array<char, 256> name = {};
    if (!Failed(call.device_get_name(name.data(), name.size(), device), "cuDeviceGetName", found.error)) {
      found.name = name.data();
    }
    int posix = 0, fabric = 0;
    call.device_get_attribute(&found.compute_major, cuda::kDeviceComputeMajor, device);
    call.device_get_attribute(&found.compute_minor, cuda::kDeviceComputeMinor, device);
    call.device_get_attribute(&posix, cuda::kDeviceHandleTypePosix, device);
    // An error is ignored: a driver that does not know the attribute has no fabric handles.
    call.device_get_attribute(&fabric, cuda::kDeviceHandleTypeFabric, device);
    found.posix_handles = posix != 0;
    found.fabric_handles = fabric != 0;
    InContext(ordinal, found.error, [&] {
      size_t free_bytes = 0, bytes = 0;
      if (Failed(call.memory_get_info(&free_bytes, &bytes), "cuMemGetInfo", found.error)) return;
      found.free_bytes = free_bytes;
      found.bytes = bytes;
    });
    return found;
  }

  // Tries what a save does, with little memory. The context must be current.
  void Try() {
    const auto& call = driver_.call();
    probe_.path = "pageable";
    TryKernel();
    const int file = memfd_create("cairn-probe", MFD_CLOEXEC);
    void* memory = MAP_FAILED;
    if (file >= 0 && ftruncate(file, static_cast<off_t>(bytes_)) == 0) {
      memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
    }
    if (file >= 0) close(file);
    if (memory == MAP_FAILED) {
      probe_.fallback = "there is no memory for a test copy";
      return;
    }
    const auto begin = std::chrono::steady_clock::now();
    if (!Failed(call.host_register(memory, bytes_, cuda::kMemHostRegisterPortable), "cuMemHostRegister",
                probe_.fallback)) {
      probe_.pin_seconds_per_gb = SecondsSince(begin) / (static_cast<double>(bytes_) / kGb);
      probe_.path = "pinned-slab";
      TimeCopy(memory);
      call.host_unregister(memory);
    } else {
      void* ring = nullptr;
      std::string none;
      if (!Failed(call.host_allocate(&ring, bytes_, cuda::kMemHostAllocPortable), "cuMemHostAlloc", none)) {
        probe_.path = "pinned-ring";
        TimeCopy(ring);
        call.host_free(ring);
      } else {
        absl::StrAppend(&probe_.fallback, "; ", none);
      }
    }
    munmap(memory, bytes_);
  }

  void TryKernel() {
    cuda::Module module = nullptr;
    if (Failed(driver_.call().module_load(&module, kCrc32cKernelPtx), "cuModuleLoadData", probe_.no_proof)) return;
    driver_.call().module_unload(module);
  }

  // Measures the second of two copies, because the first one includes the driver's preparations.
  void TimeCopy(void* host) {
    const auto& call = driver_.call();
    cuda::DevicePointer device = 0;
    cuda::Stream stream = nullptr;
    if (call.memory_allocate(&device, bytes_) != cuda::kSuccess) return;
    if (call.stream_create(&stream, cuda::kStreamNonBlocking) == cuda::kSuccess) {
      for (int i = 0; i < 2; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        if (call.copy_to_host(host, device, bytes_, stream) != cuda::kSuccess ||
            call.stream_synchronize(stream) != cuda::kSuccess) {
          break;
        }
        probe_.to_host_gb_per_second = static_cast<double>(bytes_) / kGb / SecondsSince(begin);
      }
      call.stream_destroy(stream);
    }
    call.memory_free(device);
  }

  const GpuDriver& driver_;
  const size_t bytes_;
  GpuProbe probe_;
};

}  // namespace

GpuProbe ProbeGpu(const std::string& library, int64_t bytes) {
  std::string error;
  const GpuDriver* driver = GpuDriver::Open(library, &error);
  if (driver == nullptr) return {.error = error};
  return Prober(*driver, bytes).Run();
}

std::string TextOf(const GpuProbe& probe) {
  std::string text;
  const auto line = [&](const std::string& name, const std::string& value) {
    absl::StrAppend(&text, absl::StrFormat("%-16s%s\n", name, value));
  };
  if (!probe.error.empty()) {
    line("driver", absl::StrCat("none (", probe.error, "): arrays on GPUs cannot be saved"));
    return text;
  }
  line("driver", absl::StrFormat("CUDA %d.%d%s", probe.driver_version / 1000, probe.driver_version % 1000 / 10,
                                 probe.is_stand_in ? ", a stand-in for tests" : ""));
  if (probe.devices.empty()) line("devices", "none");
  for (const GpuDeviceProbe& device : probe.devices) {
    const std::string handles =
        absl::StrCat(device.posix_handles ? " descriptors" : "", device.fabric_handles ? " fabric" : "");
    line(absl::StrCat("device ", device.ordinal),
         device.error.empty()
             ? absl::StrFormat("%s, compute %d.%d, %.1f of %.1f GB free; exports memory as:%s", device.name,
                               device.compute_major, device.compute_minor, static_cast<double>(device.free_bytes) / kGb,
                               static_cast<double>(device.bytes) / kGb, handles.empty() ? " nothing" : handles)
             : device.error);
  }
  if (probe.path.empty()) return text;
  line("pinning", probe.pin_seconds_per_gb > 0 ? absl::StrFormat("%.3f s/GB", probe.pin_seconds_per_gb)
                                               : absl::StrCat("refused (", probe.fallback, ")"));
  if (probe.to_host_gb_per_second > 0)
    line("copy", absl::StrFormat("%.1f GB/s to the host", probe.to_host_gb_per_second));
  line("save", absl::StrCat(probe.path, probe.fallback.empty() ? "" : absl::StrCat(" (", probe.fallback, ")"),
                            probe.path == "pinned-slab" ? "; overlap= is possible" : "; overlap= is synchronous"));
  line("proof", probe.no_proof.empty() ? "the kernel can be loaded" : absl::StrCat("none (", probe.no_proof, ")"));
  return text;
}

}  // namespace cairn
