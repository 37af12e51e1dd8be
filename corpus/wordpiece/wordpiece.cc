#include "corpus/wordpiece/wordpiece.h"

#include <simdjson.h>

#include <cstdio>
#include <utility>

#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/input_path.h"

namespace cairn::corpus {
namespace {

constexpr size_t kFastMaxScalars = 100, kLegacyMaxScalars = 200;
constexpr std::string_view kContinues = "##";

}  // namespace

absl::StatusOr<std::unique_ptr<WordPieceTokenizer>> WordPieceTokenizer::FromVocabText(std::string_view text,
                                                                                      std::string_view name,
                                                                                      const WordPieceOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(WordPieceVocab vocab, ParseWordPieceVocab(text, name, options.dialect, options.extra_ids));
  return std::unique_ptr<WordPieceTokenizer>(new WordPieceTokenizer(std::move(vocab), options));
}

absl::StatusOr<std::unique_ptr<WordPieceTokenizer>> WordPieceTokenizer::FromVocabFile(const std::string& path,
                                                                                      const WordPieceOptions& options) {
  if (IsInputDirectory(path)) {
    return MakeError(Reason::kInputUnreadable, path + ": is a directory; a vocab.txt was expected", {{"file", path}});
  }
  CAIRN_ASSIGN_OR_RETURN(const std::string text, ReadInput(path));
  return FromVocabText(text, path, options);
}

WordPieceTokenizer::WordPieceTokenizer(WordPieceVocab vocab, const WordPieceOptions& options)
    : vocab_(std::move(vocab)),
      options_(options),
      max_scalars_(options.dialect == BertDialect::kFast ? kFastMaxScalars : kLegacyMaxScalars) {
  for (const auto& [piece, id] : vocab_.pieces) {
    first_.Add(piece, id);
    if (std::string_view(piece).starts_with(kContinues)) later_.Add(std::string_view(piece).substr(2), id);
  }
  for (size_t c = 0; c < punct_ids_.size(); ++c) {
    const char text = static_cast<char>(c);
    const PieceTrie::Match match = first_.Longest({&text, 1});
    punct_ids_[c] = match.length == 1 ? match.id : vocab_.unk;
  }
  if (options_.dialect == BertDialect::kLegacy) return;
  for (const auto& [token, id] : vocab_.specials) begins_special_[static_cast<unsigned char>(token[0])] = true;
}

void WordPieceTokenizer::CutWord(std::string_view word, size_t scalars, std::vector<uint32_t>& ids) const {
  if (scalars > max_scalars_) {
    ids.push_back(vocab_.unk);
    return;
  }
  const size_t before = ids.size();
  const PieceTrie* trie = &first_;
  while (!word.empty()) {
    const PieceTrie::Match match = trie->Longest(word);
    if (match.length == 0) {
      ids.resize(before);
      ids.push_back(vocab_.unk);
      return;
    }
    ids.push_back(match.id);
    word.remove_prefix(match.length);
    trie = &later_;
  }
}

}  // namespace cairn::corpus
