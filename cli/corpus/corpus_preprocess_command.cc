#include "cli/corpus/corpus_preprocess_command.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/base/interrupt.h"
#include "cli/base/progress_line.h"
#include "cli/corpus/corpus_error.h"
#include "cli/corpus/engine_run.h"
#include "cli/corpus/input_files.h"
#include "cli/corpus/line_input.h"
#include "cli/corpus/note.h"
#include "cli/corpus/preprocess_on_engine.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/indexed/indexed_format.h"
#include "corpus/io/files_below.h"
#include "corpus/io/input_part.h"
#include "corpus/preprocess/preprocess.h"
#include "corpus/preprocess/tokenizer_choice.h"
#include "corpus/punkt/icu_splitter.h"
#include "corpus/punkt/punkt_model.h"
#include "corpus/punkt/punkt_splitter.h"
#include "corpus/tokenizer/null_tokenizer.h"

namespace cairn::cli {
namespace {

constexpr const char* kHelp =
    R"(Examples:
  cairn corpus preprocess --input corpus.jsonl --output-prefix data/corpus \
      --tokenizer-type GPT2BPETokenizer --vocab-file vocab.json --merge-file merges.txt --append-eod --workers 8
  cairn corpus preprocess --input 'shards/*.jsonl.zst' --output-prefix data/bert --tokenizer-type BertWordPieceCase \
      --vocab-file vocab.txt --split-sentences --punkt-model punkt_tab/english
Writes PREFIX_KEY_document.bin and .idx (PREFIX_KEY_sentence with --split-sentences) for each key, byte for byte as
Megatron-LM's tools/preprocess_data.py. The files get these names when all of them are complete.)";

// A flag that only some types of tokenizers have.
struct FlagOfTypes {
  const char* name;
  Argument argument;
  std::vector<std::string> types;
};

struct Arguments {
  LineArguments lines;
  std::string output_prefix, modes_key, punkt_model, vocab, dataset_impl, language;
  std::vector<std::string> keys = {"text"};
  corpus::TokenizerChoice tokenizer;
  std::vector<FlagOfTypes> of_types;
  EngineArguments engine;
  bool split_sentences = false, keep_sequential = false, no_special = false;
  int partitions = 1, log_interval = 1000;
};

// The thread of the progress line reads these.
struct SharedProgress {
  uint64_t file_bytes_total = 0;
  std::atomic<uint64_t> documents{0}, tokens{0}, bad_lines{0}, file_bytes{0};

