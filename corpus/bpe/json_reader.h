// Reads the parts that all kinds of tokenizer.json have in common. All content is hostile until it is checked.
#ifndef CAIRN_CORPUS_BPE_JSON_READER_H_
#define CAIRN_CORPUS_BPE_JSON_READER_H_

#include <simdjson.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "corpus/bpe/added_tokens.h"

namespace cairn::corpus {

// Ids are below 2^24. No vocabulary comes near that, and tables by id stay small.
inline constexpr uint64_t kMaxTokenId = (uint64_t{1} << 24) - 1;

using TokenIds = std::vector<std::pair<std::string, uint32_t>>;       // text as in the file, id
using TokenPairs = std::vector<std::pair<std::string, std::string>>;  // merges by rank

// Reads values of a file. Each method fails with INVALID_ARGUMENT (BAD_TOKENIZER) if a value is not what it should be;
// the message has the file's name.
struct JsonReader {
  const std::string& name;  // the file's

  absl::Status Bad(const std::string& what) const;
  // UNIMPLEMENTED (UNSUPPORTED): `what` is known, but Cairn cannot do it.
  absl::Status Unsupported(const std::string& what) const;

  // The result is valid as long as `parser`.
  absl::StatusOr<simdjson::dom::element> Parse(simdjson::dom::parser& parser, const std::string& content) const;

  // These return `otherwise`, or an empty text, if the object has no such key or if its value is null.
  absl::StatusOr<bool> Bool(simdjson::dom::object object, std::string_view key, bool otherwise) const;
  absl::StatusOr<std::string> String(simdjson::dom::object object, std::string_view key) const;

  absl::StatusOr<uint32_t> Id(simdjson::dom::element value, std::string_view token) const;
  absl::StatusOr<TokenIds> Vocab(simdjson::dom::element value) const;
  absl::StatusOr<std::pair<std::string, std::string>> SplitMerge(std::string_view text, const std::string& where) const;
  absl::StatusOr<TokenPairs> Merges(simdjson::dom::element value) const;

  // Reads added_tokens. A token's id is that of the vocabulary, or else the next one after the vocabulary's size.
  // Hugging Face tokenizers gives ids in this way whatever the file says (files that it wrote agree with it).
  absl::StatusOr<std::vector<AddedToken>> Added(simdjson::dom::element value, const TokenIds& vocab) const;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_JSON_READER_H_
