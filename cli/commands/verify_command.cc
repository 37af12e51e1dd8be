#include <atomic>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/base/counted.h"
#include "cli/base/interrupt.h"
#include "cli/base/progress_line.h"
#include "cli/base/terminal.h"
#include "cli/client/stored_checkpoint.h"
#include "cli/commands/commands.h"
#include "cli/views/fault_view.h"
#include "common/base/clock.h"
#include "common/base/shell_word.h"
#include "common/format/checkpoint_path.h"
#include "common/process/quantity.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/tensor/box.h"
#include "common/tensor/fingerprint.h"
#include "store/read/verify.h"

namespace cairn::cli {
namespace {

struct Arguments {
  std::string name;
  std::string root;
  int threads = 2;
  bool fingerprints = false;
};

nlohmann::ordered_json ReportToJson(const Manifest& manifest, const VerifyReport& report) {
  nlohmann::ordered_json json = {{"job", manifest.job},
                                 {"step", manifest.step},
                                 {"attempt", manifest.attempt},
                                 {"files", report.files},
                                 {"bytes", report.bytes},
                                 {"ok", report.faults.empty()},
                                 {"faults_in_all", report.faults_in_all}};
  json["faults"] = FaultsToJson(report);
  if (!report.fingerprints.empty()) {
    nlohmann::ordered_json tensors = nlohmann::ordered_json::object();
    for (size_t i = 0; i < report.fingerprints.size(); ++i) {
      tensors[manifest.tensors[i].name] = FingerprintText(report.fingerprints[i]);
    }
    json["fingerprints"] = std::move(tensors);
  }
  return json;
}

Table FingerprintTable(const Manifest& manifest, const VerifyReport& report) {
  Table table({"TENSOR", "DTYPE", "SHAPE", "FINGERPRINT"});
  for (size_t i = 0; i < report.fingerprints.size(); ++i) {
    const ManifestTensor& tensor = manifest.tensors[i];
    table.Add({tensor.name, std::string(NameOf(tensor.dtype)), ShapeToString(tensor.global_shape),
               FingerprintText(report.fingerprints[i])});
  }
  return table;
}

absl::Status Verify(CommandContext& context, const Arguments& arguments) {
  CAIRN_ASSIGN_OR_RETURN(const CheckpointName name, ParseCheckpointName(arguments.name));
  const auto opened = OpenCheckpoint(context, name, arguments.root);
  // The table's next action may be to run this command, so it is replaced.
  const std::string next = absl::StrCat(
      "Load an earlier step: `cairn list ", name.job, " --root ",
      ForShell(opened.ok() ? opened->storage->root() : MetadataOf(opened.status())["root"]),
      " --check` shows which ones have all files; verify it before, because its bytes may be damaged too. Files cannot "
      "be repaired, only restored from a copy.");
  if (absl::StrContains(NextActionOf(opened.status()), "cairn verify")) {
    return WithMetadata(opened.status(), {{"next", next}});
  }
  CAIRN_RETURN_IF_ERROR(opened.status());
  const Manifest& manifest = opened->manifest;
  std::atomic<uint64_t> done = 0;
  VerifyOptions options;
  options.threads = arguments.threads;
  options.fingerprints = arguments.fingerprints;
  options.interrupted = [] { return InterruptFlag().load(); };
  options.progress = [&](uint64_t bytes) { done = bytes; };
  const absl::Time begin = Clock::Real().SteadyNow();
  VerifyReport report;
  {
    const ProgressLine line([&] {
      return DescribeProgress(absl::StrCat("verifying ", manifest.job, "@", manifest.step, ":"), done,
                              manifest.total_bytes(), absl::ToDoubleSeconds(Clock::Real().SteadyNow() - begin));
    });
    report = VerifyCheckpoint(*opened->storage, manifest, options);
  }
  if (InterruptFlag()) return MakeError(Reason::kInterrupted, "interrupted");
  if (context.json()) {
    std::printf("%s\n", JsonText(ReportToJson(manifest, report)).c_str());
    if (!report.faults.empty()) context.exit_status = kFailed;
    return absl::OkStatus();
  }
  if (report.faults.empty()) {
    const bool compared = arguments.fingerprints && !manifest.summaries.empty();
    std::printf("%s %s@%lld: %s, %s read in %s, every checksum%s agrees\n",
                Coloured(stdout, Colour::kGreen, "verified").c_str(), manifest.job.c_str(),
                static_cast<long long>(manifest.step), Counted(report.files, "file").c_str(),
                FormatSize(static_cast<int64_t>(report.bytes)).c_str(),
                ShortDuration(Clock::Real().SteadyNow() - begin).c_str(),
                compared ? " and each fingerprint of the manifest" : "");
    if (arguments.fingerprints) FingerprintTable(manifest, report).Print(stdout);
    return absl::OkStatus();
  }
  FaultTable(report).Print(stdout);
  const VerifyFault& first = report.faults.front();
  const std::string mirror = arguments.root.empty() ? MirrorWithCopy(context, manifest.job, manifest.step) : "";
  const std::string then =
      mirror.empty() ? next
                     : absl::StrCat("The mirror ", mirror, " has a copy. See whether it is whole: `cairn verify ",
                                    manifest.job, "@", manifest.step, " --root ", ForShell(mirror),
                                    "`. Loads take it as soon as the coordinator knows of the damage.");
  return MakeError(first.reason,
                   absl::StrCat(manifest.job, "@", manifest.step, " has ", report.faults_in_all,
                                report.faults_in_all == 1 ? " fault: " : " faults; the first: ", first.message),
                   {{"job", manifest.job},
                    {"step", absl::StrCat(manifest.step)},
                    {"file", first.file},
                    {"tensor", first.tensor},
                    {"faults", absl::StrCat(report.faults_in_all)},
                    {"next", then}});
}

}  // namespace

void AddVerifyCommand(Command app, CommandContext& context) {
  auto arguments = std::make_shared<Arguments>();
  Command command = app.AddCommand("verify", "Reads every byte of a checkpoint and compares all checksums");
  command.AddOption("JOB@STEP", arguments->name, "The checkpoint; JOB alone means its latest").Required();
  command.AddOption("--root", arguments->root, kRootToRead);
  command.AddOption("--threads", arguments->threads, "Number of files read at a time").Between(1, 64).ShowDefault();
  command.AddFlag("--fingerprints", arguments->fingerprints,
                  "Also print the fingerprint of each tensor; cairn.fingerprint computes that of a program's arrays");
  command.Footer(
      "Examples:\n  cairn verify demo@1200\n  cairn verify demo@1200 --root /checkpoints --fingerprints\n"
      "Exit status: 0 undamaged, 1 damaged (file, offset and "
      "tensor of each fault are listed).");
  command.Action([arguments, &context] {
    const absl::Status status = WithNames(Verify(context, *arguments), arguments->name, arguments->root);
    if (!status.ok()) context.exit_status = ReportError(context, status);
  });
}

}  // namespace cairn::cli
