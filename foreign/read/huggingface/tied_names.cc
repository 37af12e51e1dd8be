#include "foreign/read/huggingface/tied_names.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/format/stored_item.h"
#include "foreign/read/pickle/bounded_json.h"

namespace cairn {
namespace {

using Names = std::set<std::string, std::less<>>;

// The names that transformers gives output layers and the embeddings to which each may be tied. More specific names
// come first.
struct Tie {
  const char* head;
  const char* embedding;
  const char* module;  // the prefix of the model's other tensors
};
constexpr Tie kTies[] = {
    {"lm_head.weight", "model.language_model.embed_tokens.weight", "model.language_model."},
    {"lm_head.weight", "model.decoder.embed_tokens.weight", "model.decoder."},
    {"lm_head.weight", "model.embed_tokens.weight", "model."},
    {"language_model.lm_head.weight", "language_model.model.embed_tokens.weight", "language_model.model."},
    {"lm_head.weight", "transformer.wte.weight", "transformer."},
    {"lm_head.weight", "transformer.word_embeddings.weight", "transformer."},
    {"lm_head.weight", "gpt_neox.embed_in.weight", "gpt_neox."},
    {"embed_out.weight", "gpt_neox.embed_in.weight", "gpt_neox."},
    {"lm_head.weight", "backbone.embeddings.weight", "backbone."},
};

bool SaysTied(const nlohmann::json& config) {
  return config.is_object() && config.value("tie_word_embeddings", nlohmann::json()) == nlohmann::json(true);
}

// A model of several parts has the setting in the part that is a language model.
bool TiesEmbeddings(std::string_view text) {
  if (text.empty()) return false;
  const nlohmann::json config = ParseBoundedJson(text);
  return SaysTied(config) || (config.is_object() && SaysTied(config.value("text_config", nlohmann::json())));
}

bool HasBelow(const Names& stored, std::string_view module) {
  const auto first = stored.lower_bound(module);
  return first != stored.end() && first->starts_with(module);
}

}  // namespace

std::map<std::string, std::string> FindTiedNames(const TieSources& sources) {
  std::map<std::string, std::string> tied;
  for (const auto& [name, target] : sources.metadata) {
    if (sources.stored.contains(target) && !sources.stored.contains(name) && CheckName(name).ok()) {
      tied.try_emplace(name, target);
    }
  }
  if (!TiesEmbeddings(sources.config)) return tied;
  const auto known = [&](const char* name) {
    return sources.stored.contains(std::string_view(name)) || tied.contains(name);
  };
  for (const Tie& tie : kTies) {
    if (known(tie.head) || !sources.stored.contains(std::string_view(tie.embedding))) continue;
    tied.emplace(tie.head, tie.embedding);
  }
  // Some programs store the tensor under the output layer's name. Then only the names of the other tensors show which
  // model it is.
  for (const Tie& tie : kTies) {
    if (!sources.stored.contains(std::string_view(tie.head)) || !HasBelow(sources.stored, tie.module)) continue;
    if (!known(tie.embedding)) tied.emplace(tie.embedding, tie.head);
    break;
  }
  return tied;
}

}  // namespace cairn
