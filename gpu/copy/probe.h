// Examines a machine's GPUs, and predicts how saves and loads will use them.
#ifndef CAIRN_GPU_COPY_PROBE_H_
#define CAIRN_GPU_COPY_PROBE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace cairn {

struct GpuDeviceProbe {
  int ordinal = 0;
  std::string name;
  int compute_major = 0;
  int compute_minor = 0;
  uint64_t bytes = 0;
  uint64_t free_bytes = 0;
  // The kinds of handles as which device memory can be exported, if its allocator requests them.
  bool posix_handles = false;
  bool fabric_handles = false;
  std::string error;  // the driver call that failed for this device; "" if none did
};

struct GpuProbe {
  std::string error;  // why there is no driver; then the other fields are not set
  int driver_version = 0;
  bool is_stand_in = false;
  std::vector<GpuDeviceProbe> devices;
  // How `save` will copy arrays from a GPU: "pinned-slab", "pinned-ring" or "pageable"; see DevicePath. Empty without a
  // device.
  std::string path;
  std::string fallback;  // the failed call because of which no better path is used
  // How long it takes to pin shared memory, and how fast device 0 copies to it. 0 if not measured.
  double pin_seconds_per_gb = 0;
  double to_host_gb_per_second = 0;
  // Why the kernel that checks overlapped saves (DeviceDigest) cannot be loaded; "" if it can.
  std::string no_proof;
};

// `library` is as for GpuDriver::Open. The probe uses `bytes` bytes of shared memory and of device memory for a moment.
// It does not return while the driver hangs.
GpuProbe ProbeGpu(const std::string& library, int64_t bytes);

// Returns the probe for people: lines with a name, at least two spaces, and a value.
std::string TextOf(const GpuProbe& probe);

}  // namespace cairn

#endif  // CAIRN_GPU_COPY_PROBE_H_
