// The page of this system: in whole pages memory is mapped, unmapped, counted and asked about. It has 4 KiB on x86-64,
// and 4, 16 or 64 KiB on arm64. How files are aligned does not depend on it: see kIoAlignment and kDataAlignment.
#ifndef CAIRN_COMMON_RESOURCES_PAGE_SIZE_H_
#define CAIRN_COMMON_RESOURCES_PAGE_SIZE_H_

#include <atomic>
#include <cstdint>

namespace cairn {

// Returns the bytes of a page, a power of two and at least 4096. Thread-safe.
uint64_t PageBytes();

inline uint64_t RoundDownToPages(uint64_t bytes) { return bytes / PageBytes() * PageBytes(); }
// `bytes` must be at least a page below 2^64.
inline uint64_t RoundUpToPages(uint64_t bytes) { return RoundDownToPages(bytes + PageBytes() - 1); }

namespace internal {
// For testing/other_page_size.h. 0: as the system says.
extern std::atomic<uint64_t> other_page_bytes;
}  // namespace internal

}  // namespace cairn

#endif  // CAIRN_COMMON_RESOURCES_PAGE_SIZE_H_
