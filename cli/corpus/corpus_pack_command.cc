#include "cli/corpus/corpus_pack_command.h"

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "cli/base/interrupt.h"
#include "cli/base/progress_line.h"
#include "cli/corpus/corpus_error.h"
#include "cli/corpus/input_files.h"
#include "cli/corpus/line_input.h"
#include "cli/corpus/note.h"
#include "common/base/clock.h"
#include "common/status/status.h"
#include "corpus/io/files_below.h"
#include "corpus/io/input_path.h"
#include "corpus/preprocess/hf_framing.h"
#include "corpus/preprocess/tokenizer_choice.h"
#include "corpus/sft/chat_renderer.h"
#include "corpus/sft/pack_corpus.h"
#include "corpus/sft/packing.h"
#include "corpus/sft/sample_encoder.h"
#include "corpus/sft/token_places.h"

namespace cairn::cli {
namespace {

constexpr const char* kHelp =
    R"(Examples:
  cairn corpus pack --input sft.jsonl --output-prefix data/training --tokenizer-model Qwen3-8B --chat --pack-size 8192
  cairn corpus pack --input pairs.jsonl --output-prefix data/training --tokenizer-model tokenizer.json --pack-size 4096
Writes PREFIX.idx.parquet, which Megatron-Bridge reads, and PREFIX_metadata.json.)";

struct Arguments {
  LineArguments lines;
  std::string output_prefix, tokenizer_model, chat_template;
  std::string algorithm = "first_fit_shuffle";
  corpus::PairOptions pair;
  uint32_t pack_size = 0, pad_multiple = 1, seed = 0;
  bool chat = false;
};

// What the encoders of all workers use.
struct Encoding {
  corpus::ChosenTokenizer chosen;
  std::optional<corpus::TokenPlaces> places;
  corpus::ChatFiles chat;
  std::vector<uint32_t> never_trained;
};

// Returns the text of the template: of the file that was given, or of that beside the tokenizer; empty if there is
// none.
absl::StatusOr<std::string> ReadTemplate(const Arguments& given) {
  if (!given.chat_template.empty()) return corpus::ReadInput(given.chat_template);
  namespace fs = std::filesystem;
  const fs::path model(given.tokenizer_model);
  const bool directory = corpus::IsInputDirectory(given.tokenizer_model);
  const std::string beside = ((directory ? model : model.parent_path()) / "chat_template.jinja").string();
  if (!corpus::InputStands(beside)) return std::string();
  return corpus::ReadInput(beside);
}

absl::StatusOr<Encoding> LoadEncoding(const Arguments& given) {
  Encoding encoding;
  CAIRN_ASSIGN_OR_RETURN(const corpus::HfFiles files, corpus::ReadHfFiles(given.tokenizer_model));
  corpus::TokenizerChoice choice;
  choice.type = "HuggingFaceTokenizer";
  choice.tokenizer_model = given.tokenizer_model;
  choice.append_eod = !given.chat || given.pad_multiple > 1;
  CAIRN_ASSIGN_OR_RETURN(encoding.chosen, corpus::LoadChosenTokenizer(choice));
  CAIRN_ASSIGN_OR_RETURN(encoding.places, corpus::TokenPlaces::Create(files.tokenizer_json, given.tokenizer_model));
  encoding.never_trained = corpus::NeverTrained(*encoding.places);
  if (!given.chat) return encoding;
  CAIRN_RETURN_IF_ERROR(encoding.places->CheckFinds());
  encoding.chat = {.name = given.chat_template.empty() ? given.tokenizer_model : given.chat_template,
                   .tokenizer_config = files.tokenizer_config,
                   .special_tokens_map = files.special_tokens_map};
  CAIRN_ASSIGN_OR_RETURN(encoding.chat.chat_template, ReadTemplate(given));
  return encoding;
}

// The thread of the progress line reads these.
struct SharedProgress {
  uint64_t file_bytes_total = 0;
  std::atomic<uint64_t> samples{0}, bad_lines{0}, packs{0}, file_bytes{0};

