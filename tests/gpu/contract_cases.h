// Small cases show what Cairn relies on of CUDA's driver. A case is asked of the stand-in and of a real driver alike.
#ifndef CAIRN_TESTS_GPU_CONTRACT_CASES_H_
#define CAIRN_TESTS_GPU_CONTRACT_CASES_H_

#include <functional>
#include <string>
#include <vector>

#include "gpu/driver/driver.h"

namespace cairn {

struct ContractCase {
  std::string name;
  // Returns what happened, such as "CUDA_SUCCESS" or "CUDA_SUCCESS, bytes equal". The primary context of device 0 is
  // current, and what the case takes it gives back.
  std::function<std::string(const GpuDriver&)> run;
};

const std::vector<ContractCase>& ContractCases();

}  // namespace cairn

#endif  // CAIRN_TESTS_GPU_CONTRACT_CASES_H_
