// Cuts copies between host and device into what a copy engine can do: rows of equal length.
#ifndef CAIRN_GPU_COPY_TRANSFER_H_
#define CAIRN_GPU_COPY_TRANSFER_H_

#include <cstdint>
#include <vector>

#include "common/tensor/tiled_copy.h"

namespace cairn {

// A copy of which one side is a device's memory. On that side the pointer of `copy` is null and `device` is the
// address; its strides there are not negative, and not zero if the device is the target.
struct DeviceCopy {
  bool to_host = true;
  uint64_t device = 0;
  TiledCopy copy;

  int64_t device_element_bytes() const { return to_host ? copy.element_bytes : copy.target_element_bytes(); }
};

// `rows` rows of `row_bytes` each, `pitch` bytes apart on the device, lie without gaps from `packed_offset` on.
struct DeviceRows {
  uint64_t device = 0;
  int64_t row_bytes = 0;
  int64_t rows = 1;
  int64_t pitch = 0;
  int64_t packed_offset = 0;
};

// A part of a copy, whose elements the device side has packed into `bytes` bytes in the order of its own memory. `host`
// copies between these packed bytes and the host's side; the pointer to the packed bytes is null until there are some.
struct DevicePart {
  std::vector<DeviceRows> rows;
  int64_t bytes = 0;
  TiledCopy host;
  // The host's side is packed in the same order, so no packed bytes are needed between the two.
  bool direct = false;
};

// Each part has at most `most_bytes` packed bytes, which must hold any element. An element that the device's side
// repeats (a stride of zero) is packed once.
std::vector<DevicePart> PartsOf(const DeviceCopy& copy, int64_t most_bytes);

}  // namespace cairn

#endif  // CAIRN_GPU_COPY_TRANSFER_H_
