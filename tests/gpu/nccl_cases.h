// Small cases of two ranks show what Cairn relies on of NCCL. A case is asked of the stand-in and of the library alike.
#ifndef CAIRN_TESTS_GPU_NCCL_CASES_H_
#define CAIRN_TESTS_GPU_NCCL_CASES_H_

#include <functional>
#include <string>
#include <vector>

#include "gpu/driver/driver.h"
#include "gpu/driver/library.h"

namespace cairn {

// One rank of a case, in a process of its own. A device's primary context is current.
struct NcclRank {
  const GpuDriver& driver;
  const NcclLibrary& library;
  int rank = 0;
  nccl::UniqueId id;
};

struct NcclCase {
  std::string name;
  // True if the ranks say that they are on different machines, so that they may share a device.
  bool apart = true;
  // The rank whose process ends as soon as it has run; -1 for none.
  int dying_rank = -1;
  // Returns what happened on one rank, such as "ncclSuccess, bytes equal".
  std::function<std::string(const NcclRank&)> run;
};

const std::vector<NcclCase>& NcclCases();

}  // namespace cairn

#endif  // CAIRN_TESTS_GPU_NCCL_CASES_H_