  std::string Describe(double seconds) const {
    return absl::StrCat(documents.load(), " documents, ", tokens.load(), " tokens, ",
                        bad_lines > 0 ? absl::StrCat(bad_lines.load(), " bad lines, ") : "",
                        DescribeProgress("read", file_bytes, file_bytes_total, seconds));
  }
};

void Print(const CommandContext& context, const corpus::PreprocessOptions& options,
           const corpus::PreprocessReport& report, const std::string& sentences, const corpus::ChosenTokenizer& chosen,
           const std::string& all_inputs) {
  const std::optional<uint32_t>& end = chosen.framing.end_of_document;
  if (context.json()) {
    nlohmann::ordered_json json;
    json["documents"] = report.documents;
    json["input_bytes"] = report.input_bytes;
    if (!all_inputs.empty()) json["inputs"] = all_inputs;  // CheckSameInputs
    if (!sentences.empty()) json["sentences"] = sentences;
    if (end.has_value()) json["end_of_document"] = *end;
    if (options.skip_bad_lines) {
      json["bad_lines"] = report.bad_lines;
      json["bad_lines_report"] = corpus::BadLinesPath(options);
    }
    json["outputs"] = nlohmann::ordered_json::array();
    for (const corpus::PreprocessedKey& key : report.keys) {
      json["outputs"].push_back({{"key", key.key},
                                 {"prefix", key.prefix},
                                 {"dtype", key.dtype},
                                 {"documents", key.documents},
                                 {"sequences", key.sequences},
                                 {"tokens", key.tokens}});
    }
    absl::PrintF("%s\n", JsonText(json));
    return;
  }
  if (!sentences.empty()) absl::PrintF("sentences: %s\n", sentences);
  if (chosen.end_of_document_is_added) {
    absl::PrintF(
        "end of document: id %d. The vocabulary has no <|endoftext|>, so it comes behind its last token, as in "
        "Megatron-LM: the model's vocabulary has %d tokens\n",
        *end, *end + 1);
  }
  for (const corpus::PreprocessedKey& key : report.keys) {
    absl::PrintF("%s.bin, .idx: %d documents, %d sequences, %d tokens (%s)\n", key.prefix, key.documents, key.sequences,
                 key.tokens, key.dtype);
  }
  if (options.skip_bad_lines) {
    absl::PrintF("%s: %d bad lines, which were left out\n", corpus::BadLinesPath(options), report.bad_lines);
  }
}

absl::Status CheckFlagsOfTypes(const Arguments& given) {
  // A type that does not exist is told as such, when the tokenizer is loaded.
  const std::vector<std::string> types = absl::StrSplit(std::string(corpus::kTokenizerTypes), ", ");
  if (std::ranges::find(types, given.tokenizer.type) == types.end()) return absl::OkStatus();
  for (const FlagOfTypes& flag : given.of_types) {
    if (!flag.argument.given() || std::ranges::find(flag.types, given.tokenizer.type) != flag.types.end()) continue;
    return MakeError(Reason::kBadRequest,
                     absl::StrCat(flag.name, " has no effect with --tokenizer-type ", given.tokenizer.type,
                                  "; it is for ", absl::StrJoin(flag.types, ", ")),
                     {{"next", absl::StrCat("Leave ", flag.name, " out, or give another type.")}});
  }
  return absl::OkStatus();
}

absl::Status RunPreprocess(const CommandContext& context, const Arguments& given) {
  CAIRN_RETURN_IF_ERROR(CheckFlagsOfTypes(given));
  corpus::PreprocessOptions options;
  CAIRN_ASSIGN_OR_RETURN(const LineInput lines, ReadLineArguments(given.lines));
  const std::vector<std::string>& files = lines.files;
  options.inputs = corpus::WholeInputs(files);
  options.max_line = lines.max_line;
  options.output_prefix = given.output_prefix;
  options.keys = given.keys;
  options.modes_key = given.modes_key;
  options.partitions = given.partitions;
  options.keep_sequential = given.keep_sequential;
  options.skip_bad_lines = given.lines.skip_bad_lines;
  const int asked = given.lines.workers;
  options.workers = asked == 0 && !given.engine.engine.empty() ? 1 : lines.workers;  // of a task
  if (asked % given.partitions != 0) {
    return MakeError(Reason::kBadRequest,
                     absl::StrCat("--workers ", asked, " must be a multiple of --partitions ", given.partitions),
                     {{"next", absl::StrCat("Give --workers ", given.partitions, ", or another --partitions.")}});
  }
  std::string sentences;
  corpus::TokenizerChoice choice = given.tokenizer;
  if (!given.vocab.empty()) choice.vocab_file = given.vocab;
  choice.include_special_tokens = !given.no_special;
  CAIRN_ASSIGN_OR_RETURN(const corpus::ChosenTokenizer chosen, corpus::LoadChosenTokenizer(choice));
  std::optional<corpus::PunktModel> punkt;
  if (given.split_sentences && !given.punkt_model.empty()) {
    CAIRN_ASSIGN_OR_RETURN(punkt, corpus::LoadPunktModel(given.punkt_model));
    sentences = absl::StrCat("Punkt, ", given.punkt_model);
    options.new_splitter = [&] { return std::make_unique<corpus::PunktSplitter>(*punkt); };
  } else if (given.split_sentences) {
    CAIRN_RETURN_IF_ERROR(corpus::IcuSplitter::Create().status());
    sentences =
        absl::StrCat(corpus::IcuSplitter::Version(), "'s rules; with --punkt-model they are those of Megatron-LM");
    options.new_splitter = [] { return *corpus::IcuSplitter::Create(); };
  }
  std::string all_inputs;
  if (!given.engine.part.empty()) {
    CAIRN_ASSIGN_OR_RETURN(const corpus::InputPart part, corpus::ParsePart(given.engine.part));
    // The numbers of bad lines count from the begin of a file.
    const corpus::PlaceToCut cut = options.skip_bad_lines ? nullptr : corpus::PlaceToCut(corpus::LineToCut);
    CAIRN_ASSIGN_OR_RETURN(corpus::PartOfInputs found, corpus::FindPart(files, part, cut));
    options.inputs = std::move(found.pieces);
    all_inputs = found.all;
  }
  std::vector<std::string> outputs;
  for (const std::string& key : options.keys) {
    const std::string prefix = corpus::PrefixOfKey(options, key);
    outputs.push_back(corpus::BinPath(prefix));
    outputs.push_back(corpus::IdxPath(prefix));
  }
  if (options.skip_bad_lines) outputs.push_back(corpus::BadLinesPath(options));
  CAIRN_RETURN_IF_ERROR(CheckAreNoInputs(outputs, files));
  ReplacementNote replacement(outputs);
  options.interrupted = &InterruptFlag();
  SharedProgress shared;
  shared.file_bytes_total = corpus::BytesOf(files);
  options.file_bytes = &shared.file_bytes;
  options.progress = [&](const corpus::PreprocessProgress& progress) {
    replacement.WorkHasBegun();
    shared.documents = progress.documents;
    shared.tokens = progress.tokens;
    shared.bad_lines = progress.bad_lines;
  };
  std::optional<corpus::PreprocessReport> report;
  if (!given.engine.engine.empty()) {
    CAIRN_ASSIGN_OR_RETURN(report, PreprocessOnEngine(given.engine, options));
  } else {
    const auto start = std::chrono::steady_clock::now();
    const ProgressLine line([&] {
      return shared.Describe(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    });
    CAIRN_ASSIGN_OR_RETURN(report, corpus::Preprocess(options, *chosen.tokenizer, chosen.framing));
  }
  replacement.WorkIsDone();
  Print(context, options, *report, sentences, chosen, all_inputs);
  return absl::OkStatus();
}

}  // namespace

void AddCorpusPreprocessCommand(Command corpus, CommandContext& context) {
  auto given = std::make_shared<Arguments>();
  Command app =
      corpus.AddCommand("preprocess", "Encodes JSON lines and writes the tokens as Megatron-LM's .bin and .idx");
  app.Footer(kHelp);
  AddLineOptions(app, given->lines);
  app.AddOption("--output-prefix", given->output_prefix,
                "The path of the new files, or s3://BUCKET/KEY, without their ending _KEY_document.bin")
      .Required();
  app.AddOption("--json-keys", given->keys,
                "Keys to take from each object, or columns of a table; one pair of files for each")
      .TakesMany()
      .ShowDefault();
  app.AddOption("--modes-key", given->modes_key,
                "Key of a list with one mode, a number, for each text of the list: writes a multimodal dataset");
  app.AddOption("--tokenizer-type", given->tokenizer.type,
                absl::StrCat("One of Megatron-LM's types: ", std::string(corpus::kTokenizerTypes)))
      .Required();
  const Argument vocab =
      app.AddOption("--vocab-file", given->tokenizer.vocab_file, "vocab.txt (WordPiece), vocab.json (GPT-2)");
  const Argument older = app.AddOption("--vocab", given->vocab, "The older name of --vocab-file").Excludes(vocab);
  const Argument merges =
      app.AddOption("--merge-file", given->tokenizer.merge_file, "GPT2BPETokenizer: its merges.txt");
  const Argument model = app.AddOption(
      "--tokenizer-model", given->tokenizer.tokenizer_model,
      "HuggingFaceTokenizer: a directory with tokenizer.json, or the file; the SentencePiece types: a .model; "
      "TikTokenizer: a vocabulary in JSON");
  const Argument size =
      app.AddOption("--vocab-size", given->tokenizer.vocab_size,
                    "TikTokenizer: how many tokens it has, special ones too (131072 by default); NullTokenizer: one "
                    "more than every number in the texts")
          .Between(1, corpus::NullTokenizer::kMostNumbers);
  const Argument pattern = app.AddOption("--tiktoken-pattern", given->tokenizer.tiktoken_pattern,
                                         "TikTokenizer: which of Megatron-LM's two rules cuts text into words")
                               .OneOf({"v1", "v2"})
                               .ShowDefault();
  const Argument specials = app.AddOption("--tiktoken-num-special-tokens", given->tokenizer.tiktoken_specials,
                                          "TikTokenizer: how many special tokens come before the others")
                                .ShowDefault();
  app.AddFlag("--tokenizer-hf-no-include-special-tokens", given->no_special,
              "Leave out the tokens that the tokenizer adds around each sentence, such as [CLS] and [SEP]");
  const Argument legacy =
      app.AddFlag("--tokenizer-legacy-wordpiece", given->tokenizer.legacy_wordpiece,
                  "WordPiece as the original BERT and Megatron-LM before 2026 had it: words of up to 200 characters, "
                  "another table of characters, no special tokens in the text");
  const std::vector<std::string> bert = {"BertWordPieceCase", "BertWordPieceLowerCase"};
  const std::vector<std::string> vocabularies = {bert[0], bert[1], "GPT2BPETokenizer"};
  const std::vector<std::string> models = {"HuggingFaceTokenizer", "SentencePieceTokenizer",
                                           "GPTSentencePieceTokenizer", "Llama2Tokenizer", "TikTokenizer"};
  given->of_types = {{"--vocab-file", vocab, vocabularies},
                     {"--vocab", older, vocabularies},
                     {"--merge-file", merges, {"GPT2BPETokenizer"}},
                     {"--tokenizer-model", model, models},
                     {"--vocab-size", size, {"TikTokenizer", "NullTokenizer"}},
                     {"--tiktoken-pattern", pattern, {"TikTokenizer"}},
                     {"--tiktoken-num-special-tokens", specials, {"TikTokenizer"}},
                     {"--tokenizer-legacy-wordpiece", legacy, bert}};
  app.AddFlag("--append-eod", given->tokenizer.append_eod,
              "Add the tokenizer's end-of-document token behind each document");
  const Argument split =
      app.AddFlag("--split-sentences", given->split_sentences,
                  "Split each text into sentences, and write each sentence as a sequence of its own");
  app.AddOption(
         "--punkt-model", given->punkt_model,
         "With --split-sentences: the directory of a language in nltk's punkt_tab. The default is the rules of ICU")
      .Needs(split);
  app.AddOption("--partitions", given->partitions,
                "Order of the documents: i, i + N, i + 2N .. of each i < N, as Megatron-LM's partitions")
      .Between(1, 1024)
      .ShowDefault();
  app.AddFlag("--keep-sequential-samples", given->keep_sequential,
              "Keep the documents in the order of the input, whatever --partitions says");
  AddEngineOptions(app, given->engine);
  app.AddOption("--dataset-impl", given->dataset_impl, "No effect; older scripts may give it").OneOf({"mmap"});
  app.AddOption("--lang", given->language,
                "No effect; older scripts may give it. --punkt-model decides about the language");
  app.AddOption("--log-interval", given->log_interval, "No effect; older scripts may give it");
  app.Action([given, &context] { RunCorpusCommand(context, [&] { return RunPreprocess(context, *given); }); });
}

}  // namespace cairn::cli
