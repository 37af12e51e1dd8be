#include "corpus/preprocess/tokenizer_choice.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/pipeline/load_tokenizer.h"
#include "corpus/pipeline/sentencepiece.h"
#include "corpus/preprocess/hf_framing.h"
#include "corpus/tokenizer/null_tokenizer.h"
#include "corpus/tokenizer/tokenizer_path.h"
#include "corpus/wordpiece/wordpiece.h"

namespace cairn::corpus {
namespace {

constexpr uint32_t kCaseExtraIds = 100;

absl::Status Need(const std::string& value, std::string_view flag, std::string_view type, std::string_view what) {
  if (!value.empty()) return absl::OkStatus();
  return MakeError(Reason::kBadRequest, absl::StrCat("--tokenizer-type ", std::string(type), " needs ",
                                                     std::string(flag), ", ", std::string(what)));
}

absl::StatusOr<uint32_t> IdOf(const Tokenizer& tokenizer, std::string_view token) {
  if (const std::optional<uint32_t> id = tokenizer.IdOf(token)) return *id;
  return MakeError(Reason::kBadTokenizer, absl::StrCat("the vocabulary has no token ", std::string(token)));
}

absl::StatusOr<ChosenTokenizer> WordPiece(const TokenizerChoice& choice, bool lower_case) {
  CAIRN_RETURN_IF_ERROR(Need(choice.vocab_file, "--vocab-file", choice.type, "a vocab.txt with one token per line"));
  const bool legacy = choice.legacy_wordpiece;
  WordPieceOptions options{.dialect = legacy ? BertDialect::kLegacy : BertDialect::kFast, .lower_case = lower_case};
  if (!lower_case && !legacy) options.extra_ids = kCaseExtraIds;
  ChosenTokenizer chosen;
  CAIRN_ASSIGN_OR_RETURN(chosen.tokenizer, WordPieceTokenizer::FromVocabFile(choice.vocab_file, options));
  CAIRN_ASSIGN_OR_RETURN(chosen.framing.end_of_document, IdOf(*chosen.tokenizer, legacy ? "[EOS]" : "[SEP]"));
  if (!legacy) {
    CAIRN_ASSIGN_OR_RETURN(const uint32_t cls, IdOf(*chosen.tokenizer, "[CLS]"));
    chosen.framing.before = {cls};
    chosen.framing.after = {*chosen.framing.end_of_document};
  }
  return chosen;
}

// The given files always count, as in Megatron-LM if transformers finds no tokenizer.json of its own for gpt2.
absl::StatusOr<ChosenTokenizer> Gpt2(const TokenizerChoice& choice) {
  CAIRN_RETURN_IF_ERROR(Need(choice.vocab_file, "--vocab-file", choice.type, "GPT-2's vocab.json"));
  CAIRN_RETURN_IF_ERROR(Need(choice.merge_file, "--merge-file", choice.type, "GPT-2's merges.txt"));
  ChosenTokenizer chosen;
  CAIRN_ASSIGN_OR_RETURN(chosen.tokenizer,
                         LoadGpt2Tokenizer(choice.vocab_file, choice.merge_file, {}, &chosen.end_of_document_is_added));
  CAIRN_ASSIGN_OR_RETURN(chosen.framing.end_of_document, IdOf(*chosen.tokenizer, "<|endoftext|>"));
  return chosen;
}

absl::StatusOr<ChosenTokenizer> HuggingFace(const TokenizerChoice& choice) {
  CAIRN_RETURN_IF_ERROR(
      Need(choice.tokenizer_model, "--tokenizer-model", choice.type, "a directory with a tokenizer.json, or the file"));
  CAIRN_ASSIGN_OR_RETURN(const HfFiles files, ReadHfFiles(choice.tokenizer_model));
  ChosenTokenizer chosen;
  CAIRN_ASSIGN_OR_RETURN(chosen.tokenizer, LoadTokenizer(choice.tokenizer_model));
  CAIRN_ASSIGN_OR_RETURN(chosen.framing, HfFraming(files, choice.tokenizer_model, *chosen.tokenizer));
  return chosen;
}

// Megatron-LM adds no tokens around a text, and ends a document with the model's </s>.
absl::StatusOr<ChosenTokenizer> SentencePiece(const TokenizerChoice& choice) {
  CAIRN_RETURN_IF_ERROR(Need(choice.tokenizer_model, "--tokenizer-model", choice.type, "a SentencePiece model"));
  std::error_code ignored;
  if (std::filesystem::is_directory(choice.tokenizer_model, ignored)) {
    return MakeError(Reason::kBadRequest,
                     absl::StrCat("--tokenizer-model ", choice.tokenizer_model, " is a directory, and ", choice.type,
                                  " reads a SentencePiece model"),
                     {{"file", choice.tokenizer_model},
                      {"next",
                       "Give the .model file in it, or take --tokenizer-type HuggingFaceTokenizer for its "
                       "tokenizer.json."}});
  }
  ChosenTokenizer chosen;
  CAIRN_ASSIGN_OR_RETURN(const std::string content, ReadTokenizerFile(choice.tokenizer_model));
  CAIRN_ASSIGN_OR_RETURN(chosen.tokenizer, ParseSentencePiece(content, choice.tokenizer_model));
  if (choice.append_eod) {
    CAIRN_ASSIGN_OR_RETURN(chosen.framing.end_of_document, IdOf(*chosen.tokenizer, "</s>"));
  }
  return chosen;
}

absl::StatusOr<ChosenTokenizer> Tiktoken(const TokenizerChoice& choice) {
  constexpr uint32_t kDefaultVocabSize = 1 << 17;
  CAIRN_RETURN_IF_ERROR(Need(choice.tokenizer_model, "--tokenizer-model", choice.type, "a vocabulary in JSON"));
  ChosenTokenizer chosen;
  const uint32_t size = choice.vocab_size == 0 ? kDefaultVocabSize : choice.vocab_size;
  CAIRN_ASSIGN_OR_RETURN(chosen.tokenizer, LoadMegatronTiktoken(choice.tokenizer_model, choice.tiktoken_pattern, size,
                                                                choice.tiktoken_specials));
  CAIRN_ASSIGN_OR_RETURN(chosen.framing.end_of_document, IdOf(*chosen.tokenizer, "</s>"));
  return chosen;
}

absl::StatusOr<ChosenTokenizer> Null(const TokenizerChoice& choice) {
  CAIRN_RETURN_IF_ERROR(
      Need(choice.vocab_size == 0 ? "" : "given", "--vocab-size", choice.type, "one more than every id"));
  auto tokenizer = std::make_unique<NullTokenizer>(choice.vocab_size);
  ChosenTokenizer chosen;
  chosen.framing.end_of_document = tokenizer->end_of_document();
  chosen.tokenizer = std::move(tokenizer);
  return chosen;
}

absl::StatusOr<ChosenTokenizer> Load(const TokenizerChoice& choice) {
  CAIRN_RETURN_IF_ERROR(CheckIsNoHubName(choice.tokenizer_model));
  CAIRN_RETURN_IF_ERROR(CheckIsNoHubName(choice.vocab_file));
  if (choice.type == "BertWordPieceCase") return WordPiece(choice, /*lower_case=*/false);
  if (choice.type == "BertWordPieceLowerCase") return WordPiece(choice, /*lower_case=*/true);
  if (choice.type == "GPT2BPETokenizer") return Gpt2(choice);
  if (choice.type == "HuggingFaceTokenizer") return HuggingFace(choice);
  if (choice.type == "SentencePieceTokenizer" || choice.type == "GPTSentencePieceTokenizer" ||
      choice.type == "Llama2Tokenizer") {
    return SentencePiece(choice);
  }
  if (choice.type == "TikTokenizer") return Tiktoken(choice);
  if (choice.type == "NullTokenizer") return Null(choice);
  return MakeError(Reason::kBadRequest,
                   absl::StrCat("--tokenizer-type ", choice.type, " is none of ", std::string(kTokenizerTypes)));
}

}  // namespace

absl::StatusOr<ChosenTokenizer> LoadChosenTokenizer(const TokenizerChoice& choice) {
  CAIRN_ASSIGN_OR_RETURN(ChosenTokenizer chosen, Load(choice));
  if (!choice.include_special_tokens) {
    chosen.framing.before.clear();
    chosen.framing.after.clear();
  }
  if (!choice.append_eod) {
    chosen.framing.end_of_document.reset();
    chosen.end_of_document_is_added = false;
  } else if (!chosen.framing.end_of_document) {
    return MakeError(Reason::kBadTokenizer,
                     absl::StrCat(choice.tokenizer_model,
                                  " names neither an eos_token nor a sep_token in tokenizer_config.json, so "
                                  "there is no token that ends a document"),
                     {{"next", "Add \"eos_token\" to tokenizer_config.json."}});
  }
  return chosen;
}

}  // namespace cairn::corpus