  std::string Describe(double seconds) const {
    if (packs > 0) return absl::StrCat(packs.load(), " packs of ", samples.load(), " samples written");
    return absl::StrCat(samples.load(), " samples, ",
                        bad_lines > 0 ? absl::StrCat(bad_lines.load(), " bad lines, ") : "",
                        DescribeProgress("read", file_bytes, file_bytes_total, seconds));
  }
};

void Print(const CommandContext& context, const corpus::PackOptions& options, const corpus::PackReport& report) {
  const std::string path = corpus::PackedPath(options.output_prefix);
  if (context.json()) {
    nlohmann::ordered_json json = {{"output", path},
                                   {"metadata", corpus::PackMetadataPath(options.output_prefix)},
                                   {"samples", report.samples},
                                   {"too_long", report.too_long},
                                   {"packs", report.packs},
                                   {"tokens", report.tokens},
                                   {"trained_tokens", report.trained},
                                   {"efficiency", report.efficiency},
                                   {"input_bytes", report.input_bytes}};
    if (options.skip_bad_lines) {
      json["bad_lines"] = report.bad_lines;
      json["bad_lines_report"] = corpus::PackBadLinesPath(options.output_prefix);
    }
    absl::PrintF("%s\n", JsonText(json));
    return;
  }
  absl::PrintF("%s: %d packs of %d samples, %d tokens, %d of them trained on; packs are %.2f %% full\n", path,
               report.packs, report.samples, report.tokens, report.trained, report.efficiency);
  if (report.too_long > 0) {
    absl::PrintF("%d samples were left out, because they are longer than --pack-size %d\n", report.too_long,
                 options.pack_size);
  }
  if (options.skip_bad_lines) {
    absl::PrintF("%s: %d bad lines, which were left out\n", corpus::PackBadLinesPath(options.output_prefix),
                 report.bad_lines);
  }
}

absl::Status RunPack(const CommandContext& context, const Arguments& given) {
  corpus::PackOptions options;
  CAIRN_ASSIGN_OR_RETURN(const LineInput lines, ReadLineArguments(given.lines));
  options.inputs = lines.files;
  options.max_line = lines.max_line;
  options.workers = lines.workers;
  options.skip_bad_lines = given.lines.skip_bad_lines;
  options.output_prefix = given.output_prefix;
  if (!given.chat) options.columns = {given.pair.prompt_key, given.pair.answer_key};
  options.pack_size = given.pack_size;
  options.pad_multiple = given.pad_multiple;
  options.order =
      given.algorithm == "first_fit_decreasing" ? corpus::PackOrder::kDecreasing : corpus::PackOrder::kShuffled;
  options.seed = given.seed;
  options.interrupted = &InterruptFlag();

  CAIRN_ASSIGN_OR_RETURN(const Encoding encoding, LoadEncoding(given));
  const std::optional<uint32_t>& end = encoding.chosen.framing.end_of_document;
  options.pad_id = end.value_or(0);
  corpus::PairOptions pair = given.pair;
  pair.end_of_text = end;
  pair.most_tokens = given.pack_size + (given.pad_multiple > 1 ? 1 : 0);
  pair.never_trained = encoding.never_trained;
  options.new_encoder = [&]() -> absl::StatusOr<std::unique_ptr<corpus::SampleEncoder>> {
    if (!given.chat) return corpus::NewPairEncoder(pair, *encoding.chosen.tokenizer);
    CAIRN_ASSIGN_OR_RETURN(auto renderer, corpus::ChatRenderer::Start(encoding.chat, options.interrupted));
    return corpus::NewChatEncoder(std::move(renderer), *encoding.places, encoding.never_trained,
                                  *encoding.chosen.tokenizer);
  };
  std::vector<std::string> outputs = {corpus::PackedPath(given.output_prefix),
                                      corpus::PackMetadataPath(given.output_prefix)};
  if (options.skip_bad_lines) outputs.push_back(corpus::PackBadLinesPath(given.output_prefix));
  CAIRN_RETURN_IF_ERROR(CheckAreNoInputs(outputs, options.inputs));
  ReplacementNote replacement(outputs);
  SharedProgress shared;
  shared.file_bytes_total = corpus::BytesOf(options.inputs);
  options.file_bytes = &shared.file_bytes;
  options.progress = [&](const corpus::PackProgress& progress) {
    replacement.WorkHasBegun();
    shared.samples = progress.samples;
    shared.bad_lines = progress.bad_lines;
    shared.packs = progress.packs;
  };
  std::optional<corpus::PackReport> report;
  {
    const absl::Time start = Clock::Real().SteadyNow();
    const ProgressLine line([&] { return shared.Describe(absl::ToDoubleSeconds(Clock::Real().SteadyNow() - start)); });
    CAIRN_ASSIGN_OR_RETURN(report, corpus::PackCorpus(options));
  }
  replacement.WorkIsDone();
  Print(context, options, *report);
  return absl::OkStatus();
}

}  // namespace

void AddCorpusPackCommand(Command corpus, CommandContext& context) {
  auto given = std::make_shared<Arguments>();
  Command app = corpus.AddCommand(
      "pack", "Encodes conversations or prompts with answers, and packs them with loss masks for Megatron-Bridge");
  app.Footer(kHelp);
  AddLineOptions(app, given->lines);
  app.AddOption("--output-prefix", given->output_prefix,
                "The path of the new files, or s3://BUCKET/KEY, without their ending .idx.parquet")
      .Required();
  app.AddOption("--tokenizer-model", given->tokenizer_model, "A directory with tokenizer.json, or the file").Required();
  app.AddOption("--pack-size", given->pack_size,
                "How many tokens a pack has that are predicted, which is the sequence length of the training")
      .Required()
      .Between(1, corpus::kMostPackSize);
  app.AddOption("--pad-multiple", given->pad_multiple,
                "Fill each sample up to a multiple of so many predicted tokens, as twice the context parallel size")
      .Between(1, corpus::kMostPackSize)
      .ShowDefault();
  app.AddOption("--packing-algorithm", given->algorithm,
                "The order in which samples look for the first pack with room: as Megatron-Bridge's")
      .OneOf({"first_fit_shuffle", "first_fit_decreasing"})
      .ShowDefault();
  app.AddOption("--seed", given->seed, "The seed of the shuffle").Between(0, UINT32_MAX).ShowDefault();
  const Argument chat = app.AddFlag("--chat", given->chat,
                                    "Each line has a conversation (messages, conversation or conversations), for the "
                                    "tokenizer's chat template. The default is a prompt and an answer");
  app.AddOption("--chat-template", given->chat_template,
                "With --chat: a file with a Jinja template, in place of the tokenizer's")
      .Needs(chat);
  app.AddOption("--prompt-key", given->pair.prompt_key, "Key of the prompt").ShowDefault().Excludes(chat);
  app.AddOption("--answer-key", given->pair.answer_key, "Key of the answer").ShowDefault().Excludes(chat);
  app.AddOption("--separator", given->pair.separator, "The text between prompt and answer. The default is a blank")
      .Excludes(chat);
  app.Action([given, &context] { RunCorpusCommand(context, [&] { return RunPack(context, *given); }); });
}

}  // namespace cairn::cli
