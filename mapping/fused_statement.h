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
  // They are 0 if the statement does not give them.
  int64_t heads = 0;
  int64_t kv_heads = 0;
};

// Reads a line that has the flag of `stage`. With `legacy_qkv` the text is an old one, where num_key_value_groups is
// the number of query heads per KV head. Returns what is wrong with the line; empty if nothing.
std::string ReadFusedStatement(const Program& program, LineId line, Stage stage, bool legacy_qkv,
                               FusedStatement& statement);

// Returns what is wrong with the numbers of heads; empty if nothing.
std::string FaultOfHeads(const FusedStatement& statement);

}  // namespace cairn::aoa

#endif  // CAIRN_MAPPING_FUSED_STATEMENT_H_
