// Mappings for well-known families of models, written in the mapping language: from Hugging Face's names to fused
// layouts. For an export they are run backwards (aoa_config_reverse).
#ifndef CAIRN_MAPPING_READY_MAPPING_H_
#define CAIRN_MAPPING_READY_MAPPING_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace cairn::aoa {

// The numbers of a model that its mapping needs. Unset: the number of the family's best-known model.
struct ModelNumbers {
  std::optional<int64_t> heads;  // query heads
  std::optional<int64_t> kv_heads;
  std::optional<int64_t> q_lora_rank;   // DeepSeek's latent attention
  std::optional<int64_t> kv_lora_rank;  // kv_lora_rank + qk_rope_head_dim: it includes the rotary part
};

struct ReadyMapping {
  std::string_view name;         // "llama"
  std::string_view description;  // one line
  std::string_view text;         // statements and comments, with @NUMBERS@ to be filled in
  ModelNumbers numbers;          // of the best-known model
};

std::span<const ReadyMapping> ReadyMappings();

// Returns the text with its numbers filled in. A person can read it, and it is valid as one entry of aoa_statements.
// NOT_FOUND (MAPPING_UNKNOWN_NAME): there is no such mapping; the message lists them.
absl::StatusOr<std::string> ReadyMappingText(std::string_view name, const ModelNumbers& numbers = {});

// Returns the statements without comments, one in each entry, for aoa_statements.
std::vector<std::string> StatementsOf(std::string_view text);

}  // namespace cairn::aoa

#endif  // CAIRN_MAPPING_READY_MAPPING_H_
