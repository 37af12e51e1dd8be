#include "cli/corpus/preprocess_on_engine.h"

#include <atomic>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/base/interrupt.h"
#include "common/resources/aligned_buffer.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/indexed/indexed_format.h"
#include "corpus/indexed/indexed_merge.h"
#include "corpus/io/input_part.h"
#include "corpus/io/open_source.h"
#include "corpus/io/output_file.h"

namespace cairn::cli {
namespace {

// Writes the logs of bad lines of the parts one after the other.
absl::StatusOr<std::unique_ptr<corpus::OutputFile>> JoinLogs(const std::vector<nlohmann::json>& reports,
                                                             const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(auto log, corpus::OutputFile::Create(path, {.stop = &InterruptFlag()}));
  AlignedBuffer buffer(1 << 20);
  for (const nlohmann::json& report : reports) {
    CAIRN_ASSIGN_OR_RETURN(const auto part, corpus::OpenSource(report.at("bad_lines_report").get<std::string>(),
                                                               {.direct = false, .stop = &InterruptFlag()}));
    while (true) {
      CAIRN_ASSIGN_OR_RETURN(const size_t count, part->Read(buffer.data(), buffer.size()));
      if (count == 0) break;
      CAIRN_RETURN_IF_ERROR(log->Append({buffer.data(), count}));
    }
  }
  return log;
}

// Merges the pairs of one key.
absl::Status MergeKey(const std::vector<nlohmann::json>& reports, size_t number, corpus::PreprocessedKey& key) {
  std::vector<std::string> prefixes;
  for (const nlohmann::json& report : reports) {
    prefixes.push_back(report.at("outputs").at(number).at("prefix").get<std::string>());
  }
  CAIRN_ASSIGN_OR_RETURN(const auto merged, corpus::MergeIndexed(prefixes, key.prefix, InterruptFlag(), nullptr));
  key.dtype = reports.front().at("outputs").at(number).at("dtype").get<std::string>();
  key.documents = merged.documents;
  key.sequences = merged.sequences;
  key.tokens = merged.tokens;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<corpus::PreprocessReport> PreprocessOnEngine(const EngineArguments& arguments,
                                                            const corpus::PreprocessOptions& options) {
  if (options.partitions > 1 && !options.keep_sequential) {
    return MakeError(Reason::kBadRequest, "--engine keeps the order of the inputs, which --partitions would change",
                     {{"next", "Leave --partitions out, or add --keep-sequential-samples."}});
  }
  CAIRN_ASSIGN_OR_RETURN(const corpus::PartOfInputs all, corpus::FindPart(PathsOf(options.inputs), {}, nullptr));
  CAIRN_ASSIGN_OR_RETURN(const auto run, EngineRun::Start(arguments, options.workers, options.output_prefix));
  std::vector<std::string> words = WordsForTasks({"--output-prefix", "--workers"});
  words.insert(words.end(), {"--workers", absl::StrCat(options.workers)});
  const uint32_t parts = run->PartsFor(all.bytes);
  std::vector<corpus::EngineTask> tasks;
  for (uint32_t number = 1; number <= parts; ++number) {
    corpus::EngineTask task{absl::StrCat("part ", number, " of ", parts), words, std::nullopt, all.bytes / parts};
    task.words.insert(task.words.end(), {"--part", absl::StrCat(number, "/", parts), "--output-prefix"});
    task.output = task.words.size();
    task.words.push_back(run->PathOf("part", number));
    tasks.push_back(std::move(task));
  }
  CAIRN_ASSIGN_OR_RETURN(const std::vector<nlohmann::json> reports, run->Run("encoding", tasks));
  CAIRN_RETURN_IF_ERROR(CheckSameInputs(reports));
  corpus::PreprocessReport report;
  for (const nlohmann::json& part : reports) {
    report.documents += part.at("documents").get<uint64_t>();
    report.input_bytes += part.at("input_bytes").get<uint64_t>();
    report.bad_lines += part.value("bad_lines", uint64_t{0});
  }
  std::vector<std::string> done;
  absl::Status status;
  if (options.skip_bad_lines) {
    CAIRN_ASSIGN_OR_RETURN(const auto log, JoinLogs(reports, BadLinesPath(options)));
    CAIRN_RETURN_IF_ERROR(log->Commit());
    done.push_back(BadLinesPath(options));
  }
  for (size_t i = 0; i < options.keys.size() && status.ok(); ++i) {
    corpus::PreprocessedKey key{.key = options.keys[i], .prefix = PrefixOfKey(options, options.keys[i])};
    status = MergeKey(reports, i, key);
    done.insert(done.end(), {corpus::IdxPath(key.prefix), corpus::BinPath(key.prefix)});
    report.keys.push_back(std::move(key));
  }
  if (status.ok()) return report;
  // The pairs of other keys are whole, but the command as a whole has failed.
  corpus::RemoveReplaced(std::span(done)).IgnoreError();
  return status;
}

}  // namespace cairn::cli
