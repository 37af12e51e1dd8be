// Splits copies between host and device into rows of equal length, which a copy engine can execute.
#ifndef CAIRN_GPU_COPY_TRANSFER_H_
#define CAIRN_GPU_COPY_TRANSFER_H_

#include <cstdint>
#include <vector>

#include "common/tensor/tiled_copy.h"

namespace cairn {

// A copy with one side in device memory. For that side the pointer in `copy` is null, and `device` is the address. The
// strides of that side must not be negative, and not zero if the device is the target.
struct DeviceCopy {
  bool to_host = true;
  uint64_t device = 0;
  TiledCopy copy;

  int64_t device_element_bytes() const { return to_host ? copy.element_bytes : copy.target_element_bytes(); }
};

// `rows` rows of `row_bytes` bytes. On the device they begin at `device`, and each begins `pitch` bytes after the one
// before. In the packed bytes they follow each other without gaps from `packed_offset` on.
struct DeviceRows {
  uint64_t device = 0;
  int64_t row_bytes = 0;
  int64_t rows = 1;
  int64_t pitch = 0;
  int64_t packed_offset = 0;
};

// A part of a copy. Its elements, packed in the order of the device's memory, take `bytes` bytes. `rows` move them
// between the device and the packed bytes; `host` copies between the packed bytes and the host's side. The pointer to
// the packed bytes in `host` is null; the caller sets it.
struct DevicePart {
  std::vector<DeviceRows> rows;
  int64_t bytes = 0;
  TiledCopy host;
  // True if the host's side is itself packed in the same order. Then `rows` can be copied straight to or from it.
  bool direct = false;
};

// Splits a copy into parts of at most `most_bytes` packed bytes. An element that the device's side repeats (stride 0)
// is packed once.
std::vector<DevicePart> PartsOf(const DeviceCopy& copy, int64_t most_bytes);

}  // namespace cairn

#endif  // CAIRN_GPU_COPY_TRANSFER_H_
