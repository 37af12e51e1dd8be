#include "corpus/bpe/load_tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/resources/aligned_buffer.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/bpe/bpe_tokenizer.h"
#include "corpus/bpe/build_tokenizer.h"
#include "corpus/bpe/scanners.h"
#include "corpus/bpe/tokenizer_files.h"
#include "corpus/io/input_path.h"
#include "corpus/io/open_source.h"
#include "corpus/tokenizer/tokenizer_path.h"

namespace cairn::corpus {
namespace {

namespace fs = std::filesystem;

constexpr char kEndOfText[] = "<|endoftext|>";
constexpr size_t kMaxFileBytes = size_t{1} << 30;

// tiktoken's own files have neither their pattern nor their special tokens.
struct KnownFile {
  std::string_view name;
  const char* pretokenizer;
  std::vector<std::pair<const char*, uint32_t>> specials;
};

const std::vector<KnownFile>& KnownFiles() {
  static const auto& files = *new std::vector<KnownFile>{
      {"r50k_base.tiktoken", "gpt2", {{kEndOfText, 50256}}},
      {"p50k_base.tiktoken", "gpt2", {{kEndOfText, 50256}}},
      {"cl100k_base.tiktoken",
       "cl100k",
       {{kEndOfText, 100257},
        {"<|fim_prefix|>", 100258},
        {"<|fim_middle|>", 100259},
        {"<|fim_suffix|>", 100260},
        {"<|endofprompt|>", 100276}}},
      {"o200k_base.tiktoken", "o200k", {{kEndOfText, 199999}, {"<|endofprompt|>", 200018}}},
  };
  return files;
}

std::vector<AddedToken> Specials(const std::map<std::string, uint32_t>& tokens) {
  std::vector<AddedToken> added;
  for (const auto& [text, id] : tokens) added.push_back({.content = text, .id = id});
  return added;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Finish(absl::StatusOr<BpeTokenizer::Parts> parts) {
  if (!parts.ok()) return std::move(parts).status();
  return std::make_unique<BpeTokenizer>(*std::move(parts));
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizerJson(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const std::string content, ReadTokenizerFile(path));
  CAIRN_ASSIGN_OR_RETURN(const TokenizerFile file, ParseTokenizerJson(content, path));
  return Finish(BuildTokenizer(file, path));
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTiktoken(const std::string& path, const BpeLoadOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(const std::string content, ReadTokenizerFile(path));
  CAIRN_ASSIGN_OR_RETURN(const auto ranks, ParseTiktoken(content, path));
  std::string pretokenizer = options.pretokenizer.value_or("");
  std::vector<AddedToken> specials = Specials(options.special_tokens);
  const fs::path beside = fs::path(path).parent_path() / "tokenizer.json";
  for (const KnownFile& known : KnownFiles()) {
    if (fs::path(path).filename().string() != known.name) continue;
    if (pretokenizer.empty()) pretokenizer = known.pretokenizer;
    if (specials.empty()) {
      for (const auto& [text, id] : known.specials) specials.push_back({.content = text, .id = id});
    }
  }
  if (pretokenizer.empty() && InputStands(beside.string())) {
    CAIRN_ASSIGN_OR_RETURN(const std::string json, ReadTokenizerFile(beside.string()));
    CAIRN_ASSIGN_OR_RETURN(const TokenizerFile file, ParseTokenizerJson(json, beside.string()));
    pretokenizer = file.pattern;
    if (specials.empty()) specials = file.added;
  }
  if (pretokenizer.empty()) {
    return MakeError(
        Reason::kBadTokenizer,
        absl::StrCat(path, ": a tiktoken file does not say how text is cut into words; give --pretokenizer"),
        {{"file", path}});
  }
  return Finish(BuildTiktoken(ranks, specials, pretokenizer, path));
}

}  // namespace

absl::StatusOr<std::string> ReadTokenizerFile(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const auto source, OpenSource(path, {.direct = false}));
  std::string content;
  AlignedBuffer buffer(size_t{1} << 20);
  while (true) {
    CAIRN_ASSIGN_OR_RETURN(const size_t got, source->Read(buffer.data(), buffer.size()));
    if (got == 0) return content;
    if (content.size() + got > kMaxFileBytes) {
      return MakeError(Reason::kBadTokenizer, absl::StrCat(path, ": larger than 1 GiB"), {{"file", path}});
    }
    content.append(buffer.data(), got);
  }
}

absl::StatusOr<std::string> FindTokenizerFile(const std::string& path) {
  CAIRN_RETURN_IF_ERROR(CheckIsNoHubName(path));
  if (!IsInputDirectory(path)) return path;
  for (const char* name : {"tokenizer.json", "vocab.json"}) {
    const fs::path file = fs::path(path) / name;
    if (InputStands(file.string())) return file.string();
  }
  std::vector<std::string> tiktoken;
  CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> files, InputsIn(path));
  for (const std::string& file : files) {
    if (fs::path(file).extension() == ".tiktoken") tiktoken.push_back(file);
  }
  if (tiktoken.size() == 1) return tiktoken[0];
  return MakeError(Reason::kInputUnreadable,
                   absl::StrCat(path, ": has neither tokenizer.json nor vocab.json nor one .tiktoken file"),
                   {{"file", path}});
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadBpeTokenizer(const std::string& path, const BpeLoadOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(const std::string file, FindTokenizerFile(path));
  const fs::path name(file);
  if (name.extension() == ".tiktoken") return LoadTiktoken(file, options);
  if (name.filename() == "vocab.json") {
    return LoadGpt2Tokenizer(file, (name.parent_path() / "merges.txt").string(), options);
  }
  return LoadTokenizerJson(file);
}

absl::StatusOr<BpeVocabulary> LoadBpeVocabulary(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const std::string name, FindTokenizerFile(path));
  CAIRN_ASSIGN_OR_RETURN(const std::string content, ReadTokenizerFile(name));
  CAIRN_ASSIGN_OR_RETURN(const TokenizerFile file, ParseTokenizerJson(content, name));
  return ToVocabulary(file, name);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadGpt2Tokenizer(const std::string& vocab_json,
                                                             const std::string& merges_txt,
                                                             const BpeLoadOptions& options, bool* added_end_of_text) {
  TokenizerFile file;
  CAIRN_ASSIGN_OR_RETURN(const std::string vocab, ReadTokenizerFile(vocab_json));
  CAIRN_ASSIGN_OR_RETURN(file.vocab, ParseVocabJson(vocab, vocab_json));
  CAIRN_ASSIGN_OR_RETURN(const std::string merges, ReadTokenizerFile(merges_txt));
  CAIRN_ASSIGN_OR_RETURN(file.merges, ParseMergesTxt(merges, merges_txt));
  CAIRN_ASSIGN_OR_RETURN(const Pretokenizer pretokenizer,
                         Pretokenizer::NamedOrPattern(options.pretokenizer.value_or("gpt2")));
  file.pattern = pretokenizer.pattern();
  file.added = Specials(options.special_tokens);
  if (options.special_tokens.count(kEndOfText) == 0) {
    uint32_t next = 0, id = 0;
    bool known = false;
    for (const auto& [text, number] : file.vocab) {
      next = std::max(next, number + 1);
      if (text == kEndOfText) {
        known = true;
        id = number;
      }
    }
    file.added.push_back({.content = kEndOfText, .id = known ? id : next});
    if (added_end_of_text != nullptr) *added_end_of_text = !known;
  }
  return Finish(BuildTokenizer(file, vocab_json));
}

}  // namespace cairn::corpus
