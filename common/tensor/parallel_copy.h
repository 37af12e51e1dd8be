// Executes copies on several threads.
#ifndef CAIRN_COMMON_TENSOR_PARALLEL_COPY_H_
#define CAIRN_COMMON_TENSOR_PARALLEL_COPY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "common/tensor/tiled_copy.h"

namespace cairn {

// Executes copies with disjoint targets on up to `threads` threads, this one included. They need not be simplified. If
// the targets are contiguous and ascend, `written` may be given: it is told, as that grows, the address below which all
// targets are written, also by stores that pass the caches. It is called by one thread at a time.
void ExecuteAll(std::vector<TiledCopy> copies, int64_t threads,
                const std::function<void(const std::byte* end)>& written = nullptr);

// Calls work(0) .. work(count - 1) on up to `threads` threads, this one included.
void InParallel(int64_t count, int64_t threads, const std::function<void(int64_t)>& work);

// Returns how many of `threads` threads are worth their cost for this many bytes.
int64_t UsefulThreads(int64_t threads, int64_t bytes);

}  // namespace cairn

#endif  // CAIRN_COMMON_TENSOR_PARALLEL_COPY_H_
