#include "corpus/bpe/build_tokenizer.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/bpe/byte_level.h"
#include "corpus/bpe/pretokenizer.h"

namespace cairn::corpus {
namespace {

absl::Status Bad(const std::string& name, const std::string& what) {
  return MakeError(Reason::kBadTokenizer, absl::StrCat(name, ": ", what), {{"file", name}});
}

}  // namespace

absl::Status FillModel(const BpeModelParts& parts, const std::string& name, BpeModel& model) {
  absl::flat_hash_map<std::string, uint32_t> id_of;
  for (const auto& [text, id] : parts.vocab) {
    id_of[text] = id;
    // A text outside of the byte-level alphabet can only be a special token, because no bytes lead to it.
    std::optional<std::string> bytes = parts.by_bytes ? FromByteLevel(text) : text;
    if (bytes) model.AddToken(*std::move(bytes), id);
  }
  for (size_t rank = 0; rank < parts.merges.size(); ++rank) {
    const auto& [left, right] = parts.merges[rank];
    uint32_t ids[3];
    size_t part = 0;
    for (const std::string& text : {left, right, left + right.substr(std::min(parts.prefix, right.size()))}) {
      const auto it = id_of.find(text);
      if (it == id_of.end()) {
        return Bad(name, absl::StrCat("merge ", rank + 1, " ('", left.substr(0, 60), "' + '", right.substr(0, 60),
                                      "'): '", text.substr(0, 120), "' is not in the vocabulary"));
      }
      ids[part++] = it->second;
    }
    model.AddMerge(ids[0], ids[1], static_cast<uint32_t>(rank), ids[2]);
  }
  model.set_ignore_merges(parts.ignore_merges);
  if (!parts.unknown.empty()) {
    const auto it = id_of.find(parts.unknown);
    if (it == id_of.end()) return Bad(name, absl::StrCat("unk_token '", parts.unknown, "' is not in the vocabulary"));
    model.set_unknown(it->second, parts.fuse_unknown);
  }
  return absl::OkStatus();
}

absl::StatusOr<BpeTokenizer::Parts> BuildTokenizer(const TokenizerFile& file, const std::string& name) {
  CAIRN_ASSIGN_OR_RETURN(Pretokenizer pretokenizer, Pretokenizer::FromPattern(file.pattern));
  BpeTokenizer::Parts parts = {.model = {}, .added = file.added, .pretokenizer = std::move(pretokenizer)};
  parts.add_prefix_space = file.add_prefix_space;
  for (const auto& [text, id] : file.vocab) parts.vocab_size = std::max(parts.vocab_size, id + 1);
  for (const AddedToken& token : file.added) parts.vocab_size = std::max(parts.vocab_size, token.id + 1);
  const BpeModelParts model = {.vocab = file.vocab,
                               .merges = file.merges,
                               .ignore_merges = file.ignore_merges,
                               .unknown = file.unknown,
                               .fuse_unknown = file.fuse_unknown};
  CAIRN_RETURN_IF_ERROR(FillModel(model, name, parts.model));
  return parts;
}

// tiktoken merges the pair whose joined bytes have the lowest rank. So each way to cut a token into two tokens is a
// merge.
absl::StatusOr<BpeTokenizer::Parts> BuildTiktoken(const std::vector<std::pair<std::string, uint32_t>>& ranks,
                                                  const std::vector<AddedToken>& specials, const std::string& pattern,
                                                  const std::string& name) {
  CAIRN_ASSIGN_OR_RETURN(Pretokenizer pretokenizer, Pretokenizer::NamedOrPattern(pattern));
  BpeTokenizer::Parts parts = {.model = {}, .added = specials, .pretokenizer = std::move(pretokenizer)};
  absl::flat_hash_map<std::string_view, uint32_t> id_of;
  int bytes = 0;
  for (const auto& [token, rank] : ranks) {
    if (!id_of.emplace(token, rank).second)
      return Bad(name, absl::StrCat("rank ", rank, " has the token of another rank"));
    parts.model.AddToken(token, rank);
    parts.vocab_size = std::max(parts.vocab_size, rank + 1);
    if (token.size() == 1) ++bytes;
  }
  if (bytes != 256) return Bad(name, absl::StrCat("has ", bytes, " of the 256 single bytes"));
  for (const auto& [token, rank] : ranks) {
    const std::string_view text = token;
    for (size_t cut = 1; cut < text.size(); ++cut) {
      const auto left = id_of.find(text.substr(0, cut));
      if (left == id_of.end()) continue;
      const auto right = id_of.find(text.substr(cut));
      if (right != id_of.end()) parts.model.AddMerge(left->second, right->second, rank, rank);
    }
  }
  for (const AddedToken& token : specials) parts.vocab_size = std::max(parts.vocab_size, token.id + 1);
  parts.model.set_ignore_merges(true);  // a word that has a rank is one token
  return parts;
}

absl::StatusOr<BpeVocabulary> ToVocabulary(const TokenizerFile& file, const std::string& name) {
  BpeVocabulary vocabulary;
  vocabulary.pattern = file.pattern;
  size_t size = file.vocab.size();
  for (const AddedToken& token : file.added) size = std::max<size_t>(size, token.id + 1);
  std::vector<bool> set(size);
  vocabulary.tokens.resize(size);
  const auto put = [&](uint32_t id, std::string bytes, bool special) {
    if (id >= size) return Bad(name, absl::StrCat("the ids are not 0 to n-1: ", id, " is beyond ", size, " tokens"));
    set[id] = true;
    vocabulary.tokens[id] = {std::move(bytes), special};
    return absl::OkStatus();
  };
  absl::flat_hash_map<std::string, uint32_t> id_of;
  absl::flat_hash_map<std::string, uint32_t> added;
  for (const AddedToken& token : file.added) {
    added.emplace(token.content, token.id);
    CAIRN_RETURN_IF_ERROR(put(token.id, token.content, true));
  }
  for (const auto& [text, id] : file.vocab) {
    if (added.contains(text)) continue;
    id_of[text] = id;
    auto bytes = FromByteLevel(text);
    if (!bytes.has_value()) return Bad(name, absl::StrCat("'", text.substr(0, 100), "' is no byte-level token"));
    CAIRN_RETURN_IF_ERROR(put(id, *std::move(bytes), false));
  }
  const auto gap = std::find(set.begin(), set.end(), false);
  if (gap != set.end()) return Bad(name, absl::StrCat("no token has the id ", gap - set.begin()));
  for (size_t rank = 0; rank < file.merges.size(); ++rank) {
    const auto left = id_of.find(file.merges[rank].first);
    const auto right = id_of.find(file.merges[rank].second);
    if (left == id_of.end() || right == id_of.end()) {
      return Bad(name, absl::StrCat("merge ", rank + 1, " has a token that is not in the vocabulary"));
    }
    vocabulary.merges.emplace_back(left->second, right->second);
  }
  return vocabulary;
}

}  // namespace cairn::corpus
