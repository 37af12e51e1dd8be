// Collects all faults of one input, so that they are reported together.
#ifndef CAIRN_COMMON_STATUS_FAULT_H_
#define CAIRN_COMMON_STATUS_FAULT_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/status/reason.h"

namespace cairn {

struct Fault {
  Reason reason;
  std::string name;             // tensor, object or alias; empty if none is to blame
  std::vector<int> ranks;       // those that declared it, ascending; may be empty
  std::vector<int64_t> offset;  // the region in elements of the global tensor; empty if none
  std::vector<int64_t> shape;
  std::string message;  // complete without the other fields: names tensor, ranks and region
};

// Returns "rank 3", or "ranks 0, 1", as messages name them: see JoinRanks.
std::string RanksText(std::span<const int> ranks);

// Keeps the first kMostKept faults and counts all.
class FaultList {
 public:
  static constexpr size_t kMostKept = 64;

  void Add(Fault fault);
  bool empty() const { return total_ == 0; }
  size_t total() const { return total_; }
  const std::vector<Fault>& faults() const { return faults_; }

  // Returns OK if there is no fault. Else returns an error with the reason of the first fault, its message, and the
  // messages of as many others as fit. The metadata "tensor" (it may also name an object) and "ranks" are those of the
  // first fault. "faults" is the total number of faults. "name" is the same as "tensor", for older readers.
  absl::Status ToStatus() const;

 private:
  size_t total_ = 0;
  std::vector<Fault> faults_;
};

}  // namespace cairn

#endif  // CAIRN_COMMON_STATUS_FAULT_H_
