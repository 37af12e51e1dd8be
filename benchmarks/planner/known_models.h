// Says what each rank of two well-known training runs holds: parameters by the models' published sizes, cut as their
// published parallel layouts cut them, with a distributed optimizer (ZeRO-1) whose flat ranges cross parameters.
#ifndef CAIRN_BENCHMARKS_PLANNER_KNOWN_MODELS_H_
#define CAIRN_BENCHMARKS_PLANNER_KNOWN_MODELS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "planner/layout/layout_description.h"

namespace cairn {

// Llama 3.1 405B ("The Llama 3 Herd of Models", tables 3 and 4): 126 layers, TP 8 x PP 16 x DP, first and last stage
// one layer less. 128 * `data_parallel` ranks; ranks of a node are those of one TP group.
std::vector<LayoutDescription> Llama405B(int64_t data_parallel);

// DeepSeek-V3 (technical report, sections 3 and 4.2): 61 layers, 3 of them dense, 256 routed experts and a shared one,
// PP 16 x EP 64, ZeRO-1: experts over 64 ranks with `data_parallel` replicas, all else replicated over
// 64 * data_parallel. 1024 * `data_parallel` ranks.
std::vector<LayoutDescription> DeepSeekV3(int64_t data_parallel);

}  // namespace cairn

#endif  // CAIRN_BENCHMARKS_PLANNER_KNOWN_MODELS_H_
