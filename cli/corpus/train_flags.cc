#include "cli/corpus/train_flags.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/corpus/input_files.h"
#include "common/file/atomic_write.h"
#include "common/process/quantity.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/bpe/load_tokenizer.h"
#include "corpus/bpe/merge_veto.h"
#include "corpus/bpe/vocabulary.h"
#include "corpus/io/hidden_file.h"
#include "corpus/io/input_part.h"
#include "corpus/io/input_path.h"
#include "corpus/io/object_stores.h"
#include "corpus/io/output_place.h"

namespace cairn::cli {
namespace {

int DefaultThreads() { return static_cast<int>(std::max(1u, std::thread::hardware_concurrency())); }

absl::Status Refuse(bool refused, const std::string& message, const std::string& next) {
  return refused ? MakeError(Reason::kBadRequest, message, {{"next", next}}) : absl::OkStatus();
}

// Returns the directory in which the counts on disk get their own one.
absl::StatusOr<std::string> ParentOfCounts(const TrainArguments& arguments) {
  CAIRN_RETURN_IF_ERROR(corpus::CheckIsLocal("--temp-dir", arguments.temp_dir, "word counts are merged from there"));
  const bool in_parts = !arguments.engine.engine.empty() || !arguments.engine.part.empty();
  const bool on_disk = !arguments.memory.empty() || arguments.resume || in_parts;
  CAIRN_RETURN_IF_ERROR(Refuse(!arguments.temp_dir.empty() && !on_disk,
                               "--temp-dir has no effect: all word counts stay in memory",
                               "Add --memory, above which they go there, or leave --temp-dir out."));
  if (!arguments.temp_dir.empty()) return arguments.temp_dir;
  if (!arguments.engine.part.empty()) return std::string(DirectoryOf(arguments.output));
  if (corpus::StoresOf(arguments.output) == nullptr) return arguments.output;
  if (arguments.resume) {
    return MakeError(
        Reason::kUnsupported,
        absl::StrCat("--resume keeps word counts beside --output, but ", arguments.output, " is in an object store"),
        {{"next", "Give --temp-dir a directory of this machine."}});
  }
  return corpus::ScratchDirectoryFor(TokenizerJson(arguments));
}

// Refuses to replace a tokenizer_config.json that somebody has edited: the new one would not have what was added.
absl::Status CheckConfigIsOurs(const TrainArguments& arguments) {
  const std::string path = arguments.output + "/tokenizer_config.json";
  const auto place = corpus::FindOutputPlace(path);
  if (!place.ok() || place->stream || !corpus::InputStands(place->path)) return absl::OkStatus();
  CAIRN_ASSIGN_OR_RETURN(const std::string text, corpus::ReadInput(place->path));
  if (corpus::IsTokenizerConfigOfTraining(text)) return absl::OkStatus();
  return MakeError(
      Reason::kBadRequest,
      absl::StrCat(path, " is not as this command writes it: somebody has edited it, and it would be lost"),
      {{"file", path},
       {"next", "Give another --output; or move the file away, and edit the new one in the same way."}});
}

// Refuses what does not fit to --engine and --part.
absl::Status CheckParts(const TrainArguments& arguments) {
  if (arguments.engine.part.empty() && arguments.engine.engine.empty()) return absl::OkStatus();
  const std::string flag = arguments.engine.part.empty() ? "--engine" : "--part";
  const bool in_store = corpus::StoresOf(arguments.output) != nullptr;
  CAIRN_RETURN_IF_ERROR(Refuse(arguments.resume, absl::StrCat("--resume does not go with ", flag),
                               "Leave --resume out: only what is lost is counted again."));
  CAIRN_RETURN_IF_ERROR(Refuse(!arguments.group.groups.empty(), absl::StrCat("--group does not go with ", flag),
                               absl::StrCat("Leave ", flag, " out, or give all files as INPUT.")));
  CAIRN_RETURN_IF_ERROR(Refuse(arguments.skip_bad_lines, absl::StrCat("--skip-bad-lines does not go with ", flag),
                               absl::StrCat("Leave ", flag, " out, or correct the lines.")));
  return Refuse(in_store && arguments.temp_dir.empty(),
                absl::StrCat(flag, " keeps word counts in files, but --output is in an object store"),
                "Give --temp-dir a directory that all nodes share.");
}

}  // namespace

std::string TokenizerJson(const TrainArguments& arguments) { return arguments.output + "/tokenizer.json"; }

std::vector<std::string> AllInputs(const corpus::TrainOptions& options) {
  std::vector<std::string> all = corpus::PathsOf(options.inputs);
  for (const corpus::TextGroup& group : options.groups) {
    all.insert(all.end(), group.inputs.begin(), group.inputs.end());
    all.insert(all.end(), group.development.begin(), group.development.end());
  }
  return all;
}

absl::StatusOr<corpus::TrainOptions> ReadTrainArguments(const TrainArguments& arguments) {
  CAIRN_RETURN_IF_ERROR(Refuse(arguments.output.empty(), "--output is empty", "Name a directory."));
  if (const corpus::ObjectStores* const stores = corpus::StoresOf(arguments.output)) {
    CAIRN_RETURN_IF_ERROR(stores->NameOf(arguments.output).status());
  }
  CAIRN_RETURN_IF_ERROR(CheckParts(arguments));
  corpus::TrainOptions options;
  CAIRN_ASSIGN_OR_RETURN(const std::string parent, ParentOfCounts(arguments));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> files, ExpandInputs(arguments.inputs));
  options.inputs = corpus::WholeInputs(files);
  CAIRN_RETURN_IF_ERROR(ReadGroupArguments(arguments.group, options));
  if (options.inputs.empty() == options.groups.empty()) {
    return MakeError(Reason::kBadRequest, "the text is given either as INPUT or as --group",
                     {{"option", "INPUT"}, {"next", "Give files, or --group NAME=PATH for each group."}});
  }
  const std::vector<std::string> inputs = AllInputs(options);
  CAIRN_ASSIGN_OR_RETURN(
      const corpus::LineTextOptions lines,
      ReadTextArguments(arguments.text, inputs, arguments.by_line ? corpus::TextUnit::kLine : corpus::TextUnit::kFile));
  options.unit = lines.unit;
  options.json_key = lines.json_key;
  options.max_line = lines.max_line;
  const bool json = options.unit == corpus::TextUnit::kJson;
  CAIRN_RETURN_IF_ERROR(Refuse(arguments.by_line && json,
                               "--by-line is for plain text: in JSON lines each object is a text of its own",
                               "Leave --by-line out."));
  CAIRN_RETURN_IF_ERROR(Refuse(arguments.skip_bad_lines && !json,
                               "--skip-bad-lines is for JSON lines: in plain text no line is bad",
                               "Leave --skip-bad-lines out."));
  CAIRN_RETURN_IF_ERROR(Refuse(arguments.skip_bad_lines && arguments.resume,
                               "--skip-bad-lines describes the lines of one run, and --resume has several",
                               "Leave --resume or --skip-bad-lines out."));
  CAIRN_ASSIGN_OR_RETURN(options.invalid_utf8, corpus::ParseInvalidUtf8(arguments.invalid_utf8));
  options.vocab_size = arguments.vocab_size;
  options.special_tokens = arguments.special_tokens;
  options.min_frequency = arguments.min_frequency;
  options.tie_break = arguments.tie_break == "huggingface" ? corpus::TieBreak::kHuggingFace : corpus::TieBreak::kBytes;
  options.threads = arguments.threads > 0 ? arguments.threads : DefaultThreads();
  if (!arguments.memory.empty()) {
    CAIRN_ASSIGN_OR_RETURN(const int64_t memory, ParseSize(arguments.memory));
    constexpr int64_t kLeast = int64_t{32} << 20;
    CAIRN_RETURN_IF_ERROR(Refuse(memory < kLeast, "--memory is below 32MiB", "Give --memory 32MiB or more."));
    options.memory_bytes = static_cast<uint64_t>(memory);
  }
  CAIRN_ASSIGN_OR_RETURN(const int64_t every, ParseSize(arguments.checkpoint_every));
  options.checkpoint_bytes = static_cast<uint64_t>(every);
  options.resume = arguments.resume;
  const std::string& extended = arguments.extend.empty() ? arguments.superwords_from : arguments.extend;
  if (!extended.empty()) {
    CAIRN_ASSIGN_OR_RETURN(options.extend, corpus::LoadBpeVocabulary(extended));
  }
  options.vetoes = arguments.vetoes;
  if (options.vetoes.empty() && !arguments.superwords_from.empty()) options.vetoes = corpus::SuperwordVetoes();
  // A resumed count must find what the last one left behind, while two other counts must not meet.
  constexpr std::string_view kCount = ".bpe-count";
  options.work_directory = absl::StrCat(parent, "/", std::string(kCount));
  if (!arguments.resume) {
    const std::string prefix = absl::StrCat(std::string(kCount), "-");
    corpus::RemoveLeftDirectories(parent, prefix);
    options.work_directory = absl::StrCat(parent, "/", prefix, corpus::FreshHiddenToken());
  }
  for (const std::string& input : inputs) {
    std::error_code error;
    const bool once = corpus::StoresOf(input) == nullptr && !std::filesystem::is_regular_file(input, error);
    CAIRN_RETURN_IF_ERROR(Refuse(options.resume && once,
                                 absl::StrCat("--resume needs inputs that can be read again; ", input, " is a pipe"),
                                 "Write it to a file and give that, or leave --resume out."));
  }
  CAIRN_RETURN_IF_ERROR(corpus::CheckTraining(options));
  if (arguments.engine.part.empty()) CAIRN_RETURN_IF_ERROR(CheckConfigIsOurs(arguments));
  return options;
}

