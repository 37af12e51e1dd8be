// The cases of contract_cases.h about memory that is made by handles, and handed to other processes.
#ifndef CAIRN_TESTS_GPU_SHARING_CASES_H_
#define CAIRN_TESTS_GPU_SHARING_CASES_H_

#include <string>
#include <vector>

#include "gpu/driver/driver.h"
#include "tests/gpu/contract_cases.h"

namespace cairn {

void AddSharingCases(std::vector<ContractCase>& cases);

// Does what the other process of a case does: this program, started again with `--child=WHAT`. Prints what happened.
int RunChild(const GpuDriver& driver, const std::string& what);

}  // namespace cairn

#endif  // CAIRN_TESTS_GPU_SHARING_CASES_H_
