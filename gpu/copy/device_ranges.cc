#include "gpu/copy/device_ranges.h"

#include <limits>

namespace cairn {
namespace {

struct Attributes {
  int ordinal = 0;
  bool legacy = false;  // allocated by cuMemAlloc, not mapped by a handle
};

// Returns nothing if the address is no device memory.
std::optional<Attributes> AttributesOf(const GpuDriver& driver, uint64_t address) {
  int type = 0, ordinal = 0, legacy = 0;
  int names[] = {cuda::kPointerMemoryType, cuda::kPointerDeviceOrdinal, cuda::kPointerLegacyIpcCapable};
  void* values[] = {&type, &ordinal, &legacy};
  Require(driver, driver.call().pointer_get_attributes(3, names, values, address), "cuPointerGetAttributes");
  if (type != cuda::kMemoryTypeDevice) return std::nullopt;
  return Attributes{.ordinal = ordinal, .legacy = legacy != 0};
}

}  // namespace

std::optional<int> OrdinalOf(const GpuDriver& driver, uint64_t address) {
  const auto found = AttributesOf(driver, address);
  return found ? std::optional<int>(found->ordinal) : std::nullopt;
}

DeviceOutcome::Kind DeviceRanges::Find(uint64_t address, int64_t bytes, int* ordinal) {
  const Range* range = At(address);
  if (range == nullptr) return DeviceOutcome::kNotOnDevice;
  *ordinal = range->ordinal;
  if (static_cast<uint64_t>(bytes) > std::numeric_limits<uint64_t>::max() - address) return DeviceOutcome::kTooLong;
  const uint64_t end = address + static_cast<uint64_t>(bytes);
  while (range->end < end) {
    const Range* next = At(range->end);
    if (next == nullptr) return DeviceOutcome::kTooLong;
    if (next->ordinal != *ordinal) return DeviceOutcome::kManyDevices;
    if (!range->mapped || !next->mapped) return DeviceOutcome::kTooLong;
    range = next;
  }
  return DeviceOutcome::kDone;
}

const DeviceRanges::Range* DeviceRanges::At(uint64_t address) {
  const auto after = ranges_.upper_bound(address);
  if (after != ranges_.begin()) {
    const Range& known = std::prev(after)->second;
    if (address < known.end) return &known;
  }
  const auto found = AttributesOf(driver_, address);
  if (!found) return nullptr;
  if (current_ordinal_ != found->ordinal) {
    current_.reset();  // contexts are a stack, so the old one must be popped first
    current_ = std::make_unique<CurrentContext>(driver_, context_of_(found->ordinal));
    current_ordinal_ = found->ordinal;
  }
  cuda::DevicePointer begin = 0;
  size_t bytes = 0;
  const cuda::Result result = driver_.call().memory_get_range(&begin, &bytes, address);
  if (result == cuda::kInvalidValue || result == cuda::kNotFound) return nullptr;
  Require(driver_, result, "cuMemGetAddressRange");
  Range& range = ranges_[begin];
  range = {.end = begin + bytes, .ordinal = found->ordinal, .mapped = !found->legacy};
  return &range;
}

}  // namespace cairn