absl::StatusOr<corpus::Pretokenizer> ChoosePretokenizer(const TrainArguments& arguments,
                                                        const corpus::TrainOptions& options) {
  using corpus::Pretokenizer;
  if (!arguments.pattern.empty()) {
    absl::StatusOr<Pretokenizer> rule = Pretokenizer::FromPattern(arguments.pattern);
    return rule.ok() ? std::move(rule) : Annotate(rule.status(), "--pattern");
  }
  if (!arguments.pretokenizer.empty()) return Pretokenizer::Named(arguments.pretokenizer);
  if (!arguments.superwords_from.empty()) return Pretokenizer::FromPattern(corpus::kSuperwordPattern);
  return options.extend ? Pretokenizer::FromPattern(options.extend->pattern) : Pretokenizer::Named("gpt2");
}

void AddTrainOptions(Command command, TrainArguments& arguments) {
  command.AddOption(
      "INPUT", arguments.inputs,
      "Text or JSON lines (.jsonl), perhaps with .gz, .xz or .zst, or .parquet, .arrow, .feather or .tar: files or "
      "directories, also "
      "s3://BUCKET/KEY, quoted patterns of those; - is standard input");
  command
      .AddOption("--vocab-size", arguments.vocab_size,
                 "How many tokens the vocabulary has: 256 bytes, the merges and the special tokens together")
      .Required();
  command
      .AddOption("--output", arguments.output,
                 "Directory, or s3://BUCKET/PREFIX, for tokenizer.json, tokenizer_config.json, vocab.json, merges.txt, "
                 "tokenizer.tiktoken")
      .Required();
  const Argument name =
      command
          .AddOption("--pretokenizer", arguments.pretokenizer,
                     "The rule that cuts text into words. The default is gpt2; with --extend, that of the tokenizer")
          .OneOf({"gpt2", "gpt4", "cl100k", "llama3", "qwen2", "o200k", "whitespace"});
  command
      .AddOption("--pattern", arguments.pattern,
                 "A regular expression that cuts text into words; it is read as Hugging Face reads it")
      .Excludes(name);
  command
      .AddOption("--special-token", arguments.special_tokens,
                 "A token that is never merged with its neighbours. May be given several times")
      .OneEachTime()  // without it "[PAD]" would be read as a list
      ;
  command
      .AddOption("--min-frequency", arguments.min_frequency,
                 "A pair of tokens that occurs fewer times than this is not merged")
      .ShowDefault();
  command
      .AddOption("--tie-break", arguments.tie_break,
                 "Which of equally frequent pairs merges first: the one with the greatest bytes, or the one that "
                 "Hugging Face takes")
      .OneOf({"bytes", "huggingface"})
      .ShowDefault();
  command.AddFlag(
      "--by-line", arguments.by_line,
      "Read each line, with its newline, as a text of its own, as Hugging Face does; else a file is one text");
  AddTextOptions(command, arguments.text);
  command.AddFlag("--skip-bad-lines", arguments.skip_bad_lines,
                  "Leave bad JSON lines out, and describe each in bad_lines.log beside the tokenizer. By default the "
                  "first one ends the run");
  command
      .AddOption("--invalid-utf8", arguments.invalid_utf8,
                 "What to do with bytes that are not UTF-8: learn them as they are, stop with an error, leave them "
                 "out, or read U+FFFD instead")
      .OneOf({"bytes", "error", "skip", "replace"})
      .ShowDefault();
  command
      .AddOption("--threads", arguments.threads,
                 "How many threads work at the same time; 0 means one for each core, or one in each task of --engine")
      .Between(0, 1024)
      .ShowDefault();
  command.AddOption(
      "--memory", arguments.memory,
      "Write word counts to disk when they need more memory than this, as 2GiB. There is no limit by default");
  command.AddOption("--temp-dir", arguments.temp_dir,
                    "The directory for word counts on disk. The default is that of --output; if it is in an object "
                    "store, that of TMPDIR");
  const Argument resume = command.AddFlag(
      "--resume", arguments.resume,
      "Keep the word counts and the merges on disk; if the run ends early, the same command continues from them");
  command
      .AddOption("--checkpoint-every", arguments.checkpoint_every,
                 "With --resume: save the counts each time this much more input has been read")
      .ShowDefault()
      .Needs(resume);
  AddEngineOptions(command, arguments.engine);
  const Argument extend = command.AddOption(
      "--extend", arguments.extend,
      "A tokenizer (directory or tokenizer.json) whose tokens keep their ids; merges are added to it");
  command
      .AddOption("--superwords-from", arguments.superwords_from,
                 "Like --extend, but text is no longer cut at blanks, so the new tokens may have several words (the "
                 "second stage of SuperBPE)")
      .Excludes(extend);
  command
      .AddOption(
          "--veto", arguments.vetoes,
          "A regular expression; a token in which it finds a match is not made. May be given several times. With "
          "--superwords-from the default refuses a blank behind a colon, and more than four words")
      .OneEachTime();
  AddGroupOptions(command, arguments.group);
}

}  // namespace cairn::cli
