#include "cli/corpus/train_on_engine.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/input_part.h"
#include "corpus/io/made_directory.h"

namespace cairn::cli {
namespace {

constexpr uint32_t kMostParts = 500;  // the files of their counts are open at the same time

}  // namespace

absl::StatusOr<corpus::TrainSummary> TrainOnEngine(const EngineArguments& arguments, corpus::TrainOptions options,
                                                   const corpus::Pretokenizer& pretokenizer, int threads,
                                                   const std::string& output, const std::string& work_parent) {
  CAIRN_ASSIGN_OR_RETURN(const corpus::PartOfInputs all, corpus::FindPart(PathsOf(options.inputs), {}, nullptr));
  CAIRN_ASSIGN_OR_RETURN(const auto run, EngineRun::Start(arguments, threads, output, work_parent));
  options.work_directory = run->directory() + "/counts";
  options.resume = true;
  std::vector<std::string> words = WordsForTasks({"--output", "--threads"});
  words.insert(words.end(), {"--threads", absl::StrCat(threads)});
  const uint32_t parts = std::min(run->PartsFor(all.bytes), kMostParts);
  std::vector<corpus::EngineTask> tasks;
  for (uint32_t number = 1; number <= parts; ++number) {
    corpus::EngineTask task{absl::StrCat("part ", number, " of ", parts), words, std::nullopt, all.bytes / parts};
    task.words.insert(task.words.end(), {"--part", absl::StrCat(number, "/", parts), "--output"});
    task.output = task.words.size();
    task.words.push_back(absl::StrCat(options.work_directory, "/part-", number));
    tasks.push_back(std::move(task));
  }
  CAIRN_ASSIGN_OR_RETURN(const corpus::MadeDirectory made, corpus::MadeDirectory::Of(tasks.front().words.back()));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<nlohmann::json> reports, run->Run("counting words", tasks));
  CAIRN_RETURN_IF_ERROR(CheckSameInputs(reports));
  std::vector<corpus::WordRun> runs;
  uint64_t bytes = 0;
  for (const nlohmann::json& report : reports) {
    runs.push_back({report.at("counts").get<std::string>(), report.at("bytes").get<uint64_t>(),
                    report.at("crc32c").get<uint32_t>()});
    bytes += report.at("input_bytes").get<uint64_t>();
  }
  CAIRN_RETURN_IF_ERROR(corpus::RecordParts(options, pretokenizer, runs));
  CAIRN_ASSIGN_OR_RETURN(corpus::TrainSummary summary, corpus::TrainBpe(options, pretokenizer));
  summary.count.file_bytes = bytes;
  summary.count.resumed = false;
  return summary;
}

}  // namespace cairn::cli
