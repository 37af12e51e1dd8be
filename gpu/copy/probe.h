// Looks at a machine's GPUs and says what saves and loads will do with them.
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
  // These say as what memory of the device can be exported, if its allocator asks for that.
  bool posix_handles = false;
  bool fabric_handles = false;
  std::string error;  // of the driver's call that ended the look at this device; "" if none did
};

struct GpuProbe {
  std::string error;  // why there is no driver; the rest is not set then
  int driver_version = 0;
  bool is_stand_in = false;
  std::vector<GpuDeviceProbe> devices;
  // Says how `save` will take arrays from a GPU: "pinned-slab", "pinned-ring" or "pageable". It is empty without a
  // device.
  std::string path;
  std::string fallback;  // the call and its result that ruled out the better path
  // These say how long it takes to pin shared memory, of which slabs are made, and how fast device 0 copies to it. They
  // are 0 if that could not be measured.
  double pin_seconds_per_gb = 0;
  double to_host_gb_per_second = 0;
  // Why the kernel that proves overlapped saves cannot be loaded; "" if it can.
  std::string no_proof;
};

// `library` as for GpuDriver::Open. It takes `bytes` of shared memory and of the device's for a moment. A driver that
// hangs keeps it.
GpuProbe ProbeGpu(const std::string& library, int64_t bytes);

// The probe for people: lines with a name, two spaces or more, and a value.
std::string TextOf(const GpuProbe& probe);

}  // namespace cairn

#endif  // CAIRN_GPU_COPY_PROBE_H_
