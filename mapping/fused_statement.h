// Reads the statement of a fused macro: "a, b, c -> d, fused_qkv, num_heads=8, num_kv_heads=2".
#ifndef CAIRN_MAPPING_FUSED_STATEMENT_H_
#define CAIRN_MAPPING_FUSED_STATEMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "mapping/program.h"

namespace cairn::aoa {

struct FusedStatement {
  std::vector<Symbol> left, right;
  int64_t axis = 1;
  // 0: the statement does not give them.
  int64_t heads = 0;
  int64_t kv_heads = 0;
};

// Reads a line that has the flag of `stage`. With `legacy_qkv`, num_key_value_groups is the number of query heads per
// KV head. Returns an error message; empty if the line is correct.
std::string ReadFusedStatement(const Program& program, LineId line, Stage stage, bool legacy_qkv,
                               FusedStatement& statement);

// Checks the numbers of heads. Returns an error message; empty if they are correct.
std::string FaultOfHeads(const FusedStatement& statement);

}  // namespace cairn::aoa

#endif  // CAIRN_MAPPING_FUSED_STATEMENT_H_
