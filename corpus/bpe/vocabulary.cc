#include "corpus/bpe/vocabulary.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/bpe/byte_level.h"
#include "corpus/io/made_directory.h"
#include "corpus/io/output_file.h"

namespace cairn::corpus {
namespace {

using Json = nlohmann::ordered_json;

std::string TextOf(const BpeVocabulary::Token& token) { return token.special ? token.bytes : ToByteLevel(token.bytes); }

Json ByteLevelJson(bool use_regex, bool add_prefix_space) {
  return {
      {"type", "ByteLevel"}, {"add_prefix_space", add_prefix_space}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

Json PretokenizerJson(const BpeVocabulary& vocabulary) {
  if (vocabulary.gpt2_pretokenizer) return ByteLevelJson(true, false);
  const Json split = {
      {"type", "Split"}, {"pattern", {{"Regex", vocabulary.pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", Json::array({split, ByteLevelJson(false, false)})}};
}

// Only its name tells what a special token is for. These are the names in common use, the likeliest first.
const std::pair<const char*, std::vector<const char*>> kRoles[] = {
    {"bos_token", {"<|begin_of_text|>", "<s>", "<bos>", "[BOS]"}},
    {"eos_token", {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "[EOS]", "<|eos|>"}},
    {"unk_token", {"<unk>", "[UNK]"}},
    {"sep_token", {"[SEP]"}},
    {"pad_token", {"<pad>", "<|pad|>", "[PAD]"}},
    {"cls_token", {"[CLS]"}},
    {"mask_token", {"<mask>", "[MASK]"}},
};

// nlohmann's ordered map searches linearly, so objects with many keys are written directly.
std::string VocabObject(const BpeVocabulary& vocabulary) {
  std::string text = "{";
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    absl::StrAppend(&text, id == 0 ? "" : ",", Json(TextOf(vocabulary.tokens[id])).dump(), ":", id);
  }
  return text += "}";
}

std::string MergesArray(const BpeVocabulary& vocabulary) {
  std::string text = "[";
  for (size_t rank = 0; rank < vocabulary.merges.size(); ++rank) {
    const auto& [left, right] = vocabulary.merges[rank];
    absl::StrAppend(&text, rank == 0 ? "" : ",", "[", Json(TextOf(vocabulary.tokens[left])).dump(), ",",
                    Json(TextOf(vocabulary.tokens[right])).dump(), "]");
  }
  return text += "]";
}

}  // namespace

std::string TokenizerConfigJson(const BpeVocabulary& vocabulary) {
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}};
  std::set<std::string> specials;
  for (const BpeVocabulary::Token& token : vocabulary.tokens) {
    if (token.special) specials.insert(token.bytes);
  }
  for (const auto& [role, names] : kRoles) {
    for (const char* name : names) {
      if (config.contains(role) || !specials.contains(name)) continue;
      config[role] = name;
    }
  }
  return config.dump(2) + "\n";
}

bool IsTokenizerConfigOfTraining(const std::string& text) {
  // Another order of keys, or another layout, is an edit too.
  const Json config = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return false;
  BpeVocabulary vocabulary;
  for (const auto& [role, names] : kRoles) {
    const auto token = config.find(role);
    if (token != config.end() && token->is_string()) vocabulary.tokens.push_back({token->get<std::string>(), true});
  }
  return TokenizerConfigJson(vocabulary) == text;
}

std::string TokenizerJson(const BpeVocabulary& vocabulary) {
  Json added = Json::array();
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (!vocabulary.tokens[id].special) continue;
    added.push_back({{"id", id},
                     {"content", vocabulary.tokens[id].bytes},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  return absl::StrCat(R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":)", added.dump(),
                      R"(,"normalizer":null,"pre_tokenizer":)", PretokenizerJson(vocabulary).dump(),
                      R"(,"post_processor":null,"decoder":)", ByteLevelJson(true, true).dump(),
                      R"(,"model":{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,)",
                      R"("end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,"ignore_merges":false,)",
                      R"("vocab":)", VocabObject(vocabulary), R"(,"merges":)", MergesArray(vocabulary), "}}\n");
}

std::string VocabJson(const BpeVocabulary& vocabulary) { return VocabObject(vocabulary) + "\n"; }

std::string MergesTxt(const BpeVocabulary& vocabulary) {
  std::string text = "#version: 0.2\n";
  for (const auto& [left, right] : vocabulary.merges) {
    absl::StrAppend(&text, TextOf(vocabulary.tokens[left]), " ", TextOf(vocabulary.tokens[right]), "\n");
  }
  return text;
}

std::string TiktokenFile(const BpeVocabulary& vocabulary) {
  std::string text;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (vocabulary.tokens[id].special) continue;
    absl::StrAppend(&text, absl::Base64Escape(vocabulary.tokens[id].bytes), " ", id, "\n");
  }
  return text;
}

absl::Status WriteVocabulary(const BpeVocabulary& vocabulary, const std::string& directory) {
  CAIRN_ASSIGN_OR_RETURN(const MadeDirectory made, MadeDirectory::Of(absl::StrCat(directory, "/any")));
  // tokenizer.json has a name as long as vocab.json has one: a reader of the directory that finds only vocab.json and
  // merges.txt would take them for GPT-2's way to cut text into words. And vocab.json without merges.txt is refused.
  static constexpr std::pair<const char*, std::string (*)(const BpeVocabulary&)> kFiles[] = {
      {"tokenizer_config.json", TokenizerConfigJson},
      {"tokenizer.json", TokenizerJson},
      {"vocab.json", VocabJson},
      {"merges.txt", MergesTxt},
      {"tokenizer.tiktoken", TiktokenFile},
  };
  std::vector<std::unique_ptr<OutputFile>> files;
  std::vector<std::string> replaced;
  for (const auto& [name, content] : kFiles) {
    OutputFile::Options options;
    options.direct = false;  // they are small
    options.buffer_bytes = size_t{64} << 10;
    CAIRN_ASSIGN_OR_RETURN(auto file, OutputFile::Create(absl::StrCat(directory, "/", name), options));
    CAIRN_RETURN_IF_ERROR(file->Append(content(vocabulary)));
    CAIRN_RETURN_IF_ERROR(file->Finish());
    replaced.insert(replaced.begin(), file->path());
    files.push_back(std::move(file));
  }
  CAIRN_RETURN_IF_ERROR(RemoveReplaced(replaced));
  for (const auto& file : files) CAIRN_RETURN_IF_ERROR(file->Commit());
  return absl::OkStatus();
}

}  // namespace cairn::corpus
