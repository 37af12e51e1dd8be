// What a checkpoint keeps beside a tensor's bytes: a fingerprint, and numbers about its elements.
#ifndef CAIRN_COMMON_TENSOR_SUMMARY_H_
#define CAIRN_COMMON_TENSOR_SUMMARY_H_

#include <cstdint>

#include "common/tensor/statistics.h"

namespace cairn {

// It describes a tensor, or a part of one.
struct TensorSummary {
  // The exclusive or of the parts of the fingerprint (FingerprintFromParts).
  uint64_t fingerprint_parts = 0;
  // Only if HasStatistics(dtype).
  TensorStatistics statistics;

  // Adds the summary of another part.
  void Add(const TensorSummary& other) {
    fingerprint_parts ^= other.fingerprint_parts;
    statistics.Add(other.statistics);
  }
  bool operator==(const TensorSummary&) const = default;
};

}  // namespace cairn

#endif  // CAIRN_COMMON_TENSOR_SUMMARY_H_
