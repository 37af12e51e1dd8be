// Executes copies on several threads.
#ifndef CAIRN_COMMON_TENSOR_PARALLEL_COPY_H_
#define CAIRN_COMMON_TENSOR_PARALLEL_COPY_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "common/tensor/tiled_copy.h"

namespace cairn {

// Executes copies with disjoint targets on up to `threads` threads, this one included. They need not be simplified.
void ExecuteAll(std::vector<TiledCopy> copies, int64_t threads);

// Calls work(0) .. work(count - 1) on up to `threads` threads, this one included.
void InParallel(int64_t count, int64_t threads, const std::function<void(int64_t)>& work);

// Returns how many of `threads` threads are worth their cost for this many bytes.
int64_t UsefulThreads(int64_t threads, int64_t bytes);

}  // namespace cairn

#endif  // CAIRN_COMMON_TENSOR_PARALLEL_COPY_H_
