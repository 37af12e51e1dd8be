#include "corpus/bpe/trainer.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/file/unique_fd.h"
#include "common/process/quantity.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/bpe/byte_level.h"
#include "corpus/bpe/count_record.h"
#include "corpus/bpe/huge_pages.h"
#include "corpus/bpe/word_runs.h"
#include "corpus/io/errno_status.h"
#include "corpus/io/hidden_file.h"
#include "corpus/io/open_source.h"

namespace cairn::corpus {
namespace {

constexpr uint32_t kBytes = 256;

// Returns the special tokens of a vocabulary, each once: those of the vocabulary that is extended, then new ones.
std::vector<std::string> AllSpecials(const TrainOptions& options) {
  std::vector<std::string> specials;
  absl::flat_hash_set<std::string> seen;
  if (options.extend) {
    for (const auto& token : options.extend->tokens) {
      if (token.special && seen.insert(token.bytes).second) specials.push_back(token.bytes);
    }
  }
  for (const std::string& token : options.special_tokens) {
    if (seen.insert(token).second) specials.push_back(token);
  }
  return specials;
}

absl::Status Check(const TrainOptions& options, const std::vector<std::string>& specials) {
  for (const std::string& special : specials) {
    if (special.empty()) return MakeError(Reason::kBadRequest, "a special token is empty");
    const auto bytes = FromByteLevel(special);
    if (bytes.has_value() && bytes->size() == 1) {
      return MakeError(Reason::kBadRequest, absl::StrCat("the special token '", special,
                                                         "' is already the name of a byte; choose a longer one"));
    }
  }
  const uint64_t least = kBytes + specials.size();
  if (options.vocab_size < least) {
    return MakeError(Reason::kBadRequest, absl::StrCat("--vocab-size ", options.vocab_size, " is below 256 bytes + ",
                                                       specials.size(), " special tokens = ", least));
  }
  if (!options.extend) return absl::OkStatus();
  const uint64_t grown = options.extend->tokens.size() + specials.size() -
                         static_cast<size_t>(std::count_if(options.extend->tokens.begin(), options.extend->tokens.end(),
                                                           [](const auto& token) { return token.special; }));
  if (options.vocab_size < grown) {
    return MakeError(Reason::kBadRequest,
                     absl::StrCat("--vocab-size ", options.vocab_size, " is below the ", grown,
                                  " tokens of the vocabulary to extend and the new special tokens"));
  }
  return absl::OkStatus();
}

// Puts the engine's tokens under the ids of a vocabulary.
BpeVocabulary Assemble(const TrainOptions& options, const std::vector<std::string>& specials, MergeResult result) {
  BpeVocabulary vocabulary;
  std::vector<uint32_t> id_of(result.tokens.size());
  const auto add = [&](const std::string& bytes, bool special) {
    vocabulary.tokens.push_back({bytes, special});
    return static_cast<uint32_t>(vocabulary.tokens.size() - 1);
  };
  if (options.extend) {
    vocabulary.tokens = options.extend->tokens;
    absl::flat_hash_map<std::string, uint32_t> known;
    absl::flat_hash_set<std::string> known_specials;
    for (uint32_t id = 0; id < vocabulary.tokens.size(); ++id) {
      const auto& token = vocabulary.tokens[id];
      if (token.special) {
        known_specials.insert(token.bytes);
      } else {
        known.emplace(token.bytes, id);
      }
    }
    for (size_t i = 0; i < result.tokens.size(); ++i) {
      const auto it = known.find(result.tokens[i]);
      id_of[i] = it != known.end() ? it->second : add(result.tokens[i], false);
    }
    for (const std::string& special : specials) {
      if (!known_specials.contains(special)) add(special, true);
    }
  } else {
    const bool specials_first = options.tie_break == TieBreak::kHuggingFace;
    if (specials_first) {
      for (const std::string& special : specials) add(special, true);
    }
    for (size_t i = 0; i < result.tokens.size(); ++i) id_of[i] = add(result.tokens[i], false);
    if (!specials_first) {
      for (const std::string& special : specials) add(special, true);
    }
  }
  for (const Merge& merge : result.merges) vocabulary.merges.emplace_back(id_of[merge.left], id_of[merge.right]);
  return vocabulary;
}

// Removes the work directory at the end, unless a later run is to resume from it.
class WorkDirectory {
 public:
  static absl::StatusOr<UniqueFd> Make(const std::string& path, bool resume) {
    while (true) {
      std::error_code error;
      std::filesystem::create_directories(path, error);
      if (error) return OutputError("create", path, error.value());
      UniqueFd held(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      if (!held.valid() && errno != ENOENT) return OutputError("open", path, errno);
      if (held.valid() && LockHidden(held.get())) return held;
      if (resume) {
        return MakeError(
            Reason::kBadRequest, absl::StrCat("another run counts in ", path),
            {{"file", path}, {"next", "Wait until it has ended, or give another --output or --temp-dir."}});
      }
    }
  }
  WorkDirectory(std::string path, UniqueFd held, bool keep)
      : path_(std::move(path)), held_(std::move(held)), keep_(keep) {}
  ~WorkDirectory() {
    std::error_code ignored;
    if (!keep_) std::filesystem::remove_all(path_, ignored);
  }
  WorkDirectory(const WorkDirectory&) = delete;
  WorkDirectory& operator=(const WorkDirectory&) = delete;
  void Finished() { keep_ = false; }

 private:
  std::string path_;
  UniqueFd held_;  // so others see that it is not one that was left
  bool keep_;
};

// Returns how the words of the inputs are counted, without what is done with them.
CountOptions CountingFor(const TrainOptions& options, const Pretokenizer& pretokenizer,
                         const std::vector<std::string>& specials) {
  CountOptions counting;
  counting.blocks.inputs = options.inputs;
  counting.blocks.unit = options.unit;
  counting.blocks.invalid_utf8 = options.invalid_utf8;
  counting.blocks.stop = options.stop;
  if (options.unit == TextUnit::kJson) counting.blocks.columns = {options.json_key};
  counting.blocks.table_readers = TableReadersFor(options.threads);
  counting.json_key = options.json_key;
  counting.threads = options.threads;
  counting.memory_bytes = options.memory_bytes / 2;  // the other half is for the blocks and the engine
  counting.directory = options.work_directory;
  counting.resume = options.resume;
  counting.checkpoint_bytes = options.checkpoint_bytes;
  counting.settings = absl::StrCat(pretokenizer.pattern(), "\n", static_cast<int>(options.unit), "\n",
                                   static_cast<int>(options.invalid_utf8), "\n", options.json_key);
  for (const std::string& special : specials) absl::StrAppend(&counting.settings, "\n", special.size(), " ", special);
  if (options.progress) {
    counting.progress = [&progress = options.progress](uint64_t bytes) { return progress("counting", bytes); };
  }
  return counting;
}

}  // namespace

PlaceToCut CutsForCounting(const TrainOptions& options, const Pretokenizer& pretokenizer) {
  if (options.unit != TextUnit::kFile) {
    return [](const RangedInput& input, uint64_t offset) { return FirstLineFrom(input, offset, '\n', false); };
  }
  // If bytes are left out or replaced, a cut shows only in what remains.
  const bool as_it_is = options.invalid_utf8 == InvalidUtf8::kBytes || options.invalid_utf8 == InvalidUtf8::kError;
  if (!pretokenizer.has_safe_cuts() || !as_it_is) return nullptr;
  return [&pretokenizer, specials = SpecialMatcher(AllSpecials(options))](const RangedInput& input, uint64_t offset) {
    return SafeCutBefore(input, offset, pretokenizer, specials);
  };
}

absl::StatusOr<CountedPart> CountPart(const TrainOptions& options, const Pretokenizer& pretokenizer,
                                      const std::string& path) {
  const std::vector<std::string> specials = AllSpecials(options);
  CAIRN_RETURN_IF_ERROR(Check(options, specials));
  CAIRN_ASSIGN_OR_RETURN(UniqueFd held, WorkDirectory::Make(options.work_directory, false));
  const WorkDirectory work(options.work_directory, std::move(held), false);
  CountOptions counting = CountingFor(options, pretokenizer, specials);
  counting.resume = false;
  counting.sorted = true;
  CAIRN_ASSIGN_OR_RETURN(RunWriter run, RunWriter::Create(path));
  CountedPart part;
  CAIRN_ASSIGN_OR_RETURN(
      part.summary, CountWords(counting, pretokenizer, SpecialMatcher(specials),
                               [&](size_t, std::string_view word, uint64_t times) { return run.Add(word, times); }));
  CAIRN_ASSIGN_OR_RETURN(part.run, run.Finish());
  return part;
}

absl::Status RecordParts(const TrainOptions& options, const Pretokenizer& pretokenizer,
                         const std::vector<WordRun>& runs) {
  const CountOptions counting = CountingFor(options, pretokenizer, AllSpecials(options));
  CountRecord record{CountFingerprint(PathsOf(options.inputs), counting.settings), runs, {}};
  record.position.input = options.inputs.size();
  return SaveCountRecord(options.work_directory, record);
}

absl::StatusOr<TrainSummary> TrainBpe(const TrainOptions& options, const Pretokenizer& pretokenizer) {
  const std::vector<std::string> specials = AllSpecials(options);
  CAIRN_RETURN_IF_ERROR(Check(options, specials));
  CAIRN_ASSIGN_OR_RETURN(UniqueFd held, WorkDirectory::Make(options.work_directory, options.resume));
  WorkDirectory work(options.work_directory, std::move(held), options.resume);

  const HugePageReuse reuse;  // the memory of the word tables then serves merging
  MergeOptions merging;
  merging.tie_break = options.tie_break;
  merging.min_frequency = std::max<uint64_t>(options.min_frequency, 1);
  merging.wanted = options.vocab_size - kBytes - static_cast<uint32_t>(specials.size());
  merging.threads = static_cast<uint32_t>(options.threads);
  if (options.extend) {
    for (const auto& [left, right] : options.extend->merges) {
      merging.first.emplace_back(options.extend->tokens[left].bytes, options.extend->tokens[right].bytes);
    }
  }
  if (options.progress) {
    merging.progress = [&](uint32_t merges) { return options.progress("merging", merges); };
  }
  MergeEngine engine(merging);

  CountOptions counting = CountingFor(options, pretokenizer, specials);
  counting.parts = engine.shards();
  counting.expect = [&](size_t part, uint64_t words, uint64_t bytes) { engine.Reserve(part, words, bytes); };
  const SpecialMatcher matcher(specials);
  CAIRN_ASSIGN_OR_RETURN(CountSummary count, CountWords(counting, pretokenizer, matcher,
                                                        [&](size_t part, std::string_view word, uint64_t times) {
                                                          return engine.AddWord(part, word, times);
                                                        }));
  const uint64_t needed = engine.EstimatedBytes();
  if (options.memory_bytes > 0 && needed > options.memory_bytes) {
    return MakeError(
        Reason::kMemoryLimit,
        absl::StrCat("merging the ", count.distinct_words, " distinct words takes about ",
                     FormatSize(static_cast<int64_t>(needed)), ", more than --memory ",
                     FormatSize(static_cast<int64_t>(options.memory_bytes)), "; raise it, or train on a sample"));
  }
  CAIRN_ASSIGN_OR_RETURN(MergeResult result, engine.Run());
  TrainSummary summary = {Assemble(options, specials, std::move(result)), count};
  summary.vocabulary.pattern = pretokenizer.pattern();
  summary.vocabulary.gpt2_pretokenizer = pretokenizer.is_gpt2();
  work.Finished();
  return summary;
}

}  // namespace cairn::corpus
